"""What a live view shows of a search: its nets, the work done and left, and the front so far."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rich.console import RenderableType

from ...archs.timm_net import TIMM, TimmNet
from ...results.ranking.front import ExtraResults, rank_rows
from ...results.ranking.objectives import RankingQuery, parse_objectives
from ...results.ranking.remarks import why_empty
from ...results.ranking.stats import count_nets
from ...results.render.tables import nets_table, short
from ...results.runs.events import Line
from ...results.runs.record import REFERENCE_KINDS, Record
from ...results.runs.status import UNTRAINED, Status, Weights
from ..default import UNLIMITED
from ..spec import SearchSpec
from ..training.bank_jobs import EvaluateJob, SupernetJob
from ..training.job import Job, JobId, LatencyJob, Progress, TrainJob, TrialJob
from ..trials.devices import Devices
from ..trials.forecast import Forecast, Known
from ..trials.search_trials import SearchTrials
from ..trials.trial import Trial, Work

FRONT_ROWS = 12


class ProgressView(Protocol):
    """Shows what happens: lines of the run's log, and what no line tells, how jobs at workers are."""

    def apply(self, line: Line) -> None: ...
    def started(self, job: Job) -> None: ...
    def tick(self, tick: Progress) -> None: ...
    def ended(self, job: JobId) -> None: ...  # after the lines that it says
    def refresh(self) -> None: ...


class Shown(Protocol):
    """The work that a view shows: a search, or a plan of trainings."""

    live: Mapping[int, Trial]  # trials under way that train

    @property
    def records(self) -> Sequence[Record]: ...  # of the nets that have ended

    @property
    def statuses(self) -> Counter[Status]:  # how many of them ended how
        return Counter(record.status for record in self.records)

    @property
    def counts(self) -> str: ...  # how much of it is done, as "3 of 16 nets"

    @property
    def share(self) -> float: ...  # the same as a share

    @property
    def done(self) -> bool: ...  # whether all of it is

    def work(self, job: Job) -> Known | None: ...  # what a job takes that has just begun; None where it is not counted

    def left(self) -> Mapping[str, Work]: ...  # of all that has not ended, by kind; running jobs count from their start

    def last(self) -> Iterable[Known]:  # of it the trainings that come one by one at the end
        return ()

    def known(self) -> Iterable[tuple[str, Work, float]]: ...  # kind, amount and seconds of what ended before

    def name(self, job: Job) -> str: ...  # what a person calls a running job

    def line(self, record: Record) -> str: ...  # one ended net in a line

    def table(self) -> RenderableType: ...  # what has been found so far


class ShownSearch(Forecast, Shown):
    """A search: its work is what its forecast counts, and the front is what it has found."""

    def __init__(self, trials: SearchTrials) -> None:
        super().__init__(trials)
        self.trials, self.live = trials, trials.live

    @property
    def records(self) -> Sequence[Record]:
        return self.trials.store.records

    @property
    def statuses(self) -> Counter[Status]:
        return self.trials.compute.statuses

    @property
    def counts(self) -> str:
        """Nets and how many there will be; of a search that its compute ends, how much of that is used."""
        trials, records = self.trials, self.records
        nets = trained(self.statuses)
        again = sum(record.weights == Weights.FINETUNED for record in records)
        waiting = len(trials.finetuning.under_way) + (len(trials.finetuning.waits) if trials.all_ended else 0)
        on = f", trained on {again} of {again + waiting}" if trials.settings.polish and (again or waiting) else ""
        if trials.settings.trials >= UNLIMITED and trials.compute.limit < math.inf:
            return f"{count_nets(nets - again)}{on}, {self.share:.0%} of {short(trials.compute.limit)} FLOPs"
        return f"{nets - again} of {count_nets(self.nets)}{on}"

    @property
    def share(self) -> float:
        """FLOPs of trainings that have ended, as a share of those in all; with a bank, of nets."""
        if self.trials.shared:
            return min(1.0, trained(self.statuses) / max(1, self.nets))
        spent = sum(work.flops for work in self.trials.compute.spent.values())
        limit = self.trials.compute.limit
        return spent / min(limit, max(1.0, spent + sum(work.flops for work in self.left().values())))

    @property
    def done(self) -> bool:
        trials = self.trials
        return not trials.live and trials.proposed_all and not (trials.settings.polish and trials.finetuning.waits)

    def name(self, job: Job) -> str:
        match job:
            case SupernetJob():
                return f"supernet  steps {job.start_step} to {job.stop_step} of {job.total_steps}"
            case LatencyJob():
                return f"{_name(job)}  latency"
            case TrainJob() | EvaluateJob():
                return _name(job)
            case _:
                raise AssertionError(f"no job of a search: {job}")

    def line(self, record: Record) -> str:
        metric = self.trials.context.settings.metric
        result = f"{metric.name} {metric.text(record.accuracy)}" if record.accuracy is not None else record.error
        what = f"{record.status} {result}, {short(record.cost['macs'])} MACs, {record.label}"
        notes = [record.kind] * (record.kind in REFERENCE_KINDS) + [record.weights] * (record.weights != Weights.ALONE)
        note = f" ({', '.join(notes)})" if notes else ""
        return f"{record.name}: {what}{note}"

    def table(self) -> RenderableType:
        return front_table(self.records, self.trials.context.settings, self.trials.context.devices)


def front_table(records: Sequence[Record], settings: SearchSpec, devices: Devices) -> RenderableType:
    """The front of the nets that have ended, with what they were measured for."""
    query = RankingQuery(parse_objectives(settings.objective), settings.limits, metric=settings.metric)
    board = rank_rows(records, query, ExtraResults(measured=devices.values(settings.measured)))
    rows = board.front
    cut = f" (the {FRONT_ROWS} most expensive of {len(rows)})" if len(rows) > FRONT_ROWS else ""
    return nets_table(rows[-FRONT_ROWS:], f"front so far{cut}", none=why_empty(board), metric=settings.metric)


def trained(statuses: Counter[Status]) -> int:
    """How many of the nets that ended were trained."""
    return sum(nets for status, nets in statuses.items() if status not in UNTRAINED)


def _name(job: TrialJob) -> str:
    net = job.genotype
    return f"{TIMM}{net.name}" if isinstance(net, TimmNet) else f"trial {job.trial}  {net.family}"
