"""Screening: of a group of nets that a strategy draws, the one with the highest cheap signal is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...results.objectives import COSTS
from .candidate import Candidate


class Screen:
    """Groups of candidates that wait to be measured.

    Costs are known at once; other signals of an untrained net are measured by a worker.
    """

    def __init__(self, size: int, signal: str, live: Mapping[int, Candidate]) -> None:
        """Groups of `size`, judged by `signal`; who left `live`, with its worker say, is no longer in its group."""
        self.size, self.signal, self._live = size, signal, live
        self._groups: list[list[Candidate]] = []
        self._filling: list[Candidate] = []

    @property
    def filling(self) -> bool:
        """Whether a group is begun and not full."""
        return bool(self._filling)

    @property
    def open(self) -> int:
        """Groups of which none was chosen yet; each will give one net to train."""
        return len(self._groups) + self.filling

    def add(self, candidate: Candidate) -> None:
        """Put a candidate into the group that is being filled; it may have to be measured."""
        candidate.screening = True
        candidate.measuring = self.signal not in COSTS
        if not candidate.measuring:
            candidate.signals[self.signal] = getattr(candidate.cost, self.signal)
        self._filling.append(candidate)
        if len(self._filling) == self.size:
            self.close()

    def close(self) -> None:
        """Fill the group no further."""
        if self._filling:
            self._groups.append(self._filling)
            self._filling = []

    def finished(self) -> list[Candidate] | None:
        """The candidates of a group that are all measured, the best first; it is a group no longer."""
        self._groups = [left for group in self._groups if (left := [c for c in group if c.trial in self._live])]
        for group in self._groups:
            if not any(candidate.measuring for candidate in group):
                self._groups.remove(group)
                return sorted(group, key=lambda c: (-self._value(c), c.trial))
        return None

    def _value(self, candidate: Candidate) -> float:
        value = candidate.signals.get(self.signal, -math.inf)
        return -math.inf if math.isnan(value) else value
