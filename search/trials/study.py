"""`StudyAdapter`: the few calls of a search to its Optuna study; in memory, built from the log."""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ...archs import Genotype
from ...archs.candidate import candidate_key
from ...results.runs.events import Event, Line
from ...results.runs.record import Record
from ...spaces import Genes, options_of, plain_genes
from ..context import SearchContext
from ..samplers.random import TrialChooser
from ..samplers.registry import find_strategy, is_own, sampler, user_sampler_errors
from ..samplers.sampler_context import SamplerContext
from ..samplers.start import MAX_NETS, first_nets
from .recorded_trials import CostOf, StudyMemory, StudyTrials, end_of
from .trial import Trial as SearchTrial

DIRECTIONS = (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE)  # of accuracy and its cost
FIXED = "fixed_params"  # attribute of Optuna's for the genes of a trial that was enqueued


class StudyAdapter:
    """The study of one run: what the log says of its trials, and the strategy, which is asked for more.

    Attributes:
        planned: whether the strategy follows a plan of its own.
        queued: genes of the next proposals.
    """

    def __init__(self, strategy: str, context: SamplerContext, cost_of: CostOf, past: int = 0) -> None:
        """`past` is the number of trials that the log has: a sampler must not repeat its draws."""
        quiet()
        self._user_errors, self.planned = partial(user_sampler_errors, strategy), find_strategy(strategy).planned
        offset = 0 if find_strategy(strategy).stateless else past  # some go by the trial's number anyway
        self._memory = StudyMemory()
        self._study = optuna.create_study(
            storage=self._memory, directions=DIRECTIONS, sampler=sampler(strategy, context, offset)
        )
        self._study.stop = self._stop  # which Optuna lets its own loop alone call
        self._is_stopped = False
        self._told, self._cost_of = StudyTrials(options_of(context.space), cost_of), cost_of
        self._open: dict[int, Trial] = {}
        self._kept: dict[str, Any] = {}  # attributes of the study, at the last look
        self._asked: int | None = None  # the trial that was proposed last
        self.queued = deque[Genes]()

    def apply(self, line: Line) -> None:
        """Take in the next line of the log; the study has it once somebody looks."""
        self._told.apply(line)
        if isinstance(line, Event) and line.study:
            for name, value in line.study.items():
                if self._study.user_attrs.get(name) != value:
                    self._study.set_user_attr(name, value)
            self._kept = self._study.user_attrs

    @property
    def study(self) -> optuna.Study:
        """The study, with all that the log says; InputError if the log's numbers are impossible."""
        for number in self._told.numbers(len(self._trials())):  # of an earlier session
            frozen = self._told.frozen(number)
            self._study.add_trial(frozen)
            self._told.changed.pop(number, None)
            if frozen.state == TrialState.RUNNING:
                with self._user_errors():
                    self._open[number] = Trial(self._study, number)
        for number in self._told.changed:
            self._update(number)
        self._told.changed.clear()
        return self._study

    def _update(self, number: int) -> None:
        """Give a trial that has not ended what is new of it."""
        told, trial = self._told.take(number), self._open.get(number)
        if trial is None:  # a baseline outside of the space, or a net that is trained on
            return
        for name, value in told.attrs.items():
            trial.set_user_attr(name, value)
        if told.known:
            for name, share in told.constraints.items():
                trial.set_constraint(name, share)
            del self._open[number]
            with self._user_errors():
                self._study.tell(number, **end_of(told.known, self._cost_of))

    def _stop(self) -> None:
        """Called by a sampler that has nothing more to propose, as Optuna's BruteForceSampler."""
        self._is_stopped = True

    @property
    def ready(self) -> bool:
        """Whether the strategy has a net to propose now; some must wait for results, or come to an end."""
        if self._is_stopped:
            return False
        ready = getattr(self._study.sampler, "ready", None)
        return ready is None or ready(self.study)

    def expected_accuracies(self) -> Mapping[int, float]:
        """Accuracies that the strategy expects of trials, by number; of most strategies nothing."""
        expected = getattr(self._study.sampler, "expected_accuracies", None)
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

    def fail(self, trial: int) -> None:
        """End a baseline that is not trained."""
        study = self.study
        self._open.pop(trial, None)
        with self._user_errors():
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def news(self) -> dict[str, Any]:
        """Notes of the sampler since the last call: in the study, and in the trial that it has just proposed.

        Raises:
            InputError: if a sampler of the user's own notes what JSON does not have.
        """
        study, news = self._study.user_attrs, dict[str, Any]()
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

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)


def study_of(search: SearchContext, lines: Sequence[Line]) -> StudyAdapter:
    """The study of a run of these lines, which are still to be applied; its baselines hold the first numbers."""
    context = search.sampler_context()
    numbers = [line.trial for line in lines if isinstance(line, Event) or line.kind != "reference"]
    adapter = StudyAdapter(search.settings.strategy, context, search.cost_of, past=1 + max(numbers, default=-1))
    for number, net in enumerate(search.baselines):
        genes = plain_genes(context.space, net) or {}
        adapter.apply(Event("started", number, key=candidate_key(net.key, genes), genes=genes))
    return adapter


def enqueue_first(
    adapter: StudyAdapter, search: SearchContext, trained: Sequence[Genotype], begun: Sequence[Record | SearchTrial]
) -> None:
    """Have the first proposals be those nets that a search begins with, but for those that have begun.

    Args:
        trained: the baselines that the run trains.
    """
    genes = [net.genes for net in begun]
    context = search.sampler_context()
    if search.devices:  # the same nets whatever was measured before
        context = replace(context, expected_excess=context.excess)
    adapter.enqueue([first for first in context.first if first not in genes])
    searched = [net.genes for net in begun if net.kind == "search"]
    if len(searched) < len(context.first) + MAX_NETS:  # else all of them have been proposed
        adapter.enqueue([net for net in first_nets(context, search.baselines, trained) if net not in searched])


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
