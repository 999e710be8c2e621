"""`Metric`: what ranks nets, accuracy unless a search names another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import Meta

from ...archs.errors import InputError, check_choice, short_repr
from ...archs.json_files import Number, check_fields, convert
from ..runs.record import Record
from ..runs.status import Status
from ..runs.store import read_settings
from .quantities import ACCURACY, Score, class_metrics, label_metrics, quantity, value_text
from .stats import ANY, SHARE

if TYPE_CHECKING:
    from ..metrics import LabelScores, Scores  # which imports torch

RECALL = "recall:"  # the beginning of the name of the metric of one class
SHOWN_AS = {"accuracy": "value", "accuracies": "values", "best_accuracy": "best_value"}
SHOWN_AS |= {"retrained_accuracy": "retrained_value"}


@dataclass(frozen=True)
class Metric:
    """The metric that ranks nets: records hold its score, of which more is better; people are shown its value."""

    name: Annotated[str, Meta(min_length=1, max_length=200)] = ACCURACY  # as trainings report it
    minimize: bool = False  # whether less is better
    chance: Number | None = None  # its value by guessing, of a metric of the user's own; None if nobody says
    # the value that a net must reach to be of use: fronts and hypervolumes begin there; None is any
    needed: Number | None = None

    def __post_init__(self) -> None:
        check_fields(self, "metric")
        if not self.name.isprintable():
            raise InputError(f"metric: name must be printable, got {short_repr(self.name)}")

    def score(self, value: float) -> float:
        """Score of a value."""
        return -value if self.minimize else value

    def value(self, score: float) -> float:
        """Value of a score."""
        return -score if self.minimize else score

    def text(self, score: float | None) -> str:
        """The value of a score; "-" if unknown."""
        return value_text(None if score is None else self.value(score))

    @property
    def needed_text(self) -> str:
        """What a net must reach to be of use: "accuracy of at least 0.85"; "" where any is."""
        bound = "most" if self.minimize else "least"
        return "" if self.needed is None else f"{self.name} of at {bound} {value_text(self.needed)}"

    @property
    def is_accuracy(self) -> bool:
        return self.name == ACCURACY

    @property
    def points(self) -> str:
        """Unit of gains and of the noise."""
        return "points" if self.is_accuracy else f"hundredths of {self.name}"

    @property
    def is_known(self) -> bool:
        """Whether it is one of our own trainer's for classes, of which its range is known."""
        return self.name in class_metrics() or self.name.startswith(RECALL)

    @property
    def within(self) -> tuple[float, float]:
        """Range of its values, as far as it is known."""
        return SHARE if self.is_known and (self.kind.is_share or self.name.startswith(RECALL)) else ANY

    @property
    def kind(self) -> Score:
        """The metric of that name."""
        found = quantity(self.name)
        return found if isinstance(found, Score) else Score(self.name, self.name)


def parse_metric(
    name: str,
    minimize: bool,
    has_trainer: bool,
    several_labels: bool = False,
    chance: float | None = None,
    needed: float | None = None,
) -> Metric:
    """A metric as asked for: one of our own trainer's, or any name that a trainer of the user's may report.

    "" is map where pictures have several labels, else accuracy. InputError if our own trainer has none of that name,
    its direction or chance is not to be chosen, or no net can reach what is needed.
    """
    name = name or ("map" if several_labels else ACCURACY)
    if not has_trainer and several_labels and name not in label_metrics():
        rule = f"of pictures with several labels it must be one of {', '.join(label_metrics())}"
        raise InputError(f"metric: {rule}, got {short_repr(name)}")
    if not has_trainer and not several_labels and not name.startswith(RECALL):
        check_choice("metric", name, (*class_metrics(), f"{RECALL}CLASS"))
    if chance is not None and not has_trainer:
        raise InputError(f"chance: of {name} it is known; it is for metrics of a --trainer of your own")
    metric = Metric(name, minimize, chance, needed)
    metric = replace(metric, minimize=minimize or metric.kind.minimize)
    if minimize and not metric.kind.minimize and (metric.is_known or not has_trainer):
        raise InputError(f"minimize: of {name} more is better; it is for metrics of a --trainer of your own")
    low, high = metric.within
    if needed is not None and not low <= needed < high:
        raise InputError(f"min-accuracy: {name} must be from {low:g} to below {high:g}, got {needed:g}")
    return metric


def class_of(metric: Metric, classes: Sequence[str]) -> int | None:
    """The label of the class whose recall a metric is; None of other metrics. InputError if the data lack the class."""
    if not metric.name.startswith(RECALL):
        return None
    return list(classes).index(check_choice(f"metric {RECALL}CLASS", metric.name.removeprefix(RECALL), classes))


def all_numbers(
    scores: Scores | LabelScores, metric: Metric, classes: Sequence[str], prefix: str = ""
) -> dict[str, float]:
    """Scores of a net on a split by name, with a recall among them if that is the metric."""
    numbers, label = scores.numbers(prefix), class_of(metric, classes)
    if label is not None:
        numbers[f"{prefix}{metric.name}"] = cast("Scores", scores).recall(label)
    return numbers


def run_metric(folder: Path) -> Metric:
    """The metric that ranks a run's nets, accuracy where run.json does not say; InputError if it holds no metric."""
    found = read_settings(folder).get("settings", {}).get("metric", {})
    return convert(found, Metric, f"{folder / 'run.json'}: settings.metric")


def guessing(metric: Metric, data: Mapping[str, Any]) -> float | None:
    """The score of guessing, on data of these facts; None where nobody knows it, of a user's own without a chance.

    Of the recall of one class the floor is 0: who always guesses the same has that of all other classes. The fact
    "positives", the mean share of images with a label, is of pictures with several labels.
    """
    if metric.chance is not None:
        return metric.score(metric.chance)
    kind = metric.kind
    if "positives" in data:
        value = kind.label_chance and kind.label_chance(data["positives"])
    elif metric.name.startswith(RECALL):
        value = 0.0
    else:
        value = kind.chance and kind.chance(len(data["classes"]))
    return -value if value and kind.minimize else value


def score_range(metric: Metric, data: Mapping[str, Any], scores: Sequence[float]) -> tuple[float, float]:
    """Scores of guessing and of a perfect net, between which hypervolumes are counted, on data of these facts.

    Where nobody knows what guessing gives, it is the worst of `scores`, those of the run's trained nets, and their
    best. Where the user says it, a perfect net has 1, or 0 where less is better, unless a trained one has more. What a
    net must reach to be of use takes the place of guessing.
    """
    floor, best = guessing(metric, data), 0.0 if metric.minimize else 1.0
    if metric.needed is not None:
        return metric.score(metric.needed), max([best, *scores])
    if floor is None:
        return min(scores, default=0.0), max(scores, default=0.0)
    return floor, best if metric.chance is None else max([best, *scores])


def floor_name(metric: Metric, data: Mapping[str, Any]) -> str:
    """Name of the score that hypervolumes start from, see `score_range`."""
    if metric.needed is not None:
        return value_text(metric.needed)
    return "the worst" if guessing(metric, data) is None else "chance"


def trained_scores(records: Sequence[Record]) -> list[float]:
    """Scores of the nets trained to the end."""
    return [record.accuracy for record in records if record.status == Status.OK and record.accuracy is not None]


def validation_metrics(record: Record, metric: Metric) -> dict[str, float | None]:
    """All that was measured of a net's first seed on validation, that which ranks it among them."""
    score = record.own_accuracy
    return record.metrics | {metric.name: None if score is None else metric.value(score)}


def as_shown(found: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    """A row, a record or a point of its curve, as people are given it: values in place of scores.

    With accuracy nothing changes. With another metric its name is there as `metric`, and what was called accuracy,
    accuracies, retrained_accuracy and best_accuracy is value, values, retrained_value and best_value;
    accuracy_per_gmac is left out.
    """
    if metric.is_accuracy:
        return dict(found)
    shown: dict[str, Any] = {}
    for name, held in found.items():
        if name in SHOWN_AS:
            shown |= {"metric": metric.name} if name in ("accuracy", "best_accuracy") else {}
            shown[SHOWN_AS[name]] = _values(held, metric)
        elif name in ("curve", "rungs"):
            shown[name] = [point | {"value": _values(point.get("accuracy"), metric)} for point in held]
            for point in shown[name]:
                point.pop("accuracy", None)
        elif name != "accuracy_per_gmac":
            shown[name] = held
    return shown


def _values(held: Any, metric: Metric) -> Any:
    if isinstance(held, Mapping):
        return {seed: metric.value(score) for seed, score in held.items()}
    return None if held is None else metric.value(held)
