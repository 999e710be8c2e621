"""`alternas doctor --gpu`: its checks on a card; on the null device and CPUs that they find what is wrong."""

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from alternas.archs import InputError, OperationError
from alternas.cli import values
from alternas.search.engine import doctor_gpu, doctor_gpu_checks, doctor_gpu_speed
from alternas.search.engine.doctor_gpu_checks import CHECKS, Found
from alternas.search.engine.resources import keep_share, share_file
from alternas.search.training.loop import Trainer
from command_line import Run
from null_cuda.client import OnNullDevice

CPU = torch.device("cpu")
TINY = doctor_gpu_speed.Effort(64, 2**16, 100, 0.05, 16, (4,), (1, 2))


@pytest.mark.gpu
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_card(name: str) -> None:
    CHECKS[name](torch.device("cuda"))


@pytest.mark.gpu
def test_on_two_cards() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one card")
    doctor_gpu.two_cards()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_without_a_card(alternas: Any) -> None:
    said = "alternas: gpu: must be a card that torch can use on this machine, got none\n"
    assert alternas("doctor", "--gpu") == (2, "", said)
    said = "alternas: gpu: looks at this machine alone, got auto\n"
    assert alternas("doctor", "--gpu", "--address", "auto") == (2, "", said)


@pytest.mark.slow
def test_a_device_that_computes_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses of the CPU are its own; where every second training has twice the rate they are not."""
    assert doctor_gpu_checks.losses_agree(CPU).figures["float32"] == 0
    assert doctor_gpu_checks.resumes(CPU).figures["off"] == 0
    rates, train = cycle((1, 2)), doctor_gpu_checks.train

    def train_otherwise(trainer: Trainer, steps: int) -> list[Tensor]:
        trainer.peak *= next(rates)
        return train(trainer, steps)

    monkeypatch.setattr(doctor_gpu_checks, "train", train_otherwise)
    with pytest.raises(OperationError, match=r"resnet: losses in float32 must be the CPU's within 0\.001"):
        doctor_gpu_checks.losses_agree(CPU)
    with pytest.raises(OperationError, match="losses behind a checkpoint differ"):
        doctor_gpu_checks.resumes(CPU)


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one_and_notice_a_death() -> None:
    found = doctor_gpu.two_cards("cpu", "vit", 2**10)
    assert found.figures["notice"] == "an error that names it"


def test_auto_is_the_share_that_was_measured(served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALTERNAS_DATA", str(tmp_path / "home"))
    said = "alternas: gpus-per-trial: auto takes the share that `alternas doctor --gpu` has measured on this machine; "
    words = "search", "resnet", "--data", "digits", "--gpus-per-trial", "auto"
    assert served(tmp_path, *words) == (2, "", f"{said}run it first, or give a number\n")
    keep_share(0.25)
    assert values.gpus("gpus-per-trial", "auto") == 0.25
    share_file().write_text('{"gpus_per_trial": 3}', encoding="utf-8")
    with pytest.raises(InputError, match=r"gpu.json: gpus_per_trial must be a number above 0 and at most 1, got 3"):
        values.gpus("gpus-per-trial", "auto")


@pytest.mark.slow
def test_processes_train_side_by_side() -> None:
    rates = doctor_gpu_speed.processes(CPU, replace(TINY, processes=(1, 2))).figures["images_per_second"]
    assert min(rates.values()) > 0


def examined() -> list[list[Any]]:
    """The checks on the null device. Of CUDA's profiler and of what several processes do there is nothing to see."""
    doctor_gpu_speed._profiled = lambda trainer, seconds: (0.0, 0.0)
    doctor_gpu_speed.WAYS = ("eager", "graph")
    doctor_gpu_speed.processes = lambda device, effort: Found("left out", {"gpus_per_trial": 0.25})
    return [[check.check, check.ok, check.found] for check in doctor_gpu.examine_gpu("digits", TINY)]


@pytest.mark.slow
def test_on_the_null_device(on_null_device: OnNullDevice) -> None:
    """All runs, and that nothing is computed there is found."""
    found = on_null_device(examined)
    assert [name for name, ok, _ in found if not ok] == ["card", "losses", "resume"], found
    assert [name for name, ok, _ in found if ok] == [
        *("waits", "memory", "products", "copies", "launch", "2 M MACs, eager", "2 M MACs, graph"),
        *("processes", "loader"),
    ]
    assert "multiplies wrongly" in found[0][2]
