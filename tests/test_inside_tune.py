"""The searcher and the trainable of Ray Tune, without Ray: a test plays Tune's part."""

import dataclasses
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fakes
from alternas import search_spec
from alternas.archs import InputError, OperationError
from alternas.results.runs.record import Record
from alternas.results.runs.status import UNTRAINED
from alternas.results.runs.store import read_records
from alternas.search import prepare as preparing
from alternas.search import run
from alternas.search.data.dataset import DataSet
from alternas.search.engine import tune as inside_tune
from alternas.search.engine.tune import DriverSearcher, TuneSearch, TuneTrainable, packed, unpacked
from alternas.search.run_config import Budget, RunConfig
from alternas.search.training.job import JobResult, Point, TrainJob
from fakes import FakeExecutor, FakeWorker, spec_of

Fate = Callable[[TrainJob], Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: DataSet) -> None:
    """A user's empty folder, and data that are loaded once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preparing, "load_showing", lambda request, console: digits)


def wanted(trials: int = 8, **more: Any) -> TuneSearch:
    options = {"data": "digits", "trials": trials, "name": "run", "strategy": "random", "epochs": 2} | more
    return inside_tune.search(search_spec("all", **options))


def play(searcher: DriverSearcher, slots: int = 3, fate: Fate = lambda job: None) -> list[TrainJob]:
    """What Tune does: a trial for each suggestion while slots are free, and word of each that ends."""
    executor, ids = FakeExecutor(slots, fate), dict[int, str]()
    while True:
        while executor.idle:
            name = f"{random.random()}"
            config: Any = searcher.suggest(name)
            if config == searcher.FINISHED:
                assert not ids
                return executor.ran
            if config is None:
                break
            ids[config["trial"]] = name
            executor.submit(config["task"].job)
        for event in executor.poll(0):
            told = {"done": True, "outcome": packed(event)} if isinstance(event, JobResult) else None
            if not isinstance(event, fakes.Progress):
                searcher.on_trial_complete(trial_id=ids.pop(event.job), result=told, error=told is None)


def trained() -> list[Record]:
    return [r for r in read_records(Path("runs/run")) if r.kind == "search" and r.status not in UNTRAINED]


@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_a_driver_killed_anywhere_resumes(scheduler: str) -> None:
    chance, done = random.Random(scheduler), False
    legs: Counter[tuple[int, int, int]] = Counter()
    kills = 0
    while not done:
        left = chance.randint(1, 12) if kills < 8 else -1

        def fate(job: TrainJob) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            legs[job.trial, job.seed, job.stop_step] += 1

        searcher = wanted(16, scheduler=scheduler).searcher
        try:
            play(searcher, fate=fate)
            done = True
        except KeyboardInterrupt:
            kills += 1
            searcher.close()
    assert kills > 3
    assert len(trained()) == 16
    trials = [r.trial for r in read_records(Path("runs/run"))]
    assert len(trials) == len(set(trials))
    assert all(times <= kills + 1 for times in legs.values())
    plain = {r.trial for r in read_records(Path("runs/run")) if r.kind == "baseline"}
    assert {trial for trial, _, _ in legs} == {r.trial for r in trained()} | plain


def test_what_failed_and_what_was_lost_counts() -> None:
    seen: Counter[int] = Counter()

    def fate(job: TrainJob) -> Any:
        seen[job.trial] += 1
        if job.trial == 5:
            return JobResult(job.id, "oom", 3, error="because")
        unlucky = job.trial == 6 or (job.trial == 7 and seen[7] == 1)
        return fakes.lose(job) if unlucky else None

    play(wanted(6).searcher, fate=fate)
    found = {r.trial: r.status for r in trained()}
    assert len(found) == 6
    assert (found[5], found[6], found[7]) == ("oom", "lost", "ok")
    assert (seen[5], seen[6], seen[7]) == (1, 3, 2)


def test_as_many_legs_at_a_time_as_tune_is_told() -> None:
    searcher = wanted().searcher
    assert searcher.set_max_concurrency(2)
    given: list[Any] = [searcher.suggest(str(i)) for i in range(3)]
    assert [config is None for config in given] == [False, False, True]
    first = given[0]["task"].job
    assert Path(first.checkpoint).is_absolute(), "Tune changes a worker's folder"
    searcher.on_trial_complete(trial_id="0", result={"outcome": packed(JobResult(first.trial, "error"))})
    assert searcher.suggest("3") is not None


def test_pickled_it_is_its_plan_and_takes_the_run_up() -> None:
    """As `Tuner.restore` finds it in tuner.pkl."""
    search = wanted()
    play(search.searcher, fate=lambda job: None)
    before = read_records(search.folder)
    more = wanted(10)
    more.searcher.suggest("a")
    more.searcher.close()
    kept = pickle.dumps(more.searcher)
    assert len(kept) < 5000, "no data, no controller"
    again = pickle.loads(kept)
    again.save("file")
    again.restore("file")
    again.on_trial_complete(trial_id="a", result={"outcome": packed(JobResult(99, "ok"))})  # of the driver before
    play(again)
    assert len(trained()) == 10
    assert read_records(search.folder)[: len(before)] == before


def test_one_driver_at_a_time() -> None:
    first, second = wanted().searcher, wanted().searcher
    first.suggest("a")
    with pytest.raises(InputError, match="being worked on"):
        second.suggest("b")
    first.close()
    assert second.suggest("b") is not None


@pytest.mark.parametrize("result", [None, {"done": True, "accuracy": 0.5, "outcome": ""}])
def test_a_scheduler_that_stops_legs_is_refused(result: dict[str, Any] | None) -> None:
    searcher = wanted().searcher
    searcher.suggest("a")
    searcher.on_trial_complete(trial_id="a", result=result)
    with pytest.raises(InputError, match="trial 0: Tune ended its training before it was done"):
        searcher.suggest("b")


def test_a_search_in_which_all_fails_says_why() -> None:
    with pytest.raises(OperationError, match="none of 4 nets could be trained; the first, trial 0: because"):
        play(wanted(3).searcher, fate=lambda job: JobResult(job.id, "error", error="because"))


def test_outcomes_travel_whole() -> None:
    curve = (Point(1, 2.5, 0.1), Point(2, math.inf, 0.25))
    how, lineage = {"loader": "memory", "passes": 2}, {"weights": "trial 3", "copied": ["stem"]}
    rest = {"nll": 1.5}, curve, 3.25, "cpu", how, lineage, {"latency_ms": 0.5}, ((1.0, 2.0),)
    outcome = JobResult(7, "ok", 2, 0.1 + 0.2, *rest, error="why")
    assert unpacked(packed(outcome)) == outcome
    lost = unpacked(packed(JobResult(7, "nan", curve=(Point(1, math.nan, math.nan),))))
    assert math.isnan(lost.curve[0].loss)


def made(trainable: type[TuneTrainable], config: Any) -> TuneTrainable:
    """An actor, as Tune makes it."""
    leg = trainable.__new__(trainable)
    leg._trial_info = None
    leg.setup(config)  # type: ignore[call-arg]
    return leg


def test_results_have_the_same_columns_and_the_last_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside_tune, "Worker", FakeWorker)
    monkeypatch.setattr(inside_tune, "driver_files", lambda: None)  # which would start a Ray
    search = wanted()
    trainable, config = search.trainable, search.searcher.suggest("a")
    fakes.write_fates(search.folder, {})
    leg = made(trainable, config)
    tick, last = leg.step(), leg.step()
    assert last.keys() - tick.keys() == {"done"}
    assert (tick["status"], tick["timesteps_total"], tick["outcome"]) == ("running", 16, "")
    outcome = unpacked(last["outcome"])
    assert (last["status"], last["timesteps_total"], last["accuracy"]) == ("ok", 16, outcome.accuracy)
    assert len(outcome.curve) == 16
    assert leg.reset_config(search.searcher.suggest("b"))  # type: ignore[arg-type]
    leg.step()
    assert unpacked(leg.step()["outcome"]).job == 1


def test_a_leg_of_an_earlier_driver_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuner.restore queues it again, but the search has proposed it anew."""
    monkeypatch.setattr(inside_tune, "Worker", FakeWorker)
    monkeypatch.setattr(inside_tune, "driver_files", lambda: None)  # which would start a Ray
    search = wanted()
    assert search.trainable  # of the driver before
    config: Any = search.searcher.suggest("a")
    process, _ = config["task"].made
    later = config | {"task": dataclasses.replace(config["task"], made=("another process", math.inf))}
    for trainable, asked in ((search.trainable, config), (search.trainable, later)):
        last = made(trainable, asked).step()
        assert (last["done"], last["status"]) == (True, "stale")
    assert fakes.legs_begun(search.folder) == []
    fakes.write_fates(search.folder, {})
    same = config | {"task": dataclasses.replace(config["task"], made=(process, math.inf))}
    assert made(search.trainable, same).step()["status"] == "running"


def test_what_tune_cannot_keep_is_refused() -> None:
    with pytest.raises(InputError, match="latency_ms"):
        inside_tune.search(spec_of("all", costs=("latency_ms",)))
    for effort in (Budget(trial_minutes=1.0), Budget(hours=1.0)):
        with pytest.raises(InputError, match="time_budget_s"):
            inside_tune.search(spec_of("all", run=RunConfig(budget=effort)))


def test_it_is_the_same_search_as_the_commands() -> None:
    """A run of the command line is taken up inside Tune: no setting differs."""
    search = wanted(2)
    play(search.searcher)
    run.search(search.context.settings, Console(quiet=True))  # complete: nothing is started
    with pytest.raises(InputError, match="seed"):
        wanted(2, seed=1)
