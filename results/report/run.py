"""A run as its report reads it: its leaderboard, its nets and the genes that each of them uses."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...archs import Genotype, InputError
from ...archs.blocks.spec import BLOCKS
from ..ranking.front import Leaderboard, costs_of_net
from ..ranking.metric import Metric
from ..ranking.objectives import RankingQuery
from ..ranking.ranked_net import RankedNet
from ..ranking.remarks import rising_lines, sentence, why_empty
from ..ranking.run_leaderboard import leaderboard_of
from ..render.describe_net import InputSpec, input_spec
from ..runs.nets import best_weights, trained_nets
from ..runs.record import REFERENCE_KINDS, Record
from ..runs.status import Status
from ..runs.store import read_data_facts, read_settings

OF_STAGE = re.compile(r"(depth|conv|msa|heads|window|attention)(\d+)(_\d+)?")
OF_ENCODER = ("trunk", "patch", "embed_dim", "encoder_depth", "vit_patch", "pool")
OF_ATTENTION = ("heads", "window", "attention")


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
    def rows(self) -> list[RankedNet]:
        """Rows of the leaderboard."""
        return self.board.rows

    @property
    def metric(self) -> Metric:
        """The metric that nets are ranked by."""
        return self.board.query.metric

    @property
    def objective(self) -> str:
        """The cost that accuracy is weighed against."""
        return self.board.query.cost

    def cost(self, record: Record) -> float | None:
        """A net's cost by `objective`; None where it is not known."""
        if record.trial in self.row_of:
            return self.row_of[record.trial].costs[self.objective]
        return costs_of_net(record, self._by_trial, self.board.extra)[self.objective]

    @cached_property
    def _by_trial(self) -> dict[int, Record]:
        return {r.trial: r for r in self.records} | {r.trial: r for r in map(best_weights, self._trained)}

    @cached_property
    def _trained(self) -> list[list[Record]]:
        return trained_nets(self.records)

    @cached_property
    def best_of(self) -> dict[int, int]:
        """By the trial of each training to the end: that which stands for its net, whose weights are better."""
        return {r.trial: best_weights(net).trial for net in self._trained for r in net}

    def trainings(self, record: Record) -> list[Record]:
        """The trainings of a net up to this one, each of which went on from the one before."""
        return [r for r in self._net_of.get(record.trial, [record]) if r.trial <= record.trial]

    @cached_property
    def _net_of(self) -> dict[int, list[Record]]:
        return {r.trial: net for net in self._trained for r in net}

    def steps_before(self, record: Record) -> int:
        """Steps of what a training started from, as `steps_in_all` of the leaderboard has them; 0 if unknown."""
        source = self._by_trial.get(record.lineage.get("trial", -1))
        return 0 if source and source.weights == "shared" else record.lineage.get("steps") or 0

    def count_nets(self, records: Sequence[Record]) -> int:
        """How many nets these trainings are of."""
        return len({self.best_of.get(r.trial, r.trial) for r in records})

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def counted_as(self) -> str:
        """What the rows of the leaderboard are called where they are counted."""
        return "cuts judged" if self.rows and all(row.is_cut for row in self.rows) else "nets trained to the end"

    @property
    def settings(self) -> dict[str, Any]:
        settings = self.run_json.get("settings")
        return settings if isinstance(settings, dict) else {}

    @cached_property
    def row_of(self) -> dict[int, RankedNet]:
        """The leaderboard's row of a trial."""
        return {row.trial: row for row in self.rows}

    @cached_property
    def nets(self) -> list[Record]:
        """The nets with an accuracy of their own: ranked ones by rank, then the others in their order."""
        others = [r for r in self.records if r.accuracy is not None and r.status in (Status.OK, Status.PRUNED)]
        others = [r for r in others if r.trial not in self.row_of and self.best_of.get(r.trial, r.trial) == r.trial]
        return [self._by_trial[row.trial] for row in self.rows] + others

    @property
    def ranked(self) -> list[Record]:
        return self.nets[: len(self.rows)]

    @property
    def front(self) -> list[Record]:
        """The nets of rank 1, the cheapest first."""
        return [r for r in self.ranked if self.row_of[r.trial].rank == 1]

    def net(self, record: Record) -> Genotype | None:
        """The net of a record; None if it is not a net of alternas."""
        return self._nets[record.key]

    def used(self, record: Record) -> dict[str, Any]:
        """The genes that a net uses, by name."""
        return self._used[record.trial]

    @cached_property
    def _nets(self) -> dict[str, Genotype | None]:
        return {key: known_net(record) for key, record in {r.key: r for r in self.records}.items()}

    @cached_property
    def _used(self) -> dict[int, dict[str, Any]]:
        own_space = "genes" in self.settings  # a file of a user's, whose genes have names of their own
        return {r.trial: used_genes(r, None if own_space else self.net(r)) for r in self._by_trial.values()}

    @cached_property
    def genes(self) -> list[str]:
        """The names of all genes, in the order drawn."""
        return list(dict.fromkeys(name for record in self.records for name in record.genes))


def open_run(folder: Path, query: RankingQuery | None = None) -> Run:
    """Read a run for its report, by its own objectives and limits without a query; InputError if it is broken."""
    board, run_json, data = leaderboard_of(folder, query), read_settings(folder), read_data_facts(folder)
    rising = [sentence(line) for line in rising_lines(board)[:1]]
    rising += [f"To train longer: {command}" for command in rising_lines(board)[1:]]
    empty = sentence(why_empty(board))
    return Run(folder, run_json, data, list(board.records), board, input_spec(folder), empty, " ".join(rising))


def elapsed(records: Sequence[Record]) -> list[float] | None:
    """Seconds from the start of a run to the end of each net, never falling; None if a record says no end."""
    if not records or not all(r.finished_at for r in records):
        return None
    start = min(map(began, records))
    return list(accumulate((_timestamp(r.finished_at) - start for r in records), max))


def began(record: Record) -> float:
    """Start of a net's training in seconds since 1970; where a record does not say, the latest possible."""
    return _timestamp(record.started_at) if record.started_at else _timestamp(record.finished_at) - record.spent_seconds


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def family_of(record: Record) -> str:
    """The name of a net's group in legends."""
    return record.kind if record.kind in REFERENCE_KINDS else record.family


def thin(values: Sequence[Any], most: int) -> list[Any]:
    """At most `most` values, evenly spaced, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def known_net(record: Record) -> Genotype | None:
    """The net of a record; None for a net of timm's or of another version of alternas."""
    try:
        return Genotype.from_dict(record.genotype)
    except InputError:
        return None


def used_genes(record: Record, net: Genotype | None) -> dict[str, Any]:
    """The genes that a net depends on, as far as their names tell: all without the net, as of a user's space."""
    if net is None:
        return dict(record.genes)
    return {name: value for name, value in record.genes.items() if not _is_dormant(name, net, record.genes)}


def _is_dormant(name: str, net: Genotype, genes: Mapping[str, Any]) -> bool:
    """Whether a gene certainly makes no difference to a net, as far as its name tells."""
    kinds = {stage.block for stage in net.stages if len(stage.places) < stage.depth}
    kinds |= {stage.attention for stage in net.stages if stage.places}
    attends = any(stage.places for stage in net.stages)
    if found := OF_STAGE.fullmatch(name):
        return _is_dormant_in_stage(found[1], int(found[2]), net, genes)
    if name in OF_ENCODER:
        return net.encoder is None
    if any(name in spec.options for spec in BLOCKS.values()):
        return not any(name in BLOCKS[kind].options for kind in kinds)
    if name == "mlp_ratio":
        return net.encoder is None and not any(BLOCKS[kind].has_mlp for kind in kinds)
    family = genes.get("family", "modern" if "conv" in genes else "")
    if name in ("conv", "attention"):
        return family != "modern" or (name == "attention" and not attends)
    return (name == "block" and family == "modern") or (name in ("block", "width") and not net.stages)


def _is_dormant_in_stage(what: str, number: int, net: Genotype, genes: Mapping[str, Any]) -> bool:
    shared = what == "window" and "window2" not in genes  # one for all stages
    if what in OF_ATTENTION:
        stages = net.stages if shared else net.stages[number - 1 : number]
        return not any(stage.places for stage in stages)
    if what == "msa" and genes.get("family") in ("resnet", "hybrid", "vit"):
        return True
    return number > len(net.stages)
