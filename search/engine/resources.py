"""`Resources`: what each worker asks for; and how many such workers the nodes of a cluster hold. Knows no Ray."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...archs.errors import InputError
from ...results.latency.measurements import LatencySetting
from ..training.artifacts import check_uri
from .prices import Prices

Node = Mapping[str, float]  # what a node has, by name: "CPU", "GPU", and labels given to it
ROUND = 1e-9


@dataclass(frozen=True)
class Resources:
    """Where to run, and what each worker gets."""

    address: str = ""  # of a running Ray cluster, or "" for one of our own on this machine
    workers: int = 0  # to begin with; 0 means as many as fit
    cpus: float = 1.0  # of each worker; also its number of torch threads, at least one
    gpus: float | None = None  # of each, a fraction shares a card; 0 trains on the CPU; None is 1 where there are GPUs
    latency_on: str = ""  # Ray resource of the node that measures latencies; "" leaves them to the one training worker
    storage_path: str = ""  # URI for what workers write; "" is the run's folder, which every node then sees
    most_workers: int | None = None  # to grow to while others leave room, giving way to them; None stays at `workers`
    prices: Prices = field(default_factory=Prices)  # of an hour of what a worker gets

    def __post_init__(self) -> None:
        if self.storage_path:
            check_uri(self.storage_path)
        if self.workers < 0:
            raise InputError(f"workers: must be 0 (as many as fit) or more, got {self.workers}")
        if self.most_workers is not None and not 1 <= self.workers <= self.most_workers:
            raise InputError(f"workers: MIN..MAX needs 1 <= MIN <= MAX, got {self.workers}..{self.most_workers}")
        if not math.isfinite(self.cpus) or self.cpus <= 0:
            raise InputError(f"cpus-per-trial: must be above 0, got {self.cpus}")
        if self.gpus is None:
            return
        if not math.isfinite(self.gpus) or self.gpus < 0:
            raise InputError(f"gpus-per-trial: must be 0 or more, got {self.gpus}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise InputError(f"gpus-per-trial: above 1 it must be a whole number, got {self.gpus}")


@dataclass(frozen=True)
class LatencyWorker:
    """What the worker that measures latencies takes of its node, so that nothing is trained beside it."""

    cpus: float  # all those of the node, for a latency on the CPU
    gpus: float  # one card, for a latency on a GPU; other cards of the node may train
    label: str  # the resource that brings it to its node


def resolve_gpus(resources: Resources, nodes: Sequence[Node]) -> Resources:
    """Decide the GPUs of each worker by what the cluster has, where the user left it open."""
    if resources.gpus is not None:
        return resources
    return replace(resources, gpus=1.0 if sum(node.get("GPU", 0) for node in nodes) >= 1 else 0.0)


def check_alone(resources: Resources, setting: LatencySetting) -> None:
    """Raise InputError if workers that train cannot measure latency in turn."""
    if max(resources.workers, resources.most_workers or 0) > 1:
        rule = "nothing may train beside it, so one worker trains and measures in turn, or a node of its own measures"
        raise InputError(f"workers: {resources.workers} asked for with latency as objective; {rule} (--latency-on)")
    if setting.device == "cuda" and not resources.gpus:
        raise InputError(f"latency {setting}: the worker has no GPU")


def reserve(resources: Resources, nodes: Sequence[Node], setting: LatencySetting) -> tuple[LatencyWorker, list[Node]]:
    """Reserve what measuring latencies takes; returns that, and what is left of the nodes for training.

    Raises:
        InputError: if no node has the label, or the label's node not the device.
    """
    label, on_gpu = resources.latency_on, setting.device == "cuda"
    where = next((i for i, node in enumerate(nodes) if node.get(label, 0) >= 1), None)
    if where is None:
        start = f"ray start --resources='{{\"{label}\": 1}}'"
        raise InputError(f"latency-on: no node of the cluster has the resource {label!r}; start one so: {start}")
    cpus, gpus = nodes[where].get("CPU", 0), nodes[where].get("GPU", 0)
    if on_gpu and gpus < 1:
        raise InputError(f"latency {setting}: the node with the resource {label!r} has no GPU")
    worker = LatencyWorker(1.0 if on_gpu else cpus, 1.0 if on_gpu else 0.0, label)
    rest = {**nodes[where], "CPU": cpus - worker.cpus, "GPU": gpus - worker.gpus}
    return worker, [rest if i == where else other for i, other in enumerate(nodes)]


def worker_slots(resources: Resources, nodes: Sequence[Node]) -> int:
    """Workers to start; at least one must fit.

    Raises:
        InputError: if they do not fit, naming the option.
    """
    cpus, gpus = resources.cpus, resources.gpus or 0.0
    fits = fitting(resources, nodes)
    if fits < 1:
        name, share = ("GPU", gpus) if any(_by_cpus(cpus, nodes)) else ("CPU", cpus)
        most = max((node.get(name, 0) for node in nodes), default=0.0)
        where = " on the largest node" if len(nodes) > 1 else ""
        raise InputError(f"{name.lower()}s-per-trial: {share:g} asked for, {most:g}{where} there")
    if resources.workers > fits:
        rule = f"at {cpus:g} CPUs and {gpus:g} GPUs each only {fits} fit"
        raise InputError(f"workers: {resources.workers} asked for, {rule}; lower --cpus-per-trial")
    return resources.workers or fits


def fitting(resources: Resources, nodes: Sequence[Node]) -> int:
    """Workers that fit the nodes: none gets parts of two nodes, nor of two cards unless it asks for more than one."""
    gpus, by_cpus = resources.gpus or 0.0, _by_cpus(resources.cpus, nodes)
    by_gpus = [node.get("GPU", 0) for node in nodes]
    if gpus > 1:
        by_gpus = [cards // gpus for cards in by_gpus]
    elif gpus:  # whole slots a card: a worker never gets parts of two
        by_gpus = [
            math.floor(cards) * math.floor(1 / gpus + ROUND) + math.floor(cards % 1 / gpus + ROUND) for cards in by_gpus
        ]
    return int(sum(map(min, by_cpus, by_gpus))) if gpus else sum(by_cpus)


def _by_cpus(cpus: float, nodes: Sequence[Node]) -> list[int]:
    return [math.floor(node.get("CPU", 0) / cpus + ROUND) for node in nodes]
