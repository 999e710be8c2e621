"""`StudyAdapter`: the few calls of a search to its Optuna study; in memory, built from the records."""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ...archs import Genotype
from ...archs.candidate import candidate_key
from ...results.runs.events import UnderWay
from ...results.runs.record import Record
from ...results.runs.status import Status
from ...results.runs.store import Store
from ...spaces import Genes, options_of, plain_genes
from ..context import SearchContext
from ..samplers.random import TrialChooser
from ..samplers.registry import find_strategy, is_own, sampler, user_sampler_errors
from ..samplers.sampler_context import SamplerContext
from ..samplers.start import MAX_NETS, first_nets
from .recorded_trials import OUT_OF_MEMORY, CostOf, RecordedTrials, StudyMemory, end_of

DIRECTIONS = (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE)  # of accuracy and its cost
FIXED = "fixed_params"  # attribute of Optuna's for the genes of a trial that was enqueued


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
        self._kept: dict[str, Any] = {}  # attributes of the study, at the last look
        self._asked: int | None = None  # the trial that was proposed last
        self.queued = deque[Genes]()  # genes of the next proposals

    def _stop(self) -> None:
        """Called by a sampler that has nothing more to propose, as Optuna's BruteForceSampler."""
        self._is_stopped = True

    @property
    def ready(self) -> bool:
        """Whether the strategy has a net to propose now; some must wait for results, or come to an end."""
        if self._is_stopped:
            return False
        ready = getattr(self.study.sampler, "ready", None)
        return ready is None or ready(self.study)

    def expected_accuracies(self) -> Mapping[int, float]:
        """Accuracies that the strategy expects of trials, by number; of most strategies nothing."""
        expected = getattr(self.study.sampler, "expected_accuracies", None)
        with self._user_errors():
            return expected(self.study) if expected else {}

    def skip(self) -> int:
        """Use up a number for a trial that the strategy did not propose."""
        self.study.add_trial(create_trial(state=TrialState.FAIL))
        return len(self._trials()) - 1

    def enqueue(self, genes: Sequence[Genes]) -> None:
        """Fix the genes of the next proposals; the strategy draws the others. Not where it follows a plan."""
        for fixed in () if self.planned else genes:
            self.study.enqueue_trial(fixed)
            self.queued.append(fixed)

    def ask(self) -> tuple[int, TrialChooser]:
        """Ask for a new trial: its number and its chooser.

        Raises:
            InputError: if a sampler of the user's own raises anything, now or when it is asked for a gene.
        """
        with self._user_errors():
            trial = self.study.ask()
        self._asked, self._open[trial.number] = trial.number, trial
        if self.queued:
            self.queued.popleft()
        return trial.number, TrialChooser(trial, self._user_errors)

    def set_attrs(self, trial: int, **attrs: Any) -> None:
        """Set what strategies read: "key" (`Trial.key`), "rung0" and so on, "aim" (the rung it was promoted to)."""
        for name, value in attrs.items():
            self._open[trial].set_user_attr(name, value)

    def violates(self, trial: int, constraints: Mapping[str, float]) -> None:
        """Note that the net of `trial` breaks limits, each by this share; baselines may be outside of the space."""
        for name, share in constraints.items() if trial in self._open else ():
            self._open[trial].set_constraint(name, share)

    def tell(self, record: Record, known: Record, cost_of: CostOf) -> None:
        """End the trial of `record` as `known` ended: itself, or for a duplicate its twin."""
        open_trial = self._open.pop(record.trial, None)
        if open_trial is None:  # a baseline that is outside of the space
            return
        if known.status == Status.OOM:
            open_trial.set_constraint(*next(iter(OUT_OF_MEMORY.items())))
        if len(known.accuracies) > 1:
            open_trial.set_user_attr("accuracies", known.accuracies)
        with self._user_errors():
            self.study.tell(record.trial, **end_of(known, cost_of))

    def fail(self, trial: int) -> None:
        """End a trial, or a baseline that is not trained, without a result."""
        self._open.pop(trial, None)
        with self._user_errors():
            self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def is_open(self, trial: int) -> bool:
        """Whether a trial has yet to end."""
        return trial in self._open

    def news(self) -> dict[str, Any]:
        """Notes of the sampler since the last call: in the study, and in the trial that it has just proposed.

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

    def replay(self, trial: FrozenTrial) -> None:
        """Take in a trial of an earlier driver, or a baseline; one that has not ended can be told of its end."""
        number = len(self._trials())
        self.study.add_trial(trial)
        if trial.state == TrialState.RUNNING:
            with self._user_errors():
                self._open[number] = Trial(self.study, number)

    def recall(self, attrs: Mapping[str, Any]) -> None:
        """Give the sampler back what it has noted in the study."""
        for name, value in attrs.items():
            self.study.set_user_attr(name, value)
        self._kept = self.study.user_attrs

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def study_of(store: Store, search: SearchContext, trained: Sequence[Genotype]) -> StudyAdapter:
    """The study of a run: its baselines, all that its records and events say, and the first proposals.

    Args:
        trained: those of the baselines that the run trains; they all hold the first numbers.

    Raises:
        InputError: if the records' numbers are impossible.
    """
    context, baselines = search.sampler_context(), search.baselines
    options = options_of(context.space)
    noted = {event.trial: event.attrs for event in store.events if event.attrs}
    recorded = RecordedTrials(store.records, store.under_way, options, search.cost_of, noted)
    adapter = StudyAdapter(search.settings.strategy, context, past=recorded.count)
    for number in range(max(len(baselines), recorded.count)):
        trial = recorded.frozen(number)
        if number < len(baselines) and not recorded.has(number):
            genes = plain_genes(context.space, baselines[number])
            if genes is not None:
                trial = recorded.running(UnderWay(number, candidate_key(baselines[number].key, genes), genes, None))
        adapter.replay(trial)
    adapter.recall({name: value for event in store.events for name, value in event.study.items()})
    begun = [*(record for record, _ in recorded.ended.values()), *recorded.under_way.values()]
    genes = [trial.genes for trial in begun]
    adapter.enqueue([first for first in context.first if first not in genes])
    searched = [trial.genes for trial in begun if isinstance(trial, UnderWay) or trial.kind == "search"]
    if len(searched) < len(context.first) + MAX_NETS:  # else all of them have been proposed
        adapter.enqueue([first for first in first_nets(context, baselines, trained) if first not in searched])
    return adapter


def quiet() -> None:
    """Keep Optuna's log and its experimental warnings off the terminal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def validate_sampler(strategy: str, context: SamplerContext) -> None:
    """Try a sampler of the user's own in a study that is thrown away.

    Raises:
        InputError: if it raises anything, as Optuna's samplers for one objective do, and those that want the same
            genes of all trials.
    """
    if not is_own(strategy):
        return
    quiet()
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler(strategy, context))
    study.add_trial(create_trial(state=TrialState.FAIL))  # without genes, as a plain ResNet outside of the space
    for accuracy in (0.5, 0.6, 0.7):  # made up
        with user_sampler_errors(strategy):
            trial = study.ask()
        costs = context.costs_of(context.space.sample(TrialChooser(trial, lambda: user_sampler_errors(strategy))))
        with user_sampler_errors(strategy):
            study.tell(trial, [accuracy, costs.objective])
