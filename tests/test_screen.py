"""Screening: of each group of nets drawn, the one with the highest cheap signal is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import TrialState

from alternas.results.record import Record
from alternas.search.engine.drive import drive
from alternas.search.strategy.ledger import Ledger
from alternas.search.training.job import SIGNALS as NAMES
from alternas.search.training.job import Job, Outcome
from alternas.search.training.signals import SIGNALS
from fakes import FakeExecutor, SilentView, lose

Open = Callable[..., Ledger]


class KilledError(Exception):
    """Stands for a driver that dies."""


def signal(job: Job) -> float:
    """Stands for a measurement: any number that depends on the net alone."""
    return float(int(job.genotype.key[:6], 16))


def measuring(job: Job) -> Outcome | None:
    return Outcome(job.trial, "ok", signals={job.signals[0]: signal(job)}) if job.until == 0 else None


def finish(ledger: Ledger, fate: Any = measuring, slots: int = 3) -> FakeExecutor:
    executor = FakeExecutor(slots, fate)
    drive(ledger, executor, SilentView())
    return executor


def searched(ledger: Ledger) -> list[Record]:
    return [r for r in ledger.store.records if r.kind == "search"]


def test_names_are_the_same_with_and_without_torch() -> None:
    assert tuple(SIGNALS) == NAMES


@pytest.mark.parametrize("by", ["macs", "synflow"])
@pytest.mark.parametrize("rungs", ["off", "pareto"])
@pytest.mark.parametrize("strategy", ["random", "evolution", "nsga2"])
def test_the_best_of_each_group_is_trained(open_ledger: Open, strategy: str, rungs: str, by: str) -> None:
    ledger = open_ledger(trials=10, strategy=strategy, ladder=rungs, prescreen=3, signal=by)
    executor = finish(ledger)
    records = searched(ledger)
    trained = [r for r in records if r.status in ("ok", "pruned")]
    passed = [r for r in records if r.status == "screened"]
    assert (len(trained), len(passed)) == (10, 20)
    by_trial = {r.trial: r for r in records}
    for record in passed:
        winner = by_trial[int(record.error.split()[1])]
        assert winner.status in ("ok", "pruned")
        assert winner.signals[by] >= record.signals[by]
        assert record.accuracy is None
    measured = {job.trial for job in executor.ran if job.until == 0}
    assert measured == (set() if by == "macs" else {r.trial for r in trained + passed})
    assert not {job.trial for job in executor.ran if job.until} & {r.trial for r in passed}


def test_macs_are_the_signal_without_a_measurement(open_ledger: Open) -> None:
    ledger = open_ledger(trials=6, prescreen=4)
    finish(ledger)
    assert all(r.signals == {"macs": r.cost["macs"]} for r in searched(ledger))


def test_a_measurement_that_fails_is_the_lowest(open_ledger: Open) -> None:
    def fate(job: Job) -> Outcome | None:
        failed = job.until == 0 and job.trial % 2 == 0
        return Outcome(job.trial, "oom", error="too large") if failed else measuring(job)

    ledger = open_ledger(trials=8, prescreen=2, signal="dss")
    finish(ledger, fate, slots=1)
    even = [r for r in searched(ledger) if r.trial % 2 == 0]
    assert even
    assert {r.status for r in even} == {"screened"}


def test_a_worker_that_dies_measuring_is_replaced(open_ledger: Open) -> None:
    ledger = open_ledger(trials=4, prescreen=2, signal="naswot")
    finish(ledger, lambda job: lose(job) if job.until == 0 and job.trial == 5 else measuring(job))
    found = {r.trial: r.status for r in searched(ledger)}
    assert found[5] == "lost"
    assert list(found.values()).count("ok") == 4


@pytest.mark.parametrize("by", ["params", "grad_norm"])
def test_killed_while_measuring(open_ledger: Open, by: str) -> None:
    left, kills, trained = 3, 0, set[int]()

    def fate(job: Job) -> Outcome | None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError
        if job.until and job.trial >= len(ledger.baselines):
            assert job.trial not in trained, "no finished net is trained twice"
            trained.add(job.trial)
        return measuring(job)

    while True:
        ledger = open_ledger(trials=8, prescreen=3, signal=by)
        try:
            finish(ledger, fate)
            break
        except KilledError:
            kills += 1
            left = 4 + kills
    assert kills > 2
    assert [r.status for r in searched(ledger)].count("ok") == 8
    assert all(t.state != TrialState.RUNNING for t in ledger.memory.study.get_trials(deepcopy=False))
