"""State is what the log says: a run cut at any line goes on as the one that never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials.forecast import Forecast
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import STEPS, driver_of, fake_accuracy

Open = Callable[..., SearchTrials]


def asked(job: Any) -> tuple[Any, ...] | None:
    """What tells a job from others."""
    return (
        (job.genotype.key, job.seed, job.stop_step, job.total_steps, job.start) if isinstance(job, TrainJob) else None
    )


def answer(job: TrainJob) -> JobResult:
    if job.stop_step == job.total_steps:
        Path(job.weights).parent.mkdir(exist_ok=True)
        Path(job.weights).touch()
    accuracy = fake_accuracy(job.genotype, min(STEPS, job.stop_step))
    return JobResult(job.id, "ok", job.stop_step, accuracy + 0.01 * (job.start is not None), seconds=1.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_a_log_cut_at_any_line_goes_on_as_the_unbroken_run(
    open_controller: Open, tmp_path: Path, scheduler: str
) -> None:
    """The same next job, and after the line before a job the same forecast; of a net by several seeds the first."""
    how: dict[str, Any] = {"trials": 12, "scheduler": scheduler, "inherit": True, "polish": 0.4}
    controller, log = open_controller(get("bench", 8), **how), tmp_path / "records.jsonl"
    driver, known = driver_of(controller), list[tuple[int, Any, float]]()
    while isinstance(job := driver.next(), TrainJob):
        is_first = not controller.live[job.trial].results_by_seed
        forecast = Forecast(controller).left()["alone"].flops
        if is_first:
            known.append((len(log.read_bytes().splitlines()), asked(job), forecast))
        driver.take(answer(job))
    lines = log.read_bytes().splitlines(keepends=True)
    for count in range(len(lines)):
        log.write_bytes(b"".join(lines[:count]))
        at, expected, forecast = next(entry for entry in known if entry[0] >= count)
        again = open_controller(get("bench", 8), **how)
        assert asked(driver_of(again).next()) == expected, f"cut after {count} lines"
        if count == at:
            assert Forecast(again).left()["alone"].flops == pytest.approx(forecast), f"cut after {count} lines"
