"""What each layer already knows of the classes: few-shot linear probes along a net.

Raghu et al., NeurIPS 2021, section 6, with Dosovitskiy et al.'s probe (ICLR 2021, section 4.1): 10 images a class,
ridge regression to -1 and +1 in closed form, the penalty chosen on other training images. On the class token, on the
mean of the map (GAP) and on single tokens, which is one place of a map. The paper brings a CNN's maps to the last
one's size by stacking neighbours as channels; here the mean and single places keep each layer's own width.

N images, D features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis_tools.hooks import HookPoint, as_map, residual_points, seeing, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.metrics import Labelled, by_class, shot_accuracy
from ..analysis_tools.plots import curves

KINDS = ("cls", "gap", "token")


@torch.no_grad()
def features_of(net: nn.Module, sites: Sequence[HookPoint], batches: Iterable[Tensor]) -> dict[tuple[str, str], Tensor]:
    """f_ND by (site, what it is of), in eval mode: "cls" where there is a class token, "gap", and "token ROW,COLUMN".

    Args:
        net: any net of `residual_sites`.
        sites: some of them.
        batches: x_BCHW as the net wants them.
    """
    seen: dict[tuple[str, str], list[Tensor]] = {}

    def see(site: HookPoint, value: Tensor) -> None:
        map_BCHW = as_map(site, value)
        parts = {"gap": map_BCHW.mean((2, 3))} | ({"cls": value[:, 0].clone()} if site.lead else {})
        for row, column in quarters(*map_BCHW.shape[2:]):
            parts[f"token {row},{column}"] = map_BCHW[:, :, row, column].clone()
        for kind, part in parts.items():
            seen.setdefault((site.name, kind), []).append(part)

    with undisturbed(net), seeing(net, sites, see):
        for x_BCHW in batches:
            net(x_BCHW)
    return {key: torch.cat(parts) for key, parts in seen.items()}


def quarters(height: int, width: int) -> list[tuple[int, int]]:
    """The places of a map in the middle of its four quarters; fewer where they coincide."""
    rows, columns = ({side // 4, 3 * side // 4} for side in (height, width))
    return [(row, column) for row in sorted(rows) for column in sorted(columns)]


def every_second(y_N: Tensor) -> Tensor:
    """True for every second image of each class, from its first on."""
    chosen_N = torch.zeros(len(y_N), dtype=torch.bool, device=y_N.device)
    for places in by_class(y_N).values():
        chosen_N[torch.from_numpy(places[::2])] = True
    return chosen_N


def analyse(subject: AnalysisInput, shots: int = 10, draws: int = 3, batch: int = 64) -> AnalysisResult:
    """Accuracy of linear probes behind the stem and behind every block, a mean over `draws` of training images.

    Of each class every second image is for training, the others for testing.

    Raises:
        InputError: if a class has fewer than `shots` training images.
    """
    images, sites = subject.images, residual_points(subject.net)
    found = features_of(subject.net, sites, (x_BCHW for x_BCHW, _ in images.batches(batch)))
    rows = [
        {"place": place, "features": kind, "accuracy": _accuracy(f_ND, images.y_N, shots, draws), "shots": shots}
        for (place, kind), f_ND in found.items()
    ]
    title = f"What a linear probe reads in {subject.name} from {shots} images a class"
    names = [site.name for site in sites]
    test = int((~every_second(images.y_N)).sum())
    return AnalysisResult("linear", title, rows, _reading(rows, names, test), lambda figure: _draw(figure, rows, names))


def _accuracy(f_ND: Tensor, y_N: Tensor, shots: int, draws: int) -> float:
    train_N = every_second(y_N)
    train, test = (Labelled(f_ND[at], y_N[at]) for at in (train_N, ~train_N))
    return float(np.mean([shot_accuracy(train, test, shots, seed) for seed in range(draws)]))


def _by_kind(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, list[float]]:
    """Accuracy by place for each kind, single tokens averaged; NaN where a place has none."""
    found = {}
    for kind in KINDS:
        cells = [
            [row["accuracy"] for row in rows if row["place"] == name and row["features"].startswith(kind)]
            for name in names
        ]
        if any(cells):
            found[kind] = [float(np.mean(cell)) if cell else math.nan for cell in cells]
    return found


def _reading(rows: Sequence[dict[str, Any]], names: Sequence[str], test: int) -> str:
    by = _by_kind(rows, names)
    gap = by["gap"]
    best = int(np.argmax(gap))
    text = [
        f"Read from the mean of the map, accuracy on {test} images goes from {gap[0]:.1%} at {names[0]} to "
        f"{gap[-1]:.1%} at {names[-1]}; it is highest at {names[best]} with {gap[best]:.1%}."
    ]
    error = math.sqrt((gap[0] * (1 - gap[0]) + gap[best] * (1 - gap[best])) / test)
    if gap[best] - gap[0] > 2 * error:
        half = next(i for i, each in enumerate(gap) if each >= (gap[0] + gap[best]) / 2)
        text.append(f"Half of the rise to it is there at {names[half]}, place {half + 1} of {len(names)}.")
    else:
        text.append(f"That is a rise by no more than two standard errors ({100 * error:.1f} points each).")
    last = {kind: values[-1] for kind, values in by.items() if kind != "gap"}
    ways = {"cls": "the class token", "token": "a single token (four of them, averaged)"}
    ends = " and ".join(f"{ways[kind]} {value:.1%}" for kind, value in last.items())
    text.append(f"At the end {ends} give{'s' if len(last) == 1 else ''} beside {gap[-1]:.1%} of the mean.")
    return " ".join(text)


def _draw(figure: Figure, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    labels = {"cls": "class token", "gap": "mean of the map", "token": "single token"}
    by = _by_kind(rows, names)
    curves(figure.add_subplot(), names, {labels[kind]: values for kind, values in by.items()}, "accuracy of the probe")
