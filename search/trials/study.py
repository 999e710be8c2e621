"""`StudyAdapter`: an Optuna study behind the few calls that the controller makes.

Rebuilt from the records if its journal is gone. Only the driver writes it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ...archs import Genotype, InputError
from ...archs.candidate import candidate_key
from ...results.runs.record import FREE, Record
from ...results.runs.store import cut_torn_line
from ...spaces import Gene, Genes, options_of, plain_genes
from ..samplers.random import TrialChooser, distributions
from ..samplers.registry import find_strategy, is_own, sampler, user_sampler_errors
from ..samplers.sampler_context import SamplerContext, candidate_baselines, rung_accuracies
from .mirror import DIRECTIONS, mirrored_journal

log = logging.getLogger("alternas")
CostOf = Callable[[str, Mapping[str, int]], float]  # of a net's key and static costs: what accuracy is weighed against
MOST_MISSING = 10_000  # trials without a record: those that drivers were drawing when they were killed
JOURNAL_STUDY = "alternas"  # its name in a run's journal
BROKEN = (ValueError, KeyError, TypeError, AssertionError, RecursionError)  # what Optuna raises on a bad line
OUT_OF_MEMORY = {"memory": 1.0}  # the constraint that a net violates which ran out of memory


@dataclass(frozen=True)
class UnfinishedTrial:
    """A trial that an earlier driver left running.

    Attributes:
        trial: its number.
        key: of its net; "" if the driver died while it was drawn.
        genes: those drawn.
        rung_accuracies: at each rung passed.
        promoted: number of rungs that it was promoted from.
        parent: trial whose weights it inherits.
        note: of its last rung, as `Trial.note` gives it; {} where it came to none.
    """

    trial: int
    key: str
    genes: Genes
    rung_accuracies: list[float]
    promoted: int
    parent: int | None
    note: dict[str, Any]


class StudyAdapter:
    """The study of one run: asks the strategy, keeps rung results, is told every end."""

    def __init__(self, storage: BaseStorage, strategy: str, context: SamplerContext, name: str = JOURNAL_STUDY) -> None:
        quiet()
        self._user_errors, self.planned = partial(user_sampler_errors, strategy), find_strategy(strategy).planned
        self.study = optuna.create_study(storage=storage, study_name=name, directions=DIRECTIONS, load_if_exists=True)
        # A sampler that starts anew must not repeat its draws; some go by the trial's number anyway.
        offset = 0 if find_strategy(strategy).stateless else len(self._trials())
        self.study.sampler = sampler(strategy, context, offset)
        self._open: dict[int, Trial] = {}
        baselines = (trial for trial in self._trials() if trial.user_attrs.get("baseline"))
        self._baselines = {trial.number for trial in baselines if trial.state == TrialState.RUNNING}

    @property
    def ready(self) -> bool:
        """Whether the strategy has a net to propose now; some must wait for results, or come to an end."""
        ready = getattr(self.study.sampler, "ready", None)
        return ready is None or ready(self.study)

    def expected_accuracies(self) -> Mapping[int, float]:
        """What the strategy expects trials to reach, by number; of most strategies nothing."""
        expected = getattr(self.study.sampler, "expected_accuracies", None)
        with self._user_errors():
            return expected(self.study) if expected else {}

    def check_has(self, records: Sequence[Record], baselines: int) -> None:
        """Raise ValueError if a recorded trial is not in the study, or another net: some of it was lost or is older."""
        keys, trials = {r.trial: r.trial_key for r in records}, self._trials()
        least = max(baselines, max(keys, default=-1) + 1)  # killed while it was filled, it has not all of the baselines
        if len(trials) < least:
            raise ValueError(f"ends before trial {least - 1}")
        for trial in trials:
            known = keys.get(trial.number, "" if trial.state == TrialState.COMPLETE else None)
            if known is not None and trial.user_attrs.get("key", known) != known:
                raise ValueError(f"trial {trial.number} is another net in the records, or in none")

    def reserve(self, net: Genotype, genes: Genes | None, options: Mapping[str, tuple[Gene, ...]]) -> None:
        """Keep the next number for a baseline. Strategies learn from those that the space can give, by these genes."""
        if genes is None:
            self.study.add_trial(create_trial(state=TrialState.FAIL))
            return
        notes = {"key": candidate_key(net.key, genes), "baseline": True}
        trial = create_trial(
            state=TrialState.RUNNING, params=genes, distributions=dict(distributions(options)), user_attrs=notes
        )
        self._baselines.add(len(self._trials()))
        self.study.add_trial(trial)

    def skip(self) -> int:
        """Use up a number for a trial that the strategy did not propose."""
        self.study.add_trial(create_trial(state=TrialState.FAIL))
        return len(self._trials()) - 1

    def enqueue(self, genes: Sequence[Genes]) -> None:
        """Have the next proposals hold these genes; the strategy draws the others. Not where it follows a plan."""
        for fixed in () if self.planned else genes:
            self.study.enqueue_trial(fixed)

    def ask(self) -> tuple[int, TrialChooser]:
        """A new trial: its number and whoever answers its genes.

        Raises:
            InputError: if a sampler of the user's own raises anything, now or when it is asked for a gene.
        """
        with self._user_errors():
            trial = self.study.ask()
        self._open[trial.number] = trial
        return trial.number, TrialChooser(trial, self._user_errors)

    def set_attrs(self, trial: int, **attrs: Any) -> None:
        """Set user attributes of a trial, for strategies and for a driver that takes over.

        "key" (`Trial.key`), "rung0" and so on (accuracy there), "aim" (the rung it was promoted to), "parent" (the
        trial whose weights it inherits), "note" (of `Trial.note`).
        """
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
        if open_trial is not None and known.status == "oom":
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

    def unfinished(self) -> list[UnfinishedTrial]:
        """Trials left running by an earlier driver, now open again."""
        unfinished = []
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            with self._user_errors():
                self._open[frozen.number] = Trial(self.study, frozen._trial_id)
            if frozen.user_attrs.get("baseline"):
                continue
            attrs = frozen.user_attrs
            accuracies = [accuracy for _, accuracy in rung_accuracies(frozen)]
            rest = attrs.get("aim", 0), attrs.get("parent"), attrs.get("note", {})
            unfinished.append(UnfinishedTrial(frozen.number, attrs.get("key", ""), frozen.params, accuracies, *rest))
        return unfinished

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def open_journal(
    folder: Path, records: Sequence[Record], strategy: str, context: SamplerContext, cost_of: CostOf
) -> StudyAdapter:
    """The study of the run in `folder`: its journal, or one rebuilt from its records.

    Raises:
        InputError: if a lock that a killed driver held cannot be deleted.
    """
    path = folder / "study.journal"
    for lock in path.parent.glob(f"{path.name}.lock*"):  # or one renamed on its way out; the run's own lock is ours
        try:
            lock.unlink()
        except OSError as error:
            raise InputError(f"{lock}: a lock that was left behind cannot be deleted ({error.strerror})") from None
    cut_torn_line(path)
    if path.exists() and path.stat().st_size:
        try:
            adapter = StudyAdapter(mirrored_journal(path, JOURNAL_STUDY), strategy, context)
            adapter.check_has(records, len(candidate_baselines(context)))
            return adapter
        except BROKEN as error:
            log.warning("%s is broken (%r): kept as %s.broken and rebuilt from the records", path, error, path.name)
            path.replace(path.with_name(path.name + ".broken"))
    adapter = StudyAdapter(mirrored_journal(path, JOURNAL_STUDY), strategy, context)
    fill_study(adapter, records, context, cost_of)
    return adapter


def fill_study(adapter: StudyAdapter, records: Sequence[Record], context: SamplerContext, cost_of: CostOf) -> None:
    """Fill an empty study with trials for the baselines, with the recorded ones and with the first proposals."""
    space, options, baselines = context.space, options_of(context.space), candidate_baselines(context)
    for net in baselines:
        adapter.reserve(net, plain_genes(space, net), options)
    trained = {r.trial_key: r for r in records if r.status not in FREE}
    by_trial = {r.trial: r for r in records}
    for number in range(len(baselines), max(by_trial, default=-1) + 1):
        record = by_trial.get(number)
        known = record and told_as(record, trained)
        adapter.study.add_trial(_past(record, known, options, cost_of))
    if records:
        adapter.unfinished()  # opens the baselines' trials
    for record in records:
        if record.kind == "baseline":
            adapter.tell(record, record, cost_of)
    recorded = [record.genes for record in records]
    adapter.enqueue([genes for genes in context.first if genes not in recorded])
    begun = [r for r in records if r.kind == "search" and not r.taken_from and r.genes not in context.first]
    adapter.enqueue([{"family": family} for family in options.get("family", ())[len(begun) :]])


def _past(
    record: Record | None, known: Record | None, options: Mapping[str, tuple[Gene, ...]], cost_of: CostOf
) -> FrozenTrial:
    """A recorded trial as the study would have it; one without a record, or of other genes, as a failure."""
    if record is None or known is None or set(record.genes) != set(options):
        return create_trial(state=TrialState.FAIL)
    if not all(record.genes[name] in choices for name, choices in options.items()):
        return create_trial(state=TrialState.FAIL)
    attrs: dict[str, Any] = {"key": record.trial_key} | {f"rung{i}": r["accuracy"] for i, r in enumerate(record.rungs)}
    return create_trial(
        **_end_of(known, cost_of),
        params=record.genes,
        distributions=dict(distributions(options)),
        user_attrs=attrs | ({"accuracies": known.accuracies} if len(known.accuracies) > 1 else {}),
        constraints=OUT_OF_MEMORY if known.status == "oom" else record.constraint_violation or None,
    )


def check_numbers(records: Sequence[Record]) -> None:
    """Raise InputError if trials are missing by the thousand: each would be a trial of its own in a rebuilt study."""
    last = max((r.trial for r in records), default=-1)
    if last + 1 - len(records) > MOST_MISSING:
        raise InputError(f"records: trial {last} among {len(records)} is no number that a search has come to")


def told_as(record: Record, trained: Mapping[str, Record]) -> Record:
    """The record that a trial is told: its own, or for a duplicate that of its twin in `trained`, once it has ended."""
    return trained.get(record.trial_key, record) if record.status == "duplicate" else record


def _end_of(record: Record, cost_of: CostOf) -> dict[str, Any]:
    """Optuna's state and values for a record. A duplicate that gets here has a twin that still runs: no values."""
    if record.status == "ok":
        assert record.accuracy is not None
        return {"state": TrialState.COMPLETE, "values": [record.accuracy, float(cost_of(record.key, record.cost))]}
    # To samplers a violated constraint says more than a failure: both kinds that a smaller net would not have.
    pruned = record.status in ("pruned", "infeasible", "oom", "duplicate")
    return {"state": TrialState.PRUNED if pruned else TrialState.FAIL, "values": None}


def quiet() -> None:
    """Keep Optuna's log and its experimental warnings off the terminal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def validate_sampler(strategy: str, context: SamplerContext) -> None:
    """Have a sampler of the user's own propose nets in a study that is thrown away.

    Raises:
        InputError: if it raises anything, as Optuna's samplers for one objective do.
    """
    if not is_own(strategy):
        return
    quiet()
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler(strategy, context))
    for accuracy in (0.5, 0.6, 0.7):  # made up
        with user_sampler_errors(strategy):
            trial = study.ask()
        costs = context.costs_of(context.space.sample(TrialChooser(trial, lambda: user_sampler_errors(strategy))))
        with user_sampler_errors(strategy):
            study.tell(trial, [accuracy, costs.objective])
