"""What both engines promise, on real Ray, with workers that train nothing: the same search, on either engine."""

import logging
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.tune
from ray import cloudpickle
from ray.cluster_utils import Cluster
from rich.console import Console

import fakes
from alternas.results.ranking.front import leaderboard
from alternas.results.runs.record import Record
from alternas.results.runs.status import UNTRAINED
from alternas.results.runs.store import read_records, run_folder
from alternas.search import run
from alternas.search.engine import pool
from alternas.search.engine import tune as inside_tune
from alternas.search.engine.pool import Resources
from alternas.search.run_config import RunConfig
from alternas.search.spec import SearchSpec
from fakes import FakeWorker, spec_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ENGINES = ("pool", "tune")
BAD, UNLUCKY, DOOMED = 5, 6, 7  # fails in training; loses a worker once; loses every worker
TRIALS, MORE = 9, 12


# A driver of its own process: sends itself a signal at so many results of Tune, if that is above 0.
DRIVER = """
import os, sys
import ray, ray.tune
import fakes
from alternas import search_spec
from alternas.search.engine import tune as inside_tune

class Death(ray.tune.Callback):
    results = 0
    def on_trial_result(self, **info):
        self.results += 1
        if self.results == int(sys.argv[3]):  # read now: Tuner.restore brings this object back
            os.kill(os.getpid(), int(sys.argv[4]))

ray.cloudpickle.register_pickle_by_value(fakes)
ray.init(sys.argv[1], log_to_driver=False)
inside_tune.Worker = fakes.FakeWorker
options = dict(data="digits", trials=9, name="killed", strategy="random", scheduler="mo-asha", epochs=2)
search = inside_tune.search(search_spec("all", **options))
search.folder.mkdir(parents=True, exist_ok=True)
fakes.write_fates(search.folder, {})
if sys.argv[2] == "restore":
    tuner = ray.tune.Tuner.restore(os.path.abspath("storage/killed"), search.trainable)
else:
    how = ray.tune.RunConfig(name="killed", storage_path=os.path.abspath("storage"), verbose=0, callbacks=[Death()])
    tuner = ray.tune.Tuner(search.trainable, tune_config=search.tune_config(2), run_config=how)
print(len(tuner.fit()))
"""


@dataclass(frozen=True)
class Ran:
    """A search that has run, and the legs that its workers began."""

    plan: SearchSpec
    engine: str
    records: list[Record]
    legs: list[tuple[int, int]]  # trial and the step to stop at, in the order begun


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of this module's own, on this machine."""
    cloudpickle.register_pickle_by_value(fakes)
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield cluster.address
    cluster.shutdown()
    cloudpickle.unregister_pickle_by_value(fakes)


@pytest.fixture(scope="module")
def run_by(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Runs a search of so many trials by an engine; its folder is that of the name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("user"))
        patch.setattr(pool, "Worker", FakeWorker)
        patch.setattr(inside_tune, "Worker", FakeWorker)
        patch.setenv("RAY_AIR_NEW_OUTPUT", "0")

        def by(engine: str, name: str, trials: int) -> Ran:
            more: Any = {"recipe": fakes.RECIPE.with_epochs(2), "run": RunConfig(Resources(address, workers=2))}
            plan = spec_of("all", scheduler="mo-asha", trials=trials, name=name, **more)
            folder = run_folder(name)
            folder.mkdir(parents=True, exist_ok=True)
            fakes.write_fates(folder, {BAD: "error", UNLUCKY: "die once", DOOMED: "die"})
            (by_tune if engine == "tune" else by_pool)(plan)
            return Ran(plan, engine, read_records(folder), fakes.legs_begun(folder))

        yield by


def by_pool(plan: SearchSpec) -> None:
    run.search(plan, Console(quiet=True))


def by_tune(plan: SearchSpec) -> None:
    ray.init(plan.run.resources.address, log_to_driver=False, logging_level=logging.CRITICAL)
    try:
        search = inside_tune.search(plan)
        kept = ray.tune.CheckpointConfig(checkpoint_at_end=False)
        storage = str(Path("storage").absolute())
        how = ray.tune.RunConfig(storage_path=storage, name=plan.name, verbose=0, checkpoint_config=kept)
        ray.tune.Tuner(search.trainable, tune_config=search.tune_config(2), run_config=how).fit()
    finally:
        ray.shutdown()


@pytest.fixture(scope="module", params=ENGINES)
def ran(request: pytest.FixtureRequest, run_by) -> Ran:
    """A search in which all goes wrong that can."""
    return run_by(request.param, f"run-{request.param}", TRIALS)


def searched(records: list[Record]) -> list[Record]:
    return [r for r in records if r.kind == "search" and r.status not in UNTRAINED]


def test_as_many_nets_are_trained_as_were_asked_for(ran: Ran) -> None:
    assert len(searched(ran.records)) == TRIALS
    plain = [r.status for r in ran.records if r.kind == "baseline"]
    assert plain == ["ok"] * 2, "a third would take more than a quarter of the compute"
    for what in ([r.trial for r in ran.records], [r.key for r in ran.records if r.status not in UNTRAINED]):
        assert len(what) == len(set(what))
    assert {trial for trial, _ in ran.legs} == {r.trial for r in ran.records if r.status not in UNTRAINED}


def test_a_net_that_fails_in_training_is_a_record(ran: Ran) -> None:
    bad = next(r for r in ran.records if r.trial == BAD)
    assert (bad.status, bad.error, bad.accuracy) == ("error", "because", None)
    assert [trial for trial, _ in ran.legs].count(BAD) == 1, "it is not tried again"


def test_a_lost_worker_costs_no_net(ran: Ran) -> None:
    by_trial = {r.trial: r for r in ran.records}
    assert by_trial[UNLUCKY].status in ("ok", "pruned")
    first = min(until for trial, until in ran.legs if trial == UNLUCKY)
    assert ran.legs.count((UNLUCKY, first)) == 2
    assert (by_trial[DOOMED].status, [trial for trial, _ in ran.legs].count(DOOMED)) == ("lost", 3)
    assert by_trial[DOOMED].error == "its worker died; 3 times"


def test_parked_nets_are_promoted_leg_by_leg(ran: Ran) -> None:
    whole = [r for r in searched(ran.records) if r.status == "ok"]
    parked = [r for r in searched(ran.records) if r.status == "pruned"]
    assert whole
    assert parked
    legs = defaultdict(list)
    for trial, until in dict.fromkeys(ran.legs):
        legs[trial].append(until)
    for record in whole:
        assert legs[record.trial] == [2, 4, 8, 16]
        assert [passed["promoted"] for passed in record.rungs] == [True, True, True, False]
        assert len(record.curve) == 16, "the outcome comes whole"
    for record in parked:
        assert legs[record.trial][-1] == record.budget["done"] == record.rungs[-1]["step"] < 16


def test_the_run_is_read_as_any_other(ran: Ran) -> None:
    rows = leaderboard(ran.records).front
    assert {row.rank for row in rows} == {1}
    assert all(0 < row.accuracy < 1 for row in rows)


def test_the_other_engine_takes_a_run_up(ran: Ran, run_by) -> None:
    """What one engine has begun is the other's to go on with: nothing of it is trained again."""
    other = next(engine for engine in ENGINES if engine != ran.engine)
    again = run_by(other, ran.plan.name, MORE)
    assert again.records[: len(ran.records)] == ran.records
    assert len(searched(again.records)) == MORE
    begun = Counter(trial for trial, _ in again.legs[len(ran.legs) :])
    assert set(begun).isdisjoint(r.trial for r in ran.records)
    nothing = run_by(ran.engine, ran.plan.name, MORE)
    assert (nothing.records, nothing.legs) == (again.records, again.legs)


def drive(folder: Path, *words: str) -> int:
    """The exit status of a `DRIVER`."""
    paths = os.pathsep.join([str(Path(fakes.__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": paths, "RAY_AIR_NEW_OUTPUT": "0"}
    return subprocess.run([sys.executable, "-c", DRIVER, *words], cwd=folder, env=env).returncode


@pytest.mark.parametrize(
    ("end", "code", "way"), [(signal.SIGKILL, -signal.SIGKILL, "again"), (signal.SIGINT, 0, "restore")]
)
def test_a_driver_inside_tune_resumes(address: str, tmp_path: Path, end: int, code: int, way: str) -> None:
    """The same script again after any end; Tune's own restore after one that it could save its state at."""
    assert drive(tmp_path, address, "new", "21", str(int(end))) == code
    folder = tmp_path / "runs" / "killed"
    before, legs = read_records(folder), fakes.legs_begun(folder)
    assert len(searched(before)) < TRIALS
    assert drive(tmp_path, address, way, "0", "0") == 0
    after = read_records(folder)
    assert after[: len(before)] == before
    assert len(searched(after)) == TRIALS
    assert len({r.trial for r in after}) == len(after)
    ended = {r.trial for r in before}
    assert ended.isdisjoint(trial for trial, _ in fakes.legs_begun(folder)[len(legs) :])
