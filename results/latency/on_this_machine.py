"""How long a net takes for a batch, on this machine: warm-up, repeats until the interval is tight, median and spread.

The clock, the threads and the waiting for a GPU are those of `torch.utils.benchmark`.
"""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from ...archs.cpus import usable_cpus
from ...archs.errors import InputError
from ..export.export_net import export_net_of
from ..export.formats import FORMATS, check_formats
from ..runs.status import Status
from .footprint import EnergyMeter, energy_meter, peak_memory
from .measurement import DeviceError, Latency
from .setting import FULL, ONNX_FORMATS, SHORT, Effort, LatencySetting, cpu_name

MIN_TIMES = 12  # that an interval is made of; fewer where a call takes more than its share of the time
TIGHT = 0.02  # width of the median's 95 % interval over the median, from which on it is certain
NORMAL = 1.96  # 95 % of a normal distribution lies within so many deviations
ENERGY_SECONDS = 1.0  # that a meter is read over; RAPL counts in milliseconds, NVML in tens of them
WARM_CALLS = 3  # before a CUDA graph is captured: cuDNN chooses its kernels
BUSY = 0.5  # load of other processes, over cores, that makes a measurement doubtful


def measure(network: nn.Module, shape: tuple[int, int, int], setting: LatencySetting, effort: Effort = FULL) -> Latency:
    """Latency of a network for images of `shape` (channels, height, width).

    The network is moved and converted. Images are random, weights whatever they are: neither changes the time. With
    full effort, energy is read where this machine has a meter of it, of runtime onnx peak memory, and the load of the
    machine: in a search its average over a minute still holds the training before. InputError if this machine has not
    the device, or not a CPU for each thread; DeviceError if the net does not run so.
    """
    if setting.threads > (cpus := usable_cpus()):
        raise InputError(f"threads: {setting.threads} asked for, this process may use {cpus} CPUs")
    if setting.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda: this machine has none that torch can use")
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
            memory = None
            if Path("/proc/self/clear_refs").exists():  # where the system says it
                with tempfile.TemporaryDirectory() as folder:
                    file = exported(network, ONNX_FORMATS[setting.dtype], Path(folder))
                    memory = peak_memory(file, shape, setting.batch, setting.threads)
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        status = Status.OOM if isinstance(error, torch.OutOfMemoryError) else Status.INFEASIBLE
        where = f"{setting.runtime} in {setting.dtype} on {setting.device}"
        raise DeviceError(status, f"latency, {where}: {reason}") from None
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
        busy=round(load, 2) if effort != SHORT and load > BUSY else 0.0,
        memory_bytes=memory,
        machine=torch.cuda.get_device_name(device) if on_gpu else cpu_name(),
        numbers=energy,
    )


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


def exported(network: Any, form: str, folder: Path) -> Path:
    """Write a network to a folder in an export format, to be measured, and return the file.

    InputError if a package for the format is missing, or the network is timm's own; RuntimeError if it cannot be
    exported.
    """
    check_formats(form)
    if not hasattr(network, "genotype"):
        raise InputError(f"latency: {form} is exported of nets of alternas and of runs, not of timm:NAME")
    FORMATS[form].write(export_net_of(network), folder)
    return folder / FORMATS[form].file


def _is_tight(times: Sequence[float]) -> bool:
    low, high = median_interval(times)
    return len(times) >= MIN_TIMES and high - low <= TIGHT * statistics.median(times)


def _runner(network: nn.Module, x_BCHW: torch.Tensor, setting: LatencySetting) -> Callable[[], object]:
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
    InputError if a package is missing, or the net cannot be exported; RuntimeError if torch cannot express it in ONNX.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = exported(network, ONNX_FORMATS[dtype], Path(folder))
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    images = x_BCHW.numpy()
    return lambda: session.run(None, {"images": images})
