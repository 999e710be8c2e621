"""Accuracy, NLL and calibration under the 15 common corruptions, by severity.

Hendrycks & Dietterich, ICLR 2019; Park & Kim, ICLR 2022, section 3 and appendix: ViTs bear them better than ResNets.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from statistics import mean
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis_tools.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from ..analysis_tools.hooks import undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Images, Rows
from ..metrics import evaluate
from ..render.plots import COLOURS

BATCH = 256
KEPT_BYTES = 2**30  # of corrupted images, at most


def analyse(subject: AnalysisInput, seed: int = 0) -> AnalysisResult:
    """Robustness to common corruptions: no training on them, images as they are but for the corruption."""
    images, net = subject.images, subject.net
    corrupted(images.x_NCHW[:1], "brightness", 1)  # refused before the net runs
    with undisturbed(net), torch.no_grad():
        rows = [_row(net, images, "clean", "clean", 0)]
        for name, severity, x_NCHW in _all_corrupted(images, seed):
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
    return AnalysisResult(title, rows, _summary(rows, len(images)), draw)


def _all_corrupted(images: Images, seed: int) -> Iterator[tuple[str, int, Tensor]]:
    """(corruption, severity, x_NCHW) of all corruptions, drawn once for all nets if memory holds them."""
    drawn = _drawn(images, seed)
    keep = len(CORRUPTIONS) * len(SEVERITIES) * images.x_NCHW.nbytes <= KEPT_BYTES
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            x_NCHW = drawn.get((name, severity))
            if x_NCHW is None:
                x_NCHW = corrupted(images.x_NCHW, name, severity, seed)
            if keep:
                drawn[name, severity] = x_NCHW
            yield name, severity, x_NCHW


@lru_cache(maxsize=1)
def _drawn(_images: Images, _seed: int) -> dict[tuple[str, int], Tensor]:
    """What was drawn of these images, whose identity is the key; forgotten once others are asked for."""
    return {}


def _row(net: nn.Module, images: Images, name: str, group: str, severity: int) -> dict[str, Any]:
    answers = [(net(x_BCHW), y_B) for x_BCHW, y_B in images.batches(BATCH)]
    scores = evaluate(answers, answers[0][0].shape[1])
    row = {"corruption": name, "group": group, "severity": severity}
    return row | {"accuracy": scores.accuracy, "nll": scores.nll, "ece": scores.ece}


def _summary(rows: Rows, images: int) -> str:
    clean, rest = rows[0], rows[1:]
    accuracy, ece = mean(row["accuracy"] for row in rest), mean(row["ece"] for row in rest)
    by_group, by_name = (_means(rest, key) for key in ("group", "corruption"))
    worst, best = ([n for n in by_name if by_name[n] == most(by_name.values())] for most in (min, max))
    groups = ", ".join(f"{group} {value:.3f}" for group, value in sorted(by_group.items(), key=lambda item: item[1]))
    text = [
        f"Accuracy is {clean['accuracy']:.3f} on {images} clean images and {accuracy:.3f} on average over 15 "
        f"corruptions of 5 severities (one draw of each; the standard error of an accuracy over so many images is at "
        f"most {0.5 / images**0.5:.3f}). By group: {groups}."
    ]
    if len(by_name) > len(worst):
        text.append(
            f"The lowest mean is that of {' and '.join(worst)} ({by_name[worst[0]]:.3f}), the highest that of "
            f"{' and '.join(best)} ({by_name[best[0]]:.3f})."
        )
    text.append(f"The calibration error (ECE) is {ece:.3f} on average and {clean['ece']:.3f} on clean images.")
    return " ".join(text)


def _means(rows: Rows, key: str) -> dict[str, float]:
    """Mean accuracy by the value of a column."""
    values = dict.fromkeys(row[key] for row in rows)
    return {value: mean(row["accuracy"] for row in rows if row[key] == value) for value in values}
