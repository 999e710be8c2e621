"""Which worker a job goes to where workers differ: by the memory of their devices, and by what they cost. No Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Capacity(NamedTuple):
    """What tells a worker from others."""

    bytes: float  # of memory that one net may take
    price: float = 0.0  # of an hour


def choose_worker(needed: int, idle: Sequence[Capacity], busy: Sequence[Capacity], waiting: int) -> int | None:
    """Place in `idle` of the worker for a job: the cheapest, then the smallest, that its training fits.

    One that fits no idle worker waits for a busy one, while there are more of these than jobs that wait; else it goes
    to the largest idle one, where its steps are cut into passes when memory runs out.

    Args:
        needed: bytes that a step is estimated to take; 0 fits everywhere.
        idle: workers without a job; at least one.
        busy: workers with one.
        waiting: jobs that wait already.

    Returns:
        None if the job is to wait.
    """
    fitting = [number for number, worker in enumerate(idle) if worker.bytes >= needed]
    if fitting:
        return min(fitting, key=lambda number: (idle[number].price, idle[number].bytes))
    if sum(worker.bytes >= needed for worker in busy) > waiting:
        return None
    return max(range(len(idle)), key=lambda number: idle[number].bytes)
