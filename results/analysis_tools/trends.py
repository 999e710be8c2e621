"""An analysis over nets that differ in what a study varies, such as data, size or window, each over several seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.fourier import highest
from ..analysis.registry import ANALYSES
from ..analysis.translation import of_shift
from ..ranking.stats import mean_ci, paired
from .findings import Finding, judged
from .inputs import AnalysisResult, Rows
from .output import curves

Curve = Callable[[Rows], Mapping[str, float]]  # a number for each named place, in their order


@dataclass(frozen=True)
class StudiedNet:
    """Rows and findings of an analysis for one net of a study."""

    label: str  # of what is varied, such as "3 %"; nets of one label differ in the seed alone
    seed: int  # of its training
    factors: Mapping[str, Any]  # columns of the table, before those of the rows
    rows: Rows
    findings: Sequence[Finding]


def trend(analysis: str, name: str, nets: Sequence[StudiedNet]) -> AnalysisResult:
    """An analysis of TRENDS over nets in their order, which share all but what is varied; `name` is what they share.

    Each finding is given by label, a mean over seeds, and as the difference of the last label and the first.
    """
    y_label, curve = TRENDS[analysis]
    rows = [{**net.factors, "seed": net.seed, **row} for net in nets for row in net.rows]
    names = dict.fromkeys(finding.name for net in nets for finding in net.findings)

    def draw(figure: Figure) -> None:
        by_label: dict[str, list[Mapping[str, float]]] = {}
        for net in nets:
            by_label.setdefault(net.label, []).append(curve(net.rows))
        places = list(dict.fromkeys(place for seeds in by_label.values() for place in chain(*seeds)))
        means = {label: pd.DataFrame(seeds).mean() for label, seeds in by_label.items()}  # over seeds
        ys = {label: mean.reindex(places).tolist() for label, mean in means.items()}
        curves(figure.add_subplot(), places, ys, y_label)

    findings = [found for each in names for found in _over_labels(each, nets)]
    return AnalysisResult(f"{name}: {ANALYSES[analysis].about.lower()}", rows, findings, draw)


def _over_labels(name: str, nets: Sequence[StudiedNet]) -> list[Finding]:
    by_label: dict[str, dict[int, float]] = {}
    unit, resolution = "", 0.0
    for net in nets:
        for finding in net.findings:
            if finding.name == name and finding.value is not None:
                by_label.setdefault(net.label, {})[net.seed] = finding.value
                unit, resolution = finding.unit, max(resolution, finding.resolution)
    facts = {"unit": unit, "over": "seeds", "resolution": resolution}
    found = [
        judged(f"{name}: {label}", mean_ci([*seeds.values()], resolution=resolution), **facts)
        for label, seeds in by_label.items()
    ]
    labels = list(by_label)
    if labels and by_label[labels[0]].keys() & by_label[labels[-1]].keys() and len(labels) > 1:
        change = paired(by_label[labels[0]], by_label[labels[-1]], resolution=resolution)
        found.append(judged(f"{name}: {labels[-1]} less {labels[0]}", change, ("more", "less"), **facts))
    return found


def _columns(place: str, value: str, **only: str) -> Curve:
    """One column over another, of the rows that hold these values."""
    return lambda rows: {row[place]: row[value] for row in rows if all(row[name] == of for name, of in only.items())}


def _first_layer_distances(rows: Rows) -> dict[str, float]:
    """Distances of the heads of the lowest attention layer in pixels, nearest first."""
    distances = sorted(row["distance_px"] for row in rows if row["layer"] == rows[0]["layer"])
    return {f"head {i}": px for i, px in enumerate(distances, 1)}


def _deciles(rows: Rows) -> dict[str, float]:
    """The eigenvalue below which each tenth lies."""
    values = [row["eigenvalue"] for row in rows]
    return {f"{10 * i} %": float(np.quantile(values, i / 10)) for i in range(11)}


def _moved(rows: Rows) -> dict[str, float]:
    """Equivariance at each place that can have it, at the largest shift."""
    last = of_shift(rows, rows[-1]["shift"])
    return {row["place"]: row["moved"] for row in last if row["moved"] is not None}


TRENDS: dict[str, tuple[str, Curve]] = {  # label of the y axis, and what is drawn
    "variance": ("variance over the pixels of a map", _columns("site", "variance")),
    "fourier": (
        "log amplitude of the highest frequency",
        lambda rows: {row["site"]: row["log_amplitude"] for row in highest(rows)},
    ),
    "linear": ("accuracy of a linear probe", _columns("place", "accuracy", features="gap")),
    "cka": ("CKA with the last one's same place", _columns("place", "cka")),
    "cka_between": ("CKA with the largest net's best match", _columns("place", "cka")),
    "distance": ("attention distance (px)", _first_layer_distances),
    "translation": ("correlation with the moved map, at the largest shift", _moved),
    "hessian": ("eigenvalue of the Hessian, below which so many lie", _deciles),
}
