"""How far the heads of a net look: mean attention distance in pixels of the image.

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
class Reach:
    """How far the heads of one layer look, in pixels.

    Attributes:
        heads: the mean distance of each.
        even: what it would be if each query looked evenly wherever it may.
        furthest: the largest distance that it may look.
    """

    heads: list[float]
    even: float
    furthest: float


def pixel_distances(grid: Shape, cell: tuple[float, float]) -> Tensor:
    """d_TT: pixels between the tokens of a grid (rows, columns) whose cells have `cell` (height, width) pixels."""
    rows, columns = (torch.arange(side, dtype=torch.double) * pixels for side, pixels in zip(grid, cell, strict=True))
    at_T2 = torch.cartesian_prod(rows, columns)
    return torch.cdist(at_T2, at_T2, compute_mode="donot_use_mm_for_euclid_dist")


def mean_distances(logits_BNTT: Tensor, d_TT: Tensor) -> Tensor:
    """(N,) float64: mean distance of each head's attention, over queries and images."""
    return (logits_BNTT.double().softmax(3) * d_TT).sum(3).mean((0, 2))


@torch.no_grad()
def attention_distances(net: nn.Module, batches: Iterable[Tensor]) -> dict[str, Reach]:
    """How far each attention layer looks, by its name, in eval mode.

    Args:
        net: a net with attention.
        batches: x_BCHW as the net wants them.

    Raises:
        InputError: if the net has no attention.
    """
    sites = {site.module: site for site in attention_sites(net)}
    sums: dict[str, Any] = {}
    bounds: dict[str, tuple[float, float]] = {}
    images, image = 0, (0, 0)

    def see(name: str, module: nn.Module, args: Any) -> None:
        site = sites[name]
        grid, whole = grid_of(site, module, args[0])
        d_TT = pixel_distances(grid, (image[0] / whole[0], image[1] / whole[1])).to(args[0].device)
        logits = attention_logits(module, args)[..., site.lead :, site.lead :]
        sums[site.name] = sums.get(site.name, 0) + images * mean_distances(logits, d_TT).cpu()
        bounds[site.name] = _bounds(logits[0, 0].isfinite(), d_TT)

    total = 0
    with undisturbed(net), entering(net, list(sites), see):
        for x_BCHW in batches:
            images, image = len(x_BCHW), (x_BCHW.shape[2], x_BCHW.shape[3])
            total += images
            net(x_BCHW)
    return {name: Reach((found / total).tolist(), *bounds[name]) for name, found in sums.items()}


def analyse(subject: AnalysisInput, batch: int = 32) -> AnalysisResult:
    """Mean attention distance of every head. The papers take 128 and 5,000 images.

    Raises:
        InputError: if the net has no attention.
    """
    found = attention_distances(subject.net, (x_BCHW for x_BCHW, _ in subject.images.batches(batch)))
    rows = [
        {"layer": name, "head": head, "distance_px": distance, "even_px": reach.even, "furthest_px": reach.furthest}
        for name, reach in found.items()
        for head, distance in enumerate(reach.heads)
    ]
    title = f"Mean attention distance of the heads of {subject.name}"
    return AnalysisResult(
        "distance", title, rows, _reading(found, len(subject.images)), lambda figure: _draw(figure, found)
    )


def _bounds(may_TT: Tensor, d_TT: Tensor) -> tuple[float, float]:
    even = ((d_TT * may_TT).sum(1) / may_TT.sum(1)).mean()
    return even.item(), d_TT[may_TT].max().item()


def _reading(found: dict[str, Reach], images: int) -> str:
    layers = list(found.items())
    ends = [layers[0]] if len(layers) == 1 else [layers[0], layers[-1]]
    text = [
        f"Over {images} images the heads of {name} look {min(reach.heads):.1f} to {max(reach.heads):.1f} px far on "
        f"average, {_kind(reach)}; even attention would be {reach.even:.1f} px, and at most it may look "
        f"{reach.furthest:.1f} px."
        for name, reach in ends
    ]
    local = [sum(one < LOCAL * reach.even for one in reach.heads) for _, reach in layers]
    heads = sum(len(reach.heads) for _, reach in layers)
    text.append(f"{sum(local)} of {heads} heads in {len(layers)} attention layers stay below half of even attention.")
    return " ".join(text)


def _kind(reach: Reach) -> str:
    near = sum(one < LOCAL * reach.even for one in reach.heads)
    far = sum(one > GLOBAL * reach.even for one in reach.heads)
    heads = len(reach.heads)
    return f"{near} of {heads} less than half as far as even attention and {far} more than {GLOBAL:g} times as far"


def _draw(figure: Figure, found: dict[str, Reach]) -> None:
    """Heads sorted by distance, a curve a layer, as Raghu et al.'s figure 3; even attention, no preference, dashed."""
    axes, most = figure.add_subplot(), max(max(*reach.heads, reach.even) for reach in found.values())
    colours = matplotlib.colormaps["viridis"]
    for i, (name, reach) in enumerate(found.items()):
        colour = colours(i / max(1, len(found) - 1) * 0.9)
        axes.plot(range(1, len(reach.heads) + 1), sorted(reach.heads), color=colour, marker="o", label=plain(name))
        axes.hlines(reach.even, 0.8, len(reach.heads) + 0.2, color=colour, linestyle="--", linewidth=0.8)
    axes.plot([], [], "--", color="#000000", linewidth=0.8, label="even attention")
    axes.set_xlabel("heads of a layer, sorted")
    axes.set_ylabel("mean attention distance (px)")
    axes.set_ylim(0, 1.08 * most)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right center" if figure.get_layout_engine() else "upper right", frameon=False)
