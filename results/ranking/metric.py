"""What nets are ranked by: accuracy, unless a search names another metric."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric that ranks nets.

    Records, rungs and samplers hold its score, of which more is better; people are shown its value.

    Attributes:
        name: as trainings report it.
        minimize: whether less is better.
    """

    name: str = "accuracy"
    minimize: bool = False

    def score(self, value: float) -> float:
        """Of a value."""
        return -value if self.minimize else value

    def value(self, score: float) -> float:
        """Of a score."""
        return -score if self.minimize else score
