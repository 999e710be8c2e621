"""The table: every net of space `bench`, trained with several seeds, as one Parquet file.

Made by benchmarks/table.py from runs of `alternas search bench --strategy enumerate`. One row a training: data, key of
the net, seed, EMA validation accuracy at each sixteenth of the budget (a1 to a16), seconds, params, macs.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...archs.errors import InputError, check_choice
from ...results.ranking.pareto import hypervolume, pareto_ranks

FILE = Path(__file__).with_name("table.parquet")
READINGS = 16  # of a training, at equal steps
IMAGE_SIZE, CLASSES, IN_CHANS = 16, 10, 1
CHANCE = 1 / CLASSES
COLUMNS = [f"a{i + 1}" for i in range(READINGS)]


@dataclass(frozen=True)
class Training:
    """One training of a net: its accuracy at each reading, and the seconds it took."""

    curve: tuple[float, ...]
    seconds: float

    def at(self, share: float) -> float:
        """Accuracy at a share of the budget, by the nearest reading."""
        return self.curve[max(1, round(share * READINGS)) - 1]


@dataclass(frozen=True)
class Entry:
    """A net of the table: its costs and its trainings by seed."""

    costs: dict[str, float]
    trainings: dict[int, Training]

    @cached_property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return statistics.mean(t.curve[-1] for t in self.trainings.values())

    def drawn(self, key: str, seed: int) -> Training:
        """The training that a query with `seed` gets: always the same one, noise and all."""
        seeds = sorted(self.trainings)
        return self.trainings[random.Random(f"{key}/{seed}").choice(seeds)]


@dataclass(frozen=True)
class TabularBenchmark:
    """All nets trained on one data set, by key."""

    data: str
    entries: dict[str, Entry]

    def hypervolume(self, keys: list[str], cost: str = "macs") -> float:
        """Of these nets, as a share of that of the whole table: seed-mean accuracy, as in docs/reading-a-front.md."""
        costs = [entry.costs[cost] for entry in self.entries.values()]

        def area(keys: Iterable[str]) -> float:
            points = [(self.entries[key].accuracy, self.entries[key].costs[cost]) for key in keys]
            return hypervolume(points, CHANCE, [(min(costs), max(costs))])

        return area(keys) / area(self.entries)

    def front(self, cost: str = "macs") -> list[str]:
        """Keys of the non-dominated nets, by seed-mean accuracy."""
        points = [(entry.accuracy, entry.costs[cost]) for entry in self.entries.values()]
        return [key for key, rank in zip(self.entries, pareto_ranks(points), strict=True) if rank == 1]


def load_table(data: str, path: Path = FILE) -> TabularBenchmark:
    """The table of one data set, "cue" or "clutter".

    Raises:
        InputError: if the file is not there or has no such data.
    """
    import pandas as pd

    if not path.is_file():
        raise InputError(f"table {path}: not there")
    rows = pd.read_parquet(path)
    check_choice("data", data, sorted(set(rows["data"])))
    entries: dict[str, Entry] = {}
    for row in rows.loc[rows["data"] == data].to_dict(orient="records"):
        entry = entries.setdefault(row["key"], Entry({name: float(row[name]) for name in ("macs", "params")}, {}))
        curve = tuple(float(row[name]) for name in COLUMNS)
        entry.trainings[int(row["seed"])] = Training(curve, float(row["seconds"]))
    return TabularBenchmark(data, entries)
