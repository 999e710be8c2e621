"""How long a net takes for a batch, on this machine: warm-up, repeats until the interval is tight, median and spread.

The clock, the threads and the waiting for a GPU are those of `torch.utils.benchmark`.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from ...archs import Network
from ...archs.cpus import usable_cpus
from ...archs.errors import InputError, OperationError
from ..export.export_net import export_net_of
from ..export.formats import check_formats, format_of
from .footprint import EnergyMeter, energy_meter, peak_memory
from .measurements import FULL, ONNX_FORMATS, Effort, LatencySetting, cpu_name

if TYPE_CHECKING:
    from .device_command import DeviceCommand

MIN_TIMES = 12  # that an interval is made of; fewer where a call takes more than its share of the time
TIGHT = 0.02  # width of the median's 95 % interval over the median, from which on it is certain
NORMAL = 1.96  # 95 % of a normal distribution lies within so many deviations
ENERGY_SECONDS = 1.0  # that a meter is read over; RAPL counts in milliseconds, NVML in tens of them
WARM_CALLS = 3  # before a CUDA graph is captured: cuDNN chooses its kernels
BUSY = 0.5  # load of other processes, over cores, that makes a measurement doubtful


@dataclass(frozen=True)
class Latency:
    """Milliseconds a batch takes."""

    setting: LatencySetting | DeviceCommand  # what it was measured under
    latency_ms: float  # the median; 0 of a device that measures other things alone
    low_ms: float  # of the 95 % interval of the median
    high_ms: float  # likewise
    latency_spread_ms: float  # distance of the quartiles
    repeats: int  # times that these were taken from
    tight: bool  # whether the interval came to `TIGHT` before the time was up
    # where the figures are doubtful, load of the machine before, over its cores; of a device how far repeats differ
    busy: float = 0.0
    memory_bytes: int | None = None  # peak on a GPU, weights included; of runtime onnx, over the runtime's own
    machine: str = ""  # name of the device, or the command that measures on it
    # what else was measured, by name: energy_mj of a batch where there is a meter; all that a command prints
    numbers: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0  # that measuring took, export included; 0 where it is not known
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))  # in UTC

    @property
    def images_per_second(self) -> float:
        return 1e3 * self.setting.batch / self.latency_ms if self.latency_ms else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Flat dict, as the log keeps it."""
        rest = asdict(self)
        del rest["setting"]
        return self.setting.parts | rest | {"images_per_second": self.images_per_second}


def measure(
    network: nn.Module,
    shape: tuple[int, int, int],
    setting: LatencySetting,
    effort: Effort = FULL,
) -> Latency:
    """Latency of a network for images of `shape` (channels, height, width).

    The network is moved and converted. Images are random, weights whatever they are: neither changes the time. With
    full effort, energy is read where this machine has a meter of it, and of runtime onnx peak memory.

    Raises:
        InputError: if this machine has not the device, or not a CPU for each thread.
        OperationError: if the net does not run so.
    """
    check_device(setting)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    device, dtype = torch.device(setting.device), torch.float32
    if setting.runtime != "onnx":  # which takes float32 and is converted itself
        dtype = getattr(torch, setting.dtype)
    on_gpu = device.type == "cuda"
    try:
        x_BCHW = torch.rand(setting.batch, *shape).to(device, dtype)
        network = network.eval().to(device, dtype)
        if on_gpu:
            x_BCHW = x_BCHW.contiguous(memory_format=torch.channels_last)
            network = network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
            torch.backends.cudnn.benchmark = True
            torch.set_float32_matmul_precision("high")  # as workers train
            torch.cuda.reset_peak_memory_stats()
        run = _runner(network, x_BCHW, setting)
        times, memory = _times(run, setting.threads, effort), torch.cuda.max_memory_allocated() if on_gpu else None
        energy = energy_of(run, meter_of(setting), on_gpu) if effort == FULL else {}
        if effort == FULL and setting.runtime == "onnx":
            memory = exported_memory(network, shape, setting)
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise OperationError(f"latency, {setting.runtime} in {setting.dtype} on {setting.device}: {reason}") from None
    low, high = median_interval(times)
    quartiles = statistics.quantiles(times, n=4)
    return Latency(
        setting,
        latency_ms=1e3 * statistics.median(times),
        low_ms=1e3 * low,
        high_ms=1e3 * high,
        latency_spread_ms=1e3 * (quartiles[2] - quartiles[0]),
        repeats=len(times),
        tight=_is_tight(times),
        busy=round(load, 2) if load > BUSY else 0.0,
        memory_bytes=memory,
        machine=torch.cuda.get_device_name(device) if on_gpu else cpu_name(),
        numbers=energy,
    )


def check_device(setting: LatencySetting) -> None:
    """Raise InputError if this machine has not the device, or not a CPU for each thread."""
    if setting.threads > (cpus := usable_cpus()):
        raise InputError(f"threads: {setting.threads} asked for, this process may use {cpus} CPUs")
    if setting.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda: this machine has none that torch can use")


def meter_of(setting: LatencySetting) -> EnergyMeter:
    """The meter of the device that is measured."""
    return energy_meter(f"GPU-{torch.cuda.get_device_properties(0).uuid}" if setting.device == "cuda" else "")


def median_interval(times: Sequence[float]) -> tuple[float, float]:
    """Bounds of the median at 95 %, by order statistics (Conover, "Practical Nonparametric Statistics", 3.2)."""
    ordered, count = sorted(times), len(times)
    half = NORMAL * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - half), math.ceil(count / 2 + half)
    return ordered[max(0, low - 1)], ordered[min(count, high) - 1]


def _times(run: Callable[[], object], threads: int, effort: Effort) -> list[float]:
    """Seconds of each of many calls."""
    timer = Timer("run()", globals={"run": run}, num_threads=threads)
    until, call = time.perf_counter() + effort.warm_s, timer.timeit(1).mean
    while time.perf_counter() < until:
        call = timer.timeit(1).mean
    until, times = time.perf_counter() + effort.most_s, list[float]()
    least = min(MIN_TIMES, max(2, int(effort.most_s / call)))
    while len(times) < least or not (_is_tight(times) or time.perf_counter() > until):
        times += timer.blocked_autorange(min_run_time=effort.least_s).times
    return times


def energy_of(run: Callable[[], object], meter: EnergyMeter, on_gpu: bool = False) -> dict[str, float]:
    """`energy_mj` of a call, over calls for `ENERGY_SECONDS`, with what else the meter counts; {} without a meter."""
    if meter.read is None:
        return {}
    calls, before, until = 0, meter.read(), time.perf_counter() + ENERGY_SECONDS
    while time.perf_counter() < until:
        run()
        if on_gpu:
            torch.cuda.synchronize()
        calls += 1
    used = meter.between(before, meter.read()) / calls
    return {"energy_mj": used} if used > 0 else {}


def exported_memory(network: nn.Module, shape: tuple[int, int, int], setting: LatencySetting) -> int | None:
    """Peak memory of a network in onnxruntime, see `footprint.peak_memory`; None where the system does not say it."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    assert isinstance(network, Network), "checked by session_of"
    with tempfile.TemporaryDirectory() as folder:
        form = format_of(ONNX_FORMATS[setting.dtype])
        form.write(export_net_of(network), Path(folder))
        return peak_memory(Path(folder) / form.file, shape, setting.batch, setting.threads)


def _is_tight(times: Sequence[float]) -> bool:
    low, high = median_interval(times)
    return len(times) >= MIN_TIMES and high - low <= TIGHT * statistics.median(times)


def _runner(network: nn.Module, x_BCHW: torch.Tensor, setting: LatencySetting) -> Callable[[], object]:
    """A function that runs one forward pass, without gradients."""
    if setting.runtime == "onnx":
        return session_of(network, x_BCHW, setting.threads, setting.dtype)
    called: Any = torch.compile(network) if setting.runtime == "compile" else network

    def run() -> object:
        with torch.inference_mode():
            return called(x_BCHW)

    return _graphed(run) if setting.runtime == "graph" else run


def _graphed(run: Callable[[], object]) -> Callable[[], object]:
    """The same as a CUDA graph, which the host launches at once."""
    for _ in range(WARM_CALLS):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def session_of(network: nn.Module, x_BCHW: Tensor, threads: int, dtype: str = "float32") -> Callable[[], object]:
    """A function that runs the batch in onnxruntime, in the precision of a format of `ONNX_FORMATS`.

    For int8 the net is calibrated on random images: the time depends on what is quantized, not on the ranges.

    Raises:
        InputError: if a package is missing, or the net is not one of ours.
        RuntimeError: if torch cannot express it in ONNX.
    """
    check_formats(ONNX_FORMATS[dtype])
    if not isinstance(network, Network):
        raise InputError("runtime onnx: takes nets of alternas alone, not timm's")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        form = format_of(ONNX_FORMATS[dtype])
        form.write(export_net_of(network), Path(folder))
        file = str(Path(folder) / form.file)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    images = x_BCHW.numpy()
    return lambda: session.run(None, {"images": images})
