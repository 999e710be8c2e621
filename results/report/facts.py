"""A run as its report reads it: records, leaderboard, scene, and the list of its nets that have an accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..latency.store import Measurement
from ..ranking.objectives import LATENCY, own_flops
from ..ranking.run_leaderboard import leaderboard_of, no_net
from ..render.net import InputSpec, input_spec
from ..runs.record import Record
from ..runs.store import read_data_facts, read_settings


@dataclass(frozen=True)
class Run:
    """Attributes:
    folder: of the run.
    told: the content of run.json.
    data: what it says of the data.
    records: in the order written.
    rows: the leaderboard.
    objective: the cost that accuracy is weighed against.
    scene: images and classes.
    latencies: of its nets, by key, where they were measured.
    none: why no net is on the leaderboard; "" where one is.
    """

    folder: Path
    told: dict[str, Any]
    data: dict[str, Any]
    records: list[Record]
    rows: list[dict[str, Any]]
    objective: str
    scene: InputSpec
    latencies: Mapping[str, Measurement] = field(default_factory=dict)
    none: str = ""

    def cost(self, record: Record) -> float:
        """What accuracy is weighed against."""
        return self.latencies[record.key].ms if self.objective == LATENCY else record.cost[self.objective]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def settings(self) -> dict[str, Any]:
        settings = self.told.get("settings")
        return settings if isinstance(settings, dict) else {}

    @cached_property
    def row_of(self) -> dict[int, dict[str, Any]]:
        """The leaderboard's row of a trial."""
        return {row["trial"]: row for row in self.rows}

    @cached_property
    def nets(self) -> list[Record]:
        """All that have an accuracy of their own: ranked ones by rank, then the others in their order."""
        known = {r.trial: r for r in self.records}
        ranked = [known[row["trial"]] for row in self.rows]
        others = [r for r in self.records if r.accuracy is not None and r.status in ("ok", "pruned")]
        return ranked + [r for r in others if r.trial not in self.row_of]

    @cached_property
    def place(self) -> dict[int, int]:
        """Of a trial in `nets`."""
        return {record.trial: i for i, record in enumerate(self.nets)}

    @property
    def ranked(self) -> list[Record]:
        return self.nets[: len(self.rows)]

    @property
    def front(self) -> list[Record]:
        """The nets of rank 1, the cheapest first."""
        return [r for r in self.ranked if self.row_of[r.trial]["rank"] == 1]

    @cached_property
    def genes(self) -> list[str]:
        """The names of all genes, in the order drawn."""
        return list(dict.fromkeys(name for record in self.records for name in record.genes))


def elapsed(records: Sequence[Record]) -> list[float] | None:
    """Seconds from the start of a run to the end of each of its nets; None if a record does not say when it ended.

    A clock that was set back stands still until it has caught up.
    """
    if not records or not all(r.finished_at for r in records):
        return None
    start = min(map(began, records))
    return list(accumulate((_time(r.finished_at) - start for r in records), max))


def began(record: Record) -> float:
    """When a net's training began, in seconds since 1970: by a record that does not say, at the latest."""
    return _time(record.started_at) if record.started_at else _time(record.finished_at) - record.seconds


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def open_run(folder: Path) -> Run:
    """What a report is made from.

    Raises:
        InputError: if the run cannot be read.
    """
    found, told, data = leaderboard_of(folder), read_settings(folder), read_data_facts(folder)
    board, objective = found.board, found.board.asked.costs[0]
    scene, records = input_spec(folder), list(found.records)
    return Run(folder, told, data, records, board.rows, objective, scene, found.latencies, no_net(board))


def flops_of(record: Record) -> int:
    """FLOPs that a net took itself, all its seeds: summed over a run, ancestors count once."""
    return own_flops(record) * max(1, len(record.accuracies))
