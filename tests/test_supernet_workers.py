"""Several workers train one bank: the bank of one worker, whichever worker dies meanwhile."""

import functools
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from alternas.archs import Genotype
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.engine.worker_group import WorkerGroup
from alternas.search.supernet import draws
from alternas.search.supernet.bank import load_bank
from alternas.search.supernet.draws import NETS_A_STEP, NetSampler
from alternas.search.supernet.trainer import train_bank
from alternas.search.training import recipes
from alternas.search.training.bank_jobs import BANK_JOB, SupernetJob
from alternas.search.training.job import JobResult
from alternas.search.training.loaders import DeviceLoader, open_loader
from alternas.search.training.member import Member
from alternas.search.training.recipe import Recipe
from alternas.spaces import get
from fakes import price

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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "POOL_DRAWS", 200)
        nets = NetSampler(get("all", 8), macs, lambda net: 0.0, 0)
        assert nets.pool
        return nets


def job_of(folder: Path, start: int, stop: int, recipe: Recipe = RANDOM) -> SupernetJob:
    nets = tuple(sampler().nets(step, NETS_A_STEP) for step in range(start, stop))
    first = sampler().nets(0, 2)
    folder.mkdir(exist_ok=True)
    largest = tuple(net for step in range(8) for net in sampler().nets(step, NETS_A_STEP))
    return SupernetJob(nets, start, 8, largest, first, recipe, 0, str(folder / "bank"), str(folder / "bank"))


def alone(job: SupernetJob, loader: DeviceLoader) -> JobResult:
    *_, result = train_bank(job, loader)
    assert isinstance(result, JobResult)
    return result


def together(job: SupernetJob, loader: DeviceLoader, fate: str = "") -> list[JobResult]:
    """The results of two workers; None of one that died."""
    folder = Path(job.checkpoint).parent
    job = replace(job, member=Member(0, 2, str(folder / f"rendezvous-{job.start_step}")))
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
@pytest.mark.parametrize(("recipe", "begin"), [
    pytest.param(RANDOM, 0, id="dropout"),
    pytest.param(UPHILL, 0, id="SAM", marks=pytest.mark.slow),
    pytest.param(IN_PASSES, 3, id="SAM in two passes", marks=pytest.mark.slow),
])  # fmt: skip
def test_two_workers_train_the_bank_of_one(recipe: Recipe, begin: int, tmp_path: Path, loader: DeviceLoader) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    expected = alone(job_of(one, 0, 8, recipe), loader)
    if begin:
        alone(job_of(two, 0, begin, recipe), loader)
    first, second = together(job_of(two, begin, 8, recipe), loader)
    assert (first.status, second.status, second.job) == ("ok", "ok", BANK_JOB)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_where_one_lacks_memory_all_go_on_in_more_passes(tmp_path: Path, loader: DeviceLoader) -> None:
    first, second = together(job_of(tmp_path, 0, 8, UPHILL), loader, "lacks memory")
    assert (first.status, second.status) == ("ok", "ok")
    assert first.how["passes"] == second.how["passes"] == 2


def test_a_bank_is_trained_by_all_workers_of_a_group(tmp_path: Path) -> None:
    job = job_of(tmp_path, 0, 1)
    assert WorkerGroup(["worker"]).shared(job, local=True) == [job]
    jobs: list[Any] = WorkerGroup(["worker", "another"]).shared(job, local=True)
    first, second = (shared.member for shared in jobs)
    assert (first.rank, second.rank, first.world, second.world) == (0, 1, 2, 2)
    assert first.rendezvous == second.rendezvous
