"""`Forecast`: what a search has ahead of it, all that will be trained included, before it begins and while it runs.

`Pace`: the seconds that work takes, learned from what jobs have taken.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from scipy.optimize import least_squares

from ...archs import Genotype
from ...archs.cost import training_flops
from ...results.runs.status import UNTRAINED, Weights
from ...spaces import FixedChooser
from ..training.bank_jobs import EvaluateJob, SupernetJob
from ..training.job import Job, TrainJob
from .baselines import typical_macs
from .compute import part_of, work_of
from .finetuning import Candidate
from .search_trials import SearchTrials
from .trial import BUDGET_SHARE, Trial, Work

PRIOR_NETS = 4  # that what is expected of a net counts as, beside the nets that the strategy has begun
ALONE, BANK, SHARED = "alone", "bank", "shared"  # kinds of work, which take different times
LAST = 100  # jobs of a kind that its pace is learned from
RECENT = 10  # jobs of this session that say how fast the machine is now
NOISE, TRUST = 0.3, 1.6  # deviations of logarithms: of a job's seconds, and of what a FLOP takes from what is expected
CORE_FLOPS = 1e10  # a second, at which a core trains nets of 20 M to 350 M MACs (measured: 5.5 to 14 G)
Known = tuple[str, Work]  # a kind of work, and how much of it


class Forecast:
    """Work that is left, by kind: nets trained one by one, a bank of shared weights, nets evaluated on it.

    A net to come costs what those begun so far cost on average, and at first what the strategy is expected to propose.
    Of all nets begun 1 in eta is expected to pass each rung. What will be trained on in the end follows from the plan
    for the nets known so far, as if all others had ended.
    """

    def __init__(self, trials: SearchTrials) -> None:
        self._trials, self._context, self._compute = trials, trials.context, trials.compute
        self._typical = typical_macs(trials.context)

    def left(self) -> dict[str, Work]:
        """All that has not ended; a job that runs counts from its first step to where it will stop."""
        trials, shared = self._trials, self._trials.shared
        nets, to_come = self._to_come()
        live = (trial.work_left(trials.settings.repeats) for trial in trials.live.values())
        later = sum((work for _, work in self._to_finetune()), to_come)
        fits = min(1.0, self._compute.unspent / later.flops) if later.flops else 1.0
        left = {ALONE: sum(live, later * fits)}
        if shared:
            left[BANK] = Work(shared.bank_training.flops_left)
            left[SHARED] = Work(nets * shared.mean_evaluation, 0, nets)
        return left

    def last(self) -> list[Known]:
        """The trainings among these that come one by one at the end."""
        return [(ALONE, work) for _, work in self._to_finetune()]

    def beside(self) -> float:
        """FLOPs among these of what is not searched: plain ResNets, their finetuning, and known nets."""
        live = (trial for trial in self._trials.live.values() if part_of(trial) == "beside")
        first = sum(trial.work_left(self._trials.settings.repeats).flops for trial in live)
        return first + sum(work.flops for net, work in self._to_finetune() if net.is_plain)

    @property
    def nets(self) -> int:
        """Nets to train in all, baselines and references too; one that is trained on is the same net."""
        ended = sum(count for status, count in self._compute.statuses.items() if status not in UNTRAINED)
        ended -= sum(record.weights == Weights.FINETUNED for record in self._trials.store.records)
        live = sum(not trial.is_finetuning for trial in self._trials.live.values())
        return ended + live + round(self._to_come()[0])

    def work(self, job: Job) -> Known | None:
        """What a job takes that has just begun; None where it is not counted: a measurement."""
        shared = self._trials.shared
        if isinstance(job, TrainJob):
            trial = self._trials.live[job.trial]
            done = trial.last_result.step if trial.last_result and not trial.results_by_seed else 0
            return ALONE, trial.work_of(job.stop_step - done, 1)
        if shared and isinstance(job, SupernetJob):
            return BANK, Work(shared.budget.bank * (job.stop_step - job.start_step) / job.total_steps)
        if shared and isinstance(job, EvaluateJob):
            return SHARED, Work(shared.evaluation_flops(job.genotype), 0, 1)
        return None

    def known(self) -> Iterator[tuple[str, Work, float]]:
        """What has ended in earlier sessions: its kind, how much it was, and the seconds of a worker."""
        shared = self._trials.shared
        for record in self._trials.store.records:
            if record.seconds and record.status not in UNTRAINED and not record.taken_from:
                if shared and record.weights == Weights.SHARED:
                    flops = shared.evaluation_flops(Genotype.from_dict(record.genotype))
                    yield SHARED, Work(flops, 0, 1), record.seconds
                else:
                    yield ALONE, work_of(record), record.seconds
        if shared and (done := shared.budget.bank - shared.bank_training.flops_left):
            yield BANK, Work(done), shared.bank_training.progress.get("seconds", 0.0)

    def _to_come(self) -> tuple[float, Work]:
        """Nets to begin, and what these and those to promote take; of slices nothing, for they are not trained.

        As many as were asked for, as far as there are any and the compute is enough, with what trains the front on.
        """
        trials, compute, nets = self._trials, self._compute, 0
        if not trials.proposed_all:
            most = trials.proposer.strategy.left(trials.history)
            nets = round(max(0, min(trials.settings.trials - trials.started, most)))
        if trials.shared:
            return nets and (nets if trials.shared.is_by_count else trials.shared.affordable), Work()
        wanted = self._wanted(nets)
        if compute.limit == float("inf") or not wanted.flops:
            return nets, wanted
        finetuned = compute.to_finetune / compute.searched if compute.searched else 0.0
        share = min(1.0, compute.flops_left / (wanted.flops * (1 + finetuned)))
        return nets * share, wanted * share

    def _wanted(self, to_begin: int) -> Work:
        """What so many nets to begin, and those to promote, take where compute has no limit."""
        trials, settings, begun = self._trials, self._trials.settings, self._trials.started
        total = begun + to_begin
        live = [trial for trial in trials.live.values() if part_of(trial) == "search"]
        passed = self._compute.promotions + Counter(trial.promoted for trial in live)
        whole = self._compute.whole + sum(bool(trial.results_by_seed) for trial in live)
        mean, before = self._net_macs(live, to_begin), 0
        wanted, missing, coming = Work(trainings=to_begin), float(to_begin), float(total)
        for rung, until in enumerate(self._context.scheduler.rungs(self._context.steps)):
            if rung:  # nets that go on are others than those that stop, and may be more than 1 in eta
                there = sum(count for number, count in passed.items() if number >= rung)
                coming = total * max(settings.eta**-rung, there / max(1, begun))
                missing = max(0.0, coming - there)
                wanted += Work(trainings=missing)
            wanted += self._of_net(mean, missing * (until - before))
            before = until
        again = max(0.0, coming - whole) * (settings.repeats - 1)
        wanted += self._of_net(mean, again * self._context.steps) + Work(trainings=again)
        return wanted * (1 - (1 - BUDGET_SHARE) * trials.weights.heir_share(begun, to_begin))

    def _of_net(self, macs: float, steps: float) -> Work:
        return Work(training_flops(macs, steps, self._context.settings.recipe.batch_size), steps)

    def _net_macs(self, live: list[Trial], to_begin: int) -> float:
        """MACs of a net to come: the first ones are known, the others are as those begun so far."""
        context, compute = self._context, self._compute
        macs = PRIOR_NETS * self._typical + compute.macs + sum(trial.cost.macs for trial in live)
        mean = macs / (PRIOR_NETS + compute.begun + len(live))
        if not to_begin:
            return mean
        queued = islice(self._trials.proposer.queued, to_begin)
        known = [context.cost_fn(context.space.sample(FixedChooser(genes))).macs for genes in queued]
        return (sum(known) + mean * (to_begin - len(known))) / to_begin

    def _to_finetune(self) -> list[tuple[Candidate, Work]]:
        """The nets that will be trained on beside those that are, and what that takes."""
        trials, finetuning = self._trials, self._trials.finetuning
        if not self._context.settings.polish:
            return []
        to_come = self._to_come()[1]
        live = [t for t in trials.live.values() if part_of(t) == "search" and not t.paused]
        plain = [self._candidate(t) for t in trials.live.values() if t.kind == "baseline" and not t.is_finetuning]
        is_known = not (to_come.steps or live or plain) and trials.proposed_all
        shares = finetuning.plan if is_known else finetuning.expected(to_come, plain)
        waiting = finetuning.not_begun(shares)
        return [(net, Work(net.flops(steps), steps, 1)) for net, steps in waiting]

    def _candidate(self, trial: Trial) -> Candidate:
        macs, images = float(trial.cost.macs), trial.record_fields["recipe"]["batch_size"]
        return Candidate(macs, macs, 0.0, trial.total_steps, images, is_plain=True)


class Pace:
    """Seconds a FLOP, a step and a training, by kind of work. Of an unknown kind a FLOP takes as long as of another.

    How these compare is learned from all jobs, and how long they take from the last ones of this session: a machine
    has other things to do at other times.
    """

    def __init__(self) -> None:
        self._known = defaultdict[str, deque[tuple[Work, float]]](lambda: deque(maxlen=LAST))
        self._recent = defaultdict[str, deque[tuple[Work, float]]](lambda: deque(maxlen=RECENT))
        self._fits: dict[str, Work] = {}

    @property
    def knows(self) -> bool:
        """Whether any work is known."""
        return bool(self._known)

    def add(self, kind: str, work: Work, seconds: float, earlier: bool = False) -> None:
        """Take in what some work took, in this session or an earlier one."""
        if seconds > 0 and (work.flops or work.steps):
            self._known[kind].append((work, seconds))
            if not earlier:
                self._recent[kind].append((work, seconds))
            self._fits.pop(kind, None)

    def seconds(self, kind: str, work: Work) -> float | None:
        """Seconds that work is expected to take; None while nothing is known."""
        if kind in self._known:
            if kind not in self._fits:
                self._fits[kind] = self._fit(kind)
            return product(self._fits[kind], work)
        known = self._known.get(BANK) or next(iter(self._known.values()), None)
        if known is None:
            return None
        flops = sum(one.flops for one, _ in known)
        return work.flops * sum(seconds for _, seconds in known) / flops if flops else None

    def _fit(self, kind: str) -> Work:
        """The pace of a kind, by the last jobs of this session, beside which one mean job counts for what was known."""
        pace, recent = fit(self._known[kind]), self._recent[kind]
        if not recent:
            return pace
        expected = sum(product(pace, work) for work, _ in recent)
        one = expected / len(recent)
        return pace * ((one + sum(seconds for _, seconds in recent)) / (one + expected))


def product(pace: Work, work: Work) -> float:
    """Seconds that work takes at a pace."""
    return pace.flops * work.flops + pace.steps * work.steps + pace.trainings * work.trainings


def prior(sizes: np.ndarray, seconds: float) -> np.ndarray:
    """The part of its time that each of a mean job's amounts is expected to take, its FLOPs first.

    FLOPs take what a core needs for them, and no more than an equal part: a small net's time is that of its steps and
    its start, and says little of a large one's. The others have equal parts of the rest.
    """
    used = sizes > 0
    count = int(used.sum())
    flops = min(used[0] / count, sizes[0] / CORE_FLOPS / seconds) if count > 1 else float(used[0])
    parts = used * (1 - flops) / max(1, count - used[0])
    parts[0] = flops
    return parts


def fit(known: Sequence[tuple[Work, float]]) -> Work:
    """Seconds a FLOP, a step and a training that come nearest to what some work took.

    By least squares of logarithms, of what is expected too where jobs do not tell FLOPs, steps and trainings apart;
    then all are scaled so that the sum of the seconds is right.
    """
    parts = np.array([(work.flops, work.steps, work.trainings) for work, _ in known])
    seconds = np.array([seconds for _, seconds in known])
    sizes = parts.mean(0)
    expected = prior(sizes, seconds.mean()) * seconds.mean() / np.where(sizes > 0, sizes, 1.0)

    def errors(logs: np.ndarray) -> np.ndarray:
        return np.append((np.log(parts @ (expected * np.exp(logs))) - np.log(seconds)) / NOISE, logs / TRUST)

    found = expected * np.exp(least_squares(errors, np.zeros(3)).x)
    return Work(*(found * seconds.sum() / (parts @ found).sum()).tolist())
