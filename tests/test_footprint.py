"""Peak memory of exported models, and meters of energy, against figures known beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alternas.results.latency import footprint, on_this_machine
from alternas.results.latency.footprint import EnergyMeter, energy_meter, peak_memory


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
