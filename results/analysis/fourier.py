"""How much of each frequency the residual stream holds: convs should add high frequencies, MSAs take them away.

Park & Kim, ICLR 2022, section 3 and figures 2 and 8; their notebook fourier_analysis. B batch, C channels,
H x W map, K frequencies on the diagonal from 0 outwards. The notebook never calls eval(); here nets are in eval mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..analysis_tools.hooks import HookPoint, residual_points
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.metrics import highest, side_of_zero
from ..analysis_tools.residual_stream import (
    changes_by_op,
    draw_depth,
    mean_over_images,
    predecessors,
    said_by_op,
    wide_enough,
)

LEAST = 4  # pixels a side: a smaller map has one frequency beside the mean
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
    """Those of `log_amplitudes` in units of pi: 2 k / side. The last is below 1 (0.857 for a side of 14)."""
    side = min(height, width)
    return [2 * k / side for k in range((side + 1) // 2)]


def spectra(subject: AnalysisInput) -> tuple[list[HookPoint], list[dict[str, Any]], str]:
    """Sites whose maps are large enough, a row for each site and frequency, and a sentence about the sites left out.

    Raises:
        InputError: if no map has at least 4 pixels a side.
    """
    net, images = subject.net, subject.images
    sites, shapes, left = wide_enough(net, images, residual_points(net), LEAST, "fourier")
    logs = [values.tolist() for values in mean_over_images(net, sites, images, log_amplitudes)]
    rows = []
    for i, before in enumerate(predecessors(sites, shapes)):
        for k, frequency in enumerate(frequencies(*shapes[i][1:])):
            rows.append(
                {
                    "place": i,
                    "site": sites[i].name,
                    "op": sites[i].op,
                    "stage": sites[i].stage,
                    "height": shapes[i][1],
                    "width": shapes[i][2],
                    "frequency_pi": frequency,
                    "log_amplitude": logs[i][k],
                    "change": None if before is None else logs[i][k] - logs[before][k],
                }
            )
    return sites, rows, left


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Relative log amplitudes of the residual stream behind each block, and what each adds at the highest frequency.

    Raises:
        InputError: if no map has at least 4 pixels a side.
    """
    sites, rows, left = spectra(subject)

    def draw(figure: Figure) -> None:
        curves, depth = figure.subplots(1, 2)
        colours = matplotlib.colormaps["viridis"]
        for i, site in enumerate(sites):
            mine = [row for row in rows if row["place"] == i]
            xs, ys = [row["frequency_pi"] for row in mine], [row["log_amplitude"] for row in mine]
            looks = "--" if site.op == "msa" else "-"
            curves.plot(xs, ys, looks, color=colours(i / max(1, len(sites) - 1)), linewidth=1.3)
        curves.set_xlabel("frequency (units of pi)\ndark to light: first to last site; dashed: behind an MSA")
        curves.set_ylabel("relative log amplitude")
        draw_depth(depth, sites, [row["log_amplitude"] for row in highest(rows)], "the same at the highest frequency")

    title = f"{subject.name}: frequencies in the residual stream"
    return AnalysisResult("fourier", title, rows, _reading(rows, len(subject.images)) + left, draw)


def _reading(rows: Sequence[dict[str, Any]], images: int) -> str:
    last = highest(rows)
    first, end = last[0], last[-1]
    groups = changes_by_op(last, "change")
    said = [
        f"Over {images} images, the relative log amplitude of the highest frequency is {first['log_amplitude']:.2f} "
        f"behind {first['site']} ({first['frequency_pi']:.3g} pi) and {end['log_amplitude']:.2f} behind {end['site']} "
        f"({end['frequency_pi']:.3g} pi)."
    ]
    if not groups:
        return said[0] + " No block keeps the shape of its map, so no change can be told."
    said.append(said_by_op(groups, "that amplitude"))
    for op, verb, wanted in (("msa", "lower", -1), ("conv", "raise", 1)):
        changes = [v for (at, _), vs in groups.items() if at == op for v in vs]
        if changes:
            said.append(_beside_paper(op, verb, wanted, changes))
    return " ".join(said)


def _beside_paper(op: str, verb: str, wanted: int, changes: Sequence[float]) -> str:
    """How many blocks do what Park & Kim say, and what the 95 % interval of their mean says of it."""
    share = sum(v * wanted > 0 for v in changes)
    side = {wanted: "as", -wanted: "other than", 0: "too few or too unlike each other to tell whether as"}
    told = side[side_of_zero(changes)]
    return f"{share} of {len(changes)} {op} blocks {verb} it: {told} Park & Kim found (95 % interval over blocks)."
