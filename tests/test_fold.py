"""State is what the log says: a run cut at any line goes on as the one that never stopped."""

import json
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import Genotype
from alternas.archs.timm_net import TimmNet
from alternas.results.latency.setting import device_commands
from alternas.search.run_config import Budget
from alternas.search.training.job import JobResult, LatencyJob, TrainJob
from alternas.search.trials.forecast import Forecast
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.trial import Trial
from alternas.spaces import get
from fakes import STEPS, driver_of, fake_accuracy, finish, milliseconds, on_device

Open = Callable[..., SearchTrials]


def asked(job: Any) -> tuple[Any, ...] | None:
    """What tells a job from others."""
    if isinstance(job, LatencyJob):
        return job.genotype.key, str(job.setting), job.probe
    return (
        (job.genotype.key, job.seed, job.view, job.stop_step, job.total_steps, job.start)
        if isinstance(job, TrainJob)
        else None
    )


def answer(job: TrainJob | LatencyJob) -> JobResult:
    if isinstance(job, LatencyJob):
        if job.trial % 5 == 4 and job.probe:
            return JobResult(job.id, "infeasible", error="exit code 3")
        return on_device(job, milliseconds(job.genotype) if isinstance(job.genotype, Genotype) else 0.1)
    if job.stop_step == job.total_steps:
        Path(job.weights).parent.mkdir(exist_ok=True)
        Path(job.weights).touch()
    accuracy = fake_accuracy(job.genotype, min(STEPS, job.stop_step))
    return JobResult(job.id, "ok", job.stop_step, accuracy + 0.01 * (job.start is not None), seconds=1.0)


def state(controller: SearchTrials) -> dict[str, Any]:
    """All that a search knows, as values."""
    compute, rungs = controller.compute, controller.rungs
    counted = ("statuses", "begun", "macs", "promotions", "whole", "refused")
    devices, nets = controller.context.devices.by_name.values(), controller.context.space.baselines()
    left = {name: getattr(compute, name) for name in ("searched", "finetuning", "unspent", "flops_left")}
    return {
        "counted": {name: copy(getattr(compute, name)) for name in counted},
        "spent": dict(compute.spent),
        "budget": left,
        "live": {number: about(trial) for number, trial in controller.live.items()},
        "known": {key: record.trial for key, record in controller.known.items()},
        "parents": [controller.weights.choose(trial) for trial in controller.live.values() if trial.kind == "search"],
        "rungs": [list(results.values()) for results in rungs._results],
        "waiting": [sorted(paused) for paused in rungs._paused],
        "finetuning": {name: (n.record and n.record.trial, n.steps) for name, n in controller.finetuning._nets.items()},
        "ended": (controller.proposed_all, controller.patience.is_over),
        "history": deepcopy((controller.history.trials, controller.history.notes)),
        "devices": [(dict(d.known), dict(d.failed), d.seconds, d._probe, *map(d.predict, nets)) for d in devices],
    }


def ended(controller: SearchTrials) -> list[Any]:
    """What came of a run, which all verdicts follow from."""
    return sorted((r.trial, r.key, r.weights, r.status, r.accuracy) for r in controller.store.records)


def about(trial: Trial) -> tuple[Any, ...]:
    result = trial.last_result if trial.paused else None
    parent = trial.parent and trial.parent.start
    gone = list(trial.rung_accuracies) if trial.kind == "search" and not trial.results_by_seed else []
    return trial.kind, trial.key, trial.weights, trial.rung_steps, gone, trial.promoted, trial.paused, parent, result


RICH: dict[str, Any] = {"trials": 10, "inherit": True, "polish": 0.4, "references": (TimmNet("test_resnet"),)}
LIMITED = {"budget": Budget(train_flops=4e10, patience=6)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])  # lines
@pytest.mark.parametrize("more", [
    {"scheduler": "mo-asha"},
    {"scheduler": "mo-asha", "repeats": 2, "limits": {"macs": 900_000}},
    LIMITED,
    {},
    {"strategy": "evolution"},
    {"scheduler": "mo-asha", "folds": 3, "polish": 0.0},
    {"scheduler": "mo-asha", "costs": ("latency_ms@board",), "devices": device_commands(["board=./b {model}"])}
    | {"limits": {"latency_ms@board": 0.3}},
], ids=["scheduler", "repeats", "limited", "plain", "evolution", "folds", "device"])  # fmt: skip
def test_a_log_cut_at_any_line_goes_on_as_the_unbroken_run(
    open_controller: Open, tmp_path: Path, more: dict[str, Any], every: int
) -> None:
    """The same state and next job, and before a job the same forecast; nets by several seeds begin anew."""
    controller, log = open_controller(get("bench", 8), **RICH | more), tmp_path / "records.jsonl"
    driver, known = driver_of(controller), list[tuple[int, Any, float]]()
    states = {0: state(controller)}
    while isinstance(job := driver.next(), TrainJob | LatencyJob):
        is_first = not controller.live[job.trial].results_by_seed
        if is_first:
            lines = len(log.read_bytes().splitlines())
            known.append((lines, asked(job), Forecast(controller).left()["alone"].flops))
            states.setdefault(lines, state(controller))
        driver.take(answer(job))
        states.setdefault(len(log.read_bytes().splitlines()), state(controller))
    lines = log.read_bytes().splitlines(keepends=True)
    driver.close()
    whole = ended(controller)
    assert {json.loads(line).get("weights") for line in lines} > {"inherited", *["finetuned"] * ("folds" not in more)}
    for count in range(0, len(lines), every):
        log.write_bytes(b"".join(lines[:count]))
        again = open_controller(get("bench", 8), **RICH | more)
        if count in states:
            assert state(again) == states[count], f"cut after {count} lines"
        following = next((entry for entry in known if entry[0] >= count), None)
        if following and not any(trial.kind == "reference" for trial in again.live.values()):
            forecast = Forecast(again).left()["alone"].flops
            assert asked(driver_of(again).next()) == following[1], f"cut after {count} lines"
            if count == following[0]:
                assert forecast == pytest.approx(following[2]), f"cut after {count} lines"
    count = 2 * len(lines) // 3
    log.write_bytes(b"".join(lines[:count]))
    finish(open_controller(get("bench", 8), **RICH | more), slots=1, fate=answer)
    assert ended(open_controller(get("bench", 8), **RICH | more)) == whole, f"cut after {count} lines"
