"""How the front of a search grows, in scalars that a tracker can draw."""

import math
from pathlib import Path

from ...results.ranking.metric import run_metric, score_range
from ...results.ranking.objectives import spent_on_training
from ...results.ranking.pareto import above_chance, dominated_volume, normalized_cost
from ...results.ranking.quantities import cost_value
from ...results.ranking.run_leaderboard import costs_of, device_of, limits_of
from ...results.render.tables import short
from ...results.runs.events import Line
from ...results.runs.record import Record
from ...results.runs.status import Status
from ...results.runs.store import read_data_facts

ROUND = (1, 2, 5)  # times powers of ten: costs up to which the best accuracy is told


class FrontScalars:
    """The front after each record of a search, and the compute spent by then."""

    def __init__(self, folder: Path) -> None:
        """Of the run in `folder`; InputError if its run.json is broken."""
        self._objective = costs_of(folder)[0]
        self._number, self._setting_id = device_of(folder, self._objective)
        self._metric, self._limits, self._data = run_metric(folder), limits_of(folder), read_data_facts(folder)
        self._measured: dict[str, float] = {}  # the objective's cost, by key
        self._scores = (math.inf, -math.inf)  # the worst and the best
        self._front: list[tuple[float, float]] = []  # scores and costs
        self._lowest, self._most_expensive = math.inf, 0.0
        self._flops = 0
        self.nets = 0  # trained to the end so far

    def apply(self, line: Line) -> dict[str, float]:
        """Scalars after the next line; {} if it changes nothing."""
        if isinstance(line, Record):
            return self._add(line)
        if line.event == "measured" and self._setting_id:
            found = line.measurement
            if found.is_of(self._setting_id) and (value := found.value(self._number)):
                self._measured[found.key] = value
        return {}

    def _add(self, record: Record) -> dict[str, float]:
        self._flops += spent_on_training(record)
        if record.status != Status.OK or record.accuracy is None:
            return {}
        self.nets += 1
        self._scores = min(self._scores[0], record.accuracy), max(self._scores[1], record.accuracy)
        cost = self._measured.get(record.key) if self._setting_id else cost_value(self._objective, record.cost)
        if cost is not None and not self._limits.broken(record.cost):
            score = record.accuracy
            self._lowest, self._most_expensive = min(self._lowest, cost), max(self._most_expensive, cost)
            if not any(other >= score and own <= cost for other, own in self._front):
                rest = [(other, own) for other, own in self._front if other > score or own < cost]
                self._front = [*rest, (score, cost)]
        return {"train_flops": float(self._flops)} | (self._scalars() if self._front else {})

    def _scalars(self) -> dict[str, float]:
        metric, bounds = self._metric, (self._lowest, self._most_expensive)
        within = score_range(metric, self._data, self._scores)
        worths = [(above_chance(score, *within), normalized_cost(cost, bounds)) for score, cost in self._front]
        values = {
            "front/hypervolume": dominated_volume(worths),
            "front/nets": float(len(self._front)),
            f"front/best_{metric.name}": metric.value(max(score for score, _ in self._front)),
        }
        for cost in round_costs(self._lowest, self._most_expensive):
            best = max(score for score, own in self._front if own <= cost)
            name = f"front/{metric.name}_up_to_{short(cost)}_{self._objective}"
            values[name.replace(" ", "")] = metric.value(best)
        return values


def round_costs(lowest: float, most_expensive: float) -> list[float]:
    """1, 2 and 5 times the powers of ten from `lowest` to `most_expensive`."""
    powers = range(math.floor(math.log10(lowest)), math.ceil(math.log10(most_expensive)) + 1)
    costs = [digit * 10.0**power for power in powers for digit in ROUND]
    return [cost for cost in costs if lowest <= cost <= most_expensive]
