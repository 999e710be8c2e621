"""What a live view shows of a search: its nets, the work done and left, and the front so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from rich.console import RenderableType

from ...archs.timm_net import TIMM, TimmNet
from ...results.ranking.leaderboard import ExtraResults, rank_rows
from ...results.ranking.objectives import RankingQuery, parse_objectives
from ...results.render.tables import nets_table, short
from ...results.runs.record import BESIDE, FREE, Record
from ..training.job import EvaluateJob, Job, LatencyJob, SupernetJob
from ..trials.controller import SearchController
from ..trials.forecast import ComputeForecast
from ..trials.supernet_controller import SupernetController

FRONT_ROWS = 12


class Shown(Protocol):
    """The work that a view shows: a search, or a plan of trainings."""

    unit: str  # of amounts of work

    @property
    def records(self) -> Sequence[Record]: ...  # of the nets that have ended

    @property
    def statuses(self) -> Counter[str]: ...  # how many of them ended how

    @property
    def target(self) -> int: ...  # nets to train in all

    def amount(self, job: Job, step: int) -> float: ...  # the work of a job up to `step`

    def left(self) -> float: ...  # the work of all nets that have not ended, that of running jobs from their start

    def name(self, job: Job) -> str: ...  # what a person calls a running job

    def line(self, record: Record) -> str: ...  # one ended net in a line

    def table(self) -> RenderableType: ...  # what has been found so far


class ShownSearch:
    """A search: its work is counted in FLOPs of training, and the front is what it has found."""

    unit = "FLOP"

    def __init__(self, controller: SearchController) -> None:
        self.controller, self.forecast = controller, ComputeForecast(controller)

    @property
    def records(self) -> Sequence[Record]:
        return self.controller.store.records

    @property
    def statuses(self) -> Counter[str]:
        return self.forecast.tally.update().statuses

    @property
    def target(self) -> int:
        baselines = len(self.controller.baselines)
        taken = sum(trial >= baselines for trial in self.forecast.tally.update().taken)
        return self.forecast.nets + baselines + self.controller.references + taken

    def amount(self, job: Job, step: int) -> float:
        return self.forecast.flops_of(job, step)

    def left(self) -> float:
        return self.forecast.left()

    def name(self, job: Job) -> str:
        if isinstance(job, SupernetJob):
            return f"supernet  steps {job.start_step} to {job.stop_step} of {job.total_steps}"
        net = job.genotype
        what = f"{TIMM}{net.name}" if isinstance(net, TimmNet) else f"trial {job.trial}  {net.family}"
        return f"{what}{'  latency' if isinstance(job, LatencyJob) else ''}"

    def line(self, record: Record) -> str:
        metric = self.controller.context.settings.metric
        result = f"{metric.name} {metric.text(record.accuracy)}" if record.accuracy is not None else record.error
        what = f"{record.status} {result}, {short(record.cost['macs'])} MACs, {record.label}"
        notes = [record.kind] * (record.kind in BESIDE) + [record.weights] * (record.weights != "alone")
        note = f" ({', '.join(notes)})" if notes else ""
        return f"{record.name}: {what}{note}"

    def table(self) -> RenderableType:
        settings, devices = self.controller.context.settings, self.controller.context.devices
        query = RankingQuery(parse_objectives(settings.objective), settings.limits, metric=settings.metric)
        board = rank_rows(self.records, query, ExtraResults(measured=devices.values(settings.measured)))
        rows = board.front
        cut = f" (the {FRONT_ROWS} dearest of {len(rows)})" if len(rows) > FRONT_ROWS else ""
        return nets_table(rows[-FRONT_ROWS:], f"front so far{cut}", none=board.why_empty, metric=settings.metric)


class ShownSupernet(ShownSearch):
    """A search on shared weights, whose compute is divided beforehand: its work is counted in seconds of a worker.

    A FLOP of the bank takes longer than one of a net alone, so seconds are learned of each kind.
    """

    unit = "s"

    def __init__(self, controller: SupernetController) -> None:
        super().__init__(controller)
        self.supernet = controller
        self._paces, self._known_from = controller.seconds_a_flop(), (0, 0)

    @property
    def paces(self) -> dict[str, float]:
        """Seconds a FLOP by kind, as records and the bank's progress say so far."""
        known_from = len(self.records), self.supernet.bank_training.progress["step"]
        if known_from != self._known_from:
            self._paces, self._known_from = self.supernet.seconds_a_flop(), known_from
        return self._paces

    @property
    def target(self) -> int:
        ended = trained(self.statuses)
        beside = sum(trial.kind in BESIDE for trial in self.supernet.live.values())
        return ended + beside + self.supernet.nets_left

    def amount(self, job: Job, step: int) -> float:
        kind = {SupernetJob: "bank", EvaluateJob: "shared"}.get(type(job), "alone")
        return self.paces[kind] * self.supernet.flops_of(job, step)

    def left(self) -> float:
        return sum(self.paces[kind] * flops for kind, flops in self.supernet.flops_left().items())


def shown_search(controller: SearchController) -> ShownSearch:
    """A search as the live view shows it."""
    return ShownSupernet(controller) if isinstance(controller, SupernetController) else ShownSearch(controller)


def trained(statuses: Counter[str]) -> int:
    """How many of the nets that ended were trained."""
    return sum(nets for status, nets in statuses.items() if status not in FREE)
