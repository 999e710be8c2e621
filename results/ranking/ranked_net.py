"""`RankedNet`: a net of a leaderboard; and the scores of nested cross-validation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .metric import Metric, as_shown
from .quantities import ACCURACY


@dataclass(kw_only=True)
class RankedNet:
    """A net of a leaderboard: what it is, its score, its costs, and how it ranks; docs/reading-a-front.md says more."""

    run: str = ""  # its name, where nets of several runs are ranked
    trial: int
    kind: str
    family: str
    label: str  # its family, or the name of one of timm's nets
    key: str
    is_cut: bool = False  # of a pretrained net; no column
    accuracy: float  # on validation, the mean over its seeds, or the score of the run's other metric
    sd: float | None  # over its seeds; None of one
    seeds: int
    interval: float | None = None  # half width at 95 %; None where the noise is unknown
    images: int | None = None  # that the interval counts
    folds: Sequence[float]  # its score in each fold, where it was cross-validated
    nested: float | None = None  # score of the best net of at most its cost, on folds that had no part in the choice
    expected: float | None = None  # score on new pictures, less the luck of its run; see expected.py
    costs: Mapping[str, Any]  # every cost by name, None where it is unknown, and `latency_spread_ms`
    rank: int = 0  # 1 on the front; 0 before it is ranked
    gain: float | None = None
    gain_bound: str | None = None  # "lower" or "upper" where the gain is no more than a bound
    accuracy_per_gmac: float
    knee: bool = False
    tied_with: list[int | str] | None = None  # trials, the closest first; None where the noise is unknown
    budget_steps: int | None  # which, as weights, may make nets no fair comparison
    steps_in_all: int | None = None  # with those of what it started from; None of a bank's slices, each in some steps
    weights: str
    rising: bool | None = None  # whether it still rose at its end
    seconds: float  # of all its trainings
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # values of objectives that are other metrics
    retrained_accuracy: float | None = None
    retrained_sd: float | None = None
    retrained_seeds: int | None = None
    retrained_steps: int | None = None
    retrained_test: float | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)  # of the best of `recipes`: the fields that are searched
    recipes: int = 1

    def value(self, objective: str) -> Any:
        """Its value of an objective: its score, a cost, or another metric."""
        if objective == ACCURACY:
            return self.accuracy
        name = objective.removeprefix("-")
        return self.costs[name] if name in self.costs else self.metrics[name]

    def to_dict(self, metric: Metric) -> dict[str, Any]:
        """Its row as JSON, costs and metrics among the other columns; of another metric see `as_shown`."""
        row: dict[str, Any] = {}
        for name, held in vars(self).items():
            if (name != "run" or self.run) and name != "is_cut" and (name not in ("recipe", "recipes") or self.recipe):
                row |= held if name in ("costs", "metrics") else {name: held}
        return as_shown(row, metric)
