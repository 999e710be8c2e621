"""Memory and energy of running a net: peak memory of the exported model under its runtime, energy by a meter.

`python -m alternas.results.latency.footprint MODEL` measures the memory of an ONNX file in a process of its own. Knows
no torch.
"""

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...archs.errors import OperationError

RAPL = Path("/sys/class/powercap")
NVML = "libnvidia-ml.so.1"
TIMEOUT_SECONDS = 600.0


def peak_memory(model: Path, image: tuple[int, int, int], batch: int = 1, threads: int = 1) -> int:
    """Bytes that an ONNX file takes under onnxruntime on the CPU while it runs a batch, over what the runtime takes.

    Peak resident memory of a new process: with the model loaded and run, less that before it was loaded. Linux alone.
    OperationError if it cannot be measured.
    """
    words = [sys.executable, "-P", "-m", __name__, str(model), json.dumps([batch, *image]), str(threads)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OperationError(f"memory of {model.name}: {reason}")
    return int(done.stdout.split()[-1])


def _own_peak(field: str = "VmHWM") -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def _measure_here(model: str, shape: list[int], threads: int) -> int:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    x_BCHW = np.zeros(shape, np.float32)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew from what is resident now
    before = _own_peak()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, {session.get_inputs()[0].name: x_BCHW})
    return _own_peak() - before


@dataclass(frozen=True)
class EnergyMeter:
    """A counter of energy."""

    name: str  # what it counts, or why there is none
    read: Callable[[], float] | None = None  # its millijoules so far; None where there is none
    wraps_at: float = 0.0  # after so many it starts from 0 again; 0 for never

    def between(self, before: float, after: float) -> float:
        """Millijoules between two readings."""
        return after - before if after >= before else after - before + self.wraps_at


def energy_meter(gpu: str = "") -> EnergyMeter:
    """The meter of this machine's CPU packages (RAPL) or of the GPU of that uuid (NVML); of no meter, why not."""
    return _nvml(gpu) if gpu else _rapl(RAPL)


def _rapl(folder: Path) -> EnergyMeter:
    """All CPU packages together, with what else runs on them."""
    zones = sorted(zone for zone in folder.glob("intel-rapl:*") if zone.name.count(":") == 1)
    if not zones:
        return EnergyMeter(f"not available: no RAPL counter in {folder}")
    try:
        wraps_at = sum(int((zone / "max_energy_range_uj").read_text(encoding="utf-8")) for zone in zones) / 1e3
        read = lambda: sum(int((zone / "energy_uj").read_text(encoding="utf-8")) for zone in zones) / 1e3  # noqa: E731
        read()
    except (OSError, ValueError) as error:
        return EnergyMeter(f"not available: {zones[0] / 'energy_uj'} cannot be read ({error})")
    return EnergyMeter("RAPL, CPU packages", read, wraps_at if len(zones) == 1 else 0.0)


def _nvml(gpu: str) -> EnergyMeter:
    try:
        library: Any = ctypes.CDLL(NVML)
    except OSError:
        return EnergyMeter(f"not available: no {NVML}")
    handle, used = ctypes.c_void_p(), ctypes.c_ulonglong()
    known = library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle)) == 0

    def read() -> float:
        library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(used))
        return float(used.value)

    if not known or library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(used)) != 0:
        return EnergyMeter("not available: this GPU has no counter of energy")
    return EnergyMeter(f"NVML, {gpu}", read)


if __name__ == "__main__":
    print(_measure_here(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])))
