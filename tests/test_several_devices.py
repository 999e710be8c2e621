"""Several devices train one net: the gradients and the curve of one, whichever of them fails or dies meanwhile."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from timm.layers.norm_act import convert_sync_batchnorm
from torch import nn

from alternas.archs import Encoder, Genotype, Head, Stem, Style, build, zoo
from alternas.results.runs.store import read_records
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from alternas.search.engine.worker import Worker
from alternas.search.training import recipes
from alternas.search.training.group import open_group
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import generator_of, open_loader
from alternas.search.training.loop import train
from alternas.search.training.member import Member
from alternas.search.training.optim import Gradients
from alternas.search.training.recipe import Augment, Recipe
from command_line import run

CPU = torch.device("cpu")
SMOKE = recipes.get("smoke")
# Sums in another order: AdamW would make whole steps of the rounding errors of weights that have no gradient.
PLAIN = replace(SMOKE, optimizer="sgd", lr=0.05, batch_size=30, ema_decay=0.9, augment=Augment())
RICH = Augment(pad=1, flip=True, reprob=0.3, mixup=0.4, cutmix=1.0)
NORMS = 6  # batch norms of RESNET
RESNET, GROUPED, VIT = (
    zoo.resnet("basic", (1, 1), width=8),
    zoo.resnet("basic", (1, 1), width=32, style=Style("pre", "group")),
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


def in_two(folder: Path, do: Callable[[Member], Any], address: str = "") -> list[Any]:
    """What two processes, of which this is the first, make of a job; None of one that died."""
    meet = folder / f"rendezvous-{next(numbers)}"
    meet.parent.mkdir(exist_ok=True)
    meet.touch()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def second() -> None:
        there.send(do(Member(1, 2, address or str(meet))))
        there.close()
        os._exit(0)

    other = context.Process(target=second)
    other.start()
    there.close()
    try:
        first = do(Member(0, 2, address or str(meet)))
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


@pytest.mark.parametrize(("passes", "host"), [(1, ""), (2, ""), (1, "127.0.0.1")])
def test_the_gradients_of_two_shards_are_those_of_the_whole(tmp_path: Path, passes: int, host: str) -> None:
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
            gradients.share_images(member.world, 7)
            own = list(member.places(7))
            loss = group.total(gradients(x[own], target[own]))
        assert net.weight.grad is not None
        return net.weight.grad[0].tolist(), loss.item()

    with socket.create_server((host, 0)) as free:
        address = f"tcp://{host}:{free.getsockname()[1]}" if host else ""
    for gradient, loss in in_two(tmp_path, shard, address):
        assert gradient == pytest.approx(expected[0].tolist())
        assert loss == pytest.approx(F.mse_loss(x @ w.T, target).item())


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


@pytest.mark.parametrize(("net", "recipe"), [
    (GROUPED, replace(PLAIN, augment=RICH)),
    (GROUPED, replace(PLAIN, grad_accum_steps=2, sam_rho=0.05, clip_grad=1.0)),
    (VIT, replace(PLAIN, refit=False)),  # its features hardly differ yet: rounding decides on the closed form
], ids=["ResNet, mixed", "ResNet, SAM in two passes", "ViT"])  # fmt: skip
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
    unbroken = result_of(job_of(tmp_path / "whole", net=GROUPED), data)
    result_of(job_of(tmp_path / "parts", net=GROUPED, stop=2), data)
    shared(job_of(tmp_path / "parts", net=GROUPED, stop=6), data)
    close(result_of(job_of(tmp_path / "parts", net=GROUPED), data), unbroken, len(data.val))


def test_batch_norm_on_cpus_is_each_workers_own_and_one_net_is_kept(tmp_path: Path, data: DataSet) -> None:
    first, second = shared(job_of(tmp_path), data)
    assert first.curve == second.curve, "they evaluate by the statistics of the first"
    assert first.curve[-1].loss < first.curve[0].loss


def test_norms_that_are_shared_keep_the_names_of_a_checkpoint() -> None:
    net = build(RESNET, 10, 8, 1)
    names = {name: value.shape for name, value in net.state_dict().items()}
    shared: Any = convert_sync_batchnorm(net)
    assert {name: value.shape for name, value in shared.state_dict().items()} == names
    assert sum(isinstance(module, nn.SyncBatchNorm) for module in shared.modules()) == NORMS


def failing(fate: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second process, the fourth batch norm of the third step meets its fate."""
    calls, real = count(1), F.batch_norm

    def batch_norm(*given: Any, **named: Any) -> Any:
        if multiprocessing.parent_process() and next(calls) == 2 * NORMS + 4:
            fate()
        return real(*given, **named)

    monkeypatch.setattr(F, "batch_norm", batch_norm)


def test_a_device_that_dies_is_no_fault_of_the_net(
    tmp_path: Path, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(lambda: os._exit(1), monkeypatch)
    first, second = shared(job_of(tmp_path), data)
    assert second is None
    assert first.status == "lost"
    assert "is gone" in first.error


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("a picture is broken"), "error"), (RuntimeError("out of memory"), "oom")]
)
def test_a_fault_on_one_device_alone_is_told_by_that_one(
    error: Exception, status: str, tmp_path: Path, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault() -> None:
        raise error

    failing(fault, monkeypatch)
    job = job_of(tmp_path)

    def outcome(member: Member) -> JobResult:
        worker = Worker(1, "cpu")
        worker.take(data)
        *_, result = worker.run(replace(job, member=member))
        assert isinstance(result, JobResult)
        return result

    first, second = in_two(tmp_path, outcome)
    assert (first.status, second.status) == ("lost", status)
    assert min((first, second), key=lambda result: result.priority) is second
