"""Objectives: their names, a `RankingQuery` of them, and the compute of a record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...archs.cost import FORWARD_FACTOR, training_flops
from ...archs.errors import InputError, check_choice, check_texts, short_repr
from ...archs.genotype import FAMILIES
from ..runs.record import Record
from .metric import Metric
from .pareto import Bounds, above_chance, min_max, normalized_cost
from .quantities import ACCURACY, Score, costs, is_number_of_device, quantity
from .ranked_net import RankedNet


@dataclass(frozen=True)
class RankingQuery:
    """Objectives that nets of a run are ranked on, and which nets."""

    # accuracy and costs, and metrics that records hold, "-" before one of which less is better; none are the
    # run's own
    objectives: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)  # largest value of a net, by objective
    families: tuple[str, ...] = ()  # of nets; none are all
    latency_of: str = ""  # which of the settings that latencies were measured in
    metric: Metric = field(default_factory=Metric)  # what records hold as accuracy

    def __post_init__(self) -> None:
        for family in self.families:
            check_choice("family", family, FAMILIES)

    @property
    def costs(self) -> tuple[str, ...]:
        """The objectives that are costs."""
        return tuple(filter(is_cost, self.objectives))

    @property
    def cost(self) -> str:
        """The cost that gains are read at and nets are listed by."""
        return self.costs[0] if self.costs else "macs"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The objectives that are metrics of records, beside that which ranks."""
        return tuple(name for name in self.objectives if name != ACCURACY and not is_cost(name))

    def scores(self, row: RankedNet) -> list[float]:
        """A row's values of the objectives, of a cost and of a metric that is minimised as a negative number."""
        less = [name in self.costs or name.startswith("-") for name in self.objectives]
        return [-row.value(name) if down else row.value(name) for name, down in zip(self.objectives, less, strict=True)]

    def point(self, row: RankedNet) -> tuple[float, ...]:
        """A row's point as `pareto` takes it: of the first objective more is better, of the others less."""
        first, *others = self.scores(row)
        return first, *(-score for score in others)

    def bounds(self, rows: Sequence[RankedNet]) -> dict[str, Bounds]:
        """The lowest and the highest value of each cost and score of each metric; none of no rows."""
        if not rows:
            return {}
        columns = zip(*map(self.scores, rows), strict=True)
        scores = {name: min_max(values) for name, values in zip(self.objectives, columns, strict=True)}
        return scores | {cost: min_max([row.costs[cost] for row in rows]) for cost in self.costs}

    def worths(self, rows: Sequence[RankedNet], bounds: Mapping[str, Bounds]) -> list[tuple[float, ...]]:
        """The objectives of each row, scaled from 0 to 1, the best."""
        return [
            tuple(
                normalized_cost(-score, bounds[name]) if name in self.costs else above_chance(score, *bounds[name])
                for name, score in zip(self.objectives, self.scores(row), strict=True)
            )
            for row in rows
        ]

    def checked(self, recorded: Collection[str]) -> RankingQuery:
        """The same, with the metric that ranks called accuracy; InputError if one is not `recorded`, or twice."""
        named = [ACCURACY if column(name) == self.metric.name else name for name in self.objectives]
        if recorded:
            known = (ACCURACY, *costs())
            for name in (name for name in named if not is_number_of_device(name)):
                check_choice("objectives", column(name), (*known, *sorted({*recorded}.difference(known))))
        _check_count(named, self.objectives)
        return replace(self, objectives=tuple(sorted(named, key=lambda name: name != ACCURACY)))


def parse_objectives(text: str | Sequence[str]) -> tuple[str, ...]:
    """Two or three objectives, accuracy first, of "accuracy,macs,latency_ms" or of a list; "macs" is "accuracy,macs".

    "" is none: the run's own. Other names are metrics, which `RankingQuery.checked` looks for in a run. InputError if
    one is named twice, or there are not two or three.
    """
    asked = list(filter(None, check_texts("objectives", text)))
    named = ["-" * getattr(quantity(name.removeprefix("train_")), "minimize", False) + name for name in asked]
    if len(named) == 1 and named != [ACCURACY]:
        named = [ACCURACY, *named]
    if named:
        _check_count(named, text if isinstance(text, str) else ",".join(text))
    return tuple(sorted(named, key=lambda name: name != ACCURACY))


def is_cost(objective: str) -> bool:
    """Whether less of it is better, and it is no metric."""
    return not isinstance(quantity(objective), Score)


def column(objective: str) -> str:
    """The name in a row that holds an objective's value."""
    return objective.removeprefix("-")


def title(objective: str) -> str:
    """Name of an objective in tables and messages."""
    return quantity(objective).title if is_cost(objective) else column(objective)


def _check_count(named: Collection[str], given: object) -> None:
    if not (len(named) == len({*map(column, named)}) and len(named) in (2, 3)):
        rule = f"two or three different ones of {', '.join((ACCURACY, *costs()))}, NUMBER@DEVICE, or metrics of the run"
        raise InputError(f"objectives: {rule}, got {short_repr(given)}")


def own_flops(record: Record) -> int:
    """FLOPs of training the net once, from where it started: 6 x MACs x images, 0 where steps or batch are unknown."""
    return int(training_flops(record.macs, record.budget.get("done", 0), record.recipe.get("batch_size", 0)))


def spent_on_training(record: Record) -> int:
    """FLOPs that a run spent on training a net, all its seeds, as far as they came; none on one that it took over."""
    return 0 if record.taken_from else own_flops(record) * max(1, len(record.accuracies))


def spent_on_evaluation(record: Record) -> int:
    """FLOPs that a run spent on evaluating a net: 2 x MACs x images, those for statistics of BatchNorm too."""
    images = 0 if record.taken_from else record.runtime.get("evaluated", 0)
    return FORWARD_FACTOR * record.macs * images * max(1, len(record.accuracies))


def train_flops(record: Record) -> int | None:
    """FLOPs of training the net once, and what it inherited from: 6 x MACs x images seen, 2 forward and 4 backward.

    As `training_flops` and the lineage of a record count them. None where steps, batch or ancestors are unknown.
    """
    own, inherited = own_flops(record), record.lineage.get("flops") if record.lineage else 0
    return own + inherited if own and inherited is not None else None


def train_seconds(record: Record, by_trial: Mapping[int, Record]) -> float | None:
    """Seconds of training the net once, and what it inherited from; None where they are unknown."""
    seconds, ancestor, seen = 0.0, record, set[int]()
    while True:
        own = ancestor.seconds / max(1, len(ancestor.accuracies))  # those of a record are of all its seeds
        if own <= 0 or ancestor.trial in seen:
            return None
        seconds += own
        if not ancestor.lineage:
            return seconds
        seen.add(ancestor.trial)
        parent = by_trial.get(ancestor.lineage.get("trial", -1))
        if parent is None:
            return None
        ancestor = parent
