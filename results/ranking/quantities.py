"""`Quantity`: a number of a net that fronts rank by, `Limits` bound and tables show; `QUANTITIES` has all of them.

Options, limits, columns, plots, checks and what is printed follow from the entries. Numbers of users' devices,
NUMBER@DEVICE, and metrics of users' trainings have no entry: `quantity` makes one of their names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ACCURACY = "accuracy"  # or the score of the run's other metric
LATENCY = "latency_ms"  # of this machine, or what a bare number of a device is
BALANCED = ("balanced_accuracy", "macro_f1")  # metrics to which each class counts the same
DEVICE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
NUMBER_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # of what a device measures


@dataclass(frozen=True)
class Quantity:
    """A number of a net: a cost, of which less is better, or a `Score`."""

    name: str  # in options, rows and JSON
    title: str  # of its column
    unit: str = ""  # what follows a value in a sentence; "" is the title
    axis: str = ""  # what a plot of it says below; "" is the unit
    # its value, above 0, of the totals of any net (`Cost.totals`): it is known before the net is trained, and can be
    # searched and limited by. None where it must be measured.
    formula: Callable[[Mapping[str, int]], float] | None = None
    is_usual: bool = False  # whether tables show it though nobody asks for it

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", self.unit or self.title)
        object.__setattr__(self, "axis", self.axis or self.unit)

    def of(self, costs: Mapping[str, Any]) -> float | None:
        """Its value among a net's costs by name, or by its formula of them; None where neither tells."""
        if self.name in costs or self.formula is None:
            return costs.get(self.name)
        try:
            return self.formula(costs)
        except KeyError:  # activations of timm's nets are not known
            return None

    def text(self, value: float | None) -> str:
        """A value for people; "" if unknown."""
        return "" if value is None else short(value)


@dataclass(frozen=True)
class Score(Quantity):
    """A metric of trained nets."""

    minimize: bool = False  # whether less is better
    # its value by guessing one of so many classes; None of metrics that our trainer does not report of them
    chance: Callable[[int], float] | None = None
    # likewise where pictures have several labels, of the mean share of pictures with a label
    label_chance: Callable[[float], float] | None = None
    is_share: bool = False  # whether it lies between 0 and 1
    counts_images: bool = False  # whether it is a share of independent images, whose noise is binomial
    weighs_classes: bool = False  # whether it is the mean of such shares over classes

    def text(self, value: float | None) -> str:
        return "" if value is None else value_text(value)


# Guessing one of K classes is right in 1 / K of accuracy, balanced accuracy and recall on average, in 5 / K of the top
# five; its AUROC is 0.5, its NLL ln K. Of macro F1 the floor is 0: who always guesses the same of many classes has an
# F1 near it. That of ECE is 1, the most there is: equal shares for all classes are well calibrated, so that guessing is
# no floor. Of several labels a picture: the mean average precision of one answer for all images is the mean share of
# images with a label; a coin is right in half of all labels, and its NLL is ln 2.
ENTRIES = (
    Score(ACCURACY, "accuracy", chance=lambda classes: 1 / classes, counts_images=True, is_share=True),
    Score("map", "mAP", label_chance=lambda positives: positives, is_share=True),
    Score("label_accuracy", "right labels", label_chance=lambda _: 0.5, is_share=True),
    Score("balanced_accuracy", "balanced", chance=lambda classes: 1 / classes, weighs_classes=True, is_share=True),
    Score("macro_f1", "macro F1", chance=lambda _: 0.0, is_share=True),
    Score("auroc", "AUROC", chance=lambda _: 0.5, label_chance=lambda _: 0.5, is_share=True),
    Score("top5", "top 5", chance=lambda classes: min(1.0, 5 / classes), counts_images=True, is_share=True),
    Score("nll", "NLL", minimize=True, chance=math.log, label_chance=lambda _: math.log(2)),
    Score("ece", "calibration error", minimize=True, chance=lambda _: 1.0, is_share=True),
    Score("loss", "loss", minimize=True),
    Quantity("macs", "MACs", axis="MACs of one image", formula=lambda costs: costs["macs"], is_usual=True),
    Quantity("params", "params", unit="parameters", formula=lambda costs: costs["params"], is_usual=True),
    Quantity(LATENCY, "latency ms", unit="ms", axis="latency, ms a batch"),
    Quantity(
        "memory", "memory", unit="bytes of activations", axis="bytes of activations alive at once, of one image",
        formula=lambda costs: costs["peak_activation_bytes"],
    ),
    Quantity("train_flops", "train FLOPs"),
    Quantity("train_seconds", "train s"),
)  # fmt: skip
QUANTITIES = {entry.name: entry for entry in ENTRIES}


def costs() -> list[str]:
    """The names of all costs but those of devices."""
    return [name for name, entry in QUANTITIES.items() if not isinstance(entry, Score)]


def static_costs() -> list[str]:
    """The names of the costs in closed form."""
    return [name for name, entry in QUANTITIES.items() if entry.formula]


def metrics() -> dict[str, Score]:
    """The metrics with an entry, by name."""
    return {name: entry for name, entry in QUANTITIES.items() if isinstance(entry, Score)}


def class_metrics() -> list[str]:
    """The names of the metrics that our trainer reports of pictures with one class."""
    return [name for name, entry in metrics().items() if entry.chance]


def label_metrics() -> list[str]:
    """The names of the metrics that our trainer reports of pictures with several labels."""
    return [name for name, entry in metrics().items() if entry.label_chance]


def split_number(objective: str) -> tuple[str, str]:
    """The number and the device of an objective: "energy_mj@board" is ("energy_mj", "board"); "macs" has no device."""
    number, _, device = objective.partition("@")
    return number, device


def is_number_of_device(objective: str) -> bool:
    """Whether it is spelled NUMBER@DEVICE."""
    number, at, device = objective.partition("@")
    return bool(at and NUMBER_NAME.fullmatch(number) and DEVICE_NAME.fullmatch(device))


def quantity(name: str) -> Quantity:
    """The quantity of a name: a cost, a metric, NUMBER@DEVICE, or a metric of a user's own training."""
    number, device = split_number(name)
    if device:
        return Quantity(name, f"{device} {number.replace('_', ' ')}")
    return QUANTITIES.get(name) or Score(name, name)


def cost_value(name: str, costs: Mapping[str, Any]) -> float | None:
    """A cost of a net, among its costs by name or by its formula of them; None where neither tells."""
    return quantity(name).of(costs)


def static_values(totals: Mapping[str, int]) -> dict[str, float]:
    """The costs in closed form of a net with these totals, by name, as far as they tell."""
    values = {name: cost_value(name, totals) for name in static_costs()}
    return {name: value for name, value in values.items() if value is not None}


class Limits(dict[str, float]):
    """The largest costs allowed, by name: in closed form, "latency_ms" or NUMBER@DEVICE."""

    def broken(self, known: Mapping[str, Any]) -> dict[str, float]:
        """By which share each limit is broken, of those that are, by costs or totals; an unknown cost breaks none."""
        costs = {name: cost_value(name, known) or 0.0 for name in self}
        return {name: costs[name] / most - 1 for name, most in self.items() if costs[name] > most}

    @property
    def static(self) -> Limits:
        """Those on costs in closed form."""
        return Limits({name: most for name, most in self.items() if name in static_costs()})

    @property
    def measured(self) -> Limits:
        """Those on what is measured."""
        return Limits({name: most for name, most in self.items() if name not in static_costs()})


def short(number: float) -> str:
    """Three digits and a unit: 1509826560 -> "1.51 G"."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def value_text(value: float | None) -> str:
    """A metric's value; "-" if unknown."""
    return "-" if value is None else f"{value:.4f}" if abs(value) < 1000 else f"{value:.5g}"
