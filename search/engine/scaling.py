"""How many workers a search has on a cluster that it shares: it grows into what is free, and gives way. Knows no Ray.

Ray has no priorities, so a search on a shared cluster has manners instead: it asks for no more than is free, and
gives workers back while work of others waits for what they hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .resources import Node, Resources, fitting


@dataclass(frozen=True)
class ClusterLoad:
    """What a cluster has, what of it is free, and what work waits for.

    Attributes:
        nodes: resources of each node.
        free: those of each node that nobody uses.
        waiting: what each waiting task, actor or part of a placement group asks for.
    """

    nodes: Sequence[Node]
    free: Sequence[Node]
    waiting: Sequence[Node] = ()

    def without(self, needs: Node, count: int) -> ClusterLoad:
        """The same without so many waiting workers of our own, each of which asks for `needs`."""
        waiting = [*self.waiting]
        for _ in range(min(count, waiting.count(needs))):
            waiting.remove(needs)
        return replace(self, waiting=waiting)


@dataclass(frozen=True)
class WorkerCounts:
    """Workers that there are, and how many there may be."""

    least: int
    most: int
    alive: int  # those that are starting included
    idle: int = 0
    starting: int = 0  # they may not have their place yet, so that it still looks free


def more_workers(counts: WorkerCounts, load: ClusterLoad, resources: Resources) -> int:
    """How many workers to start (above 0), or to give back (below 0).

    `load` is without workers of our own that wait for their place.
    """
    if waiting := kept_waiting(load, resources):
        return -max(0, min(math.ceil(waiting / resources.world), counts.alive - counts.least))
    if counts.idle:
        return 0
    whole = fitting(resources, load.nodes)  # what looks free may be a moment old
    return max(0, min(fitting(resources, load.free) - counts.starting, min(counts.most, whole) - counts.alive))


def kept_waiting(load: ClusterLoad, resources: Resources) -> int:
    """How much work of others our workers may keep waiting.

    Left out is what no node could ever hold, what is free and about to be taken, and what asks for nothing that a
    worker has.
    """
    held = needs_of(resources)
    return sum(
        any(asked.get(name, 0) > 0 for name in held)
        and any(_holds(node, asked) for node in load.nodes)
        and not any(_holds(node, asked) for node in load.free)
        for asked in load.waiting
    )


def wished_workers(counts: WorkerCounts, load: ClusterLoad, resources: Resources) -> int:
    """Workers that an autoscaling cluster should have room for: all of our trials', and those that others take up.

    While others wait, no more than there are: what is started for them is theirs.
    """
    if kept_waiting(load, resources):
        return 0
    pairs = list(zip(load.nodes, load.free, strict=True))
    needs = needs_of(resources)
    taken = {name: sum(node.get(name, 0) - free.get(name, 0) for node, free in pairs) for name in needs}
    used = max((math.ceil(taken[name] / amount) for name, amount in needs.items()), default=0)
    return resources.world * counts.most + max(0, used - resources.world * counts.alive)


def needs_of(resources: Resources) -> Node:
    """What each worker asks Ray for."""
    asked = {"CPU": resources.cpus, "GPU": resources.gpus_of_device}
    return {name: amount for name, amount in asked.items() if amount}


def _holds(node: Node, asked: Node) -> bool:
    return all(node.get(name, 0) >= amount for name, amount in asked.items())
