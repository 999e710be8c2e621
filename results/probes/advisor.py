"""Where a trained net's conv blocks should give way to MSAs: the build-up's own argument, made a ranking.

Park & Kim, ICLR 2022, section 4: MSAs do well where a stage ends, for there variance and high frequencies have
piled up, which an MSA takes down. So a swap is the better, the larger the variance behind its block beside the
stage's others, the more of the highest frequency the block adds, and the less the trained net needs the block.
How well the ranking foretells what swaps bring is measured in benchmarks/advisor.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs import Genotype, InputError, Network, static_cost
from ...archs.plan import Map
from ...archs.stage import attention_beside
from ..plot import COLOURS
from . import fourier, variance
from .listen import undisturbed
from .numbers import highest
from .subject import Finding, Subject, accuracy

TINY = 1e-12  # under a logarithm
SIGNS = ("variance", "frequency", "loss")  # what the ranking is made of; each counts as much as the others


@dataclass(frozen=True)
class Swap:
    """One conv block that may become an MSA block, by 0-based stage and block."""

    stage: int
    block: int

    @property
    def name(self) -> str:
        """As sites are called."""
        return f"stage {self.stage + 1} block {self.block + 1}"


def swaps(net: Genotype) -> list[Swap]:
    """Every conv block that may: an MSA block cannot downsample, and its width must suit the net's norm."""
    blocks = [Swap(s, b) for s, stage in enumerate(net.stages) for b in range(stage.depth) if b not in stage.places]
    return [swap for swap in blocks if _may(net, swap)]


def swapped(net: Genotype, swap: Swap, at: Map) -> Genotype:
    """`net` with that block an MSA block: as the stage's others, or with AlterNet's heads over windows up to 8 px.

    Args:
        at: height and width of the stage's map.

    Raises:
        InputError: if the block cannot be one.
    """
    stage = net.stages[swap.stage]
    changed = {"msa": tuple(sorted({*stage.places, swap.block}))}
    if not stage.places:
        heads, head_dim = attention_beside(stage.width)
        changed |= {"heads": heads, "head_dim": head_dim, "window": _window(at)}
    stages = [replace(old, **changed) if s == swap.stage else old for s, old in enumerate(net.stages)]
    return replace(net, stages=tuple(stages))


def _may(net: Genotype, swap: Swap) -> bool:
    try:
        swapped(net, swap, (1, 1))
    except InputError:
        return False
    return True


def advice(subject: Subject) -> list[dict[str, Any]]:
    """A row for each swap, the best first: the three signs, their mean rank as `score` in [0, 1], and the costs.

    A sign that a map is too small to tell is None, and left out of the mean.

    Raises:
        InputError: if the net is none of alternas's, or has no conv block that may become an MSA block.
    """
    net = subject.net
    if not isinstance(net, Network):
        raise InputError("advisor: knows the nets of alternas alone")
    found = swaps(net.genotype)
    if not found:
        raise InputError("advisor: this net has no conv block that may become an MSA block")
    signs = [_signs(subject, net, found, name) for name in SIGNS]
    ranks = zip(*(_ranks(values) for values in signs), strict=True)
    scores = [mean(rank for rank in parts if rank is not None) for parts in ranks]
    rows = [
        {"swap": swap.name, "score": score, "variance_excess": v, "frequency_added": f, "points_lost_without": lost}
        | _costs(net, swap)
        for swap, score, v, f, lost in zip(found, scores, *signs[:2], [100 * (0.0 - a) for a in signs[2]], strict=True)
    ]
    return sorted(rows, key=lambda row: -row["score"])


def analyse(subject: Subject) -> Finding:
    """Which blocks should become MSA blocks next, and why.

    Raises:
        InputError: as `advice`.
    """
    rows = advice(subject)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.barh([row["swap"] for row in rows], [row["score"] for row in rows], color=COLOURS[0])
        axes.invert_yaxis()
        axes.set_xlabel("score: mean rank of variance, high frequency and dispensability")

    return Finding("advisor", f"{subject.name}: blocks to swap for MSA blocks", rows, _reading(rows), draw)


def _signs(subject: Subject, net: Network, found: Sequence[Swap], name: str) -> list[Any]:
    if name == "variance":
        return _variance(subject, found)
    if name == "frequency":
        return _frequency(subject, found)
    return list(_lost(subject, net, found))


def _variance(subject: Subject, found: Sequence[Swap]) -> list[float | None]:
    """Log of the variance behind each block, minus the mean of its stage; None where its map is one pixel."""
    rows = _rows(variance.analyse, subject)
    logs = {row["site"]: math.log(max(row["variance"], TINY)) for row in rows}
    means = {
        stage: mean(logs[row["site"]] for row in rows if row["stage"] == stage)
        for stage in {row["stage"] for row in rows}
    }
    return [logs[swap.name] - means[str(swap.stage + 1)] if swap.name in logs else None for swap in found]


def _frequency(subject: Subject, found: Sequence[Swap]) -> list[float | None]:
    """What each block adds to the log amplitude of the highest frequency; None where its map is too small to say."""
    changes = {row["site"]: row["change"] for row in highest(_rows(fourier.analyse, subject))}
    return [changes.get(swap.name) for swap in found]


def _rows(analyse: Callable[[Subject], Finding], subject: Subject) -> list[dict[str, Any]]:
    """None where no map is large enough for it: then its sign is silent, and the others decide."""
    try:
        return analyse(subject).rows
    except InputError:
        return []


def _lost(subject: Subject, net: Network, found: Sequence[Swap]) -> Iterator[float]:
    """Minus the accuracy that goes with the block's branch."""
    with undisturbed(net):
        whole = accuracy(net, subject.images)
        for swap in found:
            block = net.get_submodule(f"stages.{swap.stage}.{swap.block}")
            hook = block.get_submodule("drop_path").register_forward_hook(_nothing)
            try:
                yield accuracy(net, subject.images) - whole
            finally:
                hook.remove()


def _nothing(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _ranks(values: Sequence[float | None]) -> list[float | None]:
    """Places among the known in [0, 1], the largest 1; ties share theirs. One known among others has no place."""
    known = [value for value in values if value is not None]
    if len(values) == 1:
        return [None if value is None else 1.0 for value in values]
    if len(known) == 1:
        return [None] * len(values)
    return [
        None if v is None else (sum(o < v for o in known) + sum(o == v for o in known) / 2 - 0.5) / (len(known) - 1)
        for v in values
    ]


def _costs(net: Network, swap: Swap) -> dict[str, int]:
    at = net.genotype.plan(net.image_size, net.in_chans).stages[swap.stage][-1].map_out
    size = (net.num_classes, net.image_size, net.in_chans)
    before, after = (static_cost(g, *size) for g in (net.genotype, swapped(net.genotype, swap, at)))
    return {"macs_change": after.macs - before.macs, "params_change": after.params - before.params}


def _window(at: Map) -> int:
    """Up to 8 px a side and a divisor of both; 0, the whole map, where that is as small or nothing divides it."""
    return 0 if max(at) <= 8 else next((w for w in range(8, 1, -1) if at[0] % w == 0 == at[1] % w), 0)


def _reading(rows: Sequence[dict[str, Any]]) -> str:
    best, last = rows[0], rows[-1]
    if len(rows) == 1:
        said = f"{best['swap'].capitalize()} is the one block that may become an MSA block."
    else:
        said = f"Of {len(rows)} blocks {best['swap']} should become an MSA block first, {last['swap']} last."
    macs = best["macs_change"]
    return (
        f"{said} {_why(best)} The swap {'costs' if macs > 0 else 'saves'} {abs(macs):,} MACs. Trained anew, it may "
        "come out otherwise: the ranking is an argument, not a measurement."
    )


def _why(row: dict[str, Any]) -> str:
    """The three signs of a swap, as far as they are known."""
    excess, added, lost = (row[name] for name in ("variance_excess", "frequency_added", "points_lost_without"))
    said = []
    if excess is not None:
        said.append(f"behind it the variance is {math.exp(excess):.2f} times its stage's mean")
    if added is not None:
        said.append(f"it adds {added:+.2f} to the log amplitude of the highest frequency")
    said.append(f"without it the net {'loses' if lost >= 0 else 'gains'} {abs(lost):.1f} points")
    if None in (excess, added):
        said.append("its map is too small for the other signs")
    return f"Of that block: {'; '.join(said)}."
