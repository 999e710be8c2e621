"""Every kind of job on the null device: what a job needs is on the card, memory ends, errors stay, cards differ."""

from __future__ import annotations

import dataclasses
import tempfile
from typing import Any

import pytest
import torch

from alternas.archs import Genotype, Stage, Stem
from alternas.results.analysis.registry import ANALYSES, analyse
from alternas.results.analysis_tools.inputs import AnalysisInput, AnalysisResult, Images
from alternas.results.latency.setting import LatencySetting
from alternas.search.engine.doctor_gpu_checks import noise
from alternas.search.engine.worker import Worker
from alternas.search.training.bank_jobs import EvaluateJob, SupernetJob
from alternas.search.training.job import Job, JobResult, LatencyJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import Trainer
from null_cuda.client import OnNullDevice
from null_cuda.training import CUDA, NETS, SMALL, job, recipe_of

PLAIN = Genotype(Stem("cifar", 8), (Stage("basic", 1, 8), Stage("basic", 1, 16, 2)))
MIB = 2**20
ODD = {"linear", "distance", "heads"}  # analyses whose shapes follow from values, which are none here
QUICK: dict[str, dict[str, int]] = {
    "hessian": {"steps": 2}, "noise": {"seeds": 1}, "landscape": {"side": 3}, "field": {"images": 2, "passes": 1},
}  # fmt: skip


def results(*jobs: Job, images: int = 64) -> list[JobResult]:
    """How jobs of one worker end, one after the other."""
    worker = Worker(1, "cuda")
    worker.take(noise(images, 16))
    ends = [list(worker.run(job))[-1] for job in jobs]
    assert all(isinstance(end, JobResult) for end in ends)
    return ends  # type: ignore[return-value]


def said(*jobs: Job, images: int = 64) -> list[list[Any]]:
    """Status, step and error of each job."""
    return [[end.status, end.step, end.error] for end in results(*jobs, images=images)]


def trained_and_resumed(precision: str) -> list[Any]:
    """Ends of a training in two parts; then where all of its state is once it is loaded."""
    recipe = dataclasses.replace(recipe_of(precision=precision), batch_size=16)
    whole = job(SMALL, recipe, 8)
    half = dataclasses.replace(whole, stop_step=4)
    ends = said(half, whole)
    trainer = Trainer(whole, MemoryLoader(noise(64, 16), CUDA))
    assert trainer.ema is not None
    state = [*trainer.net.state_dict().values(), *trainer.ema.net.state_dict().values()]
    moments = [value for of_one in trainer.optimizer.state.values() for value in of_one.values()]
    return [ends, sorted({tensor.device.type for tensor in [*state, *moments]}), trainer.step]


def is_graph_once_resumed() -> bool:
    """Whether the steps behind a checkpoint become a graph, as those before did."""
    recipe = dataclasses.replace(recipe_of(), batch_size=16)
    whole = job(SMALL, recipe, 16)
    ends = results(dataclasses.replace(whole, stop_step=8), whole)
    return [end.how.get("graph", False) for end in ends] == [True, True]


def bank_and_nets_of_it() -> list[Any]:
    """A bank in two jobs, which meets a net with new parts when it is evaluated."""
    folder, recipe = tempfile.mkdtemp(), dataclasses.replace(recipe_of(), batch_size=16)
    known, new = (PLAIN, PLAIN), (PLAIN, SMALL)
    newer = dataclasses.replace(SMALL, stages=(*SMALL.stages, Stage("convnext", 1, 16, 2)))
    first = SupernetJob((known,) * 2, 0, 4, (PLAIN, SMALL), (PLAIN,), recipe, 0, f"{folder}/state", f"{folder}/bank")
    second = dataclasses.replace(first, nets=(new,) * 2, start_step=2)
    evaluated = (EvaluateJob(1, net, first.weights, recipe, f"{folder}/w.safetensors") for net in (SMALL, newer))
    return said(first, second, *evaluated)


def measured(dtype: str) -> list[Any]:
    """How a measurement of latency ends, and on what machine."""
    setting = LatencySetting("cuda", 1, dtype)
    end = results(LatencyJob(0, PLAIN, setting, (3, 16, 16), 10))[0]
    return [end.status, end.error, end.latency.get("machine")]


def failing_analyses() -> dict[str, str]:
    """Errors of analyses of a net that is on the card, by name."""
    from alternas.archs import build
    from nets import NETS as NETS_OF_ALL_KINDS

    torch.backends.cudnn.enabled = False  # second derivatives need more of it than is replaced
    rgb = torch.rand(15, 3, 16, 16, device=CUDA), torch.arange(15, device=CUDA) % 5
    images = Images(*rgb, torch.full((3,), 0.5, device=CUDA), torch.full((3,), 0.3, device=CUDA))
    errors = {}
    for net in ("vit", "msa", "basic"):
        subject = AnalysisInput(net, build(NETS_OF_ALL_KINDS[net], 5, 16, 3).to(CUDA), images)
        for name in sorted(ANALYSES.keys() - ODD):
            try:
                found = analyse(name, subject, subject if ANALYSES[name].two else None, **QUICK.get(name, {}))
            except (RuntimeError, TypeError) as error:
                errors[f"{name} of {net}"] = str(error).splitlines()[0]
            else:
                assert isinstance(found, AnalysisResult) or net != "vit", found
    return errors


def passes(images: int) -> list[Any]:
    """Status and passes of a training whose batches are of so many images, and whether it ends in an error."""
    recipe = dataclasses.replace(recipe_of(precision="float32"), batch_size=images)
    end = results(job(NETS["resnet"](), recipe, 2), images=images)[0]
    return [end.status, end.how.get("passes"), "out of memory" in end.error]


def after_a_fault() -> list[Any]:
    """Ends of three trainings, in the first of which the card fails for good."""
    recipe = dataclasses.replace(recipe_of(), batch_size=16)
    return [end.status for end in results(*(job(SMALL, recipe, 4) for _ in range(3)))]


def precision() -> list[Any]:
    """The precision that "auto" comes to, and how the training ends."""
    end = results(job(SMALL, dataclasses.replace(recipe_of(), batch_size=16), 4))[0]
    return [end.status, end.how["precision"], end.device]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_training_is_resumed_on_its_card(on_null_device: OnNullDevice, precision: str) -> None:
    found = on_null_device(trained_and_resumed, precision)
    assert found == [[["ok", 4, ""], ["ok", 8, ""]], ["cuda"], 8]


def test_a_resumed_training_is_a_graph(on_null_device: OnNullDevice) -> None:
    assert on_null_device(is_graph_once_resumed)


def test_a_bank_is_trained_and_grows_on_its_card(on_null_device: OnNullDevice) -> None:
    assert on_null_device(bank_and_nets_of_it) == [["ok", 2, ""], ["ok", 4, ""], ["ok", 0, ""], ["ok", 0, ""]]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_latency_is_measured_on_the_card(on_null_device: OnNullDevice, dtype: str) -> None:
    assert on_null_device(measured, dtype) == ["ok", "", "NVIDIA H100 80GB HBM3"]


def test_analyses_stay_on_the_card(on_null_device: OnNullDevice) -> None:
    assert on_null_device(failing_analyses) == {}


def test_a_batch_that_does_not_fit_goes_through_in_parts(on_null_device: OnNullDevice) -> None:
    assert on_null_device(passes, 256) == ["ok", 1, False]
    assert on_null_device(passes, 256, NULL_CUDA_MEMORY=str(140 * MIB)) == ["ok", 2, False]
    assert on_null_device(passes, 256, NULL_CUDA_MEMORY=str(24 * MIB)) == ["oom", None, True]


def test_a_worker_ends_with_its_card(on_null_device: OnNullDevice) -> None:
    """No net is blamed."""
    with pytest.raises(AssertionError, match=r"BrokenCardError.*device-side assert"):
        on_null_device(after_a_fault, NULL_CUDA_FAULT="1000")


@pytest.mark.parametrize(
    ("capability", "expected", "card"),
    [
        ("7.5", "float16", "Tesla T4"),
        ("8.0", "bfloat16", "NVIDIA A100-SXM4-80GB"),
        ("9.0", "bfloat16", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_every_card_trains_in_what_it_is_fast_in(
    on_null_device: OnNullDevice, capability: str, expected: str, card: str
) -> None:
    assert on_null_device(precision, NULL_CUDA_CAPABILITY=capability) == ["ok", expected, card]
