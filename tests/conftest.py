"""Fixtures: a scale small enough to enumerate, and a search that can be opened again and again."""

import dataclasses
import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scales import TINY

from alternas.archs import Cost, Genotype, static_cost
from alternas.archs.timm_net import CountedCost
from alternas.results.runs.events import Line
from alternas.results.runs.store import Store
from alternas.search.context import SearchContext
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.engine import pool
from alternas.search.prepare import devices_of
from alternas.search.run_config import Budget, RunConfig
from alternas.search.trials import proposer
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import Space, get
from alternas.spaces.presets import SpacePreset
from command_line import Run, command_server, run_here, run_served
from fakes import STEPS, FakePool, spec_of
from null_cuda.client import OnNullDevice, null_device

CASES = 3  # of a test with many that run by default: the first, the last, and those evenly between


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with many cases a few run by default, and the whole table is slow; `whole` marks those that run all."""
    if any("[" in word for word in config.args):
        return
    tables = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if not item.get_closest_marker("slow") and not item.get_closest_marker("whole"):
            tables[item.nodeid.partition("[")[0]].append(item)
    for table in tables.values():
        chosen = {round(i * (len(table) - 1) / (CASES - 1)) for i in range(CASES)}
        for number, item in enumerate(table):
            if number not in chosen:
                item.add_marker(pytest.mark.slow)


def pytest_configure() -> None:
    """One thread a process, before torch is loaded: beside other work, threads wait for each other."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def no_users_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the commands they start, keep data where they are thrown away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALTERNAS_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def shipped_draws() -> Iterator[int]:
    """Searches in tests choose their first nets from few random ones, but in test_start.py, as shipped."""
    shipped = proposer.DRAWS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposer, "DRAWS", 40)
        yield shipped


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """No test pulls the plug, but for that of the power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def what_is_written_is_read_again() -> Iterator[None]:
    """Each line that a test writes gives back what it is the line of."""
    append = Store.append

    def checked(store: Store, line: Line) -> None:
        append(store, line)
        assert type(line).from_dict(json.loads(line.to_line())) == line

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "append", checked)
        yield


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data that other tests have not been in."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("ALTERNAS_DATA", str(home))
    return home


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, and no data kept by other tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALTERNAS_DATA", str(tmp_path / "home"))


@pytest.fixture
def alternas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command here: its exit code, stdout and stderr."""
    return lambda *words: run_here(monkeypatch, capsys, *words)


@pytest.fixture
def fake_pool(monkeypatch: pytest.MonkeyPatch) -> type[FakePool]:
    """Stands in for the pool of every command that is run here; no front is measured."""
    monkeypatch.setattr("alternas.results.latency.nets.measure_front", lambda *_: None)
    monkeypatch.setattr(pool, "Pool", FakePool)
    monkeypatch.setattr(FakePool, "fate_of_all", staticmethod(lambda job: None))
    monkeypatch.setattr(FakePool, "jobs_of_all", [])
    return FakePool


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A server of commands."""
    with command_server() as path:
        yield path


@pytest.fixture(scope="session")
def served(server: str) -> Run:
    """Runs `alternas WORDS` in a folder, in a fork of the server."""
    return partial(run_served, server)


@pytest.fixture(scope="session")
def null_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that stands in for CUDA's, see null_cuda/device.c."""
    from null_cuda.build import build, why_not  # which load torch

    if reason := why_not():
        pytest.skip(f"NO NULL DEVICE, so nothing of CUDA is tested: {reason}")
    return build(tmp_path_factory.mktemp("null_cuda"))


@pytest.fixture(scope="session")
def on_null_device(null_cuda: Path) -> Iterator[OnNullDevice]:
    """Calls a function of a test module where torch sees a card that computes nothing."""
    with null_device(null_cuda) as call:
        yield call


@pytest.fixture
def reaper() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def digits() -> DataSet:
    return load(DataConfig("digits"))


@pytest.fixture
def small_scale() -> SpacePreset:
    """TINY cut down so that its spaces can be enumerated."""
    return dataclasses.replace(
        TINY,
        widths=(4, 8),
        depths=((1,), (2, 3), (1, 2)),
        msa=((0,), (0, 1), (0, 1)),
        patches=(1,),
        heads=((1,), (2,), (4,)),
        windows=(0,),
        embed_dims=(16,),
        encoder_depths=(1,),
        mlp_ratios=(1.0,),
        baselines=(("basic", 4, (1, 2, 1)), ("basic", 8, (1, 3, 1))),
    )


def _cost_fn(net: Genotype) -> Cost:
    return static_cost(net, 10, 8, 1)


@pytest.fixture
def open_controller(tmp_path: Path) -> Iterator[Callable[..., SearchTrials]]:
    """Opens a search on tmp_path, again and again as a restarted driver would."""
    stores = []

    def open_it(space: Space | None = None, trials: int = 8, strategy: str = "random", **more: Any) -> SearchTrials:
        """The trials of a search; `more` are fields of its spec, the `budget` and the `references`."""
        space, budget = space or get("all", 8), more.pop("budget", Budget())
        references = {net: CountedCost(10**6, 10**7) for net in more.pop("references", ())}
        spec = spec_of(space.name, strategy=strategy, trials=trials, run=RunConfig(budget=budget), **more)
        fields = {"recipe": spec.recipe.to_dict(), "data": {}, "seed": spec.seed, "versions": {}}
        devices = devices_of(spec, _cost_fn, (1, 8, 8), 10)
        data: Any = SimpleNamespace(train=range(128), val=(), notes={})  # a controller reads no images
        data = load(DataConfig("digits")) if spec.folds else data
        context = SearchContext(
            spec, data, space, _cost_fn, STEPS, tmp_path, fields, devices=devices, references=references
        )
        while stores:
            stores.pop().close()
        stores.append(Store(tmp_path))
        devices.check(stores[-1].lines, tmp_path.name)
        return SearchTrials(context, stores[-1])

    yield open_it
    for store in stores:
        store.close()
