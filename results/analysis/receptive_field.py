"""How much of the image the middle of a map depends on: the effective receptive field.

Luo et al., NeurIPS 2016; Raghu et al., NeurIPS 2021, section 4: absolute gradient of the middle of a feature map by
the input, averaged over the map's channels and 32 images; taken on the residual stream, after each addition.

A gradient for each of some hundred channels is expensive: each of the P passes takes another channel for each image,
evenly spread, so that P x B pairs of channel and image are averaged. With as many passes as channels it is exact.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis_tools.findings import Finding
from ..analysis_tools.hooks import HookPoint, as_map, listening, map_shapes, residual_points, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import maps

SHARES = (50, 90)  # percent
OUTSIDE = "share of the gradient outside the middle, first block"
PICTURES = 18


def receptive_fields(net: nn.Module, sites: Sequence[HookPoint], x_BCHW: Tensor, passes: int) -> dict[str, Tensor]:
    """f_HW by site: mean absolute gradient of the middle of its map by the pixels, over image channels too.

    In eval mode, on x_BCHW as the net wants them; `passes` channels of a map are looked at in each image.
    """
    x_BCHW = x_BCHW.detach().clone().requires_grad_()
    with undisturbed(net), torch.enable_grad(), listening(net, sites) as values:
        net(x_BCHW)
        return {site.name: _field(as_map(site, values.pop(site.name)), x_BCHW, passes) for site in sites}


def _field(map_BCHW: Tensor, x_BCHW: Tensor, passes: int) -> Tensor:
    images, channels, height, width = map_BCHW.shape
    middle_BC = map_BCHW[:, :, height // 2, width // 2]  # of the two of an even side the second
    passes, field_HW = min(passes, channels), torch.zeros(())
    stride, at = -(-channels // passes), torch.arange(images)
    for i in range(passes):
        one_channel_each = middle_BC[at, (i * stride + at) % channels]
        (gradient,) = torch.autograd.grad(one_channel_each.sum(), x_BCHW, retain_graph=True)
        field_HW = field_HW.to(gradient) + gradient.abs().mean((0, 1)) / passes
    return field_HW


def square_side(f_HW: Tensor, grid: tuple[int, int], share: float) -> float:
    """Pixels a side of the least square around the middle cell of `grid` with `share` of f_HW; NaN of nothing."""
    f_HW = f_HW.double().cpu()
    rows, columns = _to_the_middle(f_HW, grid)
    away = torch.maximum(rows[:, None], columns[None]).flatten()
    order = away.argsort()
    inside = f_HW.flatten()[order].cumsum(0)
    if not inside[-1] > 0:
        return math.nan
    at = int((inside < share * inside[-1] * (1 - 1e-9)).sum())
    return 2 * away[order][at].item() + 1


def _to_the_middle(f_HW: Tensor, grid: tuple[int, int]) -> list[Tensor]:
    """Pixels from each place of a side to the middle of the middle cell of `grid`, of rows and of columns."""
    return [
        (torch.arange(side).double() - ((cells // 2 + 0.5) * side / cells - 0.5)).abs()
        for side, cells in zip(f_HW.shape, grid, strict=True)
    ]


def outside_share(f_HW: Tensor, grid: tuple[int, int], patch: tuple[float, float]) -> float:
    """Share of f_HW outside a patch (height, width) in the middle of the middle cell of `grid`; NaN of nothing.

    Pixels at the edge of the patch count by the part of them that lies inside.
    """
    f_HW = f_HW.double().cpu()
    rows, columns = (
        (side / 2 + 0.5 - away).clamp(0, 1) for side, away in zip(patch, _to_the_middle(f_HW, grid), strict=True)
    )
    whole = f_HW.sum().item()
    return 1 - (rows[:, None] * columns * f_HW).sum().item() / whole if whole > 0 else math.nan


def analyse(subject: AnalysisInput, images: int = 32, passes: int = 8) -> AnalysisResult:
    """Effective receptive field after the stem and after every block, as a map and as two squares.

    Outside the middle is outside the first map's cell, such as a ViT's patch.
    """
    sites = residual_points(subject.net)
    x_BCHW = subject.images.seen(subject.images.x_NCHW[:images])
    fields = receptive_fields(subject.net, sites, x_BCHW, passes)
    rows = []
    shapes = map_shapes(subject.net, sites, subject.images)
    cell = x_BCHW.shape[2] / shapes[0][1], x_BCHW.shape[3] / shapes[0][2]
    for site, (_, height, width) in zip(sites, shapes, strict=True):
        sides = {f"side_{share}_px": square_side(fields[site.name], (height, width), share / 100) for share in SHARES}
        outside = outside_share(fields[site.name], (height, width), cell)
        row = {"place": site.name, "op": site.op} | sides | {"outside_middle": outside, "middle_px": cell[0]}
        row |= {"image_px": max(x_BCHW.shape[2:])}
        rows.append(row | {"images": len(x_BCHW), "channels_an_image": passes})

    # each a share of the whole, so that all are drawn on one scale
    pictures = {name: (f_HW / f_HW.sum().clamp_min(1e-30)).cpu().numpy() for name, f_HW in fields.items()}

    def draw(figure: Figure) -> None:
        at = sorted({round(i) for i in np.linspace(0, len(rows) - 1, min(PICTURES, len(rows)))})
        shown = [rows[i] for i in at]
        sides = [f"50 %: {row['side_50_px']:.0f} px, 90 %: {row['side_90_px']:.0f} px" for row in shown]
        titles = [f"{row['place']}\n{side}" for row, side in zip(shown, sides, strict=True)]
        maps(figure, {row["place"]: pictures[row["place"]] for row in shown}, "share of the gradient", titles, log=True)

    title = f"Effective receptive field of the middle of {subject.name}'s maps"
    return AnalysisResult(title, rows, findings(rows), draw, pictures)


def findings(rows: Rows) -> list[Finding]:
    """Squares that hold 90 % of the gradient at both ends, and what the first block sees outside the middle."""
    known = [row for row in rows if not math.isnan(row["side_90_px"])]
    if not known:
        return [Finding("side of the square with 90 %", verdict="gradient is 0 for all of these images", n=0)]
    found = [
        Finding(f"side of the square with 90 %, {at} place", row["side_90_px"], unit="px", resolution=2)
        for at, row in (("first", known[0]), ("last", known[-1]))
    ]
    first = next((row for row in known if row["op"] != "stem"), None)
    if first:
        found.append(Finding(OUTSIDE, first["outside_middle"], unit=f"outside {first['middle_px']:g} px"))
    return found
