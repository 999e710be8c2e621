"""The controller with an executor that trains nothing: states, promises, restarts."""

import io
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from rich.console import Console

from alternas.archs import Genotype, InputError, static_cost
from alternas.results.ranking.front import leaderboard
from alternas.results.runs.events import Line
from alternas.results.runs.record import Record
from alternas.search.strategies.history import State
from alternas.search.strategies.registry import STRATEGIES
from alternas.search.strategies.strategy_context import NetCosts, StrategyContext, candidate_baselines
from alternas.search.summary import announce
from alternas.search.training.job import JobResult, Point, TrainJob
from alternas.search.trials import schedulers
from alternas.search.trials import trial as trial_module
from alternas.search.trials.schedulers import SCHEDULERS, RungResult, RungTable, Scheduler, by_accuracy
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.trial import Work
from alternas.spaces import get, members
from alternas.spaces.families import ResNetSpace
from alternas.spaces.presets import SpacePreset
from fakes import FakeExecutor, KilledError, SilentView, driver_of, finish, lose, run_loop
from nets import vit

Open = Callable[..., SearchTrials]


def statuses(controller: SearchTrials, kind: str = "search") -> Counter[str]:
    return Counter(r.status for r in controller.store.records if r.kind == kind)


# asha shares the code of mo-asha
SOME_SLOW = [pytest.param(name, marks=pytest.mark.slow) if name == "asha" else name for name in SCHEDULERS]


def states(controller: SearchTrials) -> Counter[State]:
    return Counter(trial.state for trial in controller.history.trials)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rungs", SOME_SLOW)
def test_every_strategy_and_scheduler_ends_as_promised(open_controller: Open, strategy: str, rungs: str) -> None:
    controller = open_controller(trials=30, strategy=strategy, scheduler=rungs)
    executor = finish(controller, slots=3)
    found = statuses(controller)
    nets = found["ok"] + found["pruned"]
    assert nets == 30 or (strategy == "buildup" and controller.exhausted), "a build-up comes to an end"
    assert statuses(controller, "baseline") == {"ok": len(controller.baselines)}
    keys = [r.key for r in controller.store.records if r.status not in ("duplicate", "infeasible")]
    assert len(keys) == len(set(keys)) == nets + len(controller.baselines)
    trials = [r.trial for r in controller.store.records]
    assert len(trials) == len(set(trials))
    told = states(controller)
    assert told[State.RUNNING] == 0
    assert told[State.COMPLETE] >= found["ok"]
    assert {job.trial for job in executor.ran} == set(trials) - {
        r.trial for r in controller.store.records if r.status == "duplicate"
    }
    assert {"resnet", "alternet"} | ({"hybrid"} if strategy != "buildup" else set()) <= {
        r.family for r in controller.store.records
    }


def test_limits_are_a_static_gate(open_controller: Open) -> None:
    controller = open_controller(trials=10, limits={"macs": 300_000})
    executor = finish(controller)
    searched = [r for r in controller.store.records if r.kind == "search"]
    refused = [r for r in searched if r.status == "infeasible"]
    assert refused
    assert all(r.error == f"over the limit: macs {r.cost['macs']:g} of 300000" for r in refused)
    assert all(r.cost["macs"] > 300_000 for r in refused)
    assert all(r.cost["macs"] <= 300_000 for r in searched if r.status == "ok")
    assert not {r.trial for r in refused} & {job.trial for job in executor.ran}
    for trial in controller.history.trials:
        if trial.number in {r.trial for r in refused}:
            assert trial.state == State.PRUNED
            assert trial.violated["macs"] > 0


def test_a_small_space_is_used_up(open_controller: Open, small_scale: SpacePreset) -> None:
    space = ResNetSpace(8, small_scale)
    controller = open_controller(space, trials=100)
    finish(controller)
    assert controller.exhausted
    searched = len(list(members(space))) - len(space.baselines())
    assert statuses(controller)["ok"] == searched
    twins = [r for r in controller.store.records if r.status == "duplicate"]
    known = {r.key: r.accuracy for r in controller.store.records if r.status == "ok"}
    assert any(r.accuracy == known[r.key] for r in twins)
    assert controller.started == searched


@pytest.mark.parametrize("status", ["error", "nan", "oom"])
def test_failures_are_records_and_the_search_goes_on(open_controller: Open, status: str) -> None:
    def fate(job: TrainJob) -> JobResult | None:
        curve = (Point(3, math.nan, math.inf),)
        return (
            JobResult(job.id, status, 3, None, {"nll": math.nan}, curve, error="because")
            if job.trial % 3 == 0
            else None
        )

    controller = open_controller(trials=12)
    finish(controller, fate=fate)
    found = statuses(controller)
    assert found[status] + found["ok"] == 12
    assert found[status] >= 3
    assert all(r.error == "because" and r.accuracy is None for r in controller.store.records if r.status == status)
    assert all(row.trial % 3 for row in leaderboard(controller.store.records).rows)
    json.dumps([r.to_dict() for r in controller.store.records], allow_nan=False)


def test_baselines_began_when_their_first_seed_did(open_controller: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker: the seeds of baselines take turns, so the end less the seconds is no beginning."""
    at = itertools.count(1)  # the minute in which each job ends
    monkeypatch.setattr(trial_module, "now", lambda ago=0.0: f"2026-01-01T00:{next(at):02}:{ago / 60:02.0f}+00:00")
    controller = open_controller(get("all", 8), trials=1)
    count, driver = len(controller.baselines), driver_of(controller)
    for _ in range(2 * count):
        job = driver.next()
        assert isinstance(job, TrainJob)
        driver.take(JobResult(job.id, "ok", job.stop_step, 0.5, seconds=60.0))
    records = controller.store.records
    assert [r.seconds for r in records] == [120.0] * count
    assert [r.started_at for r in records] == [f"2026-01-01T00:{i + 1:02}:01+00:00" for i in range(count)]


def test_a_lost_worker_is_tried_again_twice(open_controller: Open) -> None:
    seen: Counter[int] = Counter()

    def fate(job: TrainJob) -> Any:
        seen[job.trial] += 1
        unlucky = (job.trial == 5) or (job.trial == 6 and seen[6] < 3)
        return lose(job) if unlucky else None

    controller = open_controller(trials=6)
    finish(controller, fate=fate)
    by_trial = {r.trial: r for r in controller.store.records}
    assert (seen[5], by_trial[5].status) == (3, "lost")
    assert (seen[6], by_trial[6].status) == (3, "ok")
    assert statuses(controller) == {"ok": 5, "lost": 1}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rungs", ["mo-asha", pytest.param("none", marks=pytest.mark.slow)])  # asha shares its code
def test_a_driver_killed_anywhere_resumes(open_controller: Open, strategy: str, rungs: str) -> None:
    """And trains nothing again: what waits at a rung, what is promoted and what has started are in the records."""
    chance, done = random.Random(f"{strategy}{rungs}"), False
    trained: Counter[tuple[int, int, int]] = Counter()
    kills = 0
    while not done:
        left = chance.randint(1, 12) if kills < 6 else -1

        def fate(job: TrainJob) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KilledError
            trained[job.trial, job.seed, job.stop_step] += 1

        controller = open_controller(trials=12, strategy=strategy, scheduler=rungs)
        try:
            finish(controller, fate=fate, slots=3)
            done = True
        except KilledError:
            kills += 1
    found = statuses(controller)
    nets = found["ok"] + found["pruned"]
    assert nets == 12 or (strategy == "buildup" and controller.exhausted)
    keys = [r.key for r in controller.store.records if r.status != "duplicate"]
    assert len(keys) == len(set(keys)) == nets + len(controller.baselines)
    trials = [r.trial for r in controller.store.records]
    assert len(trials) == len(set(trials))
    again = {leg for leg, times in trained.items() if times > 1}
    assert all(trial < 4 and seed == 0 for trial, seed, _ in again), "but a seed before the last: its checkpoint has it"
    assert states(controller)[State.RUNNING] == 0


def sent_on(
    by: Scheduler,
    standings: list[RungResult],
    last: bool,
    expected: Mapping[int, float] | None = None,
    gone: int | None = None,
) -> int | None:
    """The trial that a scheduler sends on from its first rung, where one of them has gone on or ended."""
    rungs = RungTable(by, 100)
    for standing in standings:
        rungs.pause(standing.trial, standing.accuracy, standing.cost)
        if standing.trial == gone:
            rungs.end(standing.trial)
    found = rungs.next(last, expected or {})
    return found and found[1]


def test_a_slow_starter_is_promoted_where_the_strategy_expects_much_of_it() -> None:
    waiting = [RungResult(i, accuracy, 10) for i, accuracy in enumerate([0.5, 0.9, 0.4])]
    assert sent_on(Scheduler(), waiting, last=False) == 1
    assert sent_on(Scheduler(), waiting, last=False, expected={0: 0.6, 1: 0.7, 2: 0.8}) == 2
    assert sent_on(Scheduler(), waiting, last=False, expected={0: 0.6, 2: 0.8}) == 1, "not of all that wait"
    assert sent_on(Scheduler(eta=2.0), waiting, last=False, expected={0: 0.8, 1: 0.7}, gone=2) == 0, "one failed later"


def test_pareto_promotes_the_better_ones() -> None:
    waiting = [RungResult(i, accuracy, cost) for i, (accuracy, cost) in enumerate([(0.5, 10), (0.9, 10), (0.8, 99)])]
    assert sent_on(Scheduler(), waiting, last=False) == 1
    assert sent_on(Scheduler(eta=2.0), waiting, last=False, gone=1) is None
    assert sent_on(Scheduler(eta=1.5), waiting, last=False, gone=1) is not None, "two of three go on"
    assert sent_on(Scheduler(), waiting, last=True, gone=1) is not None
    assert sent_on(Scheduler(), [], last=True) is None
    assert Scheduler().rungs(100) == (13, 25, 50, 100)
    assert Scheduler().rungs(1) == (1,)


def test_asha_looks_at_accuracy_alone() -> None:
    waiting = [RungResult(0, 0.5, 10), RungResult(1, 0.9, 1000), RungResult(2, 0.9, 10)]
    waiting.append(RungResult(3, 0.95, 10**6))
    assert by_accuracy(waiting) == [3, 1, 2, 0]
    assert sent_on(Scheduler("asha"), waiting, last=False) == 3
    assert sent_on(Scheduler(), waiting, last=False) != 1, "a net that is as good for a hundredth stands before it"
    assert sent_on(Scheduler("asha"), waiting, last=False, gone=3) == 1


def test_the_entry_of_a_scheduler_is_all_that_it_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [RungResult(i, accuracy, 10) for i, accuracy in enumerate([0.5, 0.9, 0.4])]
    monkeypatch.setitem(SCHEDULERS, "first-come", lambda results: list(range(len(results))))
    assert sent_on(Scheduler("first-come"), waiting, last=False) == 0
    assert Scheduler("none").promoted(waiting, last=True) == []
    with pytest.raises(InputError, match="unknown value 'first'"):
        Scheduler("first")


def test_rungs_and_eta_are_the_users() -> None:
    assert Scheduler("mo-asha", (0.1, 0.3), 3).rungs(100) == (10, 30, 100)
    assert Scheduler("none").rungs(100) == (100,)
    waiting = [RungResult(i, i / 10, 10.0) for i in range(7)]
    for eta, most in ((2.0, 3), (3.0, 2), (7.0, 1), (8.0, 0)):
        assert len(Scheduler(eta=eta).promoted(waiting, last=False)) == most
    for bad in ((), (0.5, 0.25), (0.0,), (1.0,), (0.5, 0.5)):
        with pytest.raises(InputError, match="rungs: must be rising shares"):
            Scheduler("mo-asha", bad)
    for eta in (1.0, 0.5, math.nan, math.inf):
        with pytest.raises(InputError, match="eta"):
            Scheduler("asha", eta=eta)


def test_mo_asha_saves_steps_and_finishes_the_front(open_controller: Open) -> None:
    controller = open_controller(trials=40, scheduler="mo-asha")
    executor = finish(controller)
    found = statuses(controller)
    assert found["pruned"] >= 12
    assert found["ok"] >= 2
    spent: dict[int, int] = {}
    for job in executor.ran:
        spent[job.trial] = max(spent.get(job.trial, 0), job.stop_step)
    assert sum(spent.values()) < 0.8 * 16 * len(spent)
    for r in controller.store.records:
        assert r.budget["done"] == spent.get(r.trial, 0)


def test_who_is_passed_over_for_long_ends_before_the_search(
    open_controller: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "MAX_COMPARED", 4)
    controller = open_controller(trials=40, scheduler="mo-asha")
    most, ended = 0, list[Record]()

    class Watch(SilentView):
        def apply(self, line: Line) -> None:
            nonlocal most
            most = max(most, sum(trial.paused for trial in controller.live.values()))
            ended.extend([line] if isinstance(line, Record) and line.status != "duplicate" else [])

    run_loop(controller, FakeExecutor(2), Watch())
    assert ended == [record for record in controller.store.records if record.status != "duplicate"]
    assert most <= 3 * 4, "as many as three rungs compare"
    found = statuses(controller)
    assert found["ok"] + found["pruned"] == 40
    first = next(i for i, record in enumerate(ended) if record.status == "pruned")
    assert first < len(ended) - 15, "not at the end alone"
    again = open_controller(trials=40, scheduler="mo-asha")
    assert again.complete
    assert states(again)[State.RUNNING] == 0


def test_a_parked_net_keeps_what_is_known_of_it(open_controller: Open) -> None:
    """If a search was stopped while it waited, its record is that of a net that was not interrupted."""

    def told(job: TrainJob) -> JobResult:
        curve = (Point(job.stop_step, math.nan, 0.5),)
        how, lineage = {"precision": "float32"}, {"weights": "w"}
        return JobResult(
            job.id, "ok", job.stop_step, 0.5, {"nll": math.nan, "top5": 0.9}, curve, 2.0, "fake", how, lineage
        )

    controller = open_controller(trials=12, scheduler="mo-asha")
    driver = driver_of(controller)
    for _ in range(20):
        job = driver.next()
        assert isinstance(job, TrainJob)
        driver.take(told(job))
    waiting = {t.number: t.finish("pruned") for t in controller.live.values() if t.paused}
    assert len(waiting) > 2
    again = {r.trial: r for r in open_controller(trials=12, scheduler="mo-asha").close()}
    assert again.keys() == waiting.keys()
    for trial, record in waiting.items():
        assert record.curve
        for name in ("metrics", "curve", "seconds", "started_at", "device", "runtime", "lineage", "budget", "rungs"):
            assert getattr(again[trial], name) == getattr(record, name), name


@pytest.mark.parametrize(("limit", "trials", "trained"), [
    (150_000, 16, [49_568, 104_864]),
    (150_000, 5, [49_568]),
    (45_000, 64, [13_008, 49_568]),  # the limit is below the cheapest ResNet of the space
    (45_000, 2, []),
    (0, 64, [49_568, 193_344, 928_992, 2_572_320]),
    (0, 16, [49_568, 193_344, 928_992]),
    (0, 1, []),
])  # fmt: skip
def test_baselines_take_a_quarter_of_the_compute_at_most(
    open_controller: Open, limit: int, trials: int, trained: list[int]
) -> None:
    """None where the search's nets are too few or too cheap beside the cheapest."""
    controller = open_controller(trials=trials, limits={"macs": limit} if limit else {})
    executor = finish(controller)
    assert [r.cost["macs"] for r in controller.store.records if r.kind == "baseline"] == trained
    assert [controller.context.cost_fn(net).macs for net in controller.baselines] == trained
    spent = Counter[str]()
    for job in executor.ran:
        spent["search" if job.trial >= len(controller.baselines) else "baseline"] += controller.context.cost_fn(
            job.genotype
        ).macs
    if trained:
        assert spent["baseline"] <= 0.26 * spent.total(), "the search's nets cost what they do on average, about"


@pytest.mark.parametrize(("trials", "is_said"), [(1, True), (16, False)])
def test_a_search_says_that_it_trains_no_plain_resnet(open_controller: Open, trials: int, is_said: bool) -> None:
    shown = io.StringIO()
    announce(open_controller(trials=trials), Work(1e9), 0, Console(file=shown))
    assert is_said == ("no plain ResNet is trained: the cheapest would take more than 25% of all" in shown.getvalue())


def test_a_run_that_goes_on_keeps_its_baselines_and_may_train_more(open_controller: Open) -> None:
    """Their numbers follow from space and limits: with more trials the next of them can be afforded."""
    chosen = {}
    for trials in (2, 2, 16, 64):
        controller = open_controller(trials=trials)
        finish(controller)
        found = {r.trial: r.key for r in controller.store.records if r.kind == "baseline"}
        assert chosen.items() <= found.items()
        assert statuses(controller)["ok"] == trials
        chosen = found
        assert open_controller(trials=trials).complete
    assert sorted(chosen) == [0, 1, 2, 3]
    trials = [r.trial for r in controller.store.records]
    assert len(trials) == len(set(trials))


def test_a_space_with_baselines_of_its_own_has_them_all(open_controller: Open, small_scale: SpacePreset) -> None:
    space = ResNetSpace(8, small_scale)
    assert candidate_baselines(open_controller(space).context.strategy_context()) == space.baselines()


def test_a_baseline_of_a_users_space_may_have_no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs_of(net: Genotype) -> NetCosts:
        cost = static_cost(net, 10, 8, 1)
        macs = cost.macs if net.stages else 10 * cost.macs  # else it is cheaper than all nets of the space
        return NetCosts(macs, cost.params, macs)

    space = get("resnet", 8)
    monkeypatch.setattr(space, "baselines", lambda: (vit(), *space.__class__.baselines(space)[:2]))
    chosen = candidate_baselines(StrategyContext(space, 0, costs_of))
    assert vit() in chosen
    assert len(chosen) >= 2


@pytest.mark.parametrize(("most", "strides"), [(10**10, [2, 4, 2, 1]), (1_500_000, [2, 4, 2, 4])])
def test_baselines_are_as_wide_as_their_cost_allows(most: int, strides: list[int]) -> None:
    """A 3x3 conv that keeps the image's side makes nets narrow for what they cost."""

    def macs(net: Genotype) -> int:
        return static_cost(net, 10, 32).macs

    def costs_of(net: Genotype) -> NetCosts:
        return NetCosts(macs(net), static_cost(net, 10, 32).params)

    context = StrategyContext(get("all", 32), 0, costs_of, lambda net: macs(net) - most)
    within = [net for net in candidate_baselines(context) if macs(net) <= most]
    assert [net.stem.stride for net in within] == strides
    assert sorted(within, key=macs) == within


def test_of_baselines_of_equal_parameters_that_of_most_macs_is_taken() -> None:
    """Where parameters are the cost, a stem that strides saves nothing."""

    def costs_of(net: Genotype) -> NetCosts:
        cost = static_cost(net, 10, 32)
        return NetCosts(cost.params, cost.params, cost.macs)

    chosen = candidate_baselines(StrategyContext(get("all", 32), 0, costs_of))
    assert [net.stem.stride for net in chosen] == [1, 1, 1, 1]
