"""How long nets were trained, and the plain ResNets that were trained for as long: what a gain is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..runs.record import Record
from ..runs.status import Status
from .ranked_net import RankedNet


def steps_in_run(record: Record, by_trial: Mapping[int, Record]) -> int:
    """Optimiser steps that a run spent on training the net once, and what it came from there; of a bank none."""
    steps, seen = 0, set[int]()
    ancestor: Record | None = record
    while ancestor is not None and ancestor.trial not in seen:
        seen.add(ancestor.trial)
        steps += ancestor.budget.get("done", 0)
        ancestor = by_trial.get(ancestor.lineage.get("trial", -1))
    return steps


class PlainResNets:
    """The plain ResNets of a run: of one that was trained on the better weights count, and all of its steps."""

    def __init__(self, candidates: Iterable[RankedNet], records: Sequence[Record], cost: str) -> None:
        self._by_trial = {record.trial: record for record in records if record.status == Status.OK}
        steps: dict[str, int] = {}
        for record in self._by_trial.values():
            if record.kind == "baseline":
                steps[record.key] = max(steps.get(record.key, 0), steps_in_run(record, self._by_trial))
        plain = [row for row in candidates if row.kind == "baseline" and row.costs[cost]]
        self._found = {row.key: (row.accuracy, row.costs[cost], steps[row.key]) for row in plain}

    def trained_as_long(self, row: RankedNet) -> list[tuple[float, float]]:
        """Accuracy and cost of those that were trained for at least as long as a net: no other is it compared with."""
        least = self._steps(row)
        return [(accuracy, cost) for accuracy, cost, steps in self._found.values() if steps >= least]

    def _steps(self, row: RankedNet) -> int:
        return steps_in_run(self._by_trial[row.trial], self._by_trial)
