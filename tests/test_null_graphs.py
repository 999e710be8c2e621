"""CUDA graphs and limits of memory on the null device: what is captured, what is not, what is said of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alternas.archs import static_cost
from alternas.results.latency.on_this_machine import measure
from alternas.results.latency.setting import SHORT, LatencySetting
from alternas.search.engine.worker import Worker, use_share
from alternas.search.training.job import JobResult
from alternas.search.training.launches import GraphedFunction
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import Trainer
from null_cuda.client import OnNullDevice
from null_cuda.kernels import counted
from null_cuda.training import NETS, SMALL, job, noise, recipe_of

MIB = 2**20


def graphs_of_trainings() -> dict[str, Any]:
    """Whether steps became a graph, by what a recipe changes."""
    worker, found = Worker(1, "cuda"), {}
    worker.take(noise(64, 16))
    for changes in ({}, {"optimizer": "momentum"}, {"optimizer": "lion"}, {"sam_rho": 0.05}, {"precision": "float16"}):
        recipe = dataclasses.replace(recipe_of(**changes), batch_size=16)
        end = list(worker.run(job(SMALL, recipe, 8)))[-1]
        assert isinstance(end, JobResult)
        found[" ".join(map(str, changes.values()))] = [end.status, end.how.get("graph", False)]
    return found


class Layouts(nn.Module):
    """A net that notes the layout of its images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.seen = nn.Conv2d(3, 8, 3), set[bool]()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        self.seen.add(x_BCHW.is_contiguous(memory_format=torch.channels_last))
        self.seen.add(self.conv.weight.is_contiguous(memory_format=torch.channels_last))
        return self.conv(x_BCHW)


def measured_as_a_graph() -> list[Any]:
    """Layouts that a net was measured in, how often it was called, and runs that were timed."""
    net = Layouts()
    latency = measure(net, (3, 8, 8), LatencySetting("cuda", 4, "float16", "graph"), effort=SHORT)
    return [sorted(net.seen), latency.repeats > 10, latency.to_dict()["runtime"]]


def shares() -> list[float]:
    """MiB that a process may hold by its share of a card of 4,096, where CUDA takes 512 beside."""
    found = []
    for share in (1.0, 0.5, 0.25, 0.05):
        use_share(share)
        found.append(round(4096 * torch.cuda.get_per_process_memory_fraction(), 1))
    return found


def left_behind() -> list[int]:
    """MiB that a worker's process holds after trainings of ever larger batches."""
    worker, found = Worker(1, "cuda"), []
    worker.take(noise(512, 16))
    for images in (16, 128, 512):
        list(worker.run(job(SMALL, dataclasses.replace(recipe_of(), batch_size=images), 6)))
        found.append(torch.cuda.memory_reserved() // MIB)
    return found


def step_bytes(name: str) -> list[int]:
    """Bytes of torch's that a step takes at most, and what is estimated of them."""
    net, data = NETS[name](), noise(512)
    trainer = Trainer(job(net, recipe_of()), MemoryLoader(data, torch.device("cuda")))
    trainer.graph.wanted = False
    trainer.net.train()
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        trainer.train_step(*next(trainer.batches))
    images = sum(len(split) for split in (data.train, data.val, data.test) if split)
    estimated = static_cost(net, 10, 32).gpu_training_bytes(256, images * 3 * 32 * 32)
    return [torch.cuda.max_memory_allocated(), estimated - 512 * MIB]


def copies_of_a_function() -> dict[str, int]:
    """What a call of a captured function asks of the device."""
    graphed, x = GraphedFunction(torch.device("cuda")), torch.ones(8)
    for _ in range(5):
        graphed(lambda x, factor: (x * factor).relu(), [x], 2.0)
    return counted(lambda: graphed(lambda x, factor: (x * factor).relu(), [x], 3.0))


def refused() -> list[Any]:
    """A step that waits for the device, done six times: whether each found no gradients, and whether it is a graph."""
    weight, calls = nn.Parameter(torch.ones(8, device="cuda")), []
    optimizer = torch.optim.AdamW([weight], fused=True)
    graphed = GraphedFunction(torch.device("cuda"), optimizer=optimizer)

    def waits(x: Tensor) -> Tensor:
        calls.append(weight.grad is None)
        loss = (x * weight).sum()
        loss.backward()
        loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    for _ in range(6):
        graphed(waits, [torch.ones(8)])
    return [calls, graphed.graph is None, graphed.wanted, optimizer.param_groups[0]["capturable"]]


def test_steps_that_are_always_the_same_are_a_graph(on_null_device: OnNullDevice) -> None:
    assert on_null_device(graphs_of_trainings) == {
        "": ["ok", True], "momentum": ["ok", True], "lion": ["ok", False], "0.05": ["ok", False],
        "float16": ["ok", False],
    }  # fmt: skip


def test_latency_is_measured_in_the_layout_of_cards(on_null_device: OnNullDevice) -> None:
    assert on_null_device(measured_as_a_graph) == [[True], True, "graph"]


def test_a_part_of_a_card_has_its_part_of_the_memory(on_null_device: OnNullDevice) -> None:
    found = on_null_device(shares, NULL_CUDA_MEMORY=str(4096 * MIB))
    assert found == [4096.0, 1536.0, 512.0, 102.4]


def test_a_worker_keeps_no_memory_between_jobs(on_null_device: OnNullDevice) -> None:
    first, *rest = on_null_device(left_behind)
    assert all(held <= first + 2 for held in rest), [first, *rest]


@pytest.mark.parametrize("net", ["resnet", "vit"])
def test_memory_of_a_step_is_as_estimated(on_null_device: OnNullDevice, net: str) -> None:
    taken, estimated = on_null_device(step_bytes, net)
    assert estimated == pytest.approx(taken, rel=0.15)


def test_a_captured_call_is_one_launch(on_null_device: OnNullDevice) -> None:
    found = {what: number for what, number in on_null_device(copies_of_a_function).items() if number}
    assert found == {"launches": 1, "graph_kernels": 2, "to_device": 2, "on_device": 1}


def test_what_cuda_refuses_stays_eager(on_null_device: OnNullDevice) -> None:
    assert on_null_device(refused) == [[True] * 7, True, False, False]
