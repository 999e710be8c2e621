"""Accuracy, NLL and calibration under the 15 common corruptions, by severity.

Hendrycks & Dietterich, ICLR 2019; Park & Kim, ICLR 2022, section 3 and appendix: ViTs bear them better than ResNets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis_tools.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from ..analysis_tools.hooks import undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Images
from ..metrics import evaluate
from ..render.plots import COLOURS

BATCH = 256


def table(subject: AnalysisInput, seed: int = 0) -> list[dict[str, Any]]:
    """A row for each corruption and severity, the clean images first with severity 0.

    Raises:
        InputError: if the images do not lie in [0, 1] or have neither 1 nor 3 channels.
    """
    images, rows = subject.images, []
    corrupted(images.x_NCHW[:1], "brightness", 1)  # refused before the net runs
    with undisturbed(subject.net):
        rows.append(_row(subject.net, images, "clean", "clean", 0))
        for name, (group, _, _) in CORRUPTIONS.items():
            for severity in SEVERITIES:
                changed = images.with_pixels(corrupted(images.x_NCHW, name, severity, seed))
                rows.append(_row(subject.net, changed, name, group, severity))
    return rows


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Robustness to common corruptions: no training on them, images as they are but for the corruption.

    Raises:
        InputError: if the images do not lie in [0, 1] or have neither 1 nor 3 channels.
    """
    rows = table(subject)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        groups = list(dict.fromkeys(group for group, _, _ in CORRUPTIONS.values()))
        for name, (group, _, _) in CORRUPTIONS.items():
            values = [rows[0]["accuracy"], *(row["accuracy"] for row in rows if row["corruption"] == name)]
            axes.plot(range(6), values, color=COLOURS[groups.index(group)], linewidth=0.8, alpha=0.5)
        for group, colour in zip(groups, COLOURS, strict=False):
            values = [mean(_accuracies(rows, group, severity)) for severity in SEVERITIES]
            axes.plot(range(6), [rows[0]["accuracy"], *values], "o-", color=colour, label=group)
        axes.set_xlabel("severity (0: clean; thin: each corruption; marked: mean of its group)")
        axes.set_ylabel("accuracy")
        axes.legend(frameon=False)

    title = f"{subject.name}: accuracy under common corruptions"
    return AnalysisResult("robustness", title, rows, _reading(rows, len(subject.images)), draw)


def _row(net: nn.Module, images: Images, name: str, group: str, severity: int) -> dict[str, Any]:
    scores = evaluate(_answers(net, images), _classes(net, images))
    found = {"corruption": name, "group": group, "severity": severity}
    return found | {"accuracy": scores.accuracy, "nll": scores.nll, "ece": scores.ece}


@torch.no_grad()
def _answers(net: nn.Module, images: Images) -> Iterator[tuple[Tensor, Tensor]]:
    for x_BCHW, y_B in images.batches(BATCH):
        yield net(x_BCHW), y_B


@torch.no_grad()
def _classes(net: nn.Module, images: Images) -> int:
    return net(images.seen(images.x_NCHW[:1])).shape[1]


def _accuracies(rows: Sequence[dict[str, Any]], group: str, severity: int) -> list[float]:
    return [row["accuracy"] for row in rows if (row["group"], row["severity"]) == (group, severity)]


def _reading(rows: Sequence[dict[str, Any]], images: int) -> str:
    clean, rest = rows[0], rows[1:]
    accuracy, ece = mean(row["accuracy"] for row in rest), mean(row["ece"] for row in rest)
    by_group, by_name = (_means(rest, key) for key in ("group", "corruption"))
    worst, best = ([n for n in by_name if by_name[n] == most(by_name.values())] for most in (min, max))
    listed = ", ".join(f"{group} {value:.3f}" for group, value in sorted(by_group.items(), key=lambda item: item[1]))
    said = [
        f"Accuracy is {clean['accuracy']:.3f} on {images} clean images and {accuracy:.3f} on average over 15 "
        f"corruptions of 5 severities (one draw of each; the standard error of an accuracy over so many images is at "
        f"most {0.5 / images**0.5:.3f}). By group: {listed}."
    ]
    if len(by_name) > len(worst):
        said.append(
            f"The lowest mean is that of {' and '.join(worst)} ({by_name[worst[0]]:.3f}), the highest that of "
            f"{' and '.join(best)} ({by_name[best[0]]:.3f})."
        )
    said.append(f"The calibration error (ECE) is {ece:.3f} on average and {clean['ece']:.3f} on clean images.")
    return " ".join(said)


def _means(rows: Sequence[dict[str, Any]], key: str) -> dict[str, float]:
    """Mean accuracy by the value of a column."""
    names = dict.fromkeys(row[key] for row in rows)
    return {name: mean(row["accuracy"] for row in rows if row[key] == name) for name in names}
