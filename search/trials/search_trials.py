"""`SearchTrials`: what a search trains next, and what becomes of it. No Ray, no torch.

It asks the proposer for nets and the scheduler for who goes on, admits nets within the limits, and tells the Optuna
study, which is the strategy's memory, of every end once that is recorded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...results.ranking.objectives import spent_on_training
from ...results.runs.bank_progress import read_about
from ...results.runs.events import UnderWay
from ...results.runs.record import BESIDE, FREE, Record
from ...results.runs.store import Store
from ...spaces import FixedChooser, Genes, plain_genes
from ..context import SearchContext
from ..samplers.sampler_context import candidate_baselines
from ..training.bank_jobs import EvaluateJob
from ..training.job import Job, JobResult, TrainJob, Workers, curve_points
from ..training.recipe import Recipe
from .live import LiveTrials
from .patience import Patience
from .proposer import BASELINE_SEEDS, MAX_PROPOSALS, Proposer, choose_baselines
from .schedulers import RungResult, RungTable
from .shared_weights import SharedWeights
from .study import StudyAdapter, record_for_study
from .trial import BUDGET_SHARE, Parent, ParentPool, Trial

FIRST_REFERENCE = 1_000_000  # number of a trial that the study will not come to: it proposes the same nets without


class SearchTrials:
    """The trials of one search, a producer of jobs. Opened on an existing run, it takes up where that one stopped.

    Attributes:
        context: of the search.
        store: of the run's records and events.
        study: the strategy's memory.
        shared: the bank that nets are evaluated on; None where each is trained.
        live: trials under way, by number.
        known: records of the nets that were trained, by what tells trials apart.
        rungs: results at each rung of the scheduler.
        parents: the trained nets that new ones may inherit from; None if they may not.
        pretrained: the net from outside that all nets, baselines too, inherit from; None if there is none.
        baselines: the plain ResNets that are trained beside the search; `references`: how many nets of timm are.
        exhausted: whether the strategy or the space has no new net to give.
        patience: when the search has stopped getting better; None if it is not to end for that.
    """

    def __init__(self, context: SearchContext, store: Store, study: StudyAdapter) -> None:
        self.context, self.settings, self.folder = context, context.settings, context.folder
        self.store, self.study = store, study
        self.shared = SharedWeights(context) if context.settings.supernet else None
        settings, nets = context.settings, context.settings.run.budget.patience
        self.live = LiveTrials(context.artifacts)
        self.known: dict[str, Record] = {}
        self._live_by_key: dict[str, Trial] = {}
        self._not_searched: set[int] = set()  # numbers of live trials that are not of the search
        self._ends = deque[Record]()  # of trials of an earlier session, to be recorded first
        self.rungs = RungTable(context.scheduler, context.steps)
        self.parents = ParentPool(self.folder) if settings.inherit else None
        self.pretrained = Parent(context.pretrained.start) if context.pretrained else None
        self.exhausted = False
        self.patience = Patience(nets, settings, context.cost_of) if nets else None
        self._attempts = 0  # proposals in a row that needed no training
        self._seconds_beside = 0.0  # of training baselines and references in this session
        # As the records say: nets of the search and references that have ended, FLOPs of trainings by `part_of`.
        self._ended, self._references, self._flops = 0, 0, Counter[str]()
        for record in store.records:
            self._recall(record)
            self._recall_rungs(record)
        self._proposer = Proposer(context, study, lambda key: self._twin(key) is not None, self._proposed)
        candidates = candidate_baselines(context.sampler_context())
        self.baselines = choose_baselines(candidates, context)
        self._enqueue_baselines(candidates)
        self._enqueue_references()
        self._resume_unfinished()
        if self.shared and not store.records:  # evaluated first: the same nets trained alone tell what sharing is worth
            genes = [plain_genes(context.space, net) for net in self.baselines]
            study.enqueue([known for known in genes if known])
        if context.bank and self.shared and self.shared.ready and not self.complete:
            read_about(context.bank)  # before every net fails that would be evaluated on it

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self._ended + len(self.live) - len(self._not_searched)

    @property
    def polish_flops(self) -> float:
        """FLOPs that the front's nets are trained on for in all: a share of those of all nets of the search."""
        if self.shared:
            return self.shared.budget.polish
        return self._flops_of("search") * self.settings.polish / (1 - self.settings.polish)

    @property
    def polished_flops(self) -> float:
        """FLOPs of these trainings so far."""
        return self._flops_of("polish")

    @property
    def flops_left(self) -> float:
        """FLOPs that nets may still be trained for until the run's limit, beside those of the front."""
        most = self.settings.run.budget.train_flops
        return max(0.0, most - self._flops_of("search") - self._flops_of("beside") - self.polish_flops)

    def _flops_of(self, part: str) -> float:
        """FLOPs of all trainings so far: of the nets of the search, of those beside it, or to polish its front."""
        batch = BACKWARD_FACTOR * self.settings.recipe.batch_size
        live = [trial for trial in self.live.values() if part_of(trial) == part]
        return self._flops[part] + sum(batch * trial.cost.training_macs * trial.steps_done for trial in live)

    @property
    def references(self) -> int:
        """Nets of timm that are trained beside the search, those of earlier sessions too."""
        under_way = sum(trial.kind == "reference" for trial in self.live.values())
        return under_way + self._references

    @property
    def budget_spent(self) -> bool:
        """Whether all training that the run may do is done, or all compute for evaluations."""
        return self.flops_left <= 0 or (self.shared is not None and self.shared.is_spent)

    @property
    def _baselines_wait(self) -> bool:
        """Whether baselines and references have had their share of the time, and nets are still to be proposed."""
        budget = self.context.settings.run.budget
        share = 3600 * budget.hours * budget.baselines if budget.baselines else 0.0
        return self._seconds_beside >= share and not self.proposed_all

    @property
    def stalled(self) -> bool:
        """Whether the last nets have not made the front better. One that still ends may."""
        return self.patience is not None and self.patience.is_over

    @property
    def proposed_all(self) -> bool:
        """Whether no new net will be proposed: enough of them have started, there are no more, or they do not help."""
        return self.exhausted or self.budget_spent or self.started >= self.context.settings.trials or self.stalled

    @property
    def done(self) -> bool:
        """Whether nothing runs. Once `next_job` has returned None, nothing is left to run."""
        return self.live.all_paused and not self._ends

    @property
    def complete(self) -> bool:
        """Whether a search of this many trials has ended already."""
        return not self.live and not self._ends and self.proposed_all

    def close(self) -> list[Record]:
        """End the search: paused trials become pruned."""
        return [trial.finish("pruned") for trial in self.live.values() if trial.paused]

    # What runs next.

    def next_job(self, workers: Workers) -> Job | Record | None:
        """The job of a free worker, or the record of a proposal that needs none; None if nothing, for now or at all.

        Baselines and references wait for the search once they have had their share of the time.
        """
        if self._ends:
            return self._ends.popleft()
        waiting = self._not_searched if self._baselines_wait else set[int]()
        if any(number not in waiting for number in self.live.queue):
            trial = self.live.next_queued(lambda t: t.number not in waiting and not self._must_be_measured(t))
            return self._job(trial) if trial else None
        found = self._next_searched()
        if found is None and self.live.queue and (self.shared is None or self.shared.ready):
            trial = self.live.next_queued(lambda t: not self._must_be_measured(t))
            return self._job(trial) if trial else None
        return found

    def _next_searched(self) -> Job | Record | None:
        """The job of a net that the scheduler promotes, else of a new one, or the record of one that needs none."""
        if not self._attempts and (trial := self._promoted()):
            return self._job(trial)
        match self._propose():
            case Trial() as trial if self._must_be_measured(trial):
                self.live.queue.append(trial.number)  # to be measured, then trained
                return None
            case Trial() as trial:
                return self._job(trial)
            case record:
                return record

    def _promoted(self) -> Trial | None:
        """The first paused trial that the scheduler promotes, from the highest rung down."""
        if self.budget_spent or not self.rungs.any_paused:
            return None
        found = self.rungs.next(self.proposed_all or not self.study.ready, self.study.expected_accuracies())
        if found is None:
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
            self.exhausted = self._proposer.exhausted or self.done  # if nothing runs, no result will change it
            self._attempts = 0
            return None
        self._note_strategy(trial.number)
        if self.shared:
            self.shared.adopt(trial)
        if refused := self._refused(trial):
            self._attempts = (self._attempts + 1) % MAX_PROPOSALS
            self.exhausted |= self._attempts == 0
            return refused
        self._attempts = 0
        self._enter(trial)
        if self.parents:
            self._inherit(trial, self.parents.most_similar(cast(Genotype, trial.net)))
        parent = trial.parent and trial.parent.trial
        self.store.note("started", trial.number, key=trial.key, genes=dict(trial.genes), parent=parent)
        self._inherit(trial, self.pretrained)
        return trial

    def _note_strategy(self, trial: int) -> None:
        """Write down what the sampler has noted; `trial` is the one that it was asked for or about."""
        if news := self.study.news():
            self.store.note("strategy", trial, **news)

    def _refused(self, trial: Trial) -> Record | None:
        """The record of a net that is over a limit, or the same as another; None of one to be trained."""
        net, twin = cast(Genotype, trial.net), self._twin(trial.key)  # of the space, which has no others
        if broken := self.context.limits.broken(net):
            return self.infeasible(trial, broken)
        if twin is None:
            return None
        number, accuracy = (twin.number, None) if isinstance(twin, Trial) else (twin.trial, twin.accuracy)
        return trial.finish("duplicate", f"same net as trial {number}", accuracy=accuracy)

    def infeasible(self, trial: Trial, broken: dict[str, float], error: str = "") -> Record:
        """The record of a trial whose net breaks limits, each by this share."""
        self.study.violates(trial.number, broken)
        if not error:
            costs = (f"{name} {self.context.cost_named(name, trial.net.key, trial.cost.totals()):g}" for name in broken)
            error = f"over the limit: {', '.join(costs)}"
        return trial.finish("infeasible", error, constraint_violation=broken)

    def polish(self, trial: Trial) -> Job:
        """Enter a trial that trains a net of the front on. Returns its job."""
        self.live[trial.number] = trial
        self._not_searched.add(trial.number)
        return self._job(trial)

    def _enter(self, trial: Trial) -> None:
        self.live[trial.number] = self._live_by_key[trial.key] = trial
        if trial.kind != "search":
            self._not_searched.add(trial.number)

    def _inherit(self, trial: Trial, parent: Parent | None) -> None:
        """Let a trial start from the weights of `parent`, and train for less."""
        if parent is not None:
            trial.parent, trial.weights = parent, "inherited"
            trial.rung_steps = self.rungs.scheduler.rungs(max(1, round(BUDGET_SHARE * self.context.steps)))

    def _must_be_measured(self, trial: Trial) -> bool:
        return not trial.last_result and self.context.devices.pending(trial.net) is not None

    def _job(self, trial: Trial) -> Job:
        """The job that gives a trial its accuracy."""
        settings = self.settings
        if self.shared and trial.weights == "shared":
            return self.shared.job(trial)
        if settings.tune or trial.weights == "polished":
            settings = replace(settings, recipe=Recipe.from_dict(trial.record_fields["recipe"]))
        minutes, artifacts = settings.run.budget.trial_minutes, self.context.artifacts
        data = self.context.data
        trained = trial.total_steps * settings.recipe.images_a_step(len(data.train))
        points = curve_points(trained, len(data.val))
        return trial.start(settings, self.folder, minutes, artifacts, points, settings.trainer)

    # What becomes of it.

    def take(self, job: TrainJob | EvaluateJob, result: JobResult) -> Record | None:
        """The record of the trial whose end a result is: its own, or one that falls out of a rung."""
        trial = self.live[job.trial]
        self._seconds_beside += result.seconds * (trial.number in self._not_searched)
        given_up = self.live.received(trial, result)
        if result.status == "lost":
            return given_up
        trial.last_result = result
        if result.status != "ok":
            return trial.finish(result.status, result.error)
        if isinstance(job, EvaluateJob):
            return trial.finish("ok", accuracy=result.accuracy)
        if result.step < trial.total_steps:
            assert result.accuracy is not None
            rung = trial.pause(result.accuracy)
            self.store.note("paused", trial.number, **trial.note())
            self.study.set_attrs(trial.number, **{f"rung{rung}": result.accuracy})
            return self._add_to_rung(trial, rung, paused=True)
        trial.complete(job.seed, result)
        seeds = max(self.settings.repeats, 1 if trial.kind == "search" else BASELINE_SEEDS)
        seeds = 1 if trial.weights == "polished" else seeds
        if len(trial.results_by_seed) < seeds:
            self.live.queue.append(trial.number)
            return None
        return trial.finish("ok")

    def _add_to_rung(self, trial: Trial, rung: int, paused: bool) -> Record | None:
        """Enter a result. Returns the record of a trial that falls out of the rung."""
        cost = self.context.cost_of(trial.net.key, trial.cost.totals())
        dropped = self.rungs.add(rung, RungResult(trial.number, trial.rung_accuracies[rung], cost, paused))
        return None if dropped is None else self.live[dropped].finish("pruned")

    def learn(self, record: Record) -> None:
        """Take up what a new record says for what comes after it, and tell the study."""
        self.live.pop(record.trial, None)
        self._not_searched.discard(record.trial)
        if record.status != "duplicate":
            self._live_by_key.pop(record.trial_key, None)
        self._recall(record)
        if record.kind == "reference" or record.weights == "polished":
            return  # the strategy has proposed neither
        self.study.tell(record, record_for_study(record, self.known), self.context.cost_of)

    def _recall(self, record: Record) -> None:
        """Take up what a record says, of this session or an earlier one."""
        if record.status in FREE:
            return
        self._flops[part_of(record)] += spent_on_training(record)
        if self.parents and record.weights == "polished":
            self.parents.add(record)
        if record.weights == "polished" or (self.shared and record.weights != "shared"):
            return
        self.known[record.trial_key] = record
        self._references += record.kind == "reference"
        if self.patience:
            self.patience.add(record)
        if record.taken_from:
            return
        if self.parents and record.kind != "reference":
            self.parents.add(record)
        self._ended += record.kind == "search"
        if self.shared:
            self.shared.recall(record)

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
                self.live.queue.append(number)

    def _enqueue_references(self) -> None:
        """Nets of timm without a record are trained after the baselines, under numbers that the study does not use."""
        recorded = {record.key: record.trial for record in self.store.records if record.kind == "reference"}
        number = max(recorded.values(), default=FIRST_REFERENCE - 1)
        steps, fields = (self.context.steps,), self.context.record_fields
        for net, cost in self.context.references.items():
            if net.key not in recorded:
                number += 1
                self._enter(Trial(number, "reference", net, {}, cost, steps, fields))
                self.live.queue.append(number)

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
        if self.shared:
            self.shared.adopt(trial)
        if refused := self._refused(trial):
            self._ends.append(refused)
            return
        self._enter(trial)
        last = len(trial.rung_accuracies) - 1
        for rung in range(last + 1):
            if dropped := self._add_to_rung(trial, rung, paused=trial.paused and rung == last):
                self._ends.append(dropped)
        if not trial.paused:
            self.live.queue.append(trial.number)


def part_of(net: Trial | Record) -> str:
    """What part of a run's compute a training is of: "search", "beside" (baselines, references) or "polish"."""
    if net.kind in BESIDE:
        return "beside"
    return "polish" if net.weights == "polished" else "search"
