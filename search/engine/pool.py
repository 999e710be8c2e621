"""A pool of Ray actors: one worker each, used again for job after job.

Rules that cost a bug each: a job is only given to an actor whose start has been confirmed; an
actor that fails in any way is killed and replaced; the data go into the object store once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from ...archs.errors import OperationError
from ...results.latency.setting import LatencySetting
from ..data.dataset import DataSet
from ..training.job import Job, JobResult, LatencyJob, Progress
from .connection import check_raylet, connect, disconnect, first_line
from .resources import LatencyWorker, Node, Resources, check_alone, reserve, resolve_gpus, worker_slots
from .worker import Worker

MOST_START_FAILURES = 3  # in a row
METER_SECONDS = 60.0  # to be there before the workers that train


@dataclass
class _Running:
    """A job, the actor that has it, when it must be done, and the step of its last sign of life."""

    actor: Any
    job: Job
    deadline: float
    step: int = 0

    def timeout(self) -> JobResult:
        return JobResult(self.job.trial, "timeout", self.step, error=f"took longer than {self.job.timeout_s:.0f} s")


class Pool:
    """Workers on Ray, at most `most`, each holding `data`.

    Where latencies are measured (in `setting`), it is either one worker, which trains and measures in turn, or
    a further one on a node of its own, the meter. Nets that wait for the meter hold a place of those that train.

    Raises:
        InputError: if the cluster is not there or cannot hold a worker.
    """

    def __init__(self, resources: Resources, data: DataSet, most: int, setting: LatencySetting | None = None) -> None:
        connect(resources.address)
        try:
            self._starting: dict[Any, Any] = {}  # ref that says it has started -> actor
            self._idle: list[Any] = []
            self._running: dict[Any, _Running] = {}  # by its stream of events
            self._failures = 0
            self._meter: Any = None  # the actor that measures alone, if there is one
            self._meter_free = False
            self._needs: LatencyWorker | None = None
            self._to_measure: deque[Job] = deque()
            nodes = _nodes()
            self._resources = resolve_gpus(resources, nodes)
            self.size = min(worker_slots(self._resources, self._for_training(nodes, setting)), most)
            self._data = ray.put(data)
            for _ in range(self.size):
                self._start_worker()
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> int:
        measured = len(self._to_measure) + sum(r.actor is self._meter for r in self._running.values())
        return max(0, len(self._idle) - measured)

    @property
    def starting(self) -> int:
        return len(self._starting)

    def submit(self, job: Job) -> None:
        if isinstance(job, LatencyJob) and self._meter is not None:
            self._to_measure.append(job)
            self._measure()
        else:
            self._run(self._idle.pop(), job)

    def poll(self, timeout: float) -> Sequence[Progress | JobResult]:
        waiting = [*self._running, *self._starting]
        if not waiting:
            return []
        events = []
        ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout, fetch_local=False)
        more, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        for source in {*ready, *more}:
            events += self._started(source) if source in self._starting else self._next_events(source)
        return [*events, *self._overdue()]

    def close(self) -> None:
        """End the workers; a Ray cluster that was not ours lives on."""
        disconnect()

    def _for_training(self, nodes: list[Node], setting: LatencySetting | None) -> list[Node]:
        """The nodes, less what measuring latencies takes, for which the worker is started."""
        if setting is None:
            return nodes
        if self._resources.latency_on:
            needs, nodes = reserve(self._resources, nodes, setting)
            self._start_meter(needs)
        else:
            check_alone(self._resources, setting)
            self._resources = replace(self._resources, workers=1)
        return nodes

    def _run(self, actor: Any, job: Job) -> None:
        stream = actor.run.options(num_returns="streaming").remote(job)
        self._running[stream] = _Running(actor, job, time.monotonic() + job.timeout_s)

    def _measure(self) -> None:
        """Give the meter its next net, if it is ready and has none."""
        if self._meter_free and self._to_measure:
            self._meter_free = False
            self._run(self._meter, self._to_measure.popleft())

    def _start_worker(self) -> None:
        gpus = self._resources.gpus or 0.0
        kind: Any = ray.remote(Worker).options(num_cpus=self._resources.cpus, num_gpus=gpus)
        actor = kind.remote(max(1, int(self._resources.cpus)), "cuda" if gpus else "cpu")
        self._starting[actor.take.remote(self._data)] = actor

    def _start_meter(self, needs: LatencyWorker) -> None:
        """It holds its node's CPUs, or a card, so that Ray puts nothing that trains beside it."""
        kind: Any = ray.remote(Worker).options(num_cpus=needs.cpus, num_gpus=needs.gpus, resources={needs.label: 1})
        self._meter, self._meter_free, self._needs = kind.remote(1, "cuda" if needs.gpus else "cpu"), False, needs
        ready = self._meter.warm.remote()
        self._starting[ready] = self._meter
        ray.wait([ready], timeout=METER_SECONDS, fetch_local=False)  # workers that train must come after it

    def _started(self, ref: Any) -> list[Progress | JobResult]:
        actor = self._starting.pop(ref)
        try:
            ray.get(ref)
        except RayError as error:
            check_raylet()
            self._failures += 1
            if self._failures >= MOST_START_FAILURES:
                raise OperationError(f"workers do not start: {first_line(error)}") from None
            self._replace(actor)
        else:
            self._failures = 0
            self._rest(actor)
        return []

    def _next_events(self, stream: Any) -> list[Progress | JobResult]:
        actor, job = self._running[stream].actor, self._running[stream].job
        try:
            event: Progress | JobResult = ray.get(next(stream))  # pyright: ignore[reportAssignmentType]
        except StopIteration:
            raise OperationError(f"trial {job.trial}: the worker returned without an outcome") from None
        except RayError:  # the actor died or is out of reach: it is replaced, the net tried again
            check_raylet()
            del self._running[stream]
            self._replace(actor)
            return [JobResult(job.trial, "lost", error="its worker died")]
        if isinstance(event, JobResult):
            del self._running[stream]
            self._rest(actor)
        elif isinstance(event, Progress):
            self._running[stream].step = event.point.step
        return [event]

    def _overdue(self) -> list[Progress | JobResult]:
        """End the workers of jobs that take too long: a net that hangs does not answer, so nobody is asked."""
        late = [stream for stream, running in self._running.items() if time.monotonic() > running.deadline]
        events = list[Progress | JobResult]()
        for stream in late:
            running = self._running.pop(stream)
            self._replace(running.actor)
            events.append(running.timeout())
        return events

    def _rest(self, actor: Any) -> None:
        """A worker is ready for its next job."""
        if actor is self._meter:
            self._meter_free = True
            self._measure()
        else:
            self._idle.append(actor)

    def _replace(self, actor: Any) -> None:
        ray.kill(actor)
        if actor is self._meter:
            assert self._needs is not None
            self._start_meter(self._needs)
        else:
            self._start_worker()


def _nodes() -> list[Node]:
    """What each living node has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
