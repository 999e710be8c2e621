"""Several devices train one net: the gradients and the curve of one, whoever lacks memory or dies meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from alternas.archs import Encoder, Genotype, Head, Stem, zoo
from alternas.results.runs.store import read_records
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from alternas.search.engine.worker import Worker
from alternas.search.training import recipes, shared_norm
from alternas.search.training.group import open_group
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import generator_of, open_loader
from alternas.search.training.member import Member
from alternas.search.training.optim import Gradients
from alternas.search.training.recipe import Augment, Recipe
from alternas.search.training.shared_norm import SharedNorms
from alternas.search.training.trainer import train
from command_line import run

CPU = torch.device("cpu")
SMOKE = recipes.get("smoke")
# Sums in another order: AdamW would make whole steps of the rounding errors of weights that have no gradient.
PLAIN = replace(SMOKE, optimizer="sgd", lr=0.05, batch_size=30, ema_decay=0.9, augment=Augment())
RICH = Augment(pad=1, flip=True, cutout=2, reprob=0.3, mixup=0.4, cutmix=1.0)
NORMS = 7  # batch norms of RESNET
RESNET, VIT = (
    zoo.resnet("basic", (1, 1), width=8),
    Genotype(Stem("none"), (), Encoder(16, 2, 2, patch=2), Head("token")),
)
numbers = count()


@pytest.fixture(scope="module")
def data() -> DataSet:
    """A part of digits, of which three devices have shares that are not alike."""
    whole = load(DataConfig("digits")).without_test()
    return replace(whole, train=cut(whole.train, 150), val=cut(whole.val, 61))


def cut(split: Split, images: int) -> Split:
    assert isinstance(split.images, np.ndarray)
    return Split(split.images[:images], split.y_N[:images])


def in_two(folder: Path, do: Callable[[Member], Any]) -> list[Any]:
    """What two processes, of which this is the first, make of a job; None of one that died."""
    meet = folder / f"rendezvous-{next(numbers)}"
    meet.parent.mkdir(exist_ok=True)
    meet.touch()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def second() -> None:
        there.send(do(Member(1, 2, str(meet))))
        there.close()
        os._exit(0)

    other = context.Process(target=second)
    other.start()
    there.close()
    try:
        first = do(Member(0, 2, str(meet)))
        return [first, here.recv()]
    except EOFError:
        return [first, None]
    finally:
        other.join()


def job_of(folder: Path, recipe: Recipe = PLAIN, net: Any = RESNET, stop: int = 8) -> TrainJob:
    files = str(folder / "net.pt"), str(folder / "net.safetensors")
    return TrainJob(0, net, recipe, 0, stop, 8, *files, curve_points=4)


def result_of(job: TrainJob, data: DataSet) -> JobResult:
    *_, result = train(job, open_loader(data, CPU, 0))
    assert isinstance(result, JobResult)
    return result


def test_a_batch_is_dealt_out_without_repeats_and_mixed_pairs_stay_together() -> None:
    for images, world in [(64, 2), (30, 4), (7, 2), (33, 3)]:
        members = [Member(rank, world) for rank in range(world)]
        places = [member.places(images) for member in members]
        assert sorted(sum(places, ())) == list(range(images))
        for own in places:
            assert [images - 1 - i for i in own] == list(reversed(own))
        for passes in (1, 2, 3):
            ends = torch.arange(images).tensor_split(passes)
            sizes = [[len(set(own) & set(end.tolist())) for end in ends] for own in places]
            assert [member.sizes(images, passes) for member in members] == sizes
            assert max(map(max, sizes)) - min(map(min, sizes)) <= 2 + images % passes


@pytest.mark.parametrize("passes", [1, 2])
def test_the_gradients_of_two_shards_are_those_of_the_whole(tmp_path: Path, passes: int) -> None:
    """Against a formula: least squares, whose gradient over all images is known."""
    x, w = torch.randn(7, 3, generator=generator_of(0, 0, 0)), torch.tensor([[1.0, -2.0, 0.5]])
    target = x.sum(1, keepdim=True)
    expected = 2 / 7 * (x @ w.T - target).T @ x

    def shard(member: Member) -> tuple[list[float], float]:
        net = nn.Linear(3, 1, bias=False)
        net.weight.data.copy_(w)
        recipe = replace(PLAIN, grad_accum_steps=passes)
        gradients = Gradients(net, recipe, lambda forward, x, t: F.mse_loss(forward(x), t), CPU)
        with open_group(member, CPU, 0) as group:
            gradients.share_images(group, 7)
            own = list(member.places(7))
            loss = gradients(x[own], target[own])
        assert net.weight.grad is not None
        return net.weight.grad[0].tolist(), loss.item()

    for gradient, loss in in_two(tmp_path, shard):
        assert gradient == pytest.approx(expected[0].tolist())
        assert loss == pytest.approx(F.mse_loss(x @ w.T, target).item())


def kept(norm: nn.BatchNorm2d) -> list[np.ndarray]:
    """Running mean and variance, gradients of weight and bias."""
    tensors = norm.running_mean, norm.running_var, norm.weight.grad, norm.bias.grad
    return [tensor.numpy() for tensor in tensors if tensor is not None]


def test_batch_norm_has_the_statistics_of_all_images(tmp_path: Path) -> None:
    """Against torch's on one device, shards of 4 and 3 images: outputs, gradients and what it keeps."""
    x = 3 + 2 * torch.randn(7, 5, 4, 4, generator=generator_of(0, 0, 0))
    slope = torch.randn(x.shape, generator=generator_of(0, 1, 0))

    def normalised(x: torch.Tensor, slope: torch.Tensor) -> list[np.ndarray]:
        norm = nn.BatchNorm2d(5)
        norm.weight.data.uniform_(0.5, 2, generator=generator_of(0, 2, 0))
        x = x.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
        (y := norm(x)).backward(slope)
        assert x.grad is not None
        assert x.grad.stride() == x.stride()
        return [y.detach().numpy(), x.grad.numpy(), *kept(norm)]

    def shard(member: Member) -> list[np.ndarray]:
        own = list(member.places(7))
        with open_group(member, CPU, 0) as group, SharedNorms(group, 5, CPU):
            return normalised(x[own], slope[own])

    y, of_x, mean, var, of_weight, of_bias = normalised(x, slope)
    shards = in_two(tmp_path, shard)
    for rank, found in enumerate(shards):
        own = list(Member(rank, 2).places(7))
        for ours, theirs in zip(found, (y[own], of_x[own], mean, var), strict=False):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(shards[0][4] + shards[1][4], of_weight, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(shards[0][5] + shards[1][5], of_bias, rtol=1e-5, atol=1e-4)


class Lonely:
    """A group of one, without a second process."""

    def rows(self, values_V: torch.Tensor) -> torch.Tensor:
        return values_V[None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_batch_norm_of_one_worker_is_torchs(device: str, dtype: torch.dtype) -> None:
    at, exact = torch.device(device), dtype == torch.float32
    x, slope = torch.randn(2, 16, 5, 6, 7, generator=generator_of(0, 0, 0)).to(at, dtype)
    group: Any = Lonely()
    found = []
    for norms in (nullcontext(), SharedNorms(group, 5, at)):
        norm, own = nn.BatchNorm2d(5, device=at), x.clone().requires_grad_()
        with norms:
            (y := norm(own)).backward(slope)
        found.append([y, own.grad, norm.weight.grad, norm.bias.grad, norm.running_var])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5 if exact else 0.05, rtol=1e-4 if exact else 0.02)


@pytest.mark.gpu
def test_two_cards_give_the_curve_of_one(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one card")
    words = ("search", "resnet", "--data", "digits", "--trials", "1", "--epochs", "1", "--workers", "1")
    for name, cards in (("one", "1"), ("two", "2")):
        code, _, err = run(tmp_path, *words, "--name", name, "--gpus-per-trial", cards)
        assert code == 0, err
    one, two = (read_records(tmp_path / "runs" / name) for name in ("one", "two"))
    for alone, together in zip(one, two, strict=True):
        assert together.runtime["devices"] == 2
        assert together.curve[0]["loss"] == pytest.approx(alone.curve[0]["loss"], rel=0.02)  # bfloat16


def close(ours: JobResult, theirs: JobResult, images: int) -> None:
    """Equal up to the order of sums; an image on the edge may fall to the other side."""
    assert (ours.status, theirs.status) == ("ok", "ok"), ours.error
    for mine, other in zip(ours.curve, theirs.curve, strict=True):
        assert mine.loss == pytest.approx(other.loss, abs=1e-5)
        assert mine.accuracy == pytest.approx(other.accuracy, abs=1.1 / images)
    assert ours.metrics["nll"] == pytest.approx(theirs.metrics["nll"], abs=1e-5)
    assert ours.metrics["train_nll"] == pytest.approx(theirs.metrics["train_nll"], abs=1e-5)


def shared(job: TrainJob, data: DataSet) -> list[JobResult]:
    folder = Path(job.checkpoint).parent
    return in_two(folder, lambda member: result_of(replace(job, member=member), data))


@pytest.mark.parametrize(
    ("net", "recipe"),
    [
        (RESNET, replace(PLAIN, augment=RICH)),
        (RESNET, replace(PLAIN, grad_accum_steps=2, sam_rho=0.05, clip_grad=1.0)),
        (VIT, PLAIN),
    ],
    ids=["ResNet, mixed", "ResNet, SAM in two passes", "ViT"],
)
def test_two_processes_give_the_curve_of_one(net: Any, recipe: Recipe, tmp_path: Path, data: DataSet) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone = result_of(job_of(one, recipe, net), data)
    first, second = shared(job_of(two, recipe, net), data)
    assert first.curve == second.curve
    close(first, alone, len(data.val))
    assert first.how["devices"] == 2
    for name, tensor in load_file(one / "net.safetensors").items():
        torch.testing.assert_close(load_file(two / "net.safetensors")[name], tensor, atol=1e-5, rtol=1e-4)


def test_a_training_goes_on_with_another_number_of_devices(tmp_path: Path, data: DataSet) -> None:
    unbroken = result_of(job_of(tmp_path / "whole"), data)
    result_of(job_of(tmp_path / "parts", stop=2), data)
    shared(job_of(tmp_path / "parts", stop=6), data)
    close(result_of(job_of(tmp_path / "parts"), data), unbroken, len(data.val))


def failing(fate: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second process, the fourth batch norm of the third step meets its fate."""
    calls, real = count(1), shared_norm._statistics

    def statistics(*given: Any) -> Any:
        if multiprocessing.parent_process() and next(calls) == 2 * NORMS + 4:
            fate()
        return real(*given)

    monkeypatch.setattr(shared_norm, "_statistics", statistics)


def test_where_one_lacks_memory_in_the_midst_of_a_pass_all_go_on_in_more(
    tmp_path: Path, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack() -> None:
        raise RuntimeError("out of memory")

    failing(lack, monkeypatch)
    first, second = shared(job_of(tmp_path), data)
    assert (first.status, second.status) == ("ok", "ok"), first.error
    assert first.how["passes"] == second.how["passes"] == 2
    assert first.curve == second.curve
    assert first.curve[-1].loss < first.curve[0].loss


def test_a_device_that_dies_is_no_fault_of_the_net(
    tmp_path: Path, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(lambda: os._exit(1), monkeypatch)
    first, second = shared(job_of(tmp_path), data)
    assert second is None
    assert first.status == "lost"
    assert "is gone" in first.error


def test_a_fault_on_one_device_alone_is_told_by_that_one(
    tmp_path: Path, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault() -> None:
        raise ValueError("a picture is broken")

    failing(fault, monkeypatch)
    job = job_of(tmp_path)

    def outcome(member: Member) -> JobResult:
        worker = Worker(1, "cpu")
        worker.take(data)
        *_, result = worker.run(replace(job, member=member))
        assert isinstance(result, JobResult)
        return result

    first, second = in_two(tmp_path, outcome)
    assert (first.status, second.status) == ("lost", "error")
    assert min((first, second), key=lambda result: result.priority) is second
