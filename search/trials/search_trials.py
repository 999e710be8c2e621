"""`SearchTrials`: what a search trains next, and what becomes of it. No Ray, no torch.

It asks the proposer for nets and the scheduler for who goes on, admits nets within the limits, and tells the Optuna
study, which is the strategy's memory, of every end once that is recorded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import cast

from ...archs import Genotype
from ...results.runs.bank_progress import read_about
from ...results.runs.events import UnderWay
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status
from ...results.runs.store import Store
from ...spaces import plain_genes
from ..context import SearchContext
from ..training.bank_jobs import EvaluateJob
from ..training.job import Job, JobResult, TrainJob, Workers
from ..training.recipe import Recipe
from .admission import Admission
from .baselines import choose_baselines, choose_references, planned_beside
from .compute_budget import ComputeBudget
from .finetuning import Finetuning
from .live import LiveTrials
from .patience import Patience
from .producer import Idle, Producer
from .proposer import MAX_PROPOSALS, Proposer
from .recorded_trials import record_for_study
from .schedulers import RungResult, RungTable
from .shared_weights import SharedWeights
from .study import study_of
from .tally import RunTally, part_of
from .trial import BUDGET_SHARE, Parent, ParentPool, Trial


class SearchTrials(Producer):
    """The trials of one search. Opened on an existing run, it takes up where that one stopped.

    Attributes:
        context, store: of the search, and of its run's records and events.
        study: the strategy's memory.
        shared: the bank that nets are evaluated on; None where each is trained.
        live: trials under way, by number.
        tally: what the records add up to, with the trials under way.
        budget: what compute is left, and for what.
        finetuning: the nets that may be trained on in the end.
        known: records of the nets that were trained, by what tells trials apart.
        rungs: results at each rung of the scheduler.
        parents: the trained nets that new ones may inherit from; None if they may not.
        pretrained: the net from outside that all nets, baselines too, inherit from; None if there is none.
        admission: which proposals are trained.
        baselines: the plain ResNets that are trained beside the search.
        exhausted: whether the strategy or the space has no new net to give.
        patience: when the search has stopped getting better.
    """

    def __init__(self, context: SearchContext, store: Store) -> None:
        self.context, self.settings, self.folder = context, context.settings, context.folder
        self.store, self.baselines = store, choose_baselines(context.baselines, context, store.records)
        self.study = study_of(store, context, self.baselines)
        self.shared = SharedWeights(context) if context.settings.supernet else None
        self.live, settings = LiveTrials(context.artifacts), context.settings
        self.tally = RunTally(self.live, settings)
        self.budget = ComputeBudget(self.tally, settings, self.shared)
        self.references = choose_references(context)
        self.budget.planned_beside = planned_beside(self.baselines, self.references, context)
        self.finetuning = Finetuning(context, self.budget, self.tally, self.live, self.shared is not None)
        self.budget.expected_finetuning = lambda: self.finetuning.expected_flops
        self.known: dict[str, Record] = {}
        self._ends = deque[Record]()  # of trials of an earlier session, to be recorded first
        self.rungs = RungTable(context.scheduler, context.steps)
        self._short_rungs = context.scheduler.rungs(max(1, round(BUDGET_SHARE * context.steps)))  # of who inherits
        self.parents = ParentPool(self.folder) if settings.inherit else None
        self.pretrained = Parent(context.pretrained.start) if context.pretrained else None
        self.exhausted = False
        self.patience = Patience(settings, context.cost_of)
        self._attempts = 0  # proposals in a row that needed no training
        for record in store.records:
            self._recall(record)
            self.rungs.recall(record, context.cost_of)
        self._proposer = Proposer(context, self.study, store.records, self.live, self.known)
        self.admission = Admission(context, self.study, self._proposer, self.budget)
        for number in range(len(self.baselines), len(context.baselines)):
            self.study.fail(number)
        for trial in self._proposer.baselines(self.baselines):
            trial.inherit(self.pretrained, self._short_rungs)
            self.live.enqueue(trial)
        for trial in self._proposer.references(self.references):
            self.live.enqueue(trial)
        for unfinished in store.under_way:
            if self.study.is_open(unfinished.trial):
                self._resume(unfinished)
        if self.shared and not store.records:  # evaluated first: the same nets trained alone tell what sharing is worth
            genes = [plain_genes(context.space, net) for net in self.baselines]
            self.study.enqueue([known for known in genes if known])
        if context.bank and self.shared and self.shared.ready and not self.complete:
            read_about(context.bank)  # before every net fails that would be evaluated on it

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.tally.started

    @property
    def proposed_all(self) -> bool:
        """Whether no new net will be proposed: enough of them have started, there are no more, or they do not help."""
        enough = self.exhausted or self.started >= self.settings.trials or self.patience.is_over
        return enough or self.budget.is_spent

    @property
    def all_ended(self) -> bool:
        """Whether all nets have been proposed, and have ended or wait at a rung, but for those that are trained on."""
        return self.proposed_all and all(trial.paused or trial.weights == "polished" for trial in self.live.values())

    @property
    def complete(self) -> bool:
        """Whether a search of this many trials has ended already."""
        return not self.live and not self._ends and self.proposed_all

    def close(self) -> list[Record]:
        """End the search: paused trials become pruned."""
        return [trial.finish(Status.PRUNED) for trial in self.live.values() if trial.paused]

    def next(self, workers: Workers) -> Job | Record | Idle:
        """The job of a free worker, or the record of a proposal that needs none.

        Baselines and references wait for the search once they have had their share of the time.
        """
        if self._ends:
            return self._ends.popleft()
        return self._next() or (Idle.OVER if self.live.all_paused else Idle.WAIT)

    def _next(self) -> Job | Record | None:
        beside_waits = self.tally.beside_had_its_time and not self.proposed_all
        if any(not beside_waits or part_of(self.live[number]) == "search" for number in self.live.queue):
            return self._next_queued(beside_waits)
        found = self._next_searched()
        if found is None and (self.shared is None or self.shared.ready):
            return self._next_queued(False)
        return found

    def _next_queued(self, beside_waits: bool) -> Job | None:
        """The job of the first trial in the queue that need not be measured first."""
        delay = self.context.devices.delay
        trial = self.live.next_queued(lambda t: not delay(t) and not (beside_waits and part_of(t) != "search"))
        return self.job(trial) if trial else None

    def _next_searched(self) -> Job | Record | None:
        """The job of a net that the scheduler promotes, else of a new one, or the record of one that needs none."""
        if not self._attempts and (trial := self._promoted()):
            return self.job(trial)
        match self._propose():
            case Trial() as trial if self.context.devices.delay(trial):
                self.live.queue.append(trial.number)  # to be measured, then trained
                return None
            case Trial() as trial:
                return self.job(trial)
            case record:
                return record

    def _promoted(self) -> Trial | None:
        """The first paused trial that the scheduler promotes, from the highest rung down."""
        if self.budget.is_spent or not self.rungs.any_paused:
            return None
        found = self.rungs.next(self.proposed_all or not self.study.ready, self.study.expected_accuracies())
        if found is None or not self.budget.affords(self.live[found[1]]):
            return None
        rung, number = found
        self.rungs.resume(rung, number)
        self._note_strategy(number)
        self.store.note("promoted", number)
        self.study.set_attrs(number, aim=rung + 1)
        self.live[number].promote()
        return self.live[number]

    def _propose(self) -> Trial | Record | None:
        """A new net, within the limits and unknown, or the record of one that is not; None if there is none."""
        if self.proposed_all or (self.shared and not self.shared.ready):
            return None
        trial = self._proposer.propose(self.started, self._attempts)
        if trial is None:
            self.exhausted = self._proposer.exhausted or self.live.all_paused  # no result will change it
            self._attempts = 0
            return None
        self._note_strategy(trial.number)
        if self.shared:
            self.shared.adopt(trial)
        refused = self.admission.refused(trial)
        if refused is None:
            if self.parents:
                trial.inherit(self.parents.most_similar(cast(Genotype, trial.net)), self._short_rungs)
            trial.inherit(self.pretrained, self._short_rungs)
            refused = self.admission.unaffordable(trial)
        if refused:
            self._attempts = (self._attempts + 1) % MAX_PROPOSALS
            self.exhausted |= self._attempts == 0
            return refused
        self._attempts = 0
        self.live.enter(trial)
        parent = trial.parent.trial if trial.parent else None
        self.store.note("started", trial.number, key=trial.key, genes=dict(trial.genes), parent=parent)
        return trial

    def _note_strategy(self, trial: int) -> None:
        """Write down what the sampler has noted; `trial` is the one that it was asked for or about."""
        if news := self.study.news():
            self.store.note("strategy", trial, **news)

    def job(self, trial: Trial) -> Job:
        """The job that gives a trial its accuracy."""
        settings = self.settings
        if self.shared and trial.weights == "shared":
            return self.shared.job(trial)
        if settings.tune or trial.weights == "polished":
            settings = replace(settings, recipe=Recipe.from_dict(trial.record_fields["recipe"]))
        points = self.context.curve_points(settings.recipe, trial.total_steps)
        return trial.start(settings, self.folder, self.context.artifacts, points)

    def take(self, job: TrainJob | EvaluateJob, result: JobResult) -> Record | None:
        """The record of the trial whose end a result is: its own, or one that falls out of a rung."""
        trial = self.live[job.trial]
        self.tally.add_seconds(trial, result.seconds)
        if (given_up := self.live.received(trial, result)) or result.status == Status.LOST:
            return given_up
        trial.last_result = result
        if result.status != Status.OK:
            return trial.finish(result.status, result.error)
        if isinstance(job, EvaluateJob):
            return trial.finish(Status.OK, accuracy=result.accuracy)
        if result.step < trial.total_steps:
            assert result.accuracy is not None
            rung = trial.pause(result.accuracy)
            self.store.note("paused", trial.number, **trial.note())
            self.study.set_attrs(trial.number, **{f"rung{rung}": result.accuracy})
            return self._add_to_rung(trial, rung, paused=True)
        trial.complete(job.seed, result)
        if len(trial.results_by_seed) < trial.seeds(self.settings.repeats):
            self.live.queue.append(trial.number)
            return None
        return trial.finish(Status.OK)

    def _add_to_rung(self, trial: Trial, rung: int, paused: bool) -> Record | None:
        """Enter a result. Returns the record of a trial that falls out of the rung."""
        cost = self.context.cost_of(trial.net.key, trial.cost.totals())
        dropped = self.rungs.add(rung, RungResult(trial.number, trial.rung_accuracies[rung], cost, paused))
        return None if dropped is None else self.live[dropped].finish(Status.PRUNED)

    def learn(self, record: Record) -> None:
        """Take up what a new record says for what comes after it, and tell the study."""
        self.live.pop(record.trial, None)
        if record.status != Status.DUPLICATE:
            self.live.by_key.pop(record.trial_key, None)
        self._recall(record)
        if record.kind == "reference" or record.weights == "polished":
            return  # the strategy has proposed neither
        self.study.tell(record, record_for_study(record, self.known), self.context.cost_of)

    def _recall(self, record: Record) -> None:
        """Take up what a record says, of this session or an earlier one."""
        self.tally.apply(record)
        self.finetuning.apply(record)
        if record.status in UNTRAINED:
            return
        if self.parents and record.weights == "polished":
            self.parents.add(record)
        if record.weights == "polished" or (self.shared and record.weights != "shared"):
            return
        self.known[record.trial_key] = record
        self.patience.add(record)
        if record.taken_from:
            return
        if self.parents and record.kind != "reference":
            self.parents.add(record)
        if self.shared:
            self.shared.recall(record)

    def _parent_again(self, trial: Trial, number: int) -> Parent | None:
        """The parent of a trial of an earlier session; where its weights are damaged another or none, and anew."""
        assert self.parents is not None, "a search without parents"
        if parent := self.parents.get(number):
            return parent
        for checkpoint in (self.folder / "checkpoints").glob(f"{trial.key}*.pt"):
            checkpoint.unlink()
        return self.parents.most_similar(cast(Genotype, trial.net))

    def _resume(self, unfinished: UnderWay) -> None:
        """Take up a trial of an earlier session, which has no record."""
        trial = self._proposer.resumed(unfinished)
        if self.parents and unfinished.parent is not None:
            trial.inherit(self._parent_again(trial, unfinished.parent), self._short_rungs)
        trial.inherit(self.pretrained, self._short_rungs)
        if self.shared:
            self.shared.adopt(trial)
        if refused := self.admission.refused(trial):
            self._ends.append(refused)
            return
        self.live.enter(trial)
        rungs = len(trial.rung_accuracies)
        for rung in range(rungs):
            if dropped := self._add_to_rung(trial, rung, paused=trial.paused and rung + 1 == rungs):
                self._ends.append(dropped)
        if not trial.paused:
            self.live.queue.append(trial.number)
