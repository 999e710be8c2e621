"""How much maps vary over their pixels: MSAs average and should lower it, convs raise it.

Park & Kim, ICLR 2022, section 3 and figure 9; their notebook featuremap_variance. B batch, C channels, H x W map.
"""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from ..analysis_tools.hooks import changes_by_op, describe_changes, mean_over_images, stage_ends, stream_columns
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import draw_depth

LEAST = 2  # pixels a side


def map_variance(x_BCHW: Tensor) -> Tensor:
    """Unbiased variance over the pixels of each map, averaged over batch and channels: a scalar."""
    return x_BCHW.double().var((2, 3)).mean()


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Feature-map variance of the residual stream behind each block, and what each adds; without the class token."""
    net, images = subject.net, subject.images
    sites, columns, before, note = stream_columns(net, images, LEAST, "variance")
    values, ends = [value.item() for value in mean_over_images(net, sites, images, map_variance)], stage_ends(sites)
    rows = []
    for i, (row, b) in enumerate(zip(columns, before, strict=True)):
        change = None if b is None else values[i] - values[b]
        rows.append(row | {"stage_end": i in ends, "variance": values[i], "change": change})

    def draw(figure: Figure) -> None:
        draw_depth(figure.subplots(), sites, values, "variance over the pixels of a map")

    title = f"{subject.name}: variance of the feature maps"
    return AnalysisResult(title, rows, _summary(rows, len(images)) + note, draw)


def _summary(rows: Rows, images: int) -> str:
    top = max(rows, key=lambda row: row["variance"])
    text = [
        f"Over {images} images, maps vary by {rows[0]['variance']:.3g} behind {rows[0]['site']}, most behind "
        f"{top['site']} ({top['variance']:.3g}), and by {rows[-1]['variance']:.3g} at the end."
    ]
    groups = changes_by_op(rows)
    text.append(describe_changes(groups, "the variance"))
    for op, verb, sign in (("msa", "lower", -1), ("conv", "raise", 1)):
        changes = [change for (of, _), values in groups.items() if of == op for change in values]
        if changes:
            count = sum(sign * change > 0 for change in changes)
            text.append(f"{count} of {len(changes)} {op} blocks {verb} it; Park & Kim say that {op} blocks do.")
    return " ".join(text)
