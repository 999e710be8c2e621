"""What fills a card: one training is measured, and how many such nets a card holds follows from it. Knows no Ray."""

from __future__ import annotations

import math
import os
import resource
import tempfile
from collections.abc import Callable

from ...archs import Genotype, static_cost
from ...archs.errors import OperationError
from ...spaces import get as get_space
from ..data.dataset import DataSet
from ..training.job import JobResult, TrainJob
from ..training.recipes import get as get_recipe
from ..training.recipes import usual
from .worker import Worker

WARM_STEPS, STEPS = 5, 20  # that are not measured: kernels are chosen and memory is taken; and that are
MEMORY_SHARE = 0.9  # of a card that nets may take: what they take varies
MAX_NETS = 16  # nets on a card


def nets_at_once(used_bytes: float, total_bytes: float, busy: float, cpus: float) -> int:
    """Nets that fill a card: as many as its memory holds, its time is enough for, and there are CPUs to feed.

    Args:
        used_bytes: memory that one training takes.
        total_bytes: of the card.
        busy: share of the time that it works for one training.
        cpus: of the machine, for each of its cards.
    """
    by_memory, by_time = MEMORY_SHARE * total_bytes / used_bytes, 1 / max(busy, 1 / MAX_NETS)
    return max(1, min(MAX_NETS, math.floor(by_memory), round(by_time), math.floor(cpus)))


def describe_fill(data: DataSet) -> str:
    """What one training takes of this machine, and what would fill it, in a line.

    Raises:
        OperationError: if the training fails.
    """
    import torch

    return _card(data) if torch.cuda.is_available() else _machine()


def _machine() -> str:
    """Without a card: the memory that this process has come to by training, for as many workers as there are CPUs."""
    cpus, total = os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    each = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = f"a worker takes {each / 2**30:.1f} GiB with a small net, {cpus} of one CPU each {cpus * each / 2**30:.1f}"
    text = f"{text} of {total / 2**30:.1f} GiB"
    if cpus * each > MEMORY_SHARE * total:
        return f"{text}: --workers {max(1, math.floor(MEMORY_SHARE * total / each))}"
    return f"{text}: --workers 0"


def _card(data: DataSet) -> str:
    """With a card: its largest plain ResNet for such images, by their usual recipe, is trained for some steps."""
    import torch

    net = largest_baseline(data)
    with tempfile.TemporaryDirectory(prefix="alternas-fill") as folder:
        worker = Worker(1, "cuda")
        worker.take(data)
        _train(worker, data, net, f"{folder}/warm", WARM_STEPS)
        busy = _busy_share(lambda: _train(worker, data, net, f"{folder}/measured", STEPS))
    free, total = torch.cuda.mem_get_info()
    cards = torch.cuda.device_count()
    nets = nets_at_once(total - free, total, busy, (os.cpu_count() or 1) / cards)
    used = f"{(total - free) / 2**30:.1f} of {total / 2**30:.0f} GiB and {busy:.0%} of the time of"
    name = torch.cuda.get_device_name()
    return f"one net of {data.name} takes {used} {name}: --gpus-per-trial {share_of(nets)}, {nets} on a card"


def share_of(nets: int) -> str:
    """The share of a card for each of so many nets, never rounded up: "1", "0.5", "0.333"."""
    return f"{math.floor(1000 / nets) / 1000:g}"


def largest_baseline(data: DataSet) -> Genotype:
    """The plain ResNet of space `all` with the most MACs for such images."""
    facts = len(data.classes), data.image_size, data.in_chans
    return max(get_space("all", data.image_size).baselines(), key=lambda net: static_cost(net, *facts).macs)


def _train(worker: Worker, data: DataSet, net: Genotype, file: str, steps: int) -> None:
    job = TrainJob(0, net, get_recipe(usual(data.name)), 0, steps, steps, f"{file}.pt", f"{file}.safetensors")
    outcome = [*worker.run(job)][-1]
    assert isinstance(outcome, JobResult), "a run ends with an outcome"
    if outcome.status != "ok":
        raise OperationError(f"{outcome.status}: {outcome.error}")


def _busy_share(train: Callable[[], None]) -> float:
    """Share of the time that the card works, between its first and its last kernel."""
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        train()
    spans = [event.time_range for event in profiled.events() or () if event.device_type == DeviceType.CUDA]
    if not spans:
        raise OperationError("the profiler saw no kernel of the card")
    whole = max(span.end for span in spans) - min(span.start for span in spans)
    return min(1.0, sum(span.end - span.start for span in spans) / whole)
