"""Accuracy, NLL and calibration under the 15 common corruptions, by severity.

Hendrycks & Dietterich, ICLR 2019; Park & Kim, ICLR 2022, section 3 and appendix: ViTs bear them better than ResNets.
"""

from functools import lru_cache
from itertools import product
from statistics import mean
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis_tools.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from ..analysis_tools.findings import Finding
from ..analysis_tools.hooks import undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Clean, Images, Rows
from ..metrics import evaluate
from ..render.plots import COLOURS

BATCH = 256
LOSS = "loss by corruptions"
KEPT_BYTES = 2**30  # of corrupted images, at most


def analyse(subject: AnalysisInput, seed: int = 0) -> AnalysisResult:
    """Robustness to common corruptions: no training on them, images as they are but for the corruption."""
    images, net = subject.images, subject.net
    corrupted(images.x_NCHW[:1], "brightness", 1)  # refused before the net runs
    fits = len(CORRUPTIONS) * len(SEVERITIES) * images.x_NCHW.nbytes <= KEPT_BYTES
    corrupt = _kept if fits else _kept.__wrapped__
    with undisturbed(net), torch.no_grad():
        rows = [_row(net, images, "clean", "clean", 0)]
        for name, severity in product(CORRUPTIONS, SEVERITIES):
            x_NCHW = corrupt(images, name, severity, seed)
            rows.append(_row(net, images.with_pixels(x_NCHW), name, CORRUPTIONS[name][0], severity))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        clean, groups = rows[0]["accuracy"], list(dict.fromkeys(row["group"] for row in rows[1:]))
        for name, (group, _, _) in CORRUPTIONS.items():
            values = [clean, *(row["accuracy"] for row in rows if row["corruption"] == name)]
            axes.plot(range(6), values, color=COLOURS[groups.index(group)], linewidth=0.8, alpha=0.5)
        for group, colour in zip(groups, COLOURS, strict=False):
            mine = [row for row in rows if row["group"] == group]
            means = [mean(row["accuracy"] for row in mine if row["severity"] == severity) for severity in SEVERITIES]
            axes.plot(range(6), [clean, *means], "o-", color=colour, label=group)
        axes.set(xlabel="severity (0: clean; thin: each corruption; marked: mean of its group)", ylabel="accuracy")
        axes.legend(frameon=False)

    title = f"{subject.name}: accuracy under common corruptions"
    return AnalysisResult(title, rows, findings(rows, Clean.of(rows[0]["accuracy"], images)), draw)


@lru_cache(maxsize=len(CORRUPTIONS) * len(SEVERITIES))
def _kept(images: Images, name: str, severity: int, seed: int) -> Tensor:
    """x_NCHW corrupted, kept for the next net that is shown the same images."""
    return corrupted(images.x_NCHW, name, severity, seed)


def _row(net: nn.Module, images: Images, name: str, group: str, severity: int) -> dict[str, Any]:
    answers = [(net(x_BCHW), y_B) for x_BCHW, y_B in images.batches(BATCH)]
    scores = evaluate(answers, answers[0][0].shape[1])
    row = {"corruption": name, "group": group, "severity": severity}
    return row | {"accuracy": scores.accuracy, "nll": scores.nll, "ece": scores.ece}


def findings(rows: Rows, clean: Clean) -> list[Finding]:
    """Loss by all corruptions and by each group, means over severities; calibration error without and with them."""
    changes: dict[tuple[str, str], list[float]] = {}
    for row in rows[1:]:
        changes.setdefault((row["group"], row["corruption"]), []).append(row["accuracy"] - clean.accuracy)
    means = {key: mean(values) for key, values in changes.items()}
    groups = dict.fromkeys(group for group, _ in means)
    return [
        clean.finding,
        clean.loss(LOSS, [*means.values()], "corruptions"),
        *(clean.loss(f"loss by {g}", [m for (of, _), m in means.items() if of == g], "corruptions") for g in groups),
        Finding("calibration error (ECE)", rows[0]["ece"]),
        Finding("calibration error (ECE) under corruptions", mean(row["ece"] for row in rows[1:])),
    ]
