"""`SearchController`: what a search runs next, and what becomes of it. No Ray, no torch.

It asks the proposer for nets and the scheduler for who goes on, admits nets within the limits, and tells the Optuna
study, which is the strategy's memory, of every end once that is recorded.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from ...archs import Genotype
from ...results.runs.events import UnderWay
from ...results.runs.record import FREE, Record
from ...results.runs.store import Store
from ...spaces import FixedChooser, Genes, plain_genes
from ..context import SearchContext
from ..samplers.sampler_context import candidate_baselines
from ..training.job import Job, JobResult, LatencyJob
from ..training.tuned import recipe_of
from .base_controller import Controller
from .devices import Device
from .patience import Patience
from .proposer import BASELINE_SEEDS, MAX_PROPOSALS, Proposer, choose_baselines
from .schedulers import RungResult, RungTable
from .study import StudyAdapter, told_as
from .trial import BUDGET_SHARE, Parent, ParentPool, Trial

log = logging.getLogger("alternas")
MAX_OVER = 100  # nets in a row that are measured and over a limit, before no more are proposed
FIRST_REFERENCE = 1_000_000  # number of a trial that the study will not come to: it proposes the same nets without


class SearchController(Controller):
    """The controller of one search. Opened on an existing run, it takes up where that one stopped.

    Attributes:
        context: of the search.
        study: the strategy's memory.
        known: records of the nets that were trained, by what tells trials apart.
        rungs: results at each rung of the scheduler.
        parents: the trained nets that new ones may inherit from; None if they may not.
        pretrained: the net from outside that all nets, baselines too, inherit from; None if there is none.
        baselines: the plain ResNets that are trained beside the search; `references`: how many nets of timm are.
        exhausted: whether the strategy or the space has no new net to give.
        patience: when the search has stopped getting better; None if it is not to end for that.
    """

    def __init__(self, context: SearchContext, store: Store, study: StudyAdapter) -> None:
        super().__init__(store, context.folder, context.artifacts)
        self.context, self.settings, self.study = context, context.settings, study
        settings = context.settings
        self.known: dict[str, Record] = {}
        self._live_by_key: dict[str, Trial] = {}
        self._beside: set[int] = set()  # numbers of live trials that are not of the search
        self.rungs = RungTable(context.scheduler, context.steps)
        self.parents = ParentPool(self.folder, settings.recipe.batch_size) if settings.inherit else None
        self.pretrained = Parent(context.pretrained.start) if context.pretrained else None
        self.exhausted, nets = False, context.config.run.budget.patience
        self.patience = Patience(nets, settings, context.cost_of) if nets else None
        self._over_in_a_row, self._seconds_beside = 0, 0.0
        # As the records say: nets of the search and references that have ended, optimiser steps of all trainings.
        self._ended = self._references = self._steps = 0
        for record in store.records:
            self._recall(record)
            self._recall_rungs(record)
        self._proposer = Proposer(context, study, lambda key: self._twin(key) is not None, self._proposed)
        candidates = candidate_baselines(context.sampler_context())
        self.baselines = choose_baselines(candidates, context)
        self._enqueue_baselines(candidates)
        self._enqueue_references()
        self._resume_unfinished()

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self._ended + len(self.live) - len(self._beside)

    @property
    def steps_done(self) -> int:
        """Optimiser steps of all trainings so far."""
        return self._steps + sum(trial.steps_done for trial in self.live.values())

    @property
    def references(self) -> int:
        """Nets of timm that are trained beside the search, those of earlier sessions too."""
        under_way = sum(trial.kind == "reference" for trial in self.live.values())
        return under_way + self._references

    @property
    def budget_spent(self) -> bool:
        """Whether all optimiser steps that the run may take are taken."""
        most = self.context.config.run.budget.train_steps
        return most < math.inf and self.steps_done >= most

    @property
    def _beside_waits(self) -> bool:
        """Whether baselines and references have had their share of the time, and nets are still to be proposed."""
        budget = self.context.config.run.budget
        share = 3600 * budget.hours * budget.baselines if budget.baselines else 0.0
        return self._seconds_beside >= share and not self.proposed_all

    @property
    def stalled(self) -> bool:
        """Whether the last nets have not made the front better. One that still ends may."""
        return self.patience is not None and self.patience.is_over

    @property
    def proposed_all(self) -> bool:
        """Whether no new net will be proposed: enough of them have started, there are no more, or they do not help."""
        return self.exhausted or self.budget_spent or self.started >= self.context.config.trials or self.stalled

    @property
    def complete(self) -> bool:
        """Whether a search of this many trials has ended already."""
        return not self.live and self.proposed_all

    def close(self) -> list[Record]:
        """End the search: paused trials become pruned."""
        return [self.end(trial, "pruned") for trial in [*self.live.values()] if trial.paused]

    # What runs next.

    def next_job(self) -> Job | None:
        """As `Controller`; baselines and references wait for the search once they have had their share of the time."""
        if not self._beside_waits:
            return super().next_job()
        waiting = [number for number in self._queue if number in self._beside]
        self._queue = deque(number for number in self._queue if number not in self._beside)
        job = super().next_job()
        self._queue.extend(waiting)
        return job or super().next_job()

    def _next_trial(self) -> Trial | None:
        """The first paused trial that the scheduler promotes, from the highest rung down; else a new one."""
        if self.budget_spent:
            return None
        expected = self.study.expected_accuracies() if self.rungs.any_paused else {}
        place = self.rungs.next(self.proposed_all or not self.study.ready, expected)
        if place is None:
            return self._propose()
        rung, number = place
        self.rungs.resume(rung, number)
        self._note_strategy(number)
        self.store.note("promoted", number)
        self.study.set_attrs(number, aim=rung + 1)
        self.live[number].promote()
        return self.live[number]

    def _propose(self) -> Trial | None:
        """Ask the proposer until a net passes; None if it has none, now or at all."""
        if self.proposed_all:
            return None
        for attempt in range(MAX_PROPOSALS):
            trial = self._proposer.propose(self.started, attempt)
            if trial is None:
                self.exhausted = self._proposer.exhausted or self.done  # if nothing runs, no result will change it
                return None
            self._note_strategy(trial.number)
            if self._admit(trial):
                if self.parents:
                    self._inherit(trial, self.parents.most_similar(cast(Genotype, trial.net)))
                parent = trial.parent and trial.parent.trial
                self.store.note("started", trial.number, key=trial.key, genes=dict(trial.genes), parent=parent)
                self._inherit(trial, self.pretrained)
                return trial
        self.exhausted = True
        return None

    def _note_strategy(self, trial: int) -> None:
        """Write down what the sampler has noted; `trial` is the one that it was asked for or about."""
        if news := self.study.news():
            self.store.note("strategy", trial, **news)

    def _admit(self, trial: Trial) -> bool:
        """Let a trial in, or end it at once as infeasible or duplicate."""
        net = cast(Genotype, trial.net)  # of the space, which has no others
        violation, twin = self.context.over_limits(net) | self.context.devices.over(net), self._twin(trial.key)
        if violation:
            self._end_infeasible(trial, violation)
        elif twin is not None:
            number, accuracy = (twin.number, None) if isinstance(twin, Trial) else (twin.trial, twin.accuracy)
            self.end(trial, "duplicate", f"same net as trial {number}", accuracy=accuracy)
        else:
            self._enter(trial)
        return trial.number in self.live

    def _enter(self, trial: Trial) -> None:
        self.live[trial.number] = self._live_by_key[trial.key] = trial
        if trial.kind != "search":
            self._beside.add(trial.number)

    def _inherit(self, trial: Trial, parent: Parent | None) -> None:
        """Let a trial start from the weights of `parent`, and train for less."""
        if parent is not None:
            trial.parent, trial.weights = parent, "inherited"
            trial.rung_steps = self.rungs.scheduler.rungs(max(1, round(BUDGET_SHARE * self.context.steps)))

    def _can_start(self, trial: Trial) -> bool:
        device = self._device_of(trial)
        return device is None or device.is_free

    def _device_of(self, trial: Trial) -> Device | None:
        """The device that measures a trial's net next; none once it has trained."""
        return None if trial.last_result else self.context.devices.pending(trial.net)

    def _start(self, trial: Trial) -> Job:
        """The job of a trial: training, but first of all what is measured of it, device by device."""
        trial.job = self._job(trial)
        if device := self._device_of(trial):
            trial.job = device.job(trial.number, trial.net, trial.job.timeout_s)
        return trial.job

    def _job(self, trial: Trial) -> Job:
        """What gives a trial its accuracy."""
        config, settings = self.context.config, self.settings
        if settings.tune:
            settings = replace(settings, recipe=recipe_of(settings.recipe, trial.genes))
        return trial.start(settings, self.folder, config.run.budget.trial_minutes, self.artifacts, config.trainer)

    # What becomes of it.

    def report(self, result: JobResult) -> Record | None:
        self.context.devices.release(self.live[result.trial].job)
        self._seconds_beside += result.seconds * (result.trial in self._beside)
        return super().report(result)

    def _take(self, trial: Trial, result: JobResult) -> Record | None:
        if isinstance(trial.job, LatencyJob):
            return self._take_measurement(trial, result)
        if result.status != "ok":
            return self.end(trial, result.status, result.error)
        if result.step < trial.total_steps:
            assert result.accuracy is not None
            rung = trial.pause(result.accuracy)
            self.store.note("paused", trial.number, **trial.note())
            self.study.set_attrs(trial.number, **{f"rung{rung}": result.accuracy})
            return self._add_to_rung(trial, rung, paused=True)
        trial.complete(result)
        seeds = max(self.settings.repeats, 1 if trial.kind == "search" else BASELINE_SEEDS)
        if len(trial.results_by_seed) < seeds:
            self._queue.append(trial.number)
            return None
        return self.end(trial, "ok")

    def _take_measurement(self, trial: Trial, result: JobResult) -> Record | None:
        """Take what a device says of a net: it ends a trial whose net is over a limit, or does not run there."""
        assert isinstance(trial.job, LatencyJob)
        device = self.context.devices.at_work(trial.job)
        if result.status == "ok":
            device.add(trial.net, result.latency)
            if trial.kind != "reference" and (over := self.context.devices.over(trial.net)):
                self._over_in_a_row += 1
                self.exhausted |= self._over_in_a_row >= MAX_OVER
                return self._end_infeasible(trial, over)
            self._over_in_a_row = 0
        else:
            device.fail(trial.net, result)
            if result.status == "infeasible":
                return self._end_infeasible(trial, {device.failure: 1.0}, result.error)
            if result.status != "unreachable":
                return self.end(trial, result.status, result.error)
        self._queue.appendleft(trial.number)  # to be measured elsewhere or again, then trained
        return None

    def _end_infeasible(self, trial: Trial, violation: dict[str, float], error: str = "") -> Record:
        """End a trial whose net breaks limits, each by this share."""
        self.study.violates(trial.number, violation)
        if not error:
            costs = (
                f"{name} {self.context.cost_named(name, trial.net.key, trial.cost.totals()):g}" for name in violation
            )
            error = f"over the limit: {', '.join(costs)}"
        return self.end(trial, "infeasible", error, constraint_violation=violation)

    def _add_to_rung(self, trial: Trial, rung: int, paused: bool) -> Record | None:
        """Enter a result. Returns the record of the trial whose end that is."""
        cost = self.context.cost_of(trial.net.key, trial.cost.totals())
        left_behind = self.rungs.add(rung, RungResult(trial.number, trial.rung_accuracies[rung], cost, paused))
        return None if left_behind is None else self.end(self.live[left_behind], "pruned")

    def _learn(self, record: Record) -> None:
        self._beside.discard(record.trial)
        if record.status != "duplicate":
            self._live_by_key.pop(record.trial_key, None)
        self._recall(record)
        if record.kind == "reference":
            return  # it is in no space, so the strategy is not told
        self.study.tell(record, told_as(record, self.known), self.context.cost_of)

    def _recall(self, record: Record) -> None:
        """Take up what a record says, of this session or an earlier one."""
        if record.status in FREE:
            return
        self.known[record.trial_key] = record
        self._references += record.kind == "reference"
        if self.patience:
            self.patience.add(record)
        if record.taken_from:
            return
        self._steps += record.budget.get("done", 0) * max(1, len(record.accuracies))
        if self.parents and record.kind != "reference":
            self.parents.add(record)
        if record.kind != "search":
            return
        self._ended += 1

    def _recall_rungs(self, record: Record) -> None:
        """Enter the rungs that a trial of an earlier session passed."""
        if record.status in FREE or record.kind != "search" or record.taken_from:
            return
        for rung, passed in enumerate(record.rungs):
            if passed["step"] < record.budget.get("full", 0):  # not at the end, where nothing is compared
                cost = self.context.cost_of(record.key, record.cost)
                self.rungs.add(rung, RungResult(record.trial, passed["accuracy"], cost, False))

    # What is known.

    def _twin(self, key: str) -> Record | Trial | None:
        """The finished or running trial of the same net, trained alike."""
        return self.known.get(key) or self._live_by_key.get(key)

    def _proposed(self) -> Iterator[Genes]:
        """The genes of all trials, in their order."""
        ended = [(record.trial, record.genes) for record in self.store.records]
        live = [(trial.number, trial.genes) for trial in self.live.values()]
        return (genes for _, genes in sorted([*ended, *live], key=lambda pair: pair[0]))

    # What an earlier driver left.

    def _enqueue_baselines(self, candidates: Sequence[Genotype]) -> None:
        """Baselines hold the first trial numbers; those without a record are trained before all else."""
        recorded = {record.trial for record in self.store.records}
        for number, net in enumerate(candidates):
            if number >= len(self.baselines):
                self.study.fail(number)
            elif number not in recorded:
                genes = plain_genes(self.context.space, net) or {}
                self._enter(self._proposer.trial(number, "baseline", net, genes))
                self._inherit(self.live[number], self.pretrained)
                self._queue.append(number)

    def _enqueue_references(self) -> None:
        """Nets of timm without a record are trained behind the baselines, under numbers that the study does not use."""
        recorded = {record.key: record.trial for record in self.store.records if record.kind == "reference"}
        number = max(recorded.values(), default=FIRST_REFERENCE - 1)
        steps, fields = (self.context.steps,), self.context.record_fields
        for net, cost in self.context.references.items():
            if net.key not in recorded:
                number += 1
                self._enter(Trial(number, "reference", net, {}, cost, steps, fields))
                self._queue.append(number)

    def _resume_unfinished(self) -> None:
        """Run the trials again that have started and have no record."""
        for unfinished in self.store.under_way:
            if self.study.is_open(unfinished.trial):
                self._resume(unfinished)

    def _resume(self, unfinished: UnderWay) -> None:
        net = self.context.space.sample(FixedChooser(unfinished.genes))
        trial = self._proposer.trial(unfinished.trial, "search", net, unfinished.genes)
        if self.parents and unfinished.parent is not None:
            self._inherit(trial, self.parents.get(unfinished.parent))
        self._inherit(trial, self.pretrained)
        trial.restore(unfinished)
        if not self._admit(trial):
            return
        last = len(trial.rung_accuracies) - 1
        for rung in range(last + 1):
            self._add_to_rung(trial, rung, paused=trial.paused and rung == last)
        if not trial.paused:
            self._queue.append(trial.number)
