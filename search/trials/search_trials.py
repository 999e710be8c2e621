"""`SearchTrials`: what a search trains next, and what becomes of it. No Ray, no torch.

It asks the proposer for nets and the scheduler for who goes on, and admits nets within the limits. Its state is what
the lines of the run's log say: `apply` takes in each, when the run is opened and when one is written.
"""

from collections import deque
from dataclasses import replace

from ...archs.timm_net import Net, net_from_dict
from ...results.runs.bank_progress import read_about
from ...results.runs.events import OF_TRIALS, Event, Line
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status, Weights
from ...results.runs.store import Store
from ...spaces import plain_genes
from ..context import SearchContext
from ..training.bank_jobs import EvaluateJob
from ..training.job import Job, JobResult, TrainJob
from ..training.recipe import Recipe
from .admission import Admission, Patience
from .baselines import choose_baselines, choose_references, planned_beside
from .compute import Compute, part_of
from .finetuning import Finetuning
from .producer import Idle, Producer
from .proposer import MAX_PROPOSALS, Proposer, history_of
from .schedulers import RungTable
from .shared_weights import SharedWeights
from .trial import LiveTrials, Trial
from .weight_sources import Finetuned, source_of


class SearchTrials(Producer):
    """The trials of one search. Opened on an existing run, it takes up where that one stopped.

    Attributes:
        context, store: of the search, and of its run's log.
        history: what the strategy goes by.
        proposer: asks the strategy.
        weights: how nets that are proposed come by their weights.
        shared: the bank that nets are evaluated on; None where each is trained.
        live: trials under way, by number.
        compute: what has been spent, what is left, and for what.
        finetuning: the nets that may be trained on in the end.
        known: records of the nets that were trained, by what tells trials apart.
        rungs: results at each rung of the scheduler.
        admission: which proposals are trained.
        baselines: the plain ResNets that are trained beside the search.
        exhausted: whether the strategy or the space has no new net to give.
        patience: when the search has stopped getting better.
    """

    def __init__(self, context: SearchContext, store: Store) -> None:
        self.context, self.settings, self.folder = context, context.settings, context.folder
        self.store, self.baselines = store, choose_baselines(context.baselines, context, store.records)
        self.history, self.weights = history_of(context, len(self.baselines)), source_of(context)
        self.shared = self.weights if isinstance(self.weights, SharedWeights) else None
        self.live, settings = LiveTrials(), context.settings
        self.compute = Compute(self.live, settings, self.shared)
        self.references = choose_references(context)
        self.compute.planned_beside = planned_beside(self.baselines, self.references, context)
        self.finetuning = Finetuning(context, self.compute, self.live, self.shared is not None)
        self.compute.expected_finetuning = lambda: self.finetuning.expected_flops
        self.known: dict[str, Record] = {}
        self.rungs = RungTable(context.scheduler, context.steps)
        self.exhausted = False
        self.patience = Patience(settings, context.cost_of)
        self.proposer = Proposer(context, self.history, store.lines, store.records, self.live, self.known)
        self.admission = Admission(context, self.proposer, self.compute)
        self._finetuned = Finetuned(context, self.shared)
        self._attempts = 0  # proposals in a row that needed no training
        self._begun = set[int]()  # trials that have started and not ended
        self._unwritten, self._drawn = deque[Line](), list[Trial]()  # of the net proposed last
        for trial in self.proposer.baselines(self.baselines):
            self.weights.begin_plain(trial)
            self.live.enqueue(trial)
        for trial in self.proposer.references(self.references):
            self.live.enqueue(trial)
        self._ended = {record.trial: record for record in store.records}  # of these no trial is made again
        for line in store.lines:
            self.apply(line)
        self._ended.clear()
        self.proposer.enqueue_first(self.baselines)
        if self.shared and not store.records:  # evaluated first: the same nets trained alone tell what sharing is worth
            genes = [plain_genes(context.space, net) for net in self.baselines]
            self.proposer.enqueue([known for known in genes if known])
        if context.bank and self.weights.ready and not self.complete:
            read_about(context.bank)  # before every net fails that would be evaluated on it

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.compute.started

    @property
    def proposed_all(self) -> bool:
        """Whether no new net will be proposed: enough of them have started, there are no more, or they do not help."""
        enough = self.exhausted or self.started >= self.settings.trials or self.patience.is_over
        return enough or self.compute.is_spent

    @property
    def all_ended(self) -> bool:
        """Whether all nets have been proposed, and have ended or wait at a rung, but for those that are trained on."""
        return self.proposed_all and all(trial.paused or trial.is_finetuning for trial in self.live.values())

    @property
    def complete(self) -> bool:
        """Whether a search of this many trials has ended already."""
        return not self.live and self.proposed_all

    def close(self) -> list[Record]:
        """End the search: paused trials become pruned."""
        return [trial.finish(Status.PRUNED) for trial in self.live.values() if trial.paused]

    def next(self) -> Job | Line | Idle:
        """The job of a free worker, or the line of a trial that starts, goes on, or needs none.

        Baselines and references wait for the search once they have had their share of the time.
        """
        if self._unwritten:
            return self._unwritten.popleft()
        beside_waits, found = self.compute.beside_had_its_time, None
        if any(not beside_waits or part_of(self.live[number]) == "search" for number in self.live.queue):
            found = self._next_queued(beside_waits)
        elif not self._promote():
            self._propose()
        if self._unwritten:
            return self._unwritten.popleft()
        if found is None and self.weights.ready:
            found = self._next_queued(False)
        return found or (Idle.OVER if self.live.all_paused else Idle.WAIT)

    def _next_queued(self, beside_waits: bool) -> Job | Record | None:
        """The job of the first trial in the queue that need not be measured first."""
        delay = self.context.devices.delay
        trial = self.live.next_queued(lambda t: not delay(t) and not (beside_waits and part_of(t) != "search"))
        if trial is None:
            return None
        over = self.context.limits.broken_measured(trial.net) if self.context.devices and not trial.last_result else {}
        if over and trial.kind != "reference":  # measured by a driver that did not come to say so
            return self.admission.infeasible(trial, over)
        return self._job(trial)

    def _promote(self) -> bool:
        """Have the first paused trial go on that the scheduler promotes, from the highest rung down, if any."""
        if self._attempts or self.compute.is_spent or not self.rungs.any_paused:
            return False
        expected = self.proposer.strategy.expected(self.history)
        found = self.rungs.next(self.proposed_all or self.proposer.waits, expected)
        if found is None:
            return False
        if self.live[found[1]].next_work(self.settings.repeats).flops > self.compute.flops_left:
            return False
        self._note_strategy(found[1])
        self._unwritten.append(Event("promoted", found[1]))
        return True

    def _propose(self) -> None:
        """Have a new net start, within the limits and unknown, or record one that is not, if there is one."""
        if self.proposed_all or not self.weights.ready:
            return
        trial = self.proposer.propose(self.started, self._attempts)
        if trial is None:
            self.exhausted = self.proposer.exhausted or self.live.all_paused  # no result will change it
            self._attempts = 0
            return
        self._note_strategy(trial.number)
        self.weights.begin(trial, None)  # a limit on compute is asked of the whole training first
        refused, parent = self.admission.refused(trial), None
        if refused is None:
            if (parent := self.weights.choose(trial)) is not None:
                self.weights.begin(trial, parent)
            refused = self.admission.unaffordable(trial)
        if refused:
            self.exhausted |= self._attempts + 1 == MAX_PROPOSALS
            self._unwritten.append(refused)
            return
        self._drawn = [trial]
        about = {"key": trial.key, "net": trial.net.key, "family": trial.net.family, "genes": dict(trial.genes)}
        self._unwritten.append(Event("started", trial.number, **about, parent=parent, weights=str(trial.weights)))

    def _note_strategy(self, trial: int) -> None:
        """Write down what the strategy has noted; `trial` is the one that it was asked for or about."""
        if news := self.history.take_news():
            self._unwritten.append(Event("strategy", trial, **news))

    def _job(self, trial: Trial) -> Job:
        if part_of(trial) == "search" and (job := self.weights.job(trial)):
            return job
        settings = self.settings
        if settings.tune or trial.is_finetuning:
            settings = replace(settings, recipe=Recipe.from_dict(trial.record_fields["recipe"]))
        points = self.context.curve_points(settings.recipe, trial.total_steps)
        return trial.start(settings, self.folder, points)

    def take(self, job: TrainJob | EvaluateJob, result: JobResult) -> list[Line]:
        """What a result says of its trial: its end, or that it is paused, and that another falls out of the rung."""
        trial = self.live[job.trial]
        self.compute.add_seconds(trial, result.seconds)
        trial.ran(result)
        if result.status == Status.OK and isinstance(job, TrainJob) and result.step < trial.total_steps:
            out = self.rungs.falls_out(len(trial.rung_accuracies))
            dropped = [] if out is None else [self.live[out].finish(Status.PRUNED)]
            return [trial.paused_event(result), *dropped]
        trial.last_result = result
        if result.status != Status.OK:
            return [trial.finish(result.status, result.error)]
        if isinstance(job, EvaluateJob):
            return [trial.finish(Status.OK, accuracy=result.accuracy)]
        trial.complete(job.seed, result)
        if len(trial.results_by_seed) < trial.seeds(self.settings.repeats):
            self.live.queue.append(trial.number)
            return []
        return [trial.finish(Status.OK)]

    def apply(self, line: Line) -> None:
        """Take in a line of the log, of an earlier session or just written: nothing else changes what it tells of."""
        if isinstance(line, Event) and line.event not in OF_TRIALS:
            if line.event == "measured":
                self.context.devices.apply(line, self._net(line.trial))
            elif line.event == "bank" and self.shared:
                self.shared.bank_training.note(line)
            return
        self.history.apply(line)
        if isinstance(line, Record):
            self._end(line)
        elif line.event == "started":
            self._start(line)
        elif line.event == "paused" and line.trial in self._begun:
            self.live.pause(line)
            self.rungs.pause(line.trial, line.accuracy, self._cost_of(line.trial))
        elif line.event == "promoted" and line.trial in self._begun:
            self.live.promote(line.trial)
            self.rungs.resume(line.trial)

    def _cost_of(self, number: int) -> float:
        if trial := self.live.get(number):
            return self.context.cost_of(trial.net.key, trial.cost.totals())
        return self.context.cost_of(self._ended[number].key, self._ended[number].cost)

    def _net(self, number: int) -> Net | None:
        if trial := self.live.get(number):
            return trial.net
        return net_from_dict(self._ended[number].genotype) if number in self._ended else None

    def _start(self, event: Event) -> None:
        self._attempts = 0
        self._begun.add(event.trial)
        if event.trial in self._ended:
            return
        trial = self._drawn.pop() if self._drawn else self._again(event)
        if trial is None:
            self._begun.discard(event.trial)
        else:
            self.live.enqueue(trial)

    def _again(self, event: Event) -> Trial | None:
        if event.weights == Weights.FINETUNED:
            record = self.finetuning.record_of(event.parent)
            return self._finetuned.trial(event.trial, record, event.step) if record else None
        trial = self.proposer.again(event.trial, event.genes)
        if trial:
            self.weights.begin(trial, event.parent)
        return trial

    def _end(self, record: Record) -> None:
        if record.trial in self._begun:
            self._begun.discard(record.trial)
        elif record.kind == "search" and record.status in UNTRAINED:
            self._attempts = (self._attempts + 1) % MAX_PROPOSALS
        self.live.end(record)
        self.rungs.end(record.trial)
        self.context.devices.apply(record, None)
        self.compute.apply(record)
        self.finetuning.apply(record)
        if record.status in UNTRAINED:
            return
        self.weights.apply(record)
        if self.weights.counts(record):
            self.known[record.trial_key] = record
            self.patience.add(record)
