"""A measure of maps along the residual stream: averaged over images, compared from site to site, drawn against depth.

B batch, C channels, H x W map, K numbers of a measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from ...archs.errors import InputError
from ..render.plots import COLOURS, MARKERS
from .hooks import HookPoint, as_map, captured, stage_ends
from .inputs import Images

BATCH = 64
OPS = ("conv", "msa", "mlp", "stem")  # in the order of their colours


def map_shapes(net: nn.Module, sites: Sequence[HookPoint], images: Images) -> list[tuple[int, int, int]]:
    """(C, H, W) of the map at each site."""
    x_BCHW = images.seen(images.x_NCHW[:1])
    heard = captured(net, sites, x_BCHW)
    return [tuple(as_map(site, heard[site.name]).shape[1:]) for site in sites]  # pyright: ignore[reportReturnType]


def wide_enough(
    net: nn.Module, images: Images, sites: Sequence[HookPoint], least: int, analysis: str
) -> tuple[list[HookPoint], list[tuple[int, int, int]], str]:
    """The sites whose maps have at least `least` pixels a side, their shapes, and a sentence about the others.

    Raises:
        InputError: if no site is left.
    """
    shapes = map_shapes(net, sites, images)
    kept = [i for i, shape in enumerate(shapes) if min(shape[1:]) >= least]
    if not kept:
        largest = max(min(shape[1:]) for shape in shapes)
        raise InputError(f"{analysis}: needs maps of at least {least} px a side, the largest has {largest}")
    left = [site.name for i, site in enumerate(sites) if i not in kept]
    named = f"{left[0]} to {left[-1]}" if len(left) > 1 else "".join(left)
    words = f" Left out, for maps below {least} px a side: {named} ({len(left)} of {len(sites)} sites)." if left else ""
    return [sites[i] for i in kept], [shapes[i] for i in kept], words


def mean_over_images(
    net: nn.Module, sites: Sequence[HookPoint], images: Images, measure: Callable[[Tensor], Tensor], batch: int = BATCH
) -> list[Tensor]:
    """`measure` of the map at each site, averaged over all images; `measure` averages over those of x_BCHW."""
    sums: list[Tensor | float] = [0.0] * len(sites)
    for x_BCHW, _ in images.batches(batch):
        heard = captured(net, sites, x_BCHW)
        for i, site in enumerate(sites):
            sums[i] = sums[i] + len(x_BCHW) * measure(as_map(site, heard[site.name])).double().cpu()
    return [total / len(images) for total in sums]  # pyright: ignore[reportReturnType]


def predecessors(sites: Sequence[HookPoint], shapes: Sequence[tuple[int, int, int]]) -> list[int | None]:
    """Place of the site before each one, None where the map then had another shape: there a change means nothing."""
    same = [i if a == b else None for i, (a, b) in enumerate(pairwise(shapes))]
    return [None, *same]


def changes_by_op(rows: Iterable[dict[str, Any]], key: str) -> dict[tuple[str, int], list[float]]:
    """The changes in column `key` by (op, height of the map), without those that mean nothing."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row[key] is not None and row["op"] != "stem":
            found.setdefault((row["op"], row["height"]), []).append(row[key])
    return found


def said_by_op(groups: dict[tuple[str, int], list[float]], what: str) -> str:
    """A sentence for each map size: what convs, MSAs and MLPs add there, and whether all MSAs add less than others."""
    said = []
    for height in sorted({height for _, height in groups}, reverse=True):
        here = {op: mean(values) for (op, at), values in groups.items() if at == height}
        counts = {op: len(groups[op, height]) for op in here}
        parts = [f"{op} {value:+.3g} ({counts[op]})" for op, value in here.items()]
        said.append(f"On maps {height} px high the mean change of {what} is {', '.join(parts)}.")
        if "msa" in here and len(here) > 1:
            others = [op for op in here if op != "msa" and max(groups["msa", height]) < min(groups[op, height])]
            if others:
                said.append(f"Each MSA adds less than each {' and each '.join(others)} there.")
    return " ".join(said)


def draw_depth(axes: Axes, sites: Sequence[HookPoint], values: Sequence[float | None], label: str) -> None:
    """Values against depth: a mark for each site by what was added there, grey lines behind the last of a stage."""
    known = [(i, value) for i, value in enumerate(values) if value is not None]
    axes.plot([i for i, _ in known], [value for _, value in known], color="#999999", linewidth=1, zorder=1)
    for op, colour, marker in zip(OPS, COLOURS, MARKERS, strict=False):
        mine = [(i, value) for i, value in known if sites[i].op == op]
        if mine:
            xs, ys = zip(*mine, strict=True)
            axes.scatter(xs, ys, color=colour, marker=marker, label=op, zorder=2)
    for end in stage_ends(list(sites))[:-1]:
        axes.axvline(end + 0.5, color="#bbbbbb", linewidth=0.8, linestyle="--")
    axes.set_xlabel("depth: sites of the residual stream\ndashed: end of a stage")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(label)
    axes.legend(frameon=False)
