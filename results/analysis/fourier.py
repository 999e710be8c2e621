"""Fourier analysis of feature maps: convs should add high frequencies, MSAs take them away.

Park & Kim, ICLR 2022, section 3 and figures 2 and 8; their notebook fourier_analysis. B batch, C channels,
H x W map, K frequencies on the diagonal from 0 outwards. The notebook never calls eval(); here nets are in eval mode.
"""

from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..analysis_tools.hooks import measured_stream
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows, block_changes
from ..analysis_tools.output import draw_depth

MIN_SIDE = 4  # pixels a side: a smaller map has one frequency beside the mean
CHANGE = "change of the highest frequency (log amplitude)"
TINY = 1e-6  # under the logarithm, as in the notebook


def log_amplitudes(x_BCHW: Tensor) -> Tensor:
    """(K,) natural logs of amplitudes along the diagonal, minus that at frequency 0.

    The 2-D Fourier transform of each map, log(|F| + 1e-6), the mean of the logs over batch and channels, then the
    entries (k, k) for k from 0 to below half the shorter side, minus entry (0, 0).

    White noise gives log(2) / 2 = 0.347 at every k > 0, not 0: the mean of real numbers is real, and the logarithm
    of a real normal number is that much lower on average than that of a complex one.
    """
    logs_HW = (torch.fft.fft2(x_BCHW.float()).abs() + TINY).log().mean((0, 1))
    diagonal_K = logs_HW.diagonal()[: len(frequencies(*x_BCHW.shape[2:]))]
    return diagonal_K - diagonal_K[0]


def frequencies(height: int, width: int) -> list[float]:
    """Frequencies of `log_amplitudes` in units of pi: 2 k / side. The last is below 1 (0.857 for a side of 14)."""
    side = min(height, width)
    return [2 * k / side for k in range((side + 1) // 2)]


def highest(rows: Rows) -> list[Any]:
    """The row of the highest frequency of each site."""
    return list({row["place"]: row for row in rows}.values())


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Relative log amplitudes of the residual stream after each block, and what each adds at the highest frequency."""
    stream = measured_stream(subject.net, subject.images, MIN_SIDE, "fourier", log_amplitudes)
    rows = []
    for _, columns, logs_K, changes_K in stream:
        for k, frequency in enumerate(frequencies(columns["height"], columns["width"])):
            change = None if changes_K is None else changes_K[k].item()
            rows.append(columns | {"frequency_pi": frequency, "log_amplitude": logs_K[k].item(), "change": change})

    def draw(figure: Figure) -> None:
        curves, depth = figure.subplots(1, 2)
        colours = matplotlib.colormaps["viridis"]
        for i, (site, columns, logs_K, _) in enumerate(stream):
            xs, style = frequencies(columns["height"], columns["width"]), "--" if site.op == "msa" else "-"
            curves.plot(xs, logs_K.tolist(), style, color=colours(i / max(1, len(stream) - 1)), linewidth=1.3)
        curves.set_xlabel("frequency (units of pi)\ndark to light: first to last site; dashed: behind an MSA")
        curves.set_ylabel("relative log amplitude")
        sites = [site for site, *_ in stream]
        draw_depth(depth, sites, [row["log_amplitude"] for row in highest(rows)], "the same at the highest frequency")

    title = f"{subject.name}: frequencies in the residual stream"
    findings = block_changes(highest(rows), CHANGE, lambda row: row["change"])
    return AnalysisResult(title, rows, findings, draw)
