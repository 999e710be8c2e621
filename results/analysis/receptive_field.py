"""How much of the image the middle of a map depends on: the effective receptive field.

Luo et al., NeurIPS 2016; Raghu et al., NeurIPS 2021, section 4: absolute gradient of the middle of a feature map by
the input, averaged over the map's channels and 32 images; taken on the residual stream, behind each addition.

A gradient for each of some hundred channels is dear: each of the P passes takes another channel for each image, evenly
spread, so that P x B pairs of channel and image are averaged. With as many passes as channels it is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis_tools.hooks import HookPoint, as_map, listening, map_shapes, residual_points, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import maps

SHARES = (50, 90)  # percent
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
    """Side in pixels of the least square around the middle cell of `grid` that holds `share` of f_HW; NaN of nothing.

    The square may reach over the image's edge.
    """
    f_HW = f_HW.double().cpu()
    rows, columns = (  # pixels from each place of a side to the middle of its middle cell
        (torch.arange(side).double() - ((cells // 2 + 0.5) * side / cells - 0.5)).abs()
        for side, cells in zip(f_HW.shape, grid, strict=True)
    )
    away = torch.maximum(rows[:, None], columns[None]).flatten()
    order = away.argsort()
    inside = f_HW.flatten()[order].cumsum(0)
    if not inside[-1] > 0:
        return math.nan
    at = int((inside < share * inside[-1] * (1 - 1e-9)).sum())
    return 2 * away[order][at].item() + 1


def analyse(subject: AnalysisInput, images: int = 32, passes: int = 8) -> AnalysisResult:
    """Effective receptive field behind the stem and behind every block, as a map and as two squares."""
    sites = residual_points(subject.net)
    x_BCHW = subject.images.seen(subject.images.x_NCHW[:images])
    fields = receptive_fields(subject.net, sites, x_BCHW, passes)
    rows = []
    for site, (_, height, width) in zip(sites, map_shapes(subject.net, sites, subject.images), strict=True):
        sides = {f"side_{share}_px": square_side(fields[site.name], (height, width), share / 100) for share in SHARES}
        row = {"place": site.name, "op": site.op} | sides | {"image_px": max(x_BCHW.shape[2:])}
        rows.append(row | {"images": len(x_BCHW), "channels_an_image": passes})

    def draw(figure: Figure) -> None:
        at = sorted({round(i) for i in np.linspace(0, len(rows) - 1, min(PICTURES, len(rows)))})
        shown = [rows[i] for i in at]
        sides = [f"50 %: {row['side_50_px']:.0f} px, 90 %: {row['side_90_px']:.0f} px" for row in shown]
        titles = [f"{row['place']}\n{side}" for row, side in zip(shown, sides, strict=True)]
        maps(figure, [fields[row["place"]].cpu().numpy() for row in shown], titles)

    title = f"Effective receptive field of the middle of {subject.name}'s maps"
    return AnalysisResult(title, rows, _summary(rows), draw)


def _summary(rows: Rows) -> str:
    known = [row for row in rows if not math.isnan(row["side_90_px"])]
    if not known:
        return f"At no place is the gradient by the pixels of these {rows[0]['images']} images other than 0."
    first, last = known[0], known[-1]
    text = [
        f"Over {first['images']} images a square of {first['side_90_px']:.0f} px around the middle holds 90 % of the "
        f"gradient of {first['place']}, one of {last['side_90_px']:.0f} px that of {last['place']}; the image has "
        f"{last['image_px']} px, and squares may reach over its edge."
    ]
    steps = [(two["side_50_px"] - one["side_50_px"], one, two) for one, two in pairwise(known)]
    if steps:
        step, one, two = max(steps, key=lambda each: each[0])
        also = sum(each[0] == step for each in steps) - 1
        if step > 0:
            text.append(
                f"The square of half of it widens most at {two['place']} ({two['op']}), from {one['side_50_px']:.0f} "
                f"to {two['side_50_px']:.0f} px{f', and as much at {also} more' if also else ''}."
            )
        else:
            text.append("The square of half of it widens nowhere.")
    if len(known) < len(rows):
        text.append(f"At {len(rows) - len(known)} places the gradient is 0 for all of these images.")
    return " ".join(text)
