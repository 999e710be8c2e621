"""`Resources`: what each trial asks for; and how many such trials the nodes of a cluster hold. Knows no Ray.

Also kept here: the share of a card at which small nets train fastest, as `alternas doctor --gpu` measured it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

from ...archs.errors import InputError
from ...archs.json_files import read_json
from ...results.latency.setting import LatencySetting
from ...results.runs.store import write_json
from ..data.cache import home

Node = Mapping[str, float]  # what a node has, by name: "CPU", "GPU", and labels given to it
ROUND = 1e-9


@dataclass(frozen=True)
class Resources:
    """Where to run, and what each trial gets: one worker, or a worker for each of its devices."""

    address: str = ""  # of a running Ray cluster, or "" for one of our own on this machine
    workers: int = 0  # trials at a time; 0 means as many as fit
    cpus: float = 1.0  # of each worker; also its number of torch threads, at least one
    gpus: float | None = None  # of each trial: a share, or several that train its net; None: one if there are any

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise InputError(f"workers: must be 0 (as many as fit) or more, got {self.workers}")
        if not math.isfinite(self.cpus) or self.cpus <= 0:
            raise InputError(f"cpus-per-trial: must be above 0, got {self.cpus}")
        if self.gpus is None:
            return
        if not math.isfinite(self.gpus) or self.gpus < 0:
            raise InputError(f"gpus-per-trial: must be 0 or more, got {self.gpus}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise InputError(f"gpus-per-trial: above 1 it must be a whole number, got {self.gpus}")

    @property
    def world(self) -> int:
        """Workers of each trial: one for each of its GPUs."""
        return max(1, int(self.gpus or 0))

    @property
    def gpus_of_worker(self) -> float:
        """GPUs of each of them: one, or a share of one; 0 on CPUs."""
        return min(1.0, self.gpus or 0.0)


def check_one_device(resources: Resources) -> None:
    """Raise InputError if several GPUs are asked for, where nets are trained by the user's own training."""
    if resources.world > 1:
        raise InputError(f"gpus-per-trial: a trainer of your own trains on one device, got {resources.world}")


def resolve_gpus(resources: Resources, nodes: Sequence[Node]) -> Resources:
    """Decide the GPUs of each worker by what the cluster has, where the user left it open."""
    if resources.gpus is not None:
        return resources
    return replace(resources, gpus=1.0 if sum(n.get("GPU", 0) for n in nodes) >= 1 else 0.0)


def check_alone(resources: Resources, setting: LatencySetting, nodes: Sequence[Node]) -> None:
    """Raise InputError if the one worker cannot both train and measure latency."""
    if resources.workers > 1:
        rule = "nothing may train beside it, so one worker trains and measures in turn"
        raise InputError(f"workers: {resources.workers} asked for with latency as objective; {rule}")
    if setting.device == "cuda" and not resources.gpus:
        raise InputError(f"latency {setting}: the worker has no GPU")
    if setting.threads > (most := max((node.get("CPU", 0) for node in nodes), default=0)):
        raise InputError(f"latency {setting}: {setting.threads} threads asked for, {most:g} CPUs there")


def worker_slots(resources: Resources, nodes: Sequence[Node]) -> int:
    """Trials at a time; at least one must fit; InputError if they do not fit, naming the option."""
    cpus, gpus, world = resources.cpus, resources.gpus or 0.0, resources.world
    slots = sum(_device_slots(resources, nodes))
    fits = slots // world
    if fits < 1 and slots:
        raise InputError(f"gpus-per-trial: {world} asked for, {slots} there")
    if fits < 1:
        name, share = ("GPU", gpus) if any(node.get("CPU", 0) + ROUND >= cpus for node in nodes) else ("CPU", cpus)
        most = max((node.get(name, 0) for node in nodes), default=0.0)
        where = " on the largest node" if len(nodes) > 1 else ""
        raise InputError(f"{name.lower()}s-per-trial: {share:g} asked for, {most:g}{where} there")
    if resources.workers > fits:
        rule = f"at {cpus * world:g} CPUs and {gpus:g} GPUs each only {fits} fit"
        raise InputError(f"workers: {resources.workers} asked for, {rule}; lower --cpus-per-trial")
    return resources.workers or fits


def threads_of(resources: Resources, nodes: Sequence[Node], size: int) -> int:
    """Threads of a worker, and processes that read pictures for it; `size` trials run at a time.

    Its CPUs; on a GPU its part of all that the node has, for others would be idle.
    """
    own = max(1, int(resources.cpus))
    if not resources.gpus_of_worker:
        return own
    slots = zip(_device_slots(resources, nodes), nodes, strict=True)
    parts = [int(node.get("CPU", 0) / min(n, size * resources.world)) for n, node in slots if n]
    return max(own, min(parts))


def _device_slots(resources: Resources, nodes: Sequence[Node]) -> list[int]:
    """On how many devices of a trial each node has room: a worker never gets parts of two nodes, nor of two cards."""
    gpus = resources.gpus_of_worker
    slots = [math.floor(node.get("CPU", 0) / resources.cpus + ROUND) for node in nodes]
    if not gpus:
        return slots
    return [min(n, _card_slots(node.get("GPU", 0), gpus)) for n, node in zip(slots, nodes, strict=True)]


def _card_slots(cards: float, share: float) -> int:
    """How many workers with such a share of a card fit so many cards, of the last of which a part may be taken."""
    return math.floor(cards) * math.floor(1 / share + ROUND) + math.floor(cards % 1 / share + ROUND)


class GpuShare(TypedDict):
    """What is kept of the measurement."""

    gpus_per_trial: Annotated[float, Meta(gt=0, le=1)]


def share_file() -> Path:
    """The file that the share is kept in, beside data sets that were made."""
    return home() / "gpu.json"


def keep_share(share: float) -> None:
    """Keep the share for `--gpus-per-trial auto`."""
    share_file().parent.mkdir(parents=True, exist_ok=True)
    write_json(share_file(), GpuShare(gpus_per_trial=share))


def kept_share() -> float:
    """The share that was measured here; InputError if none was."""
    if not share_file().exists():
        rule = "auto takes the share that `alternas doctor --gpu` has measured on this machine"
        raise InputError(f"gpus-per-trial: {rule}; run it first, or give a number")
    return read_json(share_file(), GpuShare)["gpus_per_trial"]
