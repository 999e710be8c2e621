"""The adapter between strategies and Optuna: its samplers asked by a study, and a run shown as a study.

A study is in memory, built from the history; nothing is in it that the run's log does not say.
"""

import copy
import importlib
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ...archs.errors import InputError
from ...archs.user_code import time_limit, user_code_errors
from ...spaces import FixedChooser, Gene, Genes, options_of
from .history import History, PastTrial, State, TrialReader
from .strategy import Strategy
from .strategy_context import StrategyContext

DIRECTIONS = (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE)  # of accuracy and its cost
BY_NAME: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed, multivariate=True),
    "nsga2": lambda seed: NSGAIISampler(seed=seed),
}


class OptunaStrategy(Strategy):
    """Asks a sampler of Optuna's, or of the user's own. It expects nothing of trials."""

    def __init__(self, name: str, context: StrategyContext, past: int = 0) -> None:
        """`past` moves the seed: a sampler that is made anew must not repeat its draws."""
        quiet()
        self._options, self._distributions = options_of(context.space), distributions(options_of(context.space))
        self.sampler = _sampler(name, context.seed + past, self._distributions)  # that is asked
        self._name, self._reader = name, TrialReader()
        made = optuna.create_study(storage=StudyMemory(), directions=DIRECTIONS)
        self.study = AskedStudy(made.study_name, made._storage, self.sampler)  # what it sees
        self._open: dict[int, Trial] = {}

    def propose(self, history: History, number: int) -> Genes | None:
        self.follow(history)
        if self.study.is_stopped:
            return None
        self._open[number], genes = self.ask()
        self._note(history, number)
        return genes

    def ask(self) -> tuple[Trial, Genes]:
        """A new trial of the study and its genes; InputError if a sampler of the user's own raises anything."""
        with self._errors():
            trial = self.study.ask()
            return trial, {name: trial.suggest_categorical(name, own) for name, own in self._options.items()}  # pyright: ignore[reportReturnType]

    def _errors(self) -> AbstractContextManager[None]:
        return nullcontext() if self._name in BY_NAME else user_code_errors(f"strategy {self._name!r}")

    def follow(self, history: History) -> None:
        """Bring the study up to the history."""
        for name in history.notes.keys() - self.study.user_attrs.keys():  # of an earlier session
            self.study.set_user_attr(name, history.notes[name])
        known, ended = len(self.study.get_trials(deepcopy=False)), self._reader.newly_ended(history)
        for past in history.trials[known:]:
            self.study.add_trial(frozen(past, self._distributions))
            if past.state == State.RUNNING:
                with self._errors():
                    self._open[past.number] = Trial(self.study, past.number)
        for past in (*ended, *self._reader.running):
            if past.number < known:
                self._update(past)

    def _update(self, past: PastTrial) -> None:
        """Tell the study what is new of a trial that it knows as under way."""
        trial = self._open.get(past.number)
        if trial is None:
            return
        for name, value in attributes(past).items():
            if trial.user_attrs.get(name) != value:
                trial.set_user_attr(name, value)
        if past.state != State.RUNNING:
            for name, share in past.violated.items():
                trial.set_constraint(name, share)
            del self._open[past.number]
            with self._errors():
                self.study.tell(past.number, **end_of(past))

    def _note(self, history: History, number: int) -> None:
        """Have the log keep what the sampler has noted; InputError of what JSON does not have."""
        of_run = {name: noted for name, noted in self.study.user_attrs.items() if history.notes.get(name) != noted}
        of_trial = self.study.get_trials(deepcopy=False)[number].system_attrs
        with self._errors():
            json.dumps([of_run, of_trial], allow_nan=False)
        history.note(of_run, of_trial)


class AskedStudy(optuna.Study):
    """A study that is asked, not run: a sampler that would stop Optuna's loop, as its BruteForceSampler, ends that."""

    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


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


def distributions(options: Mapping[str, tuple[Gene, ...]]) -> dict[str, BaseDistribution]:
    """Optuna's distribution of each gene."""
    return {name: CategoricalDistribution(choices) for name, choices in options.items()}


def frozen(past: PastTrial, genes: dict[str, BaseDistribution]) -> FrozenTrial:
    """A trial of a history as one of Optuna's; one without genes has failed."""
    if not past.genes:
        return create_trial(state=TrialState.FAIL)
    return create_trial(
        **end_of(past),
        params=dict(past.genes),
        distributions=genes,
        user_attrs=attributes(past),
        system_attrs=past.notes or None,
        constraints=dict(past.violated) or None,
    )


def attributes(past: PastTrial) -> dict[str, Any]:
    """What samplers may read: "key", "rung0" and so on, "aim" (the rung it was promoted to), "accuracies" by seed."""
    attrs = {"key": past.key, "aim": past.promoted} | {f"rung{i}": accuracy for i, accuracy in enumerate(past.rungs)}
    return attrs | ({"accuracies": dict(past.accuracies)} if past.accuracies else {})


def end_of(past: PastTrial) -> dict[str, Any]:
    """Optuna's state and values of a trial."""
    values = [past.accuracy, past.cost] if past.state == State.COMPLETE else None
    return {"state": TrialState[past.state.name], "values": values}


def validate_sampler(strategy: str, context: StrategyContext) -> None:
    """Try a sampler of the user's own in a study that is thrown away.

    Raises InputError if it raises anything, as Optuna's samplers for one objective do, and those that want the same
    genes of all trials.
    """
    tried = OptunaStrategy(strategy, context)
    tried.study.add_trial(create_trial(state=TrialState.FAIL))  # without genes, as a plain ResNet outside of the space
    for accuracy in (0.5, 0.6, 0.7):  # made up
        trial, genes = tried.ask()
        costs = context.costs_of(context.space.sample(FixedChooser(genes)))
        with user_code_errors(f"strategy {strategy!r}"):
            tried.study.tell(trial, [accuracy, costs.objective])


def quiet() -> None:
    """Keep Optuna's log and its experimental warnings off the terminal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def _sampler(name: str, seed: int, genes: dict[str, BaseDistribution]) -> BaseSampler:
    """A sampler of `BY_NAME`, told which genes there are, or the user's own."""
    if name not in BY_NAME:
        return _own_sampler(name, seed)
    sampler, several = BY_NAME[name](seed), {gene: own for gene, own in genes.items() if not own.single()}
    # Else it intersects those of all trials each time; one with a single choice it does not take.
    sampler.infer_relative_search_space = lambda study, trial: dict(several)
    return sampler


def _own_sampler(name: str, seed: int) -> BaseSampler:
    """The user's sampler; one that takes a `seed` gets it."""
    kind = import_sampler(name)
    takes_seed = "seed" in inspect.signature(kind).parameters
    what = f"strategy {name!r}: cannot be made without arguments but a seed"
    with time_limit(what), user_code_errors(what):
        return kind(seed=seed) if takes_seed else kind()


def import_sampler(name: str) -> Callable[..., BaseSampler]:
    """The class at "package.module:Class", from an installed package or a module of the current folder."""
    module, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # behind all else, so that no file there hides a package
    try:
        what = f"strategy {name!r}: cannot be imported"
        with time_limit(what), user_code_errors(what):
            kind = getattr(importlib.import_module(module), attribute, None)
    finally:
        del sys.path[-1]
    if not (isinstance(kind, type) and issubclass(kind, BaseSampler)):
        raise InputError(f"strategy {name!r}: module {module} has no Optuna sampler {attribute!r}")
    return kind
