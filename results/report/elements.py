"""What a report is made from, a run, and what it is made of: plots and tables as values that know no HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from ...archs import Genotype
from ..ranking.front import Leaderboard, costs_of_net
from ..ranking.metric import Metric
from ..ranking.objectives import RankingQuery
from ..ranking.remarks import rising_lines, sentence, why_empty
from ..ranking.run_leaderboard import leaderboard_of
from ..render.describe_net import InputSpec, input_spec
from ..runs.record import REFERENCE_KINDS, Record
from ..runs.status import Status
from ..runs.store import read_data_facts, read_settings
from .used_genes import known_net, used_genes

# Names of colours: what they are in the light and in the dark, `svg.PALETTE` says.
COLOURS = (BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY) = ("blue", "vermillion", "green", "pink", "orange", "sky")
GREY, TEXT = "grey", "text"


@dataclass(frozen=True)
class Series:
    """Points, a line or bars of one name."""

    name: str  # in the legend
    x: list[Any]  # numbers or names
    y: list[Any]  # numbers; None breaks a line
    kind: str = "points"  # points, rings, line, steps or bars
    colour: str = GREY  # of all of it
    symbol: str = "circle"  # of points, one of `marks.OUTLINES`
    look: str = "full"  # of points: full, open, dotted or half; of lines: full or dotted
    quiet: bool = False  # whether it stands back
    hidden: bool = False  # whether it waits in the legend until it is asked for
    nets: list[int] = field(default_factory=list)  # of points, each one's place in the report's list of nets
    bars: list[tuple[float, float]] = field(default_factory=list)  # of points: the ends of each one's interval
    labels: list[str] = field(default_factory=list)  # of points: what stands beside each of them


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
    within: tuple[float, float] | None = None  # what y can be, as far as that is known

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.series


@dataclass(frozen=True)
class Table:
    """One table: rows of the same columns. Without rows it is left out, and `caption` says why."""

    kind: ClassVar[str] = "table"
    name: str
    title: str
    caption: str
    rows: list[dict[str, Any]]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.rows


@dataclass(frozen=True)
class Picture:
    """A picture as it lies in the run's folder. Without a path there is none to show, and `note` says where it is."""

    kind: ClassVar[str] = "picture"
    name: str
    title: str
    note: str
    path: Path | None
    is_empty: ClassVar[bool] = False


@dataclass(frozen=True)
class Matrix:
    """Counts by row and column as shades, such as a confusion. Without names it is left out."""

    kind: ClassVar[str] = "matrix"
    name: str
    title: str
    caption: str
    names: list[str]  # of rows and columns
    counts: list[list[int]]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.names


@dataclass(frozen=True)
class Section:
    """A heading, and what stands under it."""

    title: str
    parts: tuple[Plot | Table | Picture | Matrix, ...]


@dataclass(frozen=True)
class Run:
    """A run as its report reads it."""

    folder: Path  # of the run
    run_json: dict[str, Any]
    data: dict[str, Any]  # what it says of the data
    records: list[Record]  # in the order written
    board: Leaderboard
    spec: InputSpec  # images and classes
    why_empty: str = ""  # a sentence, for where no net is on the leaderboard
    rising: str = ""  # likewise, how many nets of the front still rose at their end, and what more steps would cost

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The leaderboard's."""
        return self.board.rows

    @property
    def metric(self) -> Metric:
        """That nets are ranked by."""
        return self.board.query.metric

    @property
    def objective(self) -> str:
        """The cost that accuracy is weighed against."""
        return self.board.query.cost

    def cost(self, record: Record) -> float | None:
        """What accuracy is weighed against; None where it is not known."""
        if record.trial in self.row_of:
            return self.row_of[record.trial][self.objective]
        return costs_of_net(record, self._by_trial, self.board.extra)[self.objective]

    @cached_property
    def _by_trial(self) -> dict[int, Record]:
        return {r.trial: r for r in self.records}

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
        others = [r for r in self.records if r.accuracy is not None and r.status in (Status.OK, Status.PRUNED)]
        return [known[row["trial"]] for row in self.rows] + [r for r in others if r.trial not in self.row_of]

    @property
    def ranked(self) -> list[Record]:
        return self.nets[: len(self.rows)]

    @property
    def front(self) -> list[Record]:
        """The nets of rank 1, the cheapest first."""
        return [r for r in self.ranked if self.row_of[r.trial]["rank"] == 1]

    def net(self, record: Record) -> Genotype | None:
        """The net of a record; None where it is none of ours."""
        if record.key not in self._nets:
            self._nets[record.key] = known_net(record)
        return self._nets[record.key]

    def used(self, record: Record) -> dict[str, Any]:
        """The genes that a net makes use of, by name."""
        if record.trial not in self._used:
            self._used[record.trial] = used_genes(record, None if self.own_space else self.net(record))
        return self._used[record.trial]

    @cached_property
    def _nets(self) -> dict[str, Genotype | None]:
        return {}

    @cached_property
    def _used(self) -> dict[int, dict[str, Any]]:
        return {}

    @property
    def own_space(self) -> bool:
        """Whether its space is a file of a user's."""
        return "genes" in self.settings

    @cached_property
    def genes(self) -> list[str]:
        """The names of all genes, in the order drawn."""
        return list(dict.fromkeys(name for record in self.records for name in record.genes))


def open_run(folder: Path, query: RankingQuery | None = None) -> Run:
    """What a report is made from; InputError if the run cannot be read.

    Args:
        folder: of the run.
        query: what nets are ranked on, and which; None takes the run's own objectives and limits.
    """
    board, run_json, data = leaderboard_of(folder, query), read_settings(folder), read_data_facts(folder)
    rising = [sentence(line) for line in rising_lines(board)[:1]]
    rising += [f"To train longer: {command}" for command in rising_lines(board)[1:]]
    empty = sentence(why_empty(board))
    return Run(folder, run_json, data, list(board.records), board, input_spec(folder), empty, " ".join(rising))


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
    return record.kind if record.kind in REFERENCE_KINDS else record.family


def thin(values: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of them, evenly spaced, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
