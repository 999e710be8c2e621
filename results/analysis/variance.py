"""How much maps vary over their pixels: MSAs average and should lower it, convs raise it.

Park & Kim, ICLR 2022, section 3 and figure 9; their notebook featuremap_variance. B batch, C channels, H x W map.
"""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from ..analysis_tools.findings import Finding, measured
from ..analysis_tools.hooks import measured_stream, stage_ends
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows, block_changes
from ..analysis_tools.output import draw_depth

MIN_SIDE = 2  # pixels a side
FACTOR = "log factor of the variance"
STAGE_ENDS = "log variance at stage ends, above that before"


def map_variance(x_BCHW: Tensor) -> Tensor:
    """Unbiased variance over the pixels of each map, averaged over batch and channels: a scalar."""
    return x_BCHW.double().var((2, 3)).mean()


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Feature-map variance of the residual stream after each block, and what each adds; without the class token."""
    stream = measured_stream(subject.net, subject.images, MIN_SIDE, "variance", map_variance)
    sites = [site for site, *_ in stream]
    ends, rows = stage_ends(sites), []
    for i, (_, columns, value, change) in enumerate(stream):
        of_map = {"variance": value.item(), "change": None if change is None else change.item()}
        rows.append(columns | {"stage_end": i in ends} | of_map)

    def draw(figure: Figure) -> None:
        draw_depth(figure.subplots(), sites, [row["variance"] for row in rows], "variance over the pixels of a map")

    title = f"{subject.name}: variance of the feature maps"
    return AnalysisResult(title, rows, findings(rows), draw)


def findings(rows: Rows) -> list[Finding]:
    """What blocks multiply the variance by, and how far it stands out at the ends of stages."""

    def log_factor(row: Mapping[str, Any]) -> float:
        before = row["variance"] - row["change"]
        return math.log(row["variance"] / before) if min(before, row["variance"]) > 0 else math.nan

    stages: dict[str, list[float]] = {}
    for row in rows:
        if row["variance"] > 0:
            stages.setdefault(row["stage"], []).append(math.log(row["variance"]))
    gaps = [logs[-1] - fmean(logs[:-1]) for logs in stages.values() if len(logs) > 1]
    return [*block_changes(rows, FACTOR, log_factor), measured(STAGE_ENDS, gaps, "stages", ("higher", "lower"))]
