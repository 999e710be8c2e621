"""`StudyAdapter`: an Optuna study behind the few calls that the controller makes; in memory, built from the records."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ...archs import Genotype, InputError
from ...archs.candidate import candidate_key
from ...results.runs.events import UnderWay
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status
from ...results.runs.store import Store
from ...spaces import Gene, Genes, options_of, plain_genes
from ..samplers.random import TrialChooser, distributions
from ..samplers.registry import find_strategy, is_own, sampler, user_sampler_errors
from ..samplers.sampler_context import SamplerContext, candidate_baselines
from ..samplers.start import first_nets

CostOf = Callable[[str, Mapping[str, int]], float]  # of a net's key and static costs: what accuracy is weighed against
DIRECTIONS = (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE)  # of accuracy and its cost
FIXED = "fixed_params"  # attribute of Optuna's for the genes of a trial that was enqueued
MAX_MISSING = 10_000  # trials without a record: those that drivers were drawing when they were killed
OUT_OF_MEMORY = {"memory": 1.0}  # the constraint that a net violates which ran out of memory


class StudyMemory(InMemoryStorage):
    """Optuna's storage in memory, whose trials share their genes' distributions: 100,000 have 3 million."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[tuple[str, BaseDistribution], BaseDistribution] = {}

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        if template_trial is None:
            return super().create_new_trial(study_id)
        bare = copy.copy(template_trial)  # what is in it is copied in depth
        bare.distributions = {}
        trial_id = super().create_new_trial(study_id, bare)
        self._get_trial(trial_id).distributions = template_trial.distributions
        return trial_id

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        shared = self._shared.setdefault((param_name, distribution), distribution)
        super().set_trial_param(trial_id, param_name, param_value_internal, shared)


class StudyAdapter:
    """The study of one run: asks the strategy, keeps rung results, is told every end."""

    def __init__(self, strategy: str, context: SamplerContext, past: int = 0) -> None:
        """`past` is the number of trials that it will be filled with: a sampler must not repeat its draws."""
        quiet()
        self._user_errors, self.planned = partial(user_sampler_errors, strategy), find_strategy(strategy).planned
        offset = 0 if find_strategy(strategy).stateless else past  # some go by the trial's number anyway
        self._memory = StudyMemory()
        self.study = optuna.create_study(
            storage=self._memory, directions=DIRECTIONS, sampler=sampler(strategy, context, offset)
        )
        self.study.stop = self._stop  # which Optuna lets its own loop alone call
        self._is_stopped = False
        self._open: dict[int, Trial] = {}
        self._baselines = set[int]()
        self._kept: dict[str, Any] = {}  # attributes of the study, at the last look
        self._asked: int | None = None  # the trial that was proposed last

    def _stop(self) -> None:
        """What a sampler calls that has nothing more to propose, as Optuna's BruteForceSampler."""
        self._is_stopped = True

    @property
    def ready(self) -> bool:
        """Whether the strategy has a net to propose now; some must wait for results, or come to an end."""
        if self._is_stopped:
            return False
        ready = getattr(self.study.sampler, "ready", None)
        return ready is None or ready(self.study)

    def expected_accuracies(self) -> Mapping[int, float]:
        """What the strategy expects trials to reach, by number; of most strategies nothing."""
        expected = getattr(self.study.sampler, "expected_accuracies", None)
        with self._user_errors():
            return expected(self.study) if expected else {}

    def skip(self) -> int:
        """Use up a number for a trial that the strategy did not propose."""
        self.study.add_trial(create_trial(state=TrialState.FAIL))
        return len(self._trials()) - 1

    def enqueue(self, genes: Sequence[Genes]) -> None:
        """Have the next proposals hold these genes; the strategy draws the others. Not where it follows a plan."""
        for fixed in () if self.planned else genes:
            self.study.enqueue_trial(fixed)

    def ask(self) -> tuple[int, TrialChooser]:
        """Ask for a new trial: its number and its chooser.

        Raises:
            InputError: if a sampler of the user's own raises anything, now or when it is asked for a gene.
        """
        with self._user_errors():
            trial = self.study.ask()
        self._asked, self._open[trial.number] = trial.number, trial
        return trial.number, TrialChooser(trial, self._user_errors)

    def set_attrs(self, trial: int, **attrs: Any) -> None:
        """Set what strategies read: "key" (`Trial.key`), "rung0" and so on, "aim" (the rung it was promoted to)."""
        for name, value in attrs.items():
            self._open[trial].set_user_attr(name, value)

    def violates(self, trial: int, constraints: Mapping[str, float]) -> None:
        """Note that the net of `trial` breaks limits, each by this share; no strategy is told of some baselines."""
        for name, share in constraints.items() if trial in self._open else ():
            self._open[trial].set_constraint(name, share)

    def tell(self, record: Record, known: Record, cost_of: CostOf) -> None:
        """End the trial of `record` as `known` ended: itself, or for a duplicate its twin."""
        number = record.trial
        if record.kind == "baseline" and number not in self._baselines:
            return
        self._baselines.discard(number)
        open_trial = self._open.pop(number, None)
        if open_trial is not None and known.status == Status.OOM:
            open_trial.set_constraint(*next(iter(OUT_OF_MEMORY.items())))
        if open_trial is not None and len(known.accuracies) > 1:
            open_trial.set_user_attr("accuracies", known.accuracies)
        with self._user_errors():
            self.study.tell(number, **_end_of(known, cost_of))

    def fail(self, trial: int) -> None:
        """End a trial, or a baseline that is not trained, without a result."""
        self._baselines.discard(trial)
        with self._user_errors():
            self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def is_open(self, trial: int) -> bool:
        """Whether a trial has yet to end."""
        return trial in self._open

    def news(self) -> dict[str, Any]:
        """What the sampler has noted since the last call: in the study, and in the trial that it has just proposed.

        Raises:
            InputError: if a sampler of the user's own notes what JSON does not have.
        """
        study, news = self.study.user_attrs, dict[str, Any]()
        if changed := {name: value for name, value in study.items() if self._kept.get(name) != value}:
            self._kept = study
            news["study"] = changed
        attrs = self._memory.get_trial(self._asked).system_attrs if self._asked is not None else {}
        if attrs := {name: value for name, value in attrs.items() if name != FIXED}:
            news["attrs"] = attrs
        self._asked = None
        with self._user_errors():
            json.dumps(news, allow_nan=False)
        return news

    def replay(self, trial: FrozenTrial, baseline: bool) -> None:
        """Take in a trial of an earlier driver, or a baseline; one that has not ended can be told of its end."""
        number = len(self._trials())
        self.study.add_trial(trial)
        if trial.state == TrialState.RUNNING:
            with self._user_errors():
                self._open[number] = Trial(self.study, number)
            if baseline:
                self._baselines.add(number)

    def recall(self, attrs: Mapping[str, Any]) -> None:
        """Give the sampler back what it has noted in the study."""
        for name, value in attrs.items():
            self.study.set_user_attr(name, value)
        self._kept = self.study.user_attrs

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def study_of(
    store: Store,
    strategy: str,
    context: SamplerContext,
    cost_of: CostOf,
    baselines: Sequence[Genotype] | None = None,
) -> StudyAdapter:
    """The study of a run: its baselines, all that its records and events say, and the first proposals.

    `baselines` hold the first numbers; None are the space's.

    Raises:
        InputError: if the records' numbers are impossible.
    """
    options, baselines = options_of(context.space), candidate_baselines(context) if baselines is None else baselines
    shared: dict[str, BaseDistribution] = dict(distributions(options))
    ended = told(store.records)
    open_ = {trial.trial: trial for trial in store.under_way if fits(trial.genes, options)}
    noted = {event.trial: event.attrs for event in store.events if event.attrs}
    last = check_numbers(ended, open_)
    adapter = StudyAdapter(strategy, context, past=last + 1)
    for number in range(max(len(baselines), last + 1)):
        is_baseline, trial = number < len(baselines), create_trial(state=TrialState.FAIL)
        if number in ended:
            record, known = ended[number]
            if fits(record.genes, options):
                trial = ended_trial(record, known, shared, cost_of, noted.get(number))
        elif number in open_:
            trial = running_trial(open_[number], shared, noted.get(number))
        elif is_baseline and (genes := plain_genes(context.space, baselines[number])) is not None:
            key = candidate_key(baselines[number].key, genes)
            trial = running_trial(UnderWay(number, key, genes, None), shared, None)
        adapter.replay(trial, is_baseline)
    adapter.recall({name: value for event in store.events for name, value in event.study.items()})
    genes = [one.genes for one in (*(record for record, _ in ended.values()), *open_.values())]
    adapter.enqueue([first for first in context.first if first not in genes])
    begun = [record.genes for record, _ in ended.values() if record.kind == "search"]
    begun += [trial.genes for trial in open_.values()]
    plain = {net.key for net in baselines}
    adapter.enqueue([first for first in first_nets(context, plain) if first not in begun])
    return adapter


def check_numbers(ended: Collection[int], live: Collection[int]) -> int:
    """The last trial's number, or -1. Raise InputError if trials are missing by the thousand: each would be one."""
    last = max([-1, *ended, *live])
    if last + 1 - len(ended) - len(live) > MAX_MISSING:
        raise InputError(f"records: trial {last} among {len(ended)} is no number that a search has come to")
    return last


def told(records: Iterable[Record]) -> dict[int, tuple[Record, Record]]:
    """By trial its record and the one that its study was told when it ended; references are in no study."""
    trained: dict[str, Record] = {}
    pairs = {}
    for record in records:
        if record.status not in UNTRAINED and record.weights != "polished":
            trained[record.trial_key] = record
        if record.kind != "reference":
            pairs[record.trial] = record, record_for_study(record, trained)
    return pairs


def fits(genes: Genes, options: Mapping[str, tuple[Gene, ...]]) -> bool:
    """Whether these are genes of the space; those of a record may be anybody's."""
    return set(genes) == set(options) and all(genes[name] in choices for name, choices in options.items())


def ended_trial(
    record: Record, known: Record, shared: dict[str, BaseDistribution], cost_of: CostOf, noted: dict[str, Any] | None
) -> FrozenTrial:
    """A trial with a record, as its study had it; rungs are those where it was compared."""
    passed = [rung for rung in record.rungs if rung["step"] < record.budget.get("full", 0)]
    violation = {name: share for name, share in record.constraint_violation.items() if share is not None}
    attrs: dict[str, Any] = {"key": record.trial_key} | {f"rung{i}": rung["accuracy"] for i, rung in enumerate(passed)}
    return create_trial(
        **_end_of(known, cost_of),
        params=record.genes,
        distributions=shared,
        user_attrs=attrs | ({"accuracies": known.accuracies} if len(known.accuracies) > 1 else {}),
        system_attrs=noted,
        constraints=OUT_OF_MEMORY if known.status == Status.OOM else violation or None,
    )


def running_trial(trial: UnderWay, shared: dict[str, BaseDistribution], noted: dict[str, Any] | None) -> FrozenTrial:
    """A trial without a record."""
    attrs: dict[str, Any] = {"key": trial.key, "aim": trial.promoted}
    attrs |= {f"rung{i}": accuracy for i, accuracy in enumerate(trial.accuracies)}
    return create_trial(
        state=TrialState.RUNNING, params=trial.genes, distributions=shared, user_attrs=attrs, system_attrs=noted
    )


def record_for_study(record: Record, trained: Mapping[str, Record]) -> Record:
    """The record that a trial is told: its own, or for a duplicate that of its twin in `trained`, once it has ended."""
    return trained.get(record.trial_key, record) if record.status == Status.DUPLICATE else record


def _end_of(record: Record, cost_of: CostOf) -> dict[str, Any]:
    """Optuna's state and values for a record. A duplicate that gets here has a twin that still runs: no values."""
    if record.status == Status.OK:
        assert record.accuracy is not None
        return {"state": TrialState.COMPLETE, "values": [record.accuracy, float(cost_of(record.key, record.cost))]}
    # To samplers a violated constraint says more than a failure: both kinds that a smaller net would not have.
    pruned = record.status in (Status.PRUNED, Status.INFEASIBLE, Status.OOM, Status.DUPLICATE)
    return {"state": TrialState.PRUNED if pruned else TrialState.FAIL, "values": None}


def quiet() -> None:
    """Keep Optuna's log and its experimental warnings off the terminal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def validate_sampler(strategy: str, context: SamplerContext) -> None:
    """Have a sampler of the user's own propose nets in a study that is thrown away.

    Raises:
        InputError: if it raises anything, as Optuna's samplers for one objective do, and those that want the same
            genes of all trials.
    """
    if not is_own(strategy):
        return
    quiet()
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler(strategy, context))
    study.add_trial(
        create_trial(state=TrialState.FAIL)
    )  # without genes, as a plain ResNet that the space does not have
    for accuracy in (0.5, 0.6, 0.7):  # made up
        with user_sampler_errors(strategy):
            trial = study.ask()
        costs = context.costs_of(context.space.sample(TrialChooser(trial, lambda: user_sampler_errors(strategy))))
        with user_sampler_errors(strategy):
            study.tell(trial, [accuracy, costs.objective])
