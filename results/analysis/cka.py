"""How alike the layers of one net, or of two, represent the same images: unbiased linear CKA in minibatches.

Kornblith et al., ICML 2019, section 3 (CKA); Song et al., JMLR 2012, section 2 (the unbiased HSIC); Nguyen, Raghu &
Kornblith, ICLR 2021, section 2.1 (ratio of sums over minibatches); Raghu et al., NeurIPS 2021, section 3 (the maps).

N images of a batch, D activations of an image, L layers. Every layer's Gram matrix is computed once a batch, while
its value passes; all pairs of layers are then one product of matrices. With batches of 256, 120 layers hold 63 MB.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError
from ..analysis_tools.findings import UNDECIDED, Finding, averaged
from ..analysis_tools.hooks import HookPoint, all_sites, residual_points, seeing, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import heatmap, name_ticks
from ..render.plots import plain

MIN_IMAGES = 4  # images of a batch: the unbiased HSIC divides by N - 3
CHUNK = 2**14  # activations multiplied at once: bounds the float64 copy
APART, RARE = 0.1, 0.05  # of CKA beyond what depth explains, and of placements that have as much: then a map has blocks
ALIKE, LOWER, UPPER = "CKA of two layers", "CKA, lower half", "CKA, upper half"
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

    def cka(self, analysis: str = "cka") -> Tensor:
        """(layers a, layers b), float64 on the CPU. Never clamped, so below 0 too; NaN for a layer that is constant.

        InputError if no batch had 4 images.
        """
        if not self.images:
            raise InputError(f"{analysis}: needs a batch of at least {MIN_IMAGES} images, there is none")
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
    k_NN: dict[str, Tensor] = {}

    def see(site: HookPoint, value: Tensor) -> None:
        k_NN[site.name] = centred(gram(value, len(x_BCHW)))

    with undisturbed(net), seeing(net, sites, see):
        net(x_BCHW)
    return [k_NN[site.name] for site in sites]


def cka_map(
    net_a: nn.Module,
    net_b: nn.Module | None,
    batches: Iterable[Tensor],
    sites_a: Sequence[HookPoint],
    sites_b: Sequence[HookPoint] = (),
) -> Tensor:
    """CKA of each of `sites_a` with each of `sites_b`, (A, B), float64; of `net_a` with itself where `net_b` is None.

    Both nets are shown the same x_BCHW of `batches`; those of fewer than 4 images are left out.
    """
    sums = CkaSums()
    for x_BCHW in batches:
        if len(x_BCHW) >= MIN_IMAGES:
            a = grams(net_a, sites_a, x_BCHW)
            sums.add(a, a if net_b is None else grams(net_b, sites_b, x_BCHW))
    return sums.cka()


def check_same(one: AnalysisInput, two: AnalysisInput) -> None:
    """Raise InputError if the two nets do not take the same numbers for the same image."""
    a, b = one.images, two.images
    same = a.x_NCHW.shape[1:] == b.x_NCHW.shape[1:] and a.mean_C.equal(b.mean_C) and a.std_C.equal(b.std_C)
    if not same:
        raise InputError(f"cka: {one.name} and {two.name} must take images of one size, normalised by the same numbers")


def same_place_rows(subject: AnalysisInput, other: AnalysisInput, batch: int = 256) -> list[dict[str, Any]]:
    """A row for each place of the residual stream: its CKA with the same place of the other net.

    Nets that do not have the same places have no same place: there it is the one that it is most like.
    """
    check_same(subject, other)
    sites, others = (residual_points(one.net) for one in (subject, other))
    cka_LL = cka_map(subject.net, other.net, subject.images.inputs(batch), sites, others)
    same = [site.name for site in sites] == [site.name for site in others]
    best = range(len(sites)) if same else cka_LL.nan_to_num(-1.0).argmax(1).tolist()
    return [
        {"place": site.name, "match": others[k].name, "cka": cka_LL[i, k].item()}
        for i, (site, k) in enumerate(zip(sites, best, strict=True))
    ]


def findings_by_place(rows: Rows) -> list[Finding]:
    """Mean CKA of the lower half of the places and of the upper half, from `same_place_rows`."""
    values, half = [row["cka"] for row in rows], len(rows) // 2
    return [averaged(LOWER, values[:half]), averaged(UPPER, values[half:])]


def analyse(subject: AnalysisInput, other: AnalysisInput | None = None, batch: int = 256) -> AnalysisResult:
    """CKA between all layers of a net, or between those of two nets that take the same images.

    The papers' maps are of 10,240 images in batches of 1,024; 2,560 images in batches of 128 gave them the same.
    """
    if other is not None:
        check_same(subject, other)
    nets = [subject] if other is None else [subject, other]
    sites = [all_sites(one.net, subject.images.seen(subject.images.x_NCHW[:1])) for one in nets]
    net_b = None if other is None else other.net
    cka_LL = cka_map(subject.net, net_b, subject.images.inputs(batch), sites[0], sites[-1]).numpy()
    rows = [
        {"layer": a.name, "other_layer": b.name, "cka": float(cka_LL[i, k])}
        for i, a in enumerate(sites[0])
        for k, b in enumerate(sites[-1])
    ]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        heatmap(figure, axes, cka_LL, "unbiased linear CKA", min(0.0, float(np.nanmin(cka_LL))), 1.0)
        for side, layers in (("y", sites[0]), ("x", sites[-1])):
            name_ticks(axes, [site.name for site in layers], side)
        axes.set(ylabel=plain(f"layers of {nets[0].name}"), xlabel=plain(f"layers of {nets[-1].name}"))

    title = f"CKA between the layers of {' and '.join(one.name for one in nets)}"
    findings = findings_of_one(cka_LL, sites[0]) if other is None else findings_of_two(cka_LL, sites)
    if dead := int(np.isnan(cka_LL).all(1).sum()):
        findings.append(Finding("layers that are the same for all images", dead, verdict="have no CKA"))
    return AnalysisResult(title, rows, findings, draw)


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


def _stream(sites: Sequence[HookPoint]) -> list[int]:
    return [i for i, site in enumerate(sites) if site.stage]


def findings_of_one(cka_LL: np.ndarray, sites: Sequence[HookPoint]) -> list[Finding]:
    """How alike layers are, and whether the map falls into blocks at the ends of stages, as a ResNet's in the paper."""
    at = _stream(sites)
    stages = np.array([sites[i].stage for i in at])
    inner = cka_LL[np.ix_(at, at)]
    stage_L = np.concatenate([[0], (stages[1:] != stages[:-1]).cumsum()])
    found = [
        averaged(ALIKE, cka_LL[~np.eye(len(cka_LL), dtype=bool)].tolist()),
        averaged("CKA of first and last place of the residual stream", [inner[0, -1]]),
    ]
    gap = block_gap(inner, stage_L)
    if math.isnan(gap):
        return found
    # Blocks where the stages end are told only if hardly any other stage ends would show as much.
    gaps = np.array([block_gap(inner, other) for other in placements(len(stage_L), int(stage_L[-1]))])
    gaps = gaps[~np.isnan(gaps)]
    rare = (gaps >= gap - 1e-9).mean() <= RARE
    verdict = "no blocks" if gap <= APART else "blocks at stage ends" if rare else UNDECIDED
    return [*found, Finding("CKA within a stage, above that across stages as far apart", gap, verdict=verdict)]


def findings_of_two(cka_LL: np.ndarray, sites: Sequence[Sequence[HookPoint]]) -> list[Finding]:
    """Where in the other net each half of the places has its best match, as a share of its depth."""
    at = [_stream(each) for each in sites]
    inner = np.nan_to_num(cka_LL[np.ix_(*at)], nan=-1.0)
    best, half = inner.argmax(1), max(1, len(at[0]) // 2)
    halves = best[:half], best[half:] if len(best) > 1 else best
    lower, upper = ((np.mean(part) + 0.5) / len(at[1]) for part in halves)
    same, steps = len(set(best)) == 1 < len(best), np.diff(best)
    verdict = "all have one best match" if same else "in order" if (steps >= 0).all() else "not in order"
    return [
        averaged("CKA of a place with its best match", inner.max(1).tolist()),
        averaged("CKA of both ends", [inner[-1, -1]]),
        Finding("depth of the best match, lower half", float(lower), verdict=verdict),
        Finding("depth of the best match, upper half", float(upper), verdict=verdict),
    ]
