"""Mean attention distance per head: how far the heads of a net look, in pixels of the image.

Dosovitskiy et al., ICLR 2021, section 4.5 and appendix D.7; Raghu et al., NeurIPS 2021, section 3. Per head: the
distance from query to key, weighted by attention, averaged over queries and images. A token stands at the middle of
its cell of the image; what convolutions before it have mixed in is not counted. Class tokens look at nothing and are
looked at by nobody: the remaining weights of each query sum to 1 again.

N heads, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from ..analysis_tools.attention_weights import Shape, attention_logits, attention_sites, grid_of
from ..analysis_tools.hooks import entering, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..render.plots import plain

LOCAL, GLOBAL = 0.5, 0.8  # of the distance of even attention: below it a head is local, above it nearly as far


@dataclass(frozen=True)
class LayerDistance:
    """How far the heads of one layer look, in pixels."""

    heads: list[float]  # the mean distance of each
    even: float  # what it would be if each query looked evenly wherever it may
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
    bounds: dict[str, tuple[float, float]] = {}
    total, x_BCHW = 0, torch.empty(0)

    def see(name: str, module: nn.Module, args: Any) -> None:
        site, (images, _, height, width) = sites[name], x_BCHW.shape
        grid, whole = grid_of(site, module, args[0])
        d_TT = pixel_distances(grid, (height / whole[0], width / whole[1])).to(args[0].device)
        logits = attention_logits(module, args)[..., site.lead :, site.lead :]
        sums[site.name] = sums.get(site.name, 0) + images * mean_distances(logits, d_TT).cpu()
        may_TT = logits[0, 0].isfinite()
        even = ((d_TT * may_TT).sum(1) / may_TT.sum(1)).mean()
        bounds[site.name] = (even.item(), d_TT[may_TT].max().item())

    with undisturbed(net), entering(net, list(sites), see):
        for x_BCHW in batches:
            total += len(x_BCHW)
            net(x_BCHW)
    return {name: LayerDistance((heads_N / total).tolist(), *bounds[name]) for name, heads_N in sums.items()}


def analyse(subject: AnalysisInput, batch: int = 32) -> AnalysisResult:
    """Mean attention distance of every head. The papers take 128 and 5,000 images."""
    layers = attention_distances(subject.net, subject.images.inputs(batch))
    rows = [
        {"layer": name, "head": head, "distance_px": px, "even_px": layer.even, "furthest_px": layer.furthest}
        for name, layer in layers.items()
        for head, px in enumerate(layer.heads)
    ]
    title = f"Mean attention distance of the heads of {subject.name}"
    summary = _summary(layers, len(subject.images))
    return AnalysisResult(title, rows, summary, lambda figure: _draw(figure, layers))


def _summary(layers: dict[str, LayerDistance], images: int) -> str:
    names = list(layers)
    text = []
    for name in dict.fromkeys((names[0], names[-1])):
        layer = layers[name]
        near = sum(px < LOCAL * layer.even for px in layer.heads)
        far = sum(px > GLOBAL * layer.even for px in layer.heads)
        text.append(
            f"Over {images} images the heads of {name} look {min(layer.heads):.1f} to {max(layer.heads):.1f} px far on "
            f"average, {near} of {len(layer.heads)} less than half as far as even attention and {far} more than "
            f"{GLOBAL:g} times as far; even attention would be {layer.even:.1f} px, and at most it may look "
            f"{layer.furthest:.1f} px."
        )
    local = sum(px < LOCAL * layer.even for layer in layers.values() for px in layer.heads)
    heads = sum(len(layer.heads) for layer in layers.values())
    text.append(f"{local} of {heads} heads in {len(layers)} attention layers stay below half of even attention.")
    return " ".join(text)


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
