"""How much maps vary over their pixels: MSAs average and should lower it, convs raise it.

Park & Kim, ICLR 2022, section 3 and figure 9; their notebook featuremap_variance. B batch, C channels, H x W map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from ..analysis_tools.hooks import residual_points, stage_ends
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.residual_stream import (
    changes_by_op,
    draw_depth,
    mean_over_images,
    predecessors,
    said_by_op,
    wide_enough,
)

LEAST = 2  # pixels a side


def map_variance(x_BCHW: Tensor) -> Tensor:
    """Unbiased variance over the pixels of each map, averaged over batch and channels: a scalar."""
    return x_BCHW.double().var((2, 3)).mean()


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Feature-map variance of the residual stream behind each block, and what each adds; without the class token.

    Raises:
        InputError: if no map has at least 2 pixels a side.
    """
    net, images = subject.net, subject.images
    sites, shapes, left = wide_enough(net, images, residual_points(net), LEAST, "variance")
    values = [value.item() for value in mean_over_images(net, sites, images, map_variance)]
    ends, before = stage_ends(sites), predecessors(sites, shapes)
    rows = [
        {
            "place": i,
            "site": site.name,
            "op": site.op,
            "stage": site.stage,
            "stage_end": i in ends,
            "height": shapes[i][1],
            "width": shapes[i][2],
            "variance": values[i],
            "change": None if (b := before[i]) is None else values[i] - values[b],
        }
        for i, site in enumerate(sites)
    ]

    def draw(figure: Figure) -> None:
        draw_depth(figure.subplots(), sites, values, "variance over the pixels of a map")

    title = f"{subject.name}: variance of the feature maps"
    return AnalysisResult("variance", title, rows, _reading(rows, len(images)) + left, draw)


def _reading(rows: Sequence[dict[str, Any]], images: int) -> str:
    top = max(rows, key=lambda row: row["variance"])
    said = [
        f"Over {images} images, maps vary by {rows[0]['variance']:.3g} behind {rows[0]['site']}, most behind "
        f"{top['site']} ({top['variance']:.3g}), and by {rows[-1]['variance']:.3g} at the end."
    ]
    groups = changes_by_op(rows, "change")
    if not groups:
        return said[0] + " No block keeps the shape of its map, so no change can be told."
    said.append(said_by_op(groups, "the variance"))
    for op, verb, found in (("msa", "lower", lambda v: v < 0), ("conv", "raise", lambda v: v > 0)):
        changes = [v for (at, _), vs in groups.items() if at == op for v in vs]
        if changes:
            share = sum(map(found, changes))
            said.append(f"{share} of {len(changes)} {op} blocks {verb} it; Park & Kim say that {op} blocks do.")
    return " ".join(said)
