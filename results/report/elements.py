"""What a report is made from, a run, and what it is made of: plots and tables as values that know no HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from ..ranking.leaderboard import leaderboard_of
from ..ranking.metric import Metric
from ..ranking.objectives import LATENCY
from ..render.describe_net import InputSpec, input_spec
from ..runs.record import BESIDE, Record
from ..runs.store import read_data_facts, read_settings

# Okabe and Ito (2008), as results/render/plots.py; grey reads on white and on black.
BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8f98",
)  # fmt: skip
COLOURS = (BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY)


@dataclass(frozen=True)
class Series:
    """Points, a line or bars of one name."""

    name: str  # in the legend
    x: list[Any]  # numbers or names
    y: list[Any]  # numbers; None breaks a line
    kind: str = "points"  # points, rings, line, steps or bars
    colour: str = GREY  # of all of it
    symbol: str = "circle"  # of points, as plotly calls it
    quiet: bool = False  # whether it stands back
    hidden: bool = False  # whether it waits in the legend until it is asked for
    nets: list[int] = field(default_factory=list)  # of points, each one's place in the report's list of nets


@dataclass(frozen=True)
class Plot:
    """One plot. Without series it is left out, and `caption` says why; else it says how to read it."""

    kind: ClassVar[str] = "plot"
    name: str  # a plain word, of its files and its place in the page
    title: str
    x: str  # along the axis
    y: str  # likewise
    caption: str
    series: list[Series]
    log_x: bool = False  # whether x is logarithmic
    sideways: bool = False  # whether bars lie
    stacked: bool = False  # whether bars are parts of a sum


@dataclass(frozen=True)
class Table:
    """One table: rows of the same columns. Without rows it is left out, and `caption` says why."""

    kind: ClassVar[str] = "table"
    name: str
    title: str
    caption: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Picture:
    """A picture as it lies in the run's folder, with a paragraph for each net. Without a path there is none to show."""

    kind: ClassVar[str] = "picture"
    name: str
    title: str
    readings: list[str]
    path: Path | None


@dataclass(frozen=True)
class Section:
    """A heading, and what stands under it."""

    title: str
    parts: tuple[Plot | Table | Picture, ...]


@dataclass(frozen=True)
class Run:
    """A run as its report reads it."""

    folder: Path  # of the run
    run_json: dict[str, Any]
    data: dict[str, Any]  # what it says of the data
    records: list[Record]  # in the order written
    rows: list[dict[str, Any]]  # the leaderboard
    objective: str  # the cost that accuracy is weighed against
    spec: InputSpec  # images and classes
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by cost and key, where it is measured
    other_costs: tuple[str, ...] = ()  # that the front is ranked by too
    metric: Metric = field(default_factory=Metric)  # that nets are ranked by
    why_empty: str = ""  # a sentence, for where no net is on the leaderboard
    rising: str = ""  # likewise, how many nets of the front still rose at their end, and what more steps would cost

    def cost(self, record: Record) -> float:
        """What accuracy is weighed against."""
        measured = self.measured.get(self.objective)
        return record.cost[self.objective] if measured is None else measured[record.key]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def settings(self) -> dict[str, Any]:
        settings = self.run_json.get("settings")
        return settings if isinstance(settings, dict) else {}

    @cached_property
    def row_of(self) -> dict[int, dict[str, Any]]:
        """The leaderboard's row of a trial."""
        return {row["trial"]: row for row in self.rows}

    @cached_property
    def nets(self) -> list[Record]:
        """The nets with an accuracy of their own: ranked ones by rank, then the others in their order."""
        known = {r.trial: r for r in self.records}
        others = [r for r in self.records if r.accuracy is not None and r.status in ("ok", "pruned")]
        return [known[row["trial"]] for row in self.rows] + [r for r in others if r.trial not in self.row_of]

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


def open_run(folder: Path) -> Run:
    """What a report is made from; InputError if the run cannot be read."""
    board, run_json, data = leaderboard_of(folder), read_settings(folder), read_data_facts(folder)
    objective, records = board.query.costs[0], list(board.records)
    why_empty = board.why_empty and f"{board.why_empty[:1].upper()}{board.why_empty[1:]}."
    rising = board.rising_line and f"{board.rising_line[:1].upper()}{board.rising_line[1:]}."
    rising += f" To train longer: {board.longer.command}" if board.longer else ""
    spec = input_spec(folder)
    metric = board.query.metric
    measured = {LATENCY: {key: m.ms for key, m in board.latencies.items()}} | dict(board.measured)
    others = board.query.costs[1:]
    return Run(
        folder, run_json, data, records, board.rows, objective, spec, measured, others, metric, why_empty, rising
    )


def elapsed(records: Sequence[Record]) -> list[float] | None:
    """Seconds from the start of a run to the end of each of its nets; None if a record does not say when it ended.

    A clock that was set back stands still until it has caught up.
    """
    if not records or not all(r.finished_at for r in records):
        return None
    start = min(map(began, records))
    return list(accumulate((_timestamp(r.finished_at) - start for r in records), max))


def began(record: Record) -> float:
    """When a net's training began, in seconds since 1970: by a record that does not say, at the latest."""
    return _timestamp(record.started_at) if record.started_at else _timestamp(record.finished_at) - record.spent_seconds


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def family_of(record: Record) -> str:
    """What a net is called in legends."""
    return record.kind if record.kind in BESIDE else record.family


def thin(values: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of them, evenly spaced, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
