"""How fast a card is: products, copies, launches, training steps of three nets, several processes, the loader."""

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from ... import spaces
from ...archs import Genotype, Stage, Stem, static_cost
from ...archs.cpus import usable_cpus
from ...archs.errors import OperationError
from ..data.dataset import DataSet
from ..training.loaders import open_loader
from ..training.loop import Trainer
from ..training.recipe import Augment
from .doctor_gpu_checks import CLASSES, RECIPE, SIDE, Found, noise, processes_of, train, trainer_of

FAST = replace(RECIPE, precision="bfloat16", augment=Augment(pad=4, flip=True))

DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"}
WAYS = ("eager", "graph", "compiled")
WARM_STEPS = 6  # until nothing is new: see launches.py
DRAWN_NETS = 101  # of a space, for its median
START_SECONDS = 180  # for processes to load torch


@dataclass(frozen=True)
class Effort:
    """How large and how long measurements are; small ones for tests."""

    side: int = 8192  # of a matrix
    copied: int = 2**28  # bytes
    launches: int = 10_000
    seconds: float = 3.0  # of each measurement
    batch: int = 256
    widths: tuple[int, ...] = (6, 16, 60)  # of ResNet-18s: 5, 35 and 490 M MACs
    processes: tuple[int, ...] = (1, 2, 4, 8)


def seconds_of(call: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Seconds of a call in the mean, on the device, over some time."""
    call()
    synchronize(device)
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            call()
        synchronize(device)
        calls += 10
    return (time.perf_counter() - began) / calls


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def products(device: torch.device, effort: Effort) -> Found:
    """TFLOP/s of a large product by precision."""
    rates = {name: matmul_rate(device, name, effort.side, effort.seconds / 4) / 1e12 for name in DTYPES}
    return Found(", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()) + " TFLOP/s", rates)


def matmul_rate(device: torch.device, precision: str, side: int, seconds: float) -> float:
    """FLOP/s of a product of two square matrices."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        a, b = (torch.randn(side, side, device=device, dtype=DTYPES[precision]) for _ in range(2))
        return 2 * side**3 / seconds_of(lambda: torch.mm(a, b), device, seconds)
    finally:
        torch.set_float32_matmul_precision(before)


def copies(device: torch.device, effort: Effort) -> Found:
    """GB/s from the host, to it, and on the card."""
    there = torch.empty(effort.copied, dtype=torch.uint8, device=device)
    plain = torch.empty(effort.copied, dtype=torch.uint8)
    pinned, other = plain.pin_memory() if device.type == "cuda" else plain, torch.empty_like(there)
    ways: dict[str, Callable[[], object]] = {
        "from pinned memory": lambda: there.copy_(pinned, non_blocking=True),
        "from other memory": lambda: there.copy_(plain),
        "back": lambda: pinned.copy_(there, non_blocking=True),
        "on the card": lambda: other.copy_(there),
    }
    rates = {name: effort.copied / seconds_of(copy, device, effort.seconds / 4) / 1e9 for name, copy in ways.items()}
    return Found(", ".join(f"{name} {rate:.1f}" for name, rate in rates.items()) + " GB/s", rates)


def launches(device: torch.device, effort: Effort) -> Found:
    """Microseconds that the host takes to launch a kernel."""
    x = torch.zeros(1, device=device)
    synchronize(device)
    began = time.perf_counter()
    for _ in range(effort.launches):
        x.add_(1)
    synchronize(device)
    micros = (time.perf_counter() - began) / effort.launches * 1e6
    return Found(f"{micros:.1f} us a launch", {"microseconds": micros})


def resnet(width: int) -> Genotype:
    """ResNet-18 for small pictures."""
    return Genotype(Stem("cifar", width), tuple(Stage("basic", 2, width * 2**i, 2 if i else 1) for i in range(4)))


def mega_macs(width: int) -> float:
    return static_cost(resnet(width), CLASSES, SIDE).macs / 1e6


def steps(width: int, way: str, peak: float, device: torch.device, effort: Effort) -> Found:
    """Images a second of training steps in bfloat16, launches of a step, and the share of time that the card is busy.

    `way`: "eager", "graph", or "compiled", which is a graph too. `peak`: FLOP/s of a large product.
    """
    net, data = resnet(width), noise(4 * effort.batch)
    recipe = replace(FAST, batch_size=effort.batch, compile=way == "compiled")
    with trainer_of(net, recipe, device, data, 10**6) as trainer:
        trainer.graph.wanted &= way != "eager"
        train(trainer, WARM_STEPS)
        rate = effort.batch / seconds_of(lambda: train(trainer, 1), device, effort.seconds)
        launched, busy = _profiled(trainer, effort.batch / rate)
    macs = static_cost(net, CLASSES, SIDE).macs
    share = 6 * macs * rate / peak  # forward, and twice as much backward; two operations a MAC
    text = f"{rate:,.0f} images/s, {launched:.0f} launches a step, busy {busy:.0%}, {share:.1%} of the peak"
    return Found(text, {"macs": macs, "images_per_second": rate, "launches": launched, "busy": busy, "of_peak": share})


def _profiled(trainer: Trainer, seconds: float) -> tuple[float, float]:
    """Launches of a step that takes so long unobserved, and the share of that in which kernels run."""
    count, kinds = 5, [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        train(trainer, count)
        synchronize(trainer.loader.device)
    rows: Any = profile.key_averages()
    launched = sum(row.count for row in rows if row.key in LAUNCHES)
    on_card = sum(row.self_device_time_total for row in rows if row.device_type.name == "CUDA")
    return launched / count, min(1.0, on_card / 1e6 / count / seconds)


def processes(device: torch.device, effort: Effort) -> Found:
    """Images a second of 1 to 8 processes that train the default space's median net on the card, together."""
    rates = {count: _together(count, device, effort) for count in effort.processes}
    best = max(rates, key=lambda count: rates[count])
    text = ", ".join(f"{count}: {rate:,.0f}" for count, rate in rates.items()) + " images/s"
    mps = "MPS runs" if _mps_runs() else "without MPS (docs/gpus.md)"
    advice = f"{text}; fastest with --gpus-per-trial {1 / best:g}; {mps}"
    return Found(advice, {"images_per_second": rates, "mps": _mps_runs(), "gpus_per_trial": 1 / best})


def median_net() -> Genotype:
    """The net in the middle, by MACs, of those drawn at random from the default space."""
    space = spaces.get("all", SIDE)
    drawn = [space.sample(spaces.RandomChooser(seed)) for seed in range(DRAWN_NETS)]
    return sorted(drawn, key=lambda net: static_cost(net, CLASSES, SIDE).macs)[DRAWN_NETS // 2]


def _together(count: int, device: torch.device, effort: Effort) -> float:
    """Images a second of so many processes in all, measured while all of them train."""
    spawned = get_context("spawn")
    together, rates = spawned.Barrier(count), spawned.Queue()
    with processes_of(_train_beside, [(together, rates, str(device), effort, count)] * count):
        found = [rates.get(timeout=START_SECONDS + 10 * effort.seconds) for _ in range(count)]
    if failed := [error for error in found if isinstance(error, str)]:
        raise OperationError(f"{count} processes: {failed[0]}")
    return sum(found)


def _train_beside(together: Any, rates: Any, name: str, effort: Effort, count: int) -> None:
    """Train while the other processes do, and report images a second, or the error."""
    device = torch.device(name)
    torch.set_num_threads(1)
    try:
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1 / count)
        with trainer_of(median_net(), replace(FAST, batch_size=effort.batch), device, None, 10**6) as trainer:
            train(trainer, WARM_STEPS)
            synchronize(device)
            together.wait(START_SECONDS)
            rates.put(effort.batch / seconds_of(lambda: train(trainer, 1), device, effort.seconds))
            time.sleep(effort.seconds)  # so that none has the card to itself
    except (RuntimeError, OperationError) as error:  # of torch; a barrier that breaks is one too
        rates.put(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def _mps_runs() -> bool:
    """Whether CUDA's multi-process service is there: kernels of several processes then run at once."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def loader(data: DataSet, device: torch.device, effort: Effort) -> Found:
    """Images a second that reach the card from a data set, augmented."""
    threads = usable_cpus()
    recipe = replace(FAST, batch_size=min(effort.batch, len(data.train)))
    opened = open_loader(data, device, threads)
    batches = opened.batches(recipe, 0, 0, 10**9)
    for _ in itertools.islice(batches, 2):
        pass
    synchronize(device)
    began, images = time.perf_counter(), 0
    for x_BCHW, _ in batches:
        images += len(x_BCHW)
        synchronize(device)
        if time.perf_counter() - began > effort.seconds:
            break
    rate = images / (time.perf_counter() - began)
    return Found(
        f"{data.name} by {data.loader}, {threads} processes: {rate:,.0f} images/s", {"images_per_second": rate}
    )
