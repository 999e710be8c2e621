"""Runs a pool of Ray worker actors.

A worker that dies makes its job `LOST` (`_next_event`), and another takes its place (`_restart`). The job is handed
out again, at most twice in a row (`take` in ../driver.py), and goes on from the checkpoint that ../training/loop.py
leaves every `CHECKPOINT_SECONDS`, with several workers a net at points of its curve, and reads as
../training/checkpoint.py says.

Rules of the pool that cost a bug each: a job is only given to an actor whose start has been confirmed; an actor that
fails in any way is killed and replaced, with all of its group; the data go into the object store once.

A net that runs out of memory on a part of a card is tried once more, alone on the card: its other workers are given
nothing until then. A card on which workers die again and again is left out: workers that start there are given nothing,
and hold the place, for Ray would start the next one there too; a card that is spare takes its turn.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from ...archs.errors import OperationError
from ...results.latency.setting import LatencySetting
from ...results.runs.status import Status
from ..data.dataset import DataSet
from ..training.bank_jobs import SupernetJob
from ..training.job import Job, JobResult, Progress, TrainJob
from .connection import check_raylet, connect, disconnect, first_line
from .driver_files import driver_files
from .resources import Node, Resources, check_alone, resolve_gpus, threads_of, worker_slots
from .worker import BadCards, BrokenCardError, Worker
from .worker_group import WorkerGroup, open_workers

MAX_START_FAILURES = 3  # in a row
log = logging.getLogger("alternas")
PARTING_SECONDS = 30.0  # that workers have to end once one with which they share a job has failed


@dataclass(eq=False)
class _Running:
    """A job, the workers that have it, when it must be done, and what is known of it."""

    group: WorkerGroup
    job: Job
    deadline: float
    streams: dict[Any, int]  # of events, of the workers that have not ended, and the rank of each
    alone: bool = False  # whether no other worker uses the card
    # of those that have ended, and what is said of others that do not end in time
    results: dict[int, JobResult] = field(default_factory=dict)
    step: int = 0  # of the last sign of life

    @property
    def result(self) -> JobResult:
        """The result with the lowest priority number, of the lowest rank."""
        return min((result for _, result in sorted(self.results.items())), key=lambda result: result.priority)

    @property
    def rendezvous(self) -> str:
        """Where its workers meet; "" for a worker that is alone."""
        return self.job.member.rendezvous if isinstance(self.job, TrainJob | SupernetJob) else ""


class Pool:
    """Worker groups on Ray, at most `most`, whose workers hold `data`; a group trains one net on its devices.

    Where latencies are measured on this machine (in `setting`), it is one worker, which trains and measures in turn.

    Raises InputError if the cluster is not there or cannot hold a worker.
    """

    def __init__(self, resources: Resources, data: DataSet, most: int, setting: LatencySetting | None = None) -> None:
        connect(resources.address)
        try:
            self._starting: dict[Any, WorkerGroup] = {}  # ref that says a worker has started -> its group
            self._free: list[WorkerGroup] = []
            self._cards: dict[WorkerGroup, set[str]] = {}  # of its workers, "" for a CPU
            self._crowded: dict[WorkerGroup, Job] = {}  # jobs that ran out of memory beside others
            self._bad_cards, self._left_out = BadCards(), list[WorkerGroup]()
            self._running: dict[Any, _Running] = {}  # by each stream of events
            self._failures = 0
            nodes: list[Node] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._resources = resolve_gpus(resources, nodes)
            if setting is not None:
                check_alone(self._resources, setting, nodes)
                self._resources = replace(self._resources, workers=1)
            self.size = min(worker_slots(self._resources, nodes), most)
            self._spare = worker_slots(replace(self._resources, workers=0), nodes) - self.size
            self._threads = threads_of(self._resources, nodes, self.size)
            self._starved = False  # whether it was said that a net waits for its pictures
            self._data = ray.put(data)
            self._files = None if resources.address in ("", "local") else driver_files()
            for _ in range(self.size):
                self._start_group()
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> int:
        return len(self._idle())

    @property
    def starting(self) -> int:
        return len(set(self._starting.values()))

    def submit(self, job: Job) -> None:
        group = self._idle()[-1]
        self._free.remove(group)
        self._run(group, job)

    def _run(self, group: WorkerGroup, job: Job, alone: bool = False) -> None:
        jobs = group.shared(job, self._resources.address in ("", "local"))
        methods = [worker.run_alone if alone else worker.run for worker in group.workers]
        pairs = zip(methods, jobs, strict=False)
        streams = [method.options(num_returns="streaming").remote(own) for method, own in pairs]
        ranks = {stream: rank for rank, stream in enumerate(streams)}
        running = _Running(group, jobs[0], time.monotonic() + job.timeout_s, ranks, alone)
        self._running |= dict.fromkeys(streams, running)

    def _idle(self) -> list[WorkerGroup]:
        """Groups without a job, but for those on a card that a job waits for or has alone."""
        alone = [*self._crowded, *(running.group for running in self._running.values() if running.alone)]
        cards = {card for group in alone for card in self._cards[group]}
        return [group for group in self._free if not self._cards[group] & cards]

    def poll(self, timeout: float) -> Sequence[Progress | JobResult]:
        waiting = [*self._running, *self._starting]
        if not waiting:
            return []
        events = []
        ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout, fetch_local=False)
        more, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        for source in {*ready, *more}:
            if source in self._starting:
                self._confirm_start(source)
            elif source in self._running:  # and not of a group that was just replaced
                events.append(self._next_event(source))
        # workers of jobs that take too long are ended: a net that hangs does not answer, so nobody is asked
        for running in {r for r in self._running.values() if time.monotonic() > r.deadline}:
            if all(result.status == Status.OK for result in running.results.values()):
                late = f"took longer than {running.job.timeout_s:.0f} s"
                running.results[0] = JobResult(running.job.id, Status.TIMEOUT, running.step, error=late)
            events.append(self._end(running, broken=True))
        self._run_crowded()
        return [event for event in events if event is not None]

    def close(self) -> None:
        """End the workers; a Ray cluster that was not ours lives on."""
        disconnect()

    def _start_group(self) -> None:
        group = open_workers(Worker, self._resources, self._threads, self._files)
        self._starting |= {worker.take.remote(self._data): group for worker in group.workers}

    def _confirm_start(self, ref: Any) -> None:
        group = self._starting.pop(ref)
        try:
            card: Any = ray.get(ref)
        except BrokenCardError as error:
            self._bad_cards.note(error, ref.hex())
            card = error.card
            if card not in self._bad_cards:
                self._restart(group)
                return
        except RayError as error:
            check_raylet()
            self._failures += 1
            if self._failures >= MAX_START_FAILURES:
                raise OperationError(f"workers do not start: {first_line(error)}") from None
            self._restart(group)
            return
        cards = self._cards.setdefault(group, set())
        cards.add(card)
        if group in self._starting.values():
            return
        self._failures = 0
        if any(card in self._bad_cards for card in cards):
            self._left_out.append(group)
            if self._spare:
                self._spare -= 1
                self._start_group()
            elif not (self._free or self._running or self._starting or self._crowded):
                raise OperationError("every card is left out: workers die on all of them")
        else:
            self._free.append(group)

    def _next_event(self, stream: Any) -> Progress | JobResult | None:
        """What a worker has to say; None where the others of its group have not ended."""
        running = self._running[stream]
        rank = running.streams[stream]
        check_raylet()  # without it Ray may end this process on the way to an object
        try:
            event: Progress | JobResult = ray.get(next(stream))  # pyright: ignore[reportAssignmentType]
        except StopIteration:
            raise OperationError(f"job {running.job.id}: the worker returned without an outcome") from None
        except RayError as error:  # the actor died or is out of reach: its group is replaced, the net tried again
            check_raylet()
            why = "its worker died"
            if isinstance(error, BrokenCardError):
                self._bad_cards.note(error, running.job.id)
                why = f"{error.card} broke ({error.why})"
            running.results[rank] = JobResult(running.job.id, Status.LOST, error=why)
            self._hurry_others(running, why)
            return self._end(running, broken=True)
        if isinstance(event, Progress):
            running.step = event.point.step
            return event
        running.results[rank] = event
        del self._running[stream], running.streams[stream]
        if event.status != Status.OK:
            self._hurry_others(running, event.error)
        return None if running.streams else self._end(running, broken=False)

    def _hurry_others(self, running: _Running, why: str) -> None:
        """The workers that share a job with one that failed learn of it when they next exchange gradients, or never."""
        running.deadline = min(running.deadline, time.monotonic() + PARTING_SECONDS)
        for rank in running.streams.values():
            running.results.setdefault(rank, JobResult(running.job.id, Status.LOST, error=why))

    def _end(self, running: _Running, broken: bool) -> JobResult | None:
        """Take a job from its workers, which are replaced if they are broken. None of one that is tried once more."""
        for stream in running.streams:
            del self._running[stream]
        if running.rendezvous:
            Path(running.rendezvous).unlink(missing_ok=True)  # nobody waits there any more
        group, fed = running.group, running.result.how.get("fed")
        if fed and not self._starved:
            log.warning("the loader feeds %d images/s, the net could take %d", *fed)
            self._starved = True
        if broken:
            self._restart(group)
        elif running.result.status == Status.OOM and 0 < self._resources.gpus_of_worker < 1 and not running.alone:
            self._crowded[group] = running.job
            return None
        else:
            self._free.append(group)
        return running.result

    def _run_crowded(self) -> None:
        """Run jobs that wait for a card of their own on those where all is quiet."""
        for group, job in list(self._crowded.items()):
            busy = {card for running in self._running.values() for card in self._cards[running.group]}
            if not self._cards[group] & busy:
                del self._crowded[group]
                self._run(group, job, alone=True)

    def _restart(self, group: WorkerGroup) -> None:
        self._starting = {ref: of for ref, of in self._starting.items() if of is not group}
        self._cards.pop(group, None)
        group.end()
        self._start_group()
