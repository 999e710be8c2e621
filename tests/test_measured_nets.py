"""A search that measures some nets and predicts the others: which are measured, when, and what is ranked by what."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alternas.archs import Genotype, InputError
from alternas.archs.errors import OperationError
from alternas.archs.timm_net import TimmNet, net_from_dict
from alternas.results.latency.device_command import device_commands
from alternas.results.latency.measurements import CONFIRMED, QUICK, LatencySetting, read_latencies
from alternas.results.latency.nets import prediction_lines
from alternas.results.latency.predictor import demands, fitted
from alternas.results.ranking.leaderboard import ExtraResults, rank_rows
from alternas.results.ranking.objectives import RankingQuery
from alternas.search.config import Budget, Settings
from alternas.search.engine.loop import run_loop
from alternas.search.training.job import Job, JobResult, LatencyJob
from alternas.search.trials.controller import SearchController
from alternas.search.trials.few_measured import spanning_nets
from alternas.search.trials.latencies import NEAR, Latencies
from alternas.spaces import get
from alternas.spaces.base import random_net
from fakes import RECIPE, FakeExecutor, SilentView, lose, milliseconds, on_device, price, row, timed

FIRST = 8
EAGER = str(LatencySetting())


@pytest.fixture
def controller(open_controller: Callable[..., SearchController]) -> Callable[..., SearchController]:
    def open_it(**more: Any) -> SearchController:
        given = {"objective": "latency_ms", "latency": EAGER, "measured_nets": FIRST, "trials": 24} | more
        return open_controller(**given)

    return open_it


def noisy(job: Job) -> JobResult | None:
    """A machine on which nets are up to a third slower or faster than any model by their operators tells."""
    if not isinstance(job, LatencyJob):
        return None
    return JobResult(job.trial, "ok", latency=row(milliseconds(job.genotype) * (1 + _share(job.genotype) / 3)))


def _share(net: Genotype) -> float:
    """From -1 to 1, as good as random."""
    return int(net.key[:6], 16) % 201 / 100 - 1


def measured_keys(jobs: list[Any]) -> list[str]:
    return [job.genotype.key for job in jobs if isinstance(job, LatencyJob)]


def front_keys(work: SearchController) -> set[str]:
    """The front as rankings have it, by measured numbers alone."""
    extra = ExtraResults(measured=work.context.devices.values(["latency_ms"]))
    return {r["key"] for r in rank_rows(work.store.records, RankingQuery(("accuracy", "latency_ms")), extra).front}


@pytest.mark.parametrize("strategy", ["random", "evolution"])
@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_some_nets_are_measured_first_and_the_front_last(
    controller: Callable[..., SearchController], strategy: str, scheduler: str, tmp_path: Path
) -> None:
    work, executor = controller(strategy=strategy, scheduler=scheduler), FakeExecutor(3, noisy)
    lines: list[str] = []
    work.say = lines.append
    run_loop(work, executor, SilentView())
    kinds = "".join("m" if isinstance(job, LatencyJob) else "t" for job in executor.ran)
    front = kinds.rindex("t") + 1
    assert kinds.startswith("m" * FIRST + "t")
    assert "m" not in kinds[FIRST:front], "no net is measured before it is trained"
    trained = {r.key for r in work.store.records if r.status == "ok"}
    assert len(trained) > len(kinds) - front + 5, "most are never measured"
    measured = measured_keys(executor.ran)
    assert len(measured) == len({*measured})
    assert {*measured[FIRST:]} <= trained
    known = {m.key: m.ms for m in read_latencies(tmp_path)}
    assert known.keys() == {*measured}
    assert work.complete
    assert lines[0].startswith(f"latency_ms predicted from {FIRST} nets, leave-one-out error ")
    # The front among all, as predicted where nothing was measured, is measured; so rankings have all of it.
    points = {
        r.key: (r.accuracy or 0.0, work.context.cost_of(r.key, r.cost)) for r in work.store.records if r.status == "ok"
    }
    best = {
        key
        for key, (accuracy, ms) in points.items()
        if not any(a >= accuracy and b <= ms and (a, b) != (accuracy, ms) for a, b in points.values())
    }
    assert best <= known.keys()
    assert best == front_keys(work)


def test_a_net_that_leaves_the_front_brings_others_onto_it(controller: Callable[..., SearchController]) -> None:
    slow: set[str] = set()

    def fate(job: Job) -> JobResult | None:
        """The first net of the front turns out ten times as slow as predicted."""
        if not isinstance(job, LatencyJob):
            return None
        if job.trial == -FIRST - 1:
            slow.add(job.genotype.key)
        return JobResult(
            job.trial, "ok", latency=row(milliseconds(job.genotype) * (10 if job.genotype.key in slow else 1))
        )

    work, executor = controller(), FakeExecutor(1, fate)
    run_loop(work, executor, SilentView())
    best = {net.key for net in work.few.front(work.store.records, ["latency_ms"], _cost_of(work))}  # type: ignore[union-attr]
    assert slow
    assert not slow & best
    assert best <= {*measured_keys(executor.ran)}
    assert best == front_keys(work)


def _cost_of(work: SearchController) -> Callable[[str, Any], float]:
    return lambda cost, record: work.context.cost_named(cost, record.key, record.cost)


def test_the_choice_is_the_same_for_a_seed_and_spans(controller: Callable[..., SearchController]) -> None:
    space = get("all", 8)
    chosen = spanning_nets(space, lambda net: 0.0, price, 20, 3)
    assert chosen == spanning_nets(space, lambda net: 0.0, price, 20, 3)
    assert chosen != spanning_nets(space, lambda net: 0.0, price, 20, 4)
    assert len({net.key for net in chosen}) == 20
    at_random = [random_net(space, seed) for seed in range(20)]
    spread, other = (np.log([price(net).macs for net in nets]).std() for nets in (chosen, at_random))
    assert spread > other
    asked = [(np.array([demands(price(net)) for net in nets]) > 0).any(0).sum() for nets in (chosen, at_random)]
    assert asked[0] >= asked[1]
    small = spanning_nets(space, lambda net: max(0.0, price(net).macs / 4e5 - 1), price, 20, 3)
    assert small
    assert all(price(net).macs <= 4e5 for net in small)


def test_a_resumed_search_measures_nothing_again(controller: Callable[..., SearchController], tmp_path: Path) -> None:
    def dies(after: int) -> FakeExecutor:
        def fate(job: Job) -> Any:
            if len(executor.ran) > after:
                raise KeyboardInterrupt
            return noisy(job)

        executor = FakeExecutor(1, fate)
        return executor

    for after in (5, 12, 20):
        with pytest.raises(KeyboardInterrupt):
            run_loop(controller(), dies(after), SilentView())
    work, executor = controller(), FakeExecutor(1, noisy)
    assert work.context.devices.of("latency_ms").predictor.count == FIRST
    run_loop(work, executor, SilentView())
    keys = [m.key for m in read_latencies(tmp_path)]
    assert len(keys) == len({*keys})
    assert keys[:FIRST] == [net.key for net in work.context.first_measured()]
    assert front_keys(work) <= {*keys}
    again = controller()
    assert again.complete
    assert again.next_job() is None


def test_only_nets_near_a_limit_are_measured_before_they_are_trained(
    controller: Callable[..., SearchController],
) -> None:
    most = 0.33
    work, executor = controller(limits={"latency_ms": most}, objective="macs"), FakeExecutor(1, timed)
    run_loop(work, executor, SilentView())
    trained = [job for job in executor.ran if not isinstance(job, LatencyJob)]
    assert all(milliseconds(job.genotype) <= most * 1.001 for job in trained)
    measured = {*measured_keys(executor.ran)}
    assert {job.genotype.key for job in trained} - measured, "what is well within is not measured"
    near = [job for job in executor.ran[FIRST:] if isinstance(job, LatencyJob) and job.trial >= 0]
    assert near, "what may be on either side is"
    over = {r.error for r in work.store.records if r.status == "infeasible"}
    assert "predicted to be well over the limit: latency_ms" in over


# Under a limit, where no number of nets was asked for.


def by_effort(off: Callable[[Genotype], float]) -> Callable[[Job], Any]:
    """A machine on which a quick measurement is off by this factor."""

    def fate(job: Job) -> JobResult | None:
        if not isinstance(job, LatencyJob):
            return None
        is_quick, ms = job.effort == QUICK, milliseconds(job.genotype)
        measured = row(ms * off(job.genotype) if is_quick else ms) | {"latency_spread_ms": 0.001, "quick": is_quick}
        return JobResult(job.trial, "ok", latency=measured)

    return fate


@pytest.mark.parametrize("strategy", ["random", "evolution"])
@pytest.mark.parametrize("objective", ["macs", "latency_ms"])
def test_under_a_limit_a_net_is_measured_where_that_tells(
    controller: Callable[..., SearchController], strategy: str, objective: str, tmp_path: Path
) -> None:
    most = 0.33
    work = controller(strategy=strategy, objective=objective, measured_nets=0, limits={"latency_ms": most}, trials=30)
    executor = FakeExecutor(2, by_effort(lambda net: 1.0))
    run_loop(work, executor, SilentView())
    jobs = [job for job in executor.ran if isinstance(job, LatencyJob)]
    efforts = {job.genotype.key: [j.effort for j in jobs if j.genotype.key == job.genotype.key] for job in jobs}
    assert all(found in ([QUICK], [QUICK, CONFIRMED], [CONFIRMED]) for found in efforts.values())
    trained = {job.genotype.key: job.genotype for job in executor.ran if not isinstance(job, LatencyJob)}
    assert all(milliseconds(net) <= most * 1.001 for net in trained.values())
    assert trained.keys() - efforts.keys(), "some nets are well within it"
    for net in (job.genotype for job in jobs):
        is_near = abs(milliseconds(net) / most - 1) <= NEAR
        assert not is_near or CONFIRMED in efforts[net.key], "near the limit it is measured again"
    best = {net.key for net in work.few.front(work.store.records, [objective], _cost_of(work))}  # type: ignore[union-attr]
    assert best <= efforts.keys()
    if objective == "latency_ms":
        assert best == front_keys(work)


@pytest.mark.parametrize("off", [0.8, 0.95, 1.05])
def test_nets_that_are_returned_keep_the_limit_when_measured_again(
    controller: Callable[..., SearchController], off: float
) -> None:
    """Quick measurements that are all 5 or 20 % off: what a search returns was measured with care."""
    most = 0.33
    work = controller(measured_nets=0, limits={"latency_ms": most}, trials=20)
    run_loop(work, FakeExecutor(1, by_effort(lambda net: off)), SilentView())
    ms = {r.key: milliseconds(net_from_dict(r.genotype)) for r in work.store.records}
    best = work.few.front(work.store.records, ["latency_ms"], _cost_of(work))  # type: ignore[union-attr]
    assert best
    assert all(ms[net.key] <= most for net in best)
    if off > 0.9:
        measured = work.context.devices.of("latency_ms").known
        trained = {r.key for r in work.store.records if r.status == "ok"}
        assert all(ms[key] <= most for key in trained & measured.keys()), "near the limit before it was trained"


def test_a_resumed_search_measures_the_front_that_is_left(
    controller: Callable[..., SearchController], tmp_path: Path
) -> None:
    def fate(job: Job) -> Any:
        if isinstance(job, LatencyJob) and job.effort == CONFIRMED and job.trial < 0:
            raise KeyboardInterrupt
        return by_effort(lambda net: 1.0)(job)

    more = {"measured_nets": 0, "limits": {"latency_ms": 0.4}, "trials": 12}
    with pytest.raises(KeyboardInterrupt):
        run_loop(controller(**more), FakeExecutor(1, fate), SilentView())
    work, executor = controller(**more), FakeExecutor(1, by_effort(lambda net: 1.0))
    run_loop(work, executor, SilentView())
    assert {job.effort for job in executor.ran if isinstance(job, LatencyJob)} == {CONFIRMED}
    assert all(isinstance(job, LatencyJob) for job in executor.ran)
    kept = [m.key for m in read_latencies(tmp_path) if not m.is_quick]
    assert len(kept) == len({*kept})
    assert front_keys(work) <= work.context.devices.of("latency_ms").known.keys()


@pytest.mark.parametrize(("spread_ms", "is_certain"), [(0.1, True), (0.6, False)])
def test_a_quick_measurement_on_a_busy_machine_tells_less(spread_ms: float, is_certain: bool, tmp_path: Path) -> None:
    latencies, net = Latencies(tmp_path, price, LatencySetting(), (1, 8, 8), 10), random_net(get("all", 8), 0)
    latencies.add(net, row(1.5) | {"latency_spread_ms": spread_ms, "quick": True})
    assert latencies.is_certain(net.key, "latency_ms", 1.0) == is_certain
    assert not latencies.is_certain(net.key, "latency_ms", 1.45)


def test_first_nets_near_a_limit_are_measured_twice(controller: Callable[..., SearchController]) -> None:
    work = controller(limits={"latency_ms": 1.0}, trials=4)
    most = milliseconds(work.context.first_measured()[2])
    executor = FakeExecutor(1, by_effort(lambda net: 1.0))
    work = controller(limits={"latency_ms": most}, trials=4)
    run_loop(work, executor, SilentView())
    first = [job for job in executor.ran[: FIRST + 3] if isinstance(job, LatencyJob) and job.trial < 0]
    twice = {job.genotype.key for job in first if job.effort == CONFIRMED}
    assert twice == {net.key for net in work.context.first_measured() if abs(milliseconds(net) / most - 1) <= NEAR}


def test_several_numbers_of_a_device_are_all_measured(controller: Callable[..., SearchController]) -> None:
    more = {"objective": "latency_ms@board", "other_costs": ("energy_mj@board",), "measured_nets": 0, "latency": ""}
    limits, devices = {"latency_ms@board": 0.4}, device_commands(["board=b {model}"])
    work = controller(limits=limits, devices=devices, **more)
    executor = FakeExecutor(1, lambda job: _both(job))
    run_loop(work, executor, SilentView())
    measured = {*measured_keys(executor.ran)}
    assert {job.genotype.key for job in executor.ran} == measured
    assert {job.effort for job in executor.ran if isinstance(job, LatencyJob)} == {CONFIRMED}


def _both(job: Job) -> Any:
    return on_device(job, milliseconds(job.genotype), energy_mj=3.0) if isinstance(job, LatencyJob) else None


def test_patience_goes_with_a_limit_on_what_is_measured(controller: Callable[..., SearchController]) -> None:
    work = controller(limits={"latency_ms": 0.4}, budget=Budget(patience=3))
    run_loop(work, FakeExecutor(1, timed), SilentView())
    assert work.stalled or work.started == work.context.config.trials


def test_nets_of_timm_are_measured_before_they_are_trained(controller: Callable[..., SearchController]) -> None:
    def fate(job: Job) -> JobResult | None:
        is_reference = isinstance(job, LatencyJob) and isinstance(job.genotype, TimmNet)
        return JobResult(job.trial, "ok", latency=row(0.5)) if is_reference else timed(job)

    work, executor = controller(references=(TimmNet("test_resnet"),), trials=4), FakeExecutor(1, fate)
    run_loop(work, executor, SilentView())
    own = [isinstance(job, LatencyJob) for job in executor.ran if isinstance(job.genotype, TimmNet)]
    assert own[:2] == [True, False]


def test_a_device_that_is_away_is_waited_for(
    controller: Callable[..., SearchController], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alternas.search.trials.latencies.WAITS", (0.01, 0.01, 0.01))
    away = {-2, -3}

    def fate(job: Job) -> Any:
        if not isinstance(job, LatencyJob):
            return None
        if job.trial in away:
            return JobResult(job.trial, "unreachable", error="device board: exit code 255")
        return on_device(job, milliseconds(job.genotype))

    more = {"objective": "latency_ms@board", "latency": "", "devices": device_commands(["board=ssh board ./b {model}"])}
    work, executor = controller(**more), FakeExecutor(3, fate)
    lines: list[str] = []
    work.say = lines.append
    run_loop(work, executor, SilentView())
    measured = [job for job in executor.ran if isinstance(job, LatencyJob)]
    first = next(place for place, job in enumerate(executor.ran) if not isinstance(job, LatencyJob))
    assert first == FIRST + 2
    assert len({job.genotype.key for job in measured}) == len(measured) - 2
    assert lines[0].startswith(f"latency_ms@board predicted from {FIRST} nets")


def test_a_net_that_is_not_measured_is_done_without(controller: Callable[..., SearchController]) -> None:
    lost: list[int] = []

    def fate(job: Job) -> Any:
        if isinstance(job, LatencyJob) and job.trial == -1:
            return JobResult(job.trial, "error", error="no such operator")
        if isinstance(job, LatencyJob) and len(lost) < 2:
            lost.append(job.trial)
            return lose(job)
        return timed(job)

    work, executor = controller(), FakeExecutor(1, fate)
    run_loop(work, executor, SilentView())
    first = measured_keys(executor.ran)[0]
    assert measured_keys(executor.ran).count(first) == 1
    assert work.context.devices.of("latency_ms").predictor.count >= FIRST - 1
    assert all(math.isfinite(work.context.cost_of(r.key, r.cost)) for r in work.store.records if r.status == "ok")


def test_no_net_that_can_be_measured_ends_the_search(controller: Callable[..., SearchController]) -> None:
    work, executor = controller(), FakeExecutor(1, lambda job: JobResult(job.trial, "error", error="because"))
    with pytest.raises(OperationError, match="none could be measured; the first: because"):
        run_loop(work, executor, SilentView())
    assert len(executor.ran) == FIRST
    assert not work.store.records


def test_a_table_of_latencies_says_how_well_others_are_predicted() -> None:
    space = get("all", 8)
    nets = [random_net(space, seed) for seed in range(FIRST)]
    pairs: Any = [
        (SimpleNamespace(key=net.key, cost=price(net)), SimpleNamespace(latency_ms=milliseconds(net))) for net in nets
    ]
    found = prediction_lines([*pairs, pairs[0], (SimpleNamespace(key="timm:resnet18", cost=None), pairs[0][1])])
    share = fitted([price(net) for net in nets], [milliseconds(net) for net in nets]).loo_error
    assert found == [f"latency of other nets: predicted from 8 nets, leave-one-out error {100 * share:.0f} %"]
    assert prediction_lines(pairs[1:]) == []


@pytest.mark.parametrize(("more", "said"), [
    ({"measured_nets": 3}, "must be from 8 to 1000, or 0 to measure every net, got 3"),
    ({"objective": "macs", "latency": ""}, "goes with objective latency_ms"),
    ({"supernet": 2.0}, "a supernet's nets are all measured"),
    ({"devices": device_commands(["board=b {model}"]), "other_costs": ("latency_ms@board", "energy_mj@board")},
     "one number of a device is predicted, got latency_ms@board, energy_mj@board"),
])  # fmt: skip
def test_wrong_numbers_are_one_line(more: dict[str, Any], said: str) -> None:
    given: Any = {"objective": "latency_ms", "latency": EAGER, "measured_nets": FIRST} | more
    with pytest.raises(InputError, match=f"measured-nets: {said}"):
        Settings("all", "digits", "random", "none", given.pop("objective"), RECIPE, **given)
