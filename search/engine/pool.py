"""Runs a pool of Ray worker actors.

Rules of the pool that cost a bug each: a job is only given to an actor whose start has been confirmed; an
actor that fails in any way is killed and replaced, with all of its place; the data go into the object store once.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from ...archs.errors import InputError, OperationError
from ...results.latency.device_command import DeviceCommand
from ...results.latency.measurements import LatencySetting
from ..data.dataset import DataSet
from ..training.job import Job, JobResult, LatencyJob, Progress, TrainJob
from .cluster import cluster_load, wish_for
from .connection import check_raylet, connect, disconnect, first_line
from .place import Place, open_place
from .placement import Capacity, choose_worker
from .resources import LatencyWorker, Node, Resources, check_alone, reserve, resolve_gpus, worker_slots
from .scaling import WorkerCounts, more_workers, needs_of, wished_workers
from .spending import Spending, WorkerRate
from .worker import Device, Worker

log = logging.getLogger("alternas")
MOST_START_FAILURES = 3  # in a row
PARTING_SECONDS = 30.0  # that workers of a place have to end once one of them has failed
SCALE_SECONDS = 5.0  # between two looks at a cluster that is shared
LATENCY_START_SECONDS = 60.0  # for the latency worker to be there before the workers that train


@dataclass(eq=False)
class _Running:
    """A job, the place that has it, when it must be done, and what is known of it.

    Attributes:
        streams: of events, of the place's workers that have not ended, and the rank of each.
        results: of those that have ended.
        step: of the last sign of life.
    """

    place: Place
    job: Job
    deadline: float
    streams: dict[Any, int]
    results: dict[int, JobResult] = field(default_factory=dict)
    step: int = 0

    @property
    def result(self) -> JobResult:
        """What all of them come to."""
        return min((result for _, result in sorted(self.results.items())), key=lambda result: result.weight)


class Pool:
    """Places on Ray, at most `most`, whose workers hold `data`: a place trains one net on one or several devices.

    Where the user gave a range, it grows into what the cluster has free, and gives workers back while others wait:
    first idle ones, then those whose job has just ended or left a checkpoint.

    Where latencies are measured (in `setting`), it is either one worker, which trains and measures in turn, or
    a further one on a node of its own. Nets that wait for that latency worker hold a place of those that train.

    Raises:
        InputError: if the cluster is not there or cannot hold a worker.
    """

    def __init__(
        self,
        resources: Resources,
        data: DataSet,
        most: int,
        setting: LatencySetting | DeviceCommand | None = None,
        spending: Spending | None = None,
    ) -> None:
        if resources.most_workers and "://" in resources.address:
            raise InputError(
                "workers: MIN..MAX asks the cluster's head what is free: address must be auto or HOST:PORT"
            )
        connect(resources.address)
        try:
            self._starting: dict[Any, Place] = {}  # ref that says a worker has started -> its place
            self._idle: list[Place] = []
            self._running: dict[Any, _Running] = {}  # by each stream of events
            self._failures = 0
            self._spending = spending
            self._wished = 0  # workers that an autoscaler was asked to have room for
            self._rates: dict[Place, WorkerRate] = {}  # of each place that is ready
            self._latency_place: Place | None = None  # whose worker measures alone, if there is one
            self._latency_free = False
            self._latency_needs: LatencyWorker | None = None
            self._to_measure: deque[Job] = deque()
            self._capacities: dict[Place, Capacity] = {}  # likewise
            self._to_place: deque[Job] = deque()  # jobs that wait for a worker with more memory
            self._too_large = set[int]()  # trials that no worker's memory is enough for
            nodes: list[Node] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._resources = resolve_gpus(resources, nodes)
            if setting is not None and resources.latency_on:
                self._latency_needs, nodes = reserve(self._resources, nodes, setting)
                self._start_latency_worker()
            elif setting is not None:
                check_alone(self._resources, setting)
                self._resources = replace(self._resources, workers=1)
            self.size = min(worker_slots(self._resources, nodes), most)  # at the least
            self._most = max(self.size, min(self._resources.most_workers or 0, most))
            self._surplus = 0  # workers to give back
            self._next_look = -math.inf
            self._data = ray.put(data)
            for _ in range(self.size):
                self._start_place()
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> int:
        measured = len(self._to_measure) + sum(r.place is self._latency_place for r in self._running.values())
        return max(0, len(self._idle) - measured)

    @property
    def starting(self) -> int:
        return len(set(self._starting.values()))

    def submit(self, job: Job) -> None:
        if isinstance(job, LatencyJob) and self._latency_place is not None:
            self._to_measure.append(job)
            self._measure()
        else:
            self._to_place.append(job)
            self._place()

    def poll(self, timeout: float) -> Sequence[Progress | JobResult]:
        waiting = [*self._running, *self._starting]
        if not waiting:
            return []
        events = []
        ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout, fetch_local=False)
        more, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        self._count_spending()
        for source in {*ready, *more}:
            if source in self._starting:
                self._confirm_start(source)
            elif source in self._running:  # and not of a place that was just replaced
                events.append(self._next_event(source))
        # workers of jobs that take too long are ended: a net that hangs does not answer, so nobody is asked
        for running in {r for r in self._running.values() if time.monotonic() > r.deadline}:
            if all(result.status == "ok" for result in running.results.values()):
                late = f"took longer than {running.job.timeout_s:.0f} s"
                running.results[0] = JobResult(running.job.trial, "timeout", running.step, error=late)
            events.append(self._end(running, broken=True))
        found = [event for event in events if event is not None]
        if self._most > self.size:
            found += self._give_way({e.trial for e in found if isinstance(e, Progress) and e.saved})
        self._place()
        return found

    def close(self) -> None:
        """End the workers; a Ray cluster that was not ours lives on."""
        try:
            if self._spending:
                self._count_spending()
                self._spending.save()
            if self._wished:
                wish_for({}, 0)
        finally:
            disconnect()

    @property
    def _alive(self) -> int:
        """Places that train, those that are starting included."""
        places = {*self._starting.values(), *self._idle, *(running.place for running in self._running.values())}
        return len(places - {self._latency_place})

    def _give_way(self, saved: Set[int]) -> list[JobResult]:
        """Start workers for what is free, or give some back; `saved`: trials that have just left a checkpoint."""
        if time.monotonic() >= self._next_look:
            self._look()
        while self._surplus > 0 and self._idle:
            dearest = max(self._idle, key=lambda place: self._capacities[place].price)
            self._idle.remove(dearest)
            self._give_back(dearest)
        events = []
        for running in {*self._running.values()}:
            if self._surplus > 0 and running.job.trial in saved:
                self._forget(running)
                self._give_back(running.place)
                events.append(JobResult(running.job.trial, "preempted", running.step))
        return events

    def _count_spending(self) -> None:
        if self._spending:
            self._spending.count(self._rates[running.place] for running in {*self._running.values()})

    def _give_back(self, place: Place) -> None:
        place.end()
        self._surplus -= 1

    def _look(self) -> None:
        """Look how many workers there should be now."""
        self._next_look = time.monotonic() + SCALE_SECONDS
        load = cluster_load()
        if load is None:
            return
        needs = needs_of(self._resources)
        load = load.without(needs, len(self._starting))
        counts = WorkerCounts(self.size, self._most, self._alive, len(self._idle), self.starting)
        more = more_workers(counts, load, self._resources)
        self._surplus = max(0, -more)
        for _ in range(more):
            self._start_place()
        wished = wished_workers(counts, load, self._resources)
        if wished != self._wished:
            wish_for(needs, wished)
            self._wished = wished

    def _run(self, place: Place, job: Job) -> None:
        self._count_spending()
        jobs = place.shared(job, self._resources.address in ("", "local"))
        pairs = zip(place.workers, jobs, strict=False)
        streams = [worker.run.options(num_returns="streaming").remote(own) for worker, own in pairs]
        ranks = {stream: rank for rank, stream in enumerate(streams)}
        running = _Running(place, jobs[0], time.monotonic() + job.timeout_s, ranks)
        self._running |= dict.fromkeys(streams, running)

    def _place(self) -> None:
        """Give jobs to idle workers that have the memory for them; others wait."""
        kept = deque[Job]()
        while self._to_place:
            job = self._to_place.popleft()
            chosen = self._choose(job, len(kept)) if self._idle else None
            if chosen is None:
                kept.append(job)
            else:
                self._run(self._idle.pop(chosen), job)
        self._to_place = kept

    def _choose(self, job: Job, waiting: int) -> int | None:
        needed = job.step_bytes if isinstance(job, TrainJob) else 0
        idle = [self._capacities[place] for place in self._idle]
        places = {running.place for running in self._running.values()} - {self._latency_place}
        busy = [self._capacities[place] for place in places]
        chosen = choose_worker(needed, idle, busy, waiting)
        if chosen is not None and idle[chosen].bytes < needed and job.trial not in self._too_large:
            self._too_large.add(job.trial)
            sizes = f"about {needed / 2**30:.2g} GiB, of {idle[chosen].bytes / 2**30:.2g} GiB that the worker has"
            log.warning("trial %d: a step takes %s: it is cut into passes if memory runs out", job.trial, sizes)
        return chosen

    def _measure(self) -> None:
        """Give the latency worker its next net, if it is ready and has none."""
        if self._latency_free and self._to_measure:
            assert self._latency_place is not None
            self._latency_free = False
            self._run(self._latency_place, self._to_measure.popleft())

    def _start_place(self) -> None:
        place = open_place(Worker, self._resources)
        self._starting |= {worker.take.remote(self._data): place for worker in place.workers}

    def _start_latency_worker(self) -> None:
        """Start the latency worker; it holds its node's CPUs or a card, so that nothing trains beside it."""
        needs = self._latency_needs
        assert needs is not None
        kind: Any = ray.remote(Worker).options(num_cpus=needs.cpus, num_gpus=needs.gpus, resources={needs.label: 1})
        worker = kind.remote(1, "cuda" if needs.gpus else "cpu")
        self._latency_place, self._latency_free = Place([worker]), False
        ready = worker.warm.remote()
        self._starting[ready] = self._latency_place
        ray.wait([ready], timeout=LATENCY_START_SECONDS, fetch_local=False)  # workers that train must come after it

    def _confirm_start(self, ref: Any) -> None:
        place = self._starting.pop(ref)
        try:
            device: Device = ray.get(ref)
        except RayError as error:
            check_raylet()
            self._failures += 1
            if self._failures >= MOST_START_FAILURES:
                raise OperationError(f"workers do not start: {first_line(error)}") from None
            self._starting = {other: of for other, of in self._starting.items() if of is not place}
            self._replace(place)
        else:
            if place not in self._starting.values():
                self._failures = 0
                self._note_device(place, device)
                self._release(place)

    def _note_device(self, place: Place, device: Device) -> None:
        """Note what a place takes while it has a job, and how much memory a net may have there."""
        asked = self._latency_needs if self._latency_needs and place is self._latency_place else self._resources
        world = len(place.workers)
        cpus, gpus = asked.cpus * world, asked.gpus or 0.0
        price = self._resources.prices.hour(cpus, gpus, device.name)
        share = min(1.0, gpus / world or asked.cpus / device.cpus)
        self._rates[place] = WorkerRate(cpus, gpus, price)
        self._capacities[place] = Capacity(world * share * device.bytes, price)

    def _next_event(self, stream: Any) -> Progress | JobResult | None:
        """What a worker has to say; None where the others of its place have not ended."""
        running = self._running[stream]
        rank = running.streams[stream]
        check_raylet()  # without it Ray may end this process on the way to an object
        try:
            event: Progress | JobResult = ray.get(next(stream))  # pyright: ignore[reportAssignmentType]
        except StopIteration:
            raise OperationError(f"trial {running.job.trial}: the worker returned without an outcome") from None
        except RayError:  # the actor died or is out of reach: its place is replaced, the net tried again
            check_raylet()
            running.results[rank] = JobResult(running.job.trial, "lost", error="its worker died")
            return self._end(running, broken=True)
        if isinstance(event, Progress):
            running.step = event.point.step
            return event
        running.results[rank] = event
        del self._running[stream], running.streams[stream]
        if not running.streams:
            return self._end(running, broken=False)
        if event.status != "ok":  # the others learn of it when they next exchange gradients, or never
            running.deadline = min(running.deadline, time.monotonic() + PARTING_SECONDS)
        return None

    def _end(self, running: _Running, broken: bool) -> JobResult:
        """Take a job from its place, which is replaced if it is broken."""
        self._forget(running)
        if broken:
            self._replace(running.place)
        else:
            self._release(running.place)
        return running.result

    def _forget(self, running: _Running) -> None:
        """Listen to a job no more; who waits where its workers meet need not."""
        for stream in running.streams:
            del self._running[stream]
        if isinstance(running.job, TrainJob) and running.job.member.rendezvous:
            Path(running.job.member.rendezvous).unlink(missing_ok=True)

    def _release(self, place: Place) -> None:
        """Note that a place is ready for its next job."""
        if place is self._latency_place:
            self._latency_free = True
            self._measure()
        else:
            self._idle.append(place)

    def _replace(self, place: Place) -> None:
        place.end()
        if place is self._latency_place:
            self._start_latency_worker()
        elif self._alive < self.size:
            self._start_place()
