"""How alike the layers of one net, or of two, represent the same images: unbiased linear CKA in minibatches.

Kornblith et al., ICML 2019, section 3 (CKA); Song et al., JMLR 2012, section 2 (the unbiased HSIC); Nguyen, Raghu &
Kornblith, ICLR 2021, section 2.1 (ratio of sums over minibatches); Raghu et al., NeurIPS 2021, section 3 (the maps).

N images of a batch, D activations of an image, L layers. Every layer's Gram matrix is computed once a batch, while
its value passes; all pairs of layers are then one product of matrices. With batches of 256, 120 layers hold 63 MB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError
from ..analysis_tools.hooks import HookPoint, all_sites, seeing, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.plots import heatmap, name_ticks
from ..render.plots import plain

LEAST = 4  # images of a batch: the unbiased HSIC divides by N - 3
CHUNK = 2**14  # activations multiplied at once: bounds the float64 copy
APART, RARE = 0.1, 0.05  # of CKA beyond what depth explains, and of placements that have as much: then a map has blocks
PLACEMENTS = 2000  # of stage ends, at most


class CkaSums:
    """Unbiased HSIC of pairs of layers, summed over minibatches by their images: CKA is a ratio of the sums."""

    def __init__(self) -> None:
        self.images = 0
        self._pairs = self._own_a = self._own_b = torch.zeros(())

    def add(self, a_LNN: Sequence[Tensor] | Tensor, b_LNN: Sequence[Tensor] | Tensor) -> None:
        """Add a batch: `centred` Gram matrices of the layers of both sides, of the same N >= 4 images."""
        count = len(a_LNN[0])
        a_LF = torch.stack(list(a_LNN)).flatten(1)
        b_LF = a_LF if a_LNN is b_LNN else torch.stack(list(b_LNN)).flatten(1)
        weight = 1 / (count - 3)  # of count x HSIC, and HSIC is the product over count x (count - 3)
        self._pairs = self._pairs + weight * (a_LF @ b_LF.T)
        self._own_a = self._own_a + weight * a_LF.square().sum(1)
        self._own_b = self._own_b + weight * b_LF.square().sum(1)
        self.images += count

    def cka(self) -> Tensor:
        """(layers a, layers b), float64 on the CPU. Never clamped, so below 0 too; NaN for a layer that is constant."""
        return (self._pairs / (self._own_a[:, None] * self._own_b).sqrt()).cpu()


def gram(x: Tensor, images: int) -> Tensor:
    """K_NN, float64, of activations whose first dimension is the images, or splits them into windows.

    Each activation's mean over the batch is taken off first: unbiased HSIC does not see it, rounding does.
    """
    k_NN = torch.zeros(images, images, dtype=torch.double, device=x.device)
    for part in x.reshape(images, -1).split(CHUNK, dim=1):
        part = part.double()
        part = part - part.mean(0)
        k_NN.addmm_(part, part.T)
    return k_NN


def centred(k_NN: Tensor) -> Tensor:
    """(..., N, N) Gram matrices, U-centred, N >= 4: the sum of products of two is N (N - 3) times their unbiased HSIC.

    Székely & Rizzo, Annals of Statistics 2014, section 3; the same number as Song et al.'s estimator.
    """
    count = k_NN.shape[-1]
    others = 1 - torch.eye(count).to(k_NN)
    k_NN = k_NN * others
    rows = k_NN.sum(-1) / (count - 2)
    mean = rows.sum(-1) / (count - 1)
    return (k_NN - rows[..., :, None] - rows[..., None, :] + mean[..., None, None]) * others


def hsic(k_NN: Tensor, l_NN: Tensor) -> float:
    """Unbiased HSIC of two symmetric Gram matrices of the same N >= 4 images."""
    count = len(k_NN)
    return ((centred(k_NN) * centred(l_NN)).sum() / (count * (count - 3))).item()


@torch.no_grad()
def grams(net: nn.Module, sites: Sequence[HookPoint], x_BCHW: Tensor) -> list[Tensor]:
    """The `centred` Gram matrix of what is at each of `sites` for these images, in eval mode."""
    found: dict[str, Tensor] = {}

    def see(site: HookPoint, value: Tensor) -> None:
        found[site.name] = centred(gram(value, len(x_BCHW)))

    with undisturbed(net), seeing(net, sites, see):
        net(x_BCHW)
    return [found[site.name] for site in sites]


def cka_map(
    net_a: nn.Module,
    net_b: nn.Module | None,
    batches: Iterable[Tensor],
    sites_a: Sequence[HookPoint],
    sites_b: Sequence[HookPoint] = (),
) -> Tensor:
    """CKA of each of `sites_a` with each of `sites_b`, (A, B), float64; of `net_a` with itself where `net_b` is None.

    Args:
        net_a, net_b: nets of the same images.
        batches: x_BCHW as the nets want them, each shown to both; those of fewer than 4 images are left out.
        sites_a, sites_b: where the nets are listened to.

    Raises:
        InputError: if no batch has 4 images.
    """
    sums = CkaSums()
    for x_BCHW in batches:
        if len(x_BCHW) >= LEAST:
            a = grams(net_a, sites_a, x_BCHW)
            sums.add(a, a if net_b is None else grams(net_b, sites_b, x_BCHW))
    if not sums.images:
        raise InputError(f"cka: needs a batch of at least {LEAST} images, there is none")
    return sums.cka()


def analyse(subject: AnalysisInput, other: AnalysisInput | None = None, batch: int = 256) -> AnalysisResult:
    """CKA between all layers of a net, or between those of two nets that take the same images.

    The papers' maps are of 10,240 images in batches of 1,024; 2,560 images in batches of 128 gave them the same.

    Raises:
        InputError: if the other net's images are of another size or normalised otherwise, or there are below 4.
    """
    if other is not None:
        check_same(subject, other)
    both = [one for one in (subject, other) if one is not None]
    sites = [all_sites(one.net, subject.images.seen(subject.images.x_NCHW[:1])) for one in both]
    batches = (x_BCHW for x_BCHW, _ in subject.images.batches(batch))
    found = cka_map(subject.net, other.net if other else None, batches, sites[0], sites[-1]).numpy()
    names = [[site.name for site in one] for one in sites]
    title = f"CKA between the layers of {' and '.join(one.name for one in both)}"
    shown = f"Over {len(subject.images)} images in batches of {batch}: "
    reading = shown + (_reading_of_one(found, sites[0]) if other is None else _reading_of_two(found, sites, both))
    return AnalysisResult(
        "cka", title, _rows(found, names[0], names[-1]), reading,
        lambda figure: _draw(figure, found, [names[0], names[-1]], [both[0].name, both[-1].name]),
    )  # fmt: skip


def check_same(one: AnalysisInput, two: AnalysisInput) -> None:
    """Raise InputError if the two nets do not take the same numbers for the same image."""
    a, b = one.images, two.images
    same = a.x_NCHW.shape[1:] == b.x_NCHW.shape[1:] and a.mean_C.equal(b.mean_C) and a.std_C.equal(b.std_C)
    if not same:
        raise InputError(f"cka: {one.name} and {two.name} must take images of one size, normalised by the same numbers")


def _rows(found: np.ndarray, a: list[str], b: list[str]) -> list[dict[str, Any]]:
    return [
        {"layer": one, "other_layer": two, "cka": float(found[i, k])}
        for i, one in enumerate(a)
        for k, two in enumerate(b)
    ]


def _stream(sites: Sequence[HookPoint]) -> list[int]:
    return [i for i, site in enumerate(sites) if site.stage]


def block_gap(cka_LL: np.ndarray, stage_L: np.ndarray) -> float:
    """How much more alike two places of one stage are than two of different stages as far apart in depth.

    The mean over pairs of one stage of their CKA minus the mean CKA of pairs of different stages of the same distance;
    0 for any map that depends on the distance alone, NaN without such pairs.
    """
    total, count = 0.0, 0
    for apart in range(1, len(stage_L)):
        values, same = np.diagonal(cka_LL, apart), stage_L[apart:] == stage_L[:-apart]
        within, across = values[same & ~np.isnan(values)], values[~same & ~np.isnan(values)]
        if len(within) and len(across):
            total, count = total + float((within - across.mean()).sum()), count + len(within)
    return total / count if count else math.nan


def placements(places: int, ends: int) -> Iterator[np.ndarray]:
    """stage_L for each way to place so many stage ends; PLACEMENTS draws (seed 0) where there are more."""
    random = np.random.default_rng(0)
    draws = (random.choice(np.arange(1, places), ends, replace=False) for _ in range(PLACEMENTS))
    every = combinations(range(1, places), ends) if math.comb(places - 1, ends) <= PLACEMENTS else draws
    for chosen in every:
        yield np.isin(np.arange(places), list(chosen)).cumsum()


def _reading_of_one(found: np.ndarray, sites: Sequence[HookPoint]) -> str:
    at = _stream(sites)
    stages = np.array([sites[i].stage for i in at])
    inner = found[np.ix_(at, at)]
    stage_L = np.concatenate([[0], (stages[1:] != stages[:-1]).cumsum()])
    text = [f"first and last place of the residual stream have a CKA of {inner[0, -1]:.2f}."]
    if not stage_L[-1] and len(at) > 1:
        pairs = inner[np.triu_indices(len(at), 1)]
        text.append(f"All places are of one stage; between two of them it is {np.nanmean(pairs):.2f} on average.")
    elif not math.isnan(gap := block_gap(inner, stage_L)):
        text.append(
            f"At equal distances in depth the CKA of two places of one stage is {gap:+.2f} beside that of two of "
            f"different stages: {_blocks(inner, stage_L, gap)}."
        )
    return " ".join(text + _dead(found))


def _blocks(cka_LL: np.ndarray, stage_L: np.ndarray, gap: float) -> str:
    """Whether the map has blocks where the stages end: hardly any other stage ends would show as much."""
    gaps = np.array([block_gap(cka_LL, other) for other in placements(len(stage_L), int(stage_L[-1]))])
    gaps = gaps[~np.isnan(gaps)]
    as_much = int((gaps >= gap - 1e-9).sum())
    of = f"{as_much} of {len(gaps)} ways to place as many stage ends have as much"
    if gap <= APART:
        return "no blocks at the ends of stages are told from a map that is smooth in depth"
    if as_much <= RARE * len(gaps):
        return f"the map falls into blocks at the ends of stages, as a ResNet's does in the paper ({of})"
    return f"whether these are blocks at the ends of stages is not told ({of})"


def _reading_of_two(found: np.ndarray, sites: Sequence[Sequence[HookPoint]], both: Sequence[AnalysisInput]) -> str:
    at = [_stream(each) for each in sites]
    inner = np.nan_to_num(found[np.ix_(*at)], nan=-1.0)
    best, half = inner.argmax(1), max(1, len(at[0]) // 2)
    halves = best[:half], best[half:] if len(best) > 1 else best
    lower, upper = ((np.mean(part) + 0.5) / len(at[1]) for part in halves)
    match = (
        f"The best match of a place has a CKA of {inner.max(1).mean():.2f} on average; the two ends are at "
        f"{inner[-1, -1]:.2f}."
    )
    if len(set(best)) == 1 < len(best):
        text = [f"all places of {both[0].name} have the same best match in {both[1].name}.", match]
    else:
        text = [
            f"the lower half of {both[0].name} is most like what {both[1].name} holds at {lower:.0%} of its depth on "
            f"average, the upper half like what it holds at {upper:.0%}.",
            match,
        ]
        if (np.diff(best) >= 0).all():
            text.append(f"From place to place of {both[0].name} the best match never goes back.")
    return " ".join(text + _dead(found))


def _dead(found: np.ndarray) -> list[str]:
    dead = int(np.isnan(found).all(1).sum())
    return [f"{dead} layers are the same for all images and have no CKA."] if dead else []


def _draw(figure: Figure, found: np.ndarray, names: list[list[str]], nets: list[str]) -> None:
    axes = figure.add_subplot()
    heatmap(figure, axes, found, "unbiased linear CKA", min(0.0, float(np.nanmin(found))), 1.0)
    for side, layers in zip("yx", names, strict=True):
        name_ticks(axes, layers, side)
    axes.set_ylabel(plain(f"layers of {nets[0]}"))
    axes.set_xlabel(plain(f"layers of {nets[1]}"))
