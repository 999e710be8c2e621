"""The closed-form memory estimates beside measurements of the running net."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from alternas.archs import Genotype, build, static_cost, zoo
from alternas.results.latency import footprint, on_this_machine
from alternas.results.latency.footprint import EnergyMeter, energy_meter, peak_memory

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


@pytest.mark.slow
def test_peak_memory_is_that_of_the_weights(tmp_path: Path) -> None:
    """48 MB that are multiplied once: held at least once, and at most in the file, as read and as packed."""
    onnx = pytest.importorskip("onnx")
    side, image = 3464, (1, 1, 3464)
    weights = onnx.numpy_helper.from_array(np.ones((side, side), np.float32), "w")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["images", "w"], ["logits"])],
        "large",
        [value("images", onnx.TensorProto.FLOAT, [1, *image])],
        [value("logits", onnx.TensorProto.FLOAT, [1, *image])],
        [weights],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "large.onnx")
    held = 4 * side**2
    assert held <= peak_memory(tmp_path / "large.onnx", image) <= 3.2 * held


def test_a_meter_counts_what_a_call_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_this_machine, "ENERGY_SECONDS", 0.02)
    used = [0.0]

    def run() -> None:
        used[0] += 2.5

    assert on_this_machine.energy_of(run, EnergyMeter("fake", lambda: used[0])) == {"energy_mj": pytest.approx(2.5)}
    assert on_this_machine.energy_of(run, EnergyMeter("not available: no meter")) == {}
    assert EnergyMeter("fake", wraps_at=100).between(90, 5) == 15


def test_rapl_is_the_packages_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "RAPL", tmp_path)
    assert energy_meter().name == f"not available: no RAPL counter in {tmp_path}"
    for zone, micro in (("intel-rapl:0", 7000), ("intel-rapl:1", 500), ("intel-rapl:0:0", 10**6)):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "energy_uj").write_text(f"{micro}\n", encoding="utf-8")
        (tmp_path / zone / "max_energy_range_uj").write_text("262143328850\n", encoding="utf-8")
    meter = energy_meter()
    assert meter.read is not None
    assert meter.read() == 7.5, "of both packages, without the parts of one"
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("secret", encoding="utf-8")
    assert energy_meter().name.startswith("not available: ")


def test_nvml_is_not_there_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "NVML", "libnone.so.1")
    assert energy_meter("GPU-1") == EnergyMeter("not available: no libnone.so.1")


class Nvml:
    """NVML of a machine with two cards."""

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
        handle._obj.value = {b"GPU-a": 1, b"GPU-b": 2}.get(uuid)
        return 0 if handle._obj.value else 2

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, used: Any) -> int:  # noqa: N802
        used._obj.value = 100 * handle.value
        return 0


def test_the_energy_of_a_card_is_found_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one of the machine is another where CUDA_VISIBLE_DEVICES says so."""
    monkeypatch.setattr(footprint.ctypes, "CDLL", lambda _: Nvml())
    meter = energy_meter("GPU-b")
    assert meter.read is not None
    assert (meter.name, meter.read()) == ("NVML, GPU-b", 200.0)
    assert energy_meter("GPU-c").read is None
