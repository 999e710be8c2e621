"""A run's folder that is moved or deleted while it is in use, and what a killed driver leaves in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import OperationError
from alternas.results.runs.store import read_records
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.engine.worker import Worker
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import NETS, FakeExecutor, SilentView, run_loop

LAST = 7  # job


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_search_stops_where_its_folder_is_gone(
    how: str, open_controller: Callable[..., SearchTrials], tmp_path: Path
) -> None:
    controller, ran = open_controller(get("resnet", 8)), list[TrainJob]()
    away = tmp_path.with_name(f"{tmp_path.name}-away")

    def fate(job: TrainJob) -> JobResult | None:
        ran.append(job)
        if len(ran) == LAST:
            shutil.move(tmp_path, away)
            if how == "deleted":
                shutil.rmtree(away)
            if how == "replaced":
                shutil.copytree(away, tmp_path)
        return None

    with pytest.raises(OperationError, match=f"run folder {tmp_path}: was moved, deleted or replaced while in use"):
        run_loop(controller, FakeExecutor(1, fate), SilentView())
    assert len(ran) == LAST
    assert tmp_path.exists() == (how == "replaced"), "nothing is made anew"
    if how == "moved":
        shutil.move(away, tmp_path)
        assert len(read_records(tmp_path)) == len(controller.store.records) > 0
        again = open_controller(get("resnet", 8))
        assert run_loop(again, FakeExecutor(), SilentView())
        assert {r.status for r in read_records(tmp_path)} <= {"ok", "duplicate"}


def test_a_worker_makes_no_folder_of_the_old_name(tmp_path: Path) -> None:
    folder, worker = tmp_path / "gone", Worker(1, "cpu")
    worker.take(load(DataConfig("digits")))
    files = str(folder / "checkpoints" / "a.pt"), str(folder / "weights" / "a.safetensors")
    for stop in (1, 2):  # a checkpoint is left, or the net
        result: Any = list(worker.run(TrainJob(0, NETS[0], recipes.get("smoke"), 0, stop, 2, *files)))[-1]
        assert (result.status, "the run's folder is gone" in result.error) == ("error", True)
    assert not folder.exists()


def test_checkpoints_of_nets_that_have_ended_are_deleted_at_the_next_start(
    open_controller: Callable[..., SearchTrials], tmp_path: Path
) -> None:
    assert run_loop(open_controller(get("resnet", 8)), FakeExecutor(), SilentView())
    key = next(r.key for r in read_records(tmp_path) if r.status == "ok")
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    left, others = (f"{key}.pt", f"{key}-1.pt"), (f"{key}-finetuned.pt", "0123456789ab.pt", "bank-8.pt")
    for name in (*left, *others):
        (tmp_path / "checkpoints" / name).touch()
    assert run_loop(open_controller(get("resnet", 8)), FakeExecutor(), SilentView())
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == sorted(others)
