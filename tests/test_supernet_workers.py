"""Several workers train one bank: the bank of one worker, whichever worker dies meanwhile."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray import cloudpickle
from rich.console import Console

from alternas.archs import Genotype, OperationError
from alternas.results.runs.bank_progress import read_progress
from alternas.results.runs.status import Status
from alternas.results.runs.store import Store
from alternas.search import run as search_run
from alternas.search.context import SearchContext
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.default import UNLIMITED
from alternas.search.engine import pool as engine_pool
from alternas.search.engine.pace import Pace
from alternas.search.engine.progress import PlainView
from alternas.search.engine.resources import Resources
from alternas.search.engine.shown import ShownSearch
from alternas.search.spec import Supernet
from alternas.search.supernet import draws
from alternas.search.supernet.bank import load_bank
from alternas.search.supernet.budget import NETS_A_STEP
from alternas.search.supernet.draws import NetSampler
from alternas.search.supernet.trainer import train_bank
from alternas.search.training import recipes
from alternas.search.training.bank_jobs import BankJobId, EvaluateJob, SupernetJob
from alternas.search.training.group import open_group
from alternas.search.training.job import Job, JobResult, Point, Progress, Workers
from alternas.search.training.loaders import DeviceLoader, open_loader
from alternas.search.training.member import Member
from alternas.search.training.recipe import Recipe
from alternas.search.trials.bank_training import MAX_LOST, SEGMENTS, TRIES
from alternas.search.trials.forecast import BANK, Forecast
from alternas.search.trials.producer import Idle
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from command_line import ray_workers, run, start, wait_for
from fakes import STEPS, FakeExecutor, driver_of, lose, price, shared_of, spec_of

SMOKE = recipes.get("smoke")
RANDOM = replace(SMOKE, batch_size=32, dropout=0.2, drop_path=0.2)
UPHILL = replace(RANDOM, sam_rho=0.05)
# Sums in another order: AdamW would make whole steps of the rounding errors of weights that have no gradient.
IN_PASSES = replace(UPHILL, grad_accum_steps=2, optimizer="sgd", lr=0.05)

# Two workers on digits: one here, one in a process of its own, which may misbehave.

OTHER = """
import os, pickle, sys
import torch
torch.set_num_threads(1)
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.supernet import trainer
from alternas.search.training.loaders import open_loader

with open(sys.argv[1], "rb") as file:
    job = pickle.load(file)
own, calls = trainer.SharedGradients._own, []

def failing(self, x_BCHW, *others):
    calls.append(len(x_BCHW))
    if len(calls) == 3 and sys.argv[2] == "dies":
        os._exit(1)
    if len(calls) == 3 and sys.argv[2] == "lacks memory":
        raise RuntimeError("out of memory")
    return own(self, x_BCHW, *others)

trainer.SharedGradients._own = failing
loader = open_loader(load(DataConfig("digits")).without_test(), torch.device("cpu"), 0)
*_, result = trainer.train_bank(job, loader)
with open(sys.argv[1], "wb") as file:
    pickle.dump(result, file)
"""


@pytest.fixture(scope="module")
def loader() -> DeviceLoader:
    return open_loader(load(DataConfig("digits")).without_test(), torch.device("cpu"), 0)


def macs(net: Genotype) -> float:
    return float(price(net).macs)


@functools.cache
def sampler() -> NetSampler:
    return NetSampler(get("all", 8), macs, lambda net: 0.0, 0)


def job_of(folder: Path, start: int, stop: int, recipe: Recipe = RANDOM) -> SupernetJob:
    nets = tuple(sampler().nets(step, NETS_A_STEP) for step in range(start, stop))
    first = sampler().nets(0, 2)
    folder.mkdir(exist_ok=True)
    return SupernetJob(nets, start, 8, first, first, recipe, 0, str(folder / "bank"), str(folder / "bank"))


def alone(job: SupernetJob, loader: DeviceLoader) -> JobResult:
    *_, result = train_bank(job, loader)
    assert isinstance(result, JobResult)
    return result


def together(job: SupernetJob, loader: DeviceLoader, fate: str = "") -> list[JobResult]:
    """The results of two workers; None of one that died."""
    folder = Path(job.checkpoint).parent
    job = replace(job, member=Member(0, 2, str(folder / f"rendezvous-{job.start_step}")))
    Path(job.member.rendezvous).touch()
    asked = folder / "other.pickle"
    asked.write_bytes(pickle.dumps(replace(job, member=replace(job.member, rank=1))))
    with subprocess.Popen([sys.executable, "-c", OTHER, str(asked), fate]) as other:
        first = alone(job, loader)
    if other.returncode:
        return [first]
    return [first, pickle.loads(asked.read_bytes())]


def apart(one: Path, other: Path) -> float:
    """The largest difference between two banks."""
    first, second = (load_bank(file, torch.device("cpu")) for file in (one, other))
    assert first.axes == second.axes
    return max((first.tensor(role) - second.tensor(role)).abs().max().item() for role in first.axes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "begin"),
    [
        pytest.param(RANDOM, 0, id="dropout"),
        pytest.param(UPHILL, 0, id="SAM", marks=pytest.mark.slow),
        pytest.param(IN_PASSES, 3, id="SAM in two passes", marks=pytest.mark.slow),
    ],
)
def test_two_workers_train_the_bank_of_one(recipe: Recipe, begin: int, tmp_path: Path, loader: DeviceLoader) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    expected = alone(job_of(one, 0, 8, recipe), loader)
    if begin:
        alone(job_of(two, 0, begin, recipe), loader)
    first, second = together(job_of(two, begin, 8, recipe), loader)
    assert (first.status, second.status, second.job) == ("ok", "ok", BankJobId(1))
    assert first.accuracy == pytest.approx(expected.accuracy, abs=0.01)
    ours, theirs = (dict(enumerate(chain(*result.losses))) for result in (first, expected))
    assert ours == pytest.approx({i: theirs[i + NETS_A_STEP * begin] for i in ours}, abs=1e-3)
    assert apart(one / "bank", two / "bank") < 1e-5


def test_a_segment_that_was_trained_before_its_worker_was_lost_is_told_again(
    tmp_path: Path, loader: DeviceLoader
) -> None:
    first, again = (alone(job_of(tmp_path, 0, 4), loader) for _ in range(2))
    assert again.losses == first.losses
    assert len(first.losses) == 4
    assert again.curve[-1].step == 4


def test_dropout_is_a_function_of_seed_step_and_net(tmp_path: Path, loader: DeviceLoader) -> None:
    plain, thinned = tmp_path / "plain", tmp_path / "thinned"
    alone(job_of(plain, 0, 8, replace(RANDOM, dropout=0.0, drop_path=0.0)), loader)
    alone(job_of(thinned, 0, 8), loader)
    assert apart(plain / "bank", thinned / "bank") > 1e-3, "or the other tests show nothing"


@pytest.mark.slow
def test_a_worker_that_dies_is_no_fault_of_the_bank(tmp_path: Path, loader: DeviceLoader) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone(job_of(one, 0, 8), loader)
    alone(job_of(two, 0, 4), loader)
    before = (two / "bank-4.pt").read_bytes()
    (lost,) = together(job_of(two, 4, 8), loader, "dies")
    assert lost.status == "lost"
    assert "is gone" in lost.error
    assert "\n" not in lost.error
    assert (two / "bank-4.pt").read_bytes() == before
    (two / "rendezvous-4").unlink(missing_ok=True)
    together(job_of(two, 4, 8), loader)
    assert apart(one / "bank", two / "bank") < 1e-5


def test_nobody_waits_for_a_worker_that_is_known_to_be_gone(tmp_path: Path, loader: DeviceLoader) -> None:
    job = replace(job_of(tmp_path, 0, 8), member=Member(0, 2, str(tmp_path / "rendezvous")))

    assert alone(job, loader).status == "lost", "it is known before this one comes"
    Path(job.member.rendezvous).touch()

    def delete() -> None:
        while not Path(job.member.rendezvous).stat().st_size:  # it has come
            time.sleep(0.05)
        time.sleep(0.5)
        Path(job.member.rendezvous).unlink()

    threading.Thread(target=delete).start()
    assert alone(job, loader).status == "lost"


@pytest.mark.slow
def test_where_one_lacks_memory_all_go_on_in_more_passes(tmp_path: Path, loader: DeviceLoader) -> None:
    first, second = together(job_of(tmp_path, 0, 8, UPHILL), loader, "lacks memory")
    assert (first.status, second.status) == ("ok", "ok")
    assert first.how["passes"] == second.how["passes"] == 2


# The controller, with workers that train nothing.


@pytest.fixture(scope="module")
def pool() -> list[Genotype]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "POOL_DRAWS", 200)
        return NetSampler(get("all", 8), macs, lambda net: 0.0, 0).pool


@pytest.fixture
def controller(tmp_path: Path, pool: list[Genotype]) -> Iterator[SearchTrials]:
    """A search on shared weights whose baselines have ended."""
    spec = spec_of("all", recipe=SMOKE, trials=UNLIMITED, supernet=Supernet(40.0), polish=0.35)
    fields = {"recipe": {}, "data": {}, "seed": 0, "versions": {}}
    data: Any = SimpleNamespace(train=range(1000), val=range(300))
    bank = tmp_path / "bank.safetensors"
    nets = NetSampler(get("all", 8), macs, lambda net: 0.0, 0)
    nets.pool = pool
    context = SearchContext(spec, data, get("all", 8), price, STEPS, tmp_path, fields, bank=bank, nets=nets)
    with closing(Store(tmp_path)) as store:
        made = SearchTrials(context, store)
        driver = driver_of(made)
        while made.live and not isinstance(job := driver.next(), Idle):
            driver.take(JobResult(job.id, "error", error="not of interest"))
        yield made


def trained(job: Job) -> JobResult | None:
    """The fate of a job: all goes well."""
    if isinstance(job, SupernetJob):
        losses = tuple((1.0,) * len(nets) for nets in job.nets)
        return JobResult(job.id, "ok", job.stop_step, curve=(Point(job.stop_step, 1.0, 0.5),), losses=losses)
    return JobResult(job.id, "error", error="not of interest") if isinstance(job, EvaluateJob) else None


def train_with(controller: SearchTrials, workers: int, fate: Callable[[Any], Any] = trained) -> list[SupernetJob]:
    """The jobs of the bank's training, once it has ended."""
    executor = FakeExecutor(workers, fate)
    view = PlainView(ShownSearch(controller), Console(quiet=True))
    driver = driver_of(controller)
    while not shared_of(controller).bank_training.done:
        search_run.run_loop(driver, executor, view, 0.01)
    return [job for job in executor.ran if isinstance(job, SupernetJob)]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_segment_is_dealt_out_to_as_many_as_a_step_has_nets_for(controller: SearchTrials, workers: int) -> None:
    jobs = train_with(controller, workers)
    ranks = list(range(min(workers, NETS_A_STEP)))
    last = [job for job in jobs if job.stop_step == shared_of(controller).budget.steps]
    assert [(job.member.rank, job.id, job.member.world) for job in last] == [
        (r, BankJobId(r), len(ranks)) for r in ranks
    ]
    assert len({job.member.rendezvous for job in last}) == 1
    assert len({(job.member.rendezvous, job.start_step) for job in jobs}) == SEGMENTS
    shared = [job.member.rendezvous for job in jobs if job.member.world > 1 and not job.member.rank]
    assert len(set(shared)) == len(shared) == (0 if workers == 1 else SEGMENTS - TRIES), "a new one each time"
    assert shared_of(controller).bank_training.progress["step"] == shared_of(controller).budget.steps


@pytest.mark.parametrize(("two", "faster"), [(3.0, 1), (0.5, 2)])
def test_each_number_of_workers_is_tried_and_the_faster_trains_the_rest(
    controller: SearchTrials, two: float, faster: int
) -> None:
    clock = [0.0]

    def timed(job: Any) -> JobResult | None:
        result = trained(job)
        if isinstance(job, SupernetJob) and result and not job.member.rank:
            clock[0] += two if job.member.world == 2 else 1.0
            result = replace(result, seconds=clock[0])
        return result

    worlds = [job.member.world for job in train_with(controller, 2, timed) if not job.member.rank]
    assert worlds == [2, 1, 2, 1] + [faster] * (SEGMENTS - 4)


def test_a_segment_that_lost_a_worker_is_dealt_out_again(controller: SearchTrials) -> None:
    lost = []

    def once(job: Any) -> JobResult | None:
        if isinstance(job, SupernetJob) and job.member.rank and len(lost) < MAX_LOST:
            lost.append(job)
            return lose(job)
        return trained(job)

    jobs = train_with(controller, 2, once)
    assert len(lost) == MAX_LOST
    first = [job for job in jobs if job.start_step == 0]
    assert [job.member.rank for job in first] == [0, 1] * (MAX_LOST + 1)
    assert len({job.member.rendezvous for job in first}) == MAX_LOST + 1
    saved = read_progress(controller.folder)
    assert saved is not None
    assert saved["step"] == shared_of(controller).budget.steps


def test_workers_that_are_lost_again_and_again_end_the_search_in_a_line(controller: SearchTrials) -> None:
    tries = []

    def always(job: Any) -> JobResult | None:
        tries.extend([job] if isinstance(job, SupernetJob) else [])
        return lose(job) if isinstance(job, SupernetJob) and not job.member.rank else trained(job)

    with pytest.raises(OperationError, match="supernet: training ended as lost: its worker died") as error:
        train_with(controller, 2, always)
    assert "\n" not in str(error.value)
    assert len(tries) == 2 * (MAX_LOST + 1)


def test_a_fault_of_the_bank_is_told_from_the_loss_that_follows_from_it(controller: SearchTrials) -> None:
    def one_is_wrong(job: Any) -> JobResult | None:
        wrong = isinstance(job, SupernetJob) and job.member.rank
        return (
            JobResult(job.id, "error", error="because")
            if wrong
            else lose(job)
            if isinstance(job, SupernetJob)
            else None
        )

    with pytest.raises(OperationError, match="supernet: training ended as error: because"):
        train_with(controller, 2, one_is_wrong)


def test_a_segment_waits_for_workers_that_are_starting_but_not_forever(
    controller: SearchTrials, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(controller)
    assert driver.next(Workers(1, 1)) is Idle.WAIT
    shared_of(controller).bank_training._patient_until = time.monotonic()
    job = driver.next(Workers(1, 1))
    assert isinstance(job, SupernetJob)
    assert job.member.world == 1


def test_the_plain_view_has_one_line_a_segment(controller: SearchTrials) -> None:
    console = Console(record=True, width=200)
    view = PlainView(ShownSearch(controller), console)
    shared_of(controller).bank_training._rates[1] = [0.0, 0.0]  # one worker was tried, and is slower
    driver = driver_of(controller)
    for _ in range(2):
        for job in (driver.next(Workers(2, 0)), driver.next(Workers(1, 0))):
            assert isinstance(job, SupernetJob)
            view.started(job)
            if not job.member.rank:
                view.tick(Progress(job.id, Point(job.stop_step, 1.0, 0.5), 1.0))
            result = trained(job)
            assert result is not None
            assert len(view.running) == (0 if job.member.rank else 1)
            driver.take(result)
            view.ended(job.id)
    assert console.export_text().count("supernet: step ") == 2


# All of it, on Ray.


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_worker_leaves_the_bank_of_the_unbroken_run(
    tmp_path: Path, reaper: list[subprocess.Popen[str]]
) -> None:
    words = ["search", "bench", "--data", "digits", "--supernet", "4", "--polish", "0", "--epochs", "8"]
    words += ["--trials", "3", "--cpus-per-trial", "0.5"]
    code, _, err = run(tmp_path, *words, "--workers", "1", "--name", "one")
    assert code == 0, err
    driver = start(tmp_path, *words, "--workers", "2", "--name", "two")
    reaper.append(driver)
    folder = tmp_path / "runs" / "two"
    wait_for(lambda: (read_progress(folder) or {"step": 0})["step"] and list(folder.glob("checkpoints/rendezvous*")))
    workers = ray_workers(driver.pid)
    assert len(workers) == 2
    workers[0].kill()
    _, err = driver.communicate(timeout=400)
    assert driver.returncode == 0, err
    assert "its segment is tried again" in err
    assert apart(tmp_path / "runs" / "one" / "bank.safetensors", folder / "bank.safetensors") < 1e-5
    assert not list(folder.glob("checkpoints/rendezvous*"))


class DiesConnecting:
    """A worker that trains with others; the second dies when all have met, before they know each other's address."""

    def __init__(self, threads: int, device: str, share: float, *files: Any) -> None: ...
    def take(self, data: Any) -> str:
        return ""

    def run(self, job: SupernetJob) -> Iterator[JobResult]:
        if job.member.rank:
            store = torch.distributed.FileStore(job.member.rendezvous, 2)  # type: ignore[attr-defined]
            store.set("card 1", "none")
            store.get("card 0")
            os.kill(os.getpid(), signal.SIGKILL)
        with open_group(job.member, torch.device("cpu"), 0):
            yield JobResult(job.id, Status.OK)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_nobody_waits_for_long_for_a_worker_that_died_as_all_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To gloo it is one that has not come yet, for which it waits five minutes."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find it on their path
    monkeypatch.setattr(engine_pool, "Worker", DiesConnecting)
    monkeypatch.setattr(engine_pool, "PARTING_SECONDS", 1.0)
    meet = tmp_path / "rendezvous"
    meet.touch()
    with closing(engine_pool.Pool(Resources(workers=2), load(DataConfig("digits")), 2)) as workers:
        while workers.idle < 2:
            workers.poll(1.0)
        for rank in (0, 1):
            workers.submit(replace(job_of(tmp_path, 0, 1), member=Member(rank, 2, str(meet))))
        results = list[Any]()
        while len(results) < 2:
            results += workers.poll(1.0)
    assert {result.job.rank: result.status for result in results} == {0: Status.LOST, 1: Status.LOST}


def test_the_time_left_is_learned_in_seconds_of_each_kind_of_work(controller: SearchTrials) -> None:
    """The bank takes a minute a step, whatever its FLOPs; of what is known of no kind a FLOP takes as long."""
    driver, shared, began = driver_of(controller), shared_of(controller), 0.0
    for _ in range(3):
        job = driver.next()
        assert isinstance(job, SupernetJob)
        began += 60.0 * len(job.nets)
        result = trained(job)
        assert result is not None
        driver.take(replace(result, seconds=began))
    forecast, step, pace = Forecast(controller), shared.bank_training.progress["step"], Pace()
    for known in forecast.known():
        pace.add(*known)
    left = forecast.left()
    seconds = pace.seconds(BANK, left[BANK])
    assert seconds == pytest.approx(60.0 * (shared.budget.steps - step))
    assert pace.seconds("alone", left["alone"]) == pytest.approx(seconds * left["alone"].flops / left[BANK].flops)
