"""Mean attention distance per head: how far the heads of a net look, in pixels of the image.

Dosovitskiy et al., ICLR 2021, section 4.5 and appendix D.7; Raghu et al., NeurIPS 2021, section 3. Per head: the
distance from query to key, weighted by attention, averaged over queries and images. A token stands at the middle of
its cell of the image; what convolutions before it have mixed in is not counted. Class tokens look at nothing and are
looked at by nobody: the remaining weights of each query sum to 1 again.

N heads, T tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from ..analysis_tools.attention_weights import Shape, attention_logits, attention_sites, grid_of
from ..analysis_tools.findings import Finding, measured
from ..analysis_tools.hooks import entering, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..render.plots import plain

LOCAL = 0.5  # of the distance of even attention over the whole map: below it a head is local
WIDENS, CONVERGE = "rise of the mean distance, first to last layer", "rise of the spread of heads, first to last layer"


@dataclass(frozen=True)
class LayerDistance:
    """How far the heads of one layer look, in pixels."""

    heads: list[float]  # the mean distance of each
    even: float  # what it would be if each query looked evenly wherever it may
    even_map: float  # what it would be if each query looked evenly over the whole map, outside its window too
    furthest: float  # the largest distance that it may look


def pixel_distances(grid: Shape, cell: tuple[float, float]) -> Tensor:
    """d_TT: pixels between the tokens of a grid (rows, columns) whose cells have `cell` (height, width) pixels."""
    rows, columns = (torch.arange(side, dtype=torch.double) * pixels for side, pixels in zip(grid, cell, strict=True))
    at_T2 = torch.cartesian_prod(rows, columns)
    return torch.cdist(at_T2, at_T2, compute_mode="donot_use_mm_for_euclid_dist")


def mean_distances(logits_BNTT: Tensor, d_TT: Tensor) -> Tensor:
    """(N,) float64: mean distance of each head's attention, over queries and images."""
    return (logits_BNTT.double().softmax(3) * d_TT).sum(3).mean((0, 2))


@torch.no_grad()
def attention_distances(net: nn.Module, batches: Iterable[Tensor]) -> dict[str, LayerDistance]:
    """How far each attention layer looks, by its name, in eval mode; `batches` are x_BCHW as the net wants them."""
    sites = {site.module: site for site in attention_sites(net)}
    sums: dict[str, Any] = {}
    bounds: dict[str, tuple[float, float, float]] = {}
    total, x_BCHW = 0, torch.empty(0)

    def see(name: str, module: nn.Module, args: Any) -> None:
        site, (images, _, height, width) = sites[name], x_BCHW.shape
        grid, whole = grid_of(site, module, args[0])
        cell = height / whole[0], width / whole[1]
        d_TT = pixel_distances(grid, cell).to(args[0].device)
        logits = attention_logits(module, args)[..., site.lead :, site.lead :]
        sums[site.name] = sums.get(site.name, 0) + images * mean_distances(logits, d_TT).cpu()
        may_TT = logits[0, 0].isfinite()
        even = ((d_TT * may_TT).sum(1) / may_TT.sum(1)).mean()
        bounds[site.name] = (even.item(), pixel_distances(whole, cell).mean().item(), d_TT[may_TT].max().item())

    with undisturbed(net), entering(net, list(sites), see):
        for x_BCHW in batches:
            total += len(x_BCHW)
            net(x_BCHW)
    return {name: LayerDistance((heads_N / total).tolist(), *bounds[name]) for name, heads_N in sums.items()}


def analyse(subject: AnalysisInput, batch: int = 32) -> AnalysisResult:
    """Mean attention distance of every head. The papers take 128 and 5,000 images."""
    layers = attention_distances(subject.net, subject.images.inputs(batch))
    rows = [
        {"layer": name, "head": head, "distance_px": px, "even_px": layer.even}
        | {"even_map_px": layer.even_map, "furthest_px": layer.furthest}
        for name, layer in layers.items()
        for head, px in enumerate(layer.heads)
    ]
    title = f"Mean attention distance of the heads of {subject.name}"
    return AnalysisResult(title, rows, findings(rows), lambda figure: _draw(figure, layers))


def findings(rows: Rows) -> list[Finding]:
    """How far the heads of the first and last layer look, in pixels, and which share of the first is local."""
    layers: dict[str, list[float]] = {}
    for row in rows:
        layers.setdefault(row["layer"], []).append(row["distance_px"])
    first, last = list(layers.values())[0], list(layers.values())[-1]  # noqa: RUF015
    local = sum(px < LOCAL * rows[0]["even_map_px"] for px in first)
    found = [
        Finding("local heads of the first layer", local, over="heads", n=len(first), resolution=1),
        measured("mean distance, first layer", first, "heads", unit="px"),
        measured("mean distance, last layer", last, "heads", unit="px"),
        Finding(WIDENS, float(np.mean(last) - np.mean(first)), unit="px"),
    ]
    if min(len(first), len(last)) > 1:
        found.append(Finding(CONVERGE, float(np.std(last, ddof=1) - np.std(first, ddof=1)), unit="px"))
    return found


def _draw(figure: Figure, layers: dict[str, LayerDistance]) -> None:
    """Heads sorted by distance, a curve a layer, as Raghu et al.'s figure 3; even attention, no preference, dashed."""
    axes, most = figure.add_subplot(), max(max(*layer.heads, layer.even) for layer in layers.values())
    colours = matplotlib.colormaps["viridis"]
    for i, (name, layer) in enumerate(layers.items()):
        colour, heads = colours(i / max(1, len(layers) - 1) * 0.9), len(layer.heads)
        axes.plot(range(1, heads + 1), sorted(layer.heads), color=colour, marker="o", label=plain(name))
        axes.hlines(layer.even, 0.8, heads + 0.2, color=colour, linestyle="--", linewidth=0.8)
    axes.plot([], [], "--", color="#000000", linewidth=0.8, label="even attention")
    axes.set(xlabel="heads of a layer, sorted", ylabel="mean attention distance (px)")
    axes.set_ylim(0, 1.08 * most)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right center" if figure.get_layout_engine() else "upper right", frameon=False)
