"""The closed-form memory estimates beside measurements of the running net."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from alternas.archs import Genotype, build, static_cost, zoo

BATCH = 4
CASES = [
    *((name, 32) for name in ("resnet18", "preresnet18", "resnet50", "preresnet50", "alternet18", "alternet50")),
    ("resnet50", 96),
    ("alternet34", 64),
    ("vit_tiny_patch16", 224),
    ("vit_tiny_r_s16_p8", 224),
    ("efficientvit_b0", 96),
    *((name, 64) for name in ("convnext_atto", "mobilenetv4_hybrid_medium", "mambaout_femto")),
]


class Alive(TorchDispatchMode):
    """Bytes of tensors alive at once, at most, of those made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage(), given)
        return out

    def _note(self, storage: Any, given: set[int]) -> None:
        where, size = storage._cdata, storage.nbytes()
        if where in self.known or where in given:
            return
        self.known.add(where)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, where, size)

    def _forget(self, where: int, size: int) -> None:
        self.now -= size
        self.known.discard(where)


def kept_bytes(model: nn.Module, x: torch.Tensor) -> int:
    """Bytes of distinct tensors that autograd keeps, without parameters."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if (where := tensor.untyped_storage().data_ptr()) not in own:
            kept[where] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.train()(x)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def of(name: str, size: int) -> tuple[Genotype, nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    net = zoo.get(name, size)
    return net, build(net, 100, size), torch.randn(BATCH, 3, size, size)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_what_training_keeps(name: str, size: int) -> None:
    net, model, x = of(name, size)
    measured = kept_bytes(model, x) / BATCH
    tolerance = 0.2 if name == "vit_tiny_r_s16_p8" else 0.05  # its padded copies are not in the formula
    assert static_cost(net, 100, size).training_activation_bytes == pytest.approx(measured, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), CASES)
def test_what_is_alive_at_once(name: str, size: int) -> None:
    net, model, x = of(name, size)
    with torch.no_grad(), Alive() as alive:
        model.eval()(x)
    assert static_cost(net, 100, size).peak_activation_bytes == pytest.approx(alive.most / BATCH, rel=0.12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [("resnet18", 32), ("alternet50", 32), ("vit_tiny_patch16", 224), ("bit_r50x1", 96)]
)
def test_memory_of_a_training_step(name: str, size: int) -> None:
    net, model, x = of(name, size)
    optimiser = torch.optim.AdamW(model.train().parameters())

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        model(x).sum().backward()
        optimiser.step()

    step()  # the moments exist from now on
    optimiser.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step()
    now = most = 0
    events: Any = prof.profiler.kineto_results.events()
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    cost = static_cost(net, 100, size)
    measured = most + 12 * cost.params  # weights and moments, which were there before
    assert cost.training_bytes(BATCH) == pytest.approx(measured, rel=0.2)
