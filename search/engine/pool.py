"""A pool of Ray actors: one worker each, used again for job after job.

Rules that cost a bug each: a job is only given to an actor whose start has been confirmed; an
actor that fails in any way is killed and replaced; the data go into the object store once.
"""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import current_thread, main_thread
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.exceptions import RayError

from ...archs.errors import InputError, OperationError
from ..data.dataset import DataSet
from ..training.job import Job, Outcome
from .executor import Event, Lost
from .worker import Worker

MOST_START_FAILURES = 3  # in a row


@dataclass(frozen=True)
class Resources:
    """Where to run.

    Attributes:
        address: of a running Ray cluster, or "" for one of our own on this machine.
        workers: how many at most; 0 means as many as fit.
        cpus: of each worker; also its number of torch threads, at least one.
        gpus: of each worker, a fraction shares a card; None means 1 where there are GPUs, else 0.
            Workers with none train on the CPU.
    """

    address: str = ""
    workers: int = 0
    cpus: float = 1.0
    gpus: float | None = None

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


class Pool:
    """Workers on Ray, at most `most`, each holding `data`.

    Raises:
        InputError: if the cluster is not there or cannot hold a worker.
    """

    def __init__(self, resources: Resources, data: DataSet, most: int) -> None:
        _connect(resources.address)
        try:
            self._resources = _settled(resources)
            self.size = min(_slots(self._resources), most)
            self._data = ray.put(data)
            self._actor_class: Any = ray.remote(Worker).options(num_cpus=resources.cpus, num_gpus=self._resources.gpus)
            self._starting: dict[Any, Any] = {}  # ref that says it has started -> actor
            self._idle: list[Any] = []
            self._running: dict[Any, tuple[Any, Job]] = {}  # stream of events -> actor and its job
            self._failures = 0
            for _ in range(self.size):
                self._start_actor()
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def starting(self) -> int:
        return len(self._starting)

    def submit(self, job: Job) -> None:
        actor = self._idle.pop()
        self._running[actor.run.options(num_returns="streaming").remote(job)] = actor, job

    def poll(self, timeout: float) -> Sequence[Event]:
        waiting = [*self._running, *self._starting]
        if not waiting:
            return []
        events = []
        ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout, fetch_local=False)
        more, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        for source in {*ready, *more}:
            events += self._started(source) if source in self._starting else self._next_events(source)
        return events

    def close(self) -> None:
        """End the workers; a Ray cluster that was not ours lives on. Not to be interrupted by a second Ctrl-C."""
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN) if current_thread() is main_thread() else None
        try:
            ray.shutdown()
        finally:
            if heard is not None:
                signal.signal(signal.SIGINT, heard)

    def _start_actor(self) -> None:
        device = "cuda" if self._resources.gpus else "cpu"
        actor = self._actor_class.remote(max(1, int(self._resources.cpus)), device)
        self._starting[actor.take.remote(self._data)] = actor

    def _started(self, ref: Any) -> list[Event]:
        actor = self._starting.pop(ref)
        try:
            ray.get(ref)
        except RayError as error:
            self._failures += 1
            if self._failures >= MOST_START_FAILURES:
                raise OperationError(f"workers do not start: {_first_line(error)}") from None
            self._replace(actor)
        else:
            self._failures = 0
            self._idle.append(actor)
        return []

    def _next_events(self, stream: Any) -> list[Event]:
        actor, job = self._running[stream]
        try:
            event: Event = ray.get(next(stream))  # pyright: ignore[reportAssignmentType]
        except StopIteration:
            raise OperationError(f"trial {job.trial}: the worker returned without an outcome") from None
        except RayError:  # the actor died or is out of reach: it is replaced, the net tried again
            del self._running[stream]
            self._replace(actor)
            return [Lost(job.trial)]
        if isinstance(event, Outcome):
            del self._running[stream]
            self._idle.append(actor)
        return [event]

    def _replace(self, actor: Any) -> None:
        ray.kill(actor)
        self._start_actor()


def _connect(address: str) -> None:
    dashboard = None if address else False  # a cluster's dashboard is its own affair
    try:
        ray.init(address or "local", include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise InputError(f"address: no Ray cluster at {address!r} ({_first_line(error)})") from None


def _settled(resources: Resources) -> Resources:
    """With the number of GPUs decided by what the cluster has, where the user left it open."""
    if resources.gpus is not None:
        return resources
    return replace(resources, gpus=1.0 if ray.cluster_resources().get("GPU", 0) >= 1 else 0.0)


def _slots(resources: Resources) -> int:
    """Workers that fit the cluster; at least one must.

    Raises:
        InputError: if they do not fit, naming the option.
    """
    have = ray.cluster_resources()
    fits = math.floor(have.get("CPU", 0) / resources.cpus + 1e-9)
    if fits < 1:
        raise InputError(f"cpus-per-trial: {resources.cpus:g} asked for, {have.get('CPU', 0):g} there")
    if resources.gpus:
        gpus = have.get("GPU", 0)
        per_card = math.floor(1 / resources.gpus + 1e-9)
        cards = math.floor(gpus) * per_card if resources.gpus <= 1 else math.floor(gpus / resources.gpus)
        if cards < 1:
            raise InputError(f"gpus-per-trial: {resources.gpus:g} asked for, {gpus:g} there")
        fits = min(fits, cards)
    if resources.workers > fits:
        rule = f"at {resources.cpus:g} CPUs and {resources.gpus or 0:g} GPUs each only {fits} fit"
        raise InputError(f"workers: {resources.workers} asked for, {rule}; lower --cpus-per-trial")
    return resources.workers or fits


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
