"""Several devices train one net: the gradients and the curve of one, whoever lacks memory or dies meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from alternas.archs import Encoder, Genotype, Head, Stem, zoo
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training.group import open_group
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import generator_of, open_loader
from alternas.search.training.member import Member
from alternas.search.training.optim import Gradients
from alternas.search.training.recipe import Augment, Recipe
from alternas.search.training.trainer import train

CPU = torch.device("cpu")
SMOKE = recipes.get("smoke")
# Sums in another order: AdamW would make whole steps of the rounding errors of weights that have no gradient.
PLAIN = replace(SMOKE, optimizer="sgd", lr=0.05, batch_size=30, ema_decay=0.9, augment=Augment())
RICH = Augment(pad=1, flip=True, cutout=2, reprob=0.3, mixup=0.4, cutmix=1.0)
RESNET, VIT = (
    zoo.resnet("basic", (1, 1), width=8),
    Genotype(Stem("none"), (), Encoder(16, 2, 2, patch=2), Head("token")),
)
numbers = count()


@pytest.fixture(scope="module")
def data() -> DataSet:
    return load(DataConfig("digits")).without_test()


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


@pytest.mark.parametrize(
    ("net", "recipe"),
    [
        (RESNET, PLAIN),
        (RESNET, replace(PLAIN, grad_accum_steps=2, sam_rho=0.05, clip_grad=1.0)),
        (VIT, replace(PLAIN, augment=RICH)),
    ],
    ids=["ResNet", "ResNet, SAM in two passes", "ViT, mixed"],
)
def test_two_processes_give_the_curve_of_one(net: Any, recipe: Recipe, tmp_path: Path, data: DataSet) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone = result_of(job_of(one, recipe, net), data)
    first, second = in_two(two, lambda member: result_of(replace(job_of(two, recipe, net), member=member), data))
    assert (first.status, second.status) == ("ok", "ok")
    assert first.curve == second.curve
    for ours, theirs in zip(first.curve, alone.curve, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-5)
        assert ours.accuracy == pytest.approx(theirs.accuracy, abs=1.1 / len(data.val))
