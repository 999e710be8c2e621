"""Starts or joins Ray, and runs a pool of Ray worker actors.

Since 2.60 Ray's processes answer only callers with their token; whoever has it runs what he likes as their user.
A Ray of ours has one that stands in no file, and listens on the loopback alone.

Rules of the pool that cost a bug each: a job is only given to an actor whose start has been confirmed; an
actor that fails in any way is killed and replaced, with all of its place; the data go into the object store once.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import ray
from ray._private import ray_constants, services
from ray._private import worker as ray_worker
from ray._raylet import (
    AuthenticationTokenLoader,  # pyright: ignore[reportAttributeAccessIssue]
    Config,  # pyright: ignore[reportAttributeAccessIssue]
    GcsClient,  # pyright: ignore[reportAttributeAccessIssue]
)
from ray.exceptions import AuthenticationError, RayError

from ...archs.errors import InputError, OperationError
from ...results.latency.measurements import LatencySetting
from ..data.dataset import DataSet
from ..training.job import Job, JobResult, LatencyJob, Progress, TrainJob
from .cluster import cluster_load, wish_for
from .place import Place, open_place
from .placement import Capacity, choose_worker
from .resources import LatencyWorker, Node, Resources, check_alone, reserve, resolve_gpus, worker_slots
from .scaling import WorkerCounts, more_workers, needs_of, wished_workers
from .spending import Spending, WorkerRate
from .worker import Device, Worker

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

log = logging.getLogger("alternas")
CONNECT_SECONDS = 10.0
STOPS = (signal.SIGINT, signal.SIGTERM)
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
REMEDY = f"copy the head's ~/.ray/auth_token, or set {TOKEN} (docs/cluster.md)"
MOST_START_FAILURES = 3  # in a row
PARTING_SECONDS = 30.0  # that workers of a place have to end once one of them has failed
SCALE_SECONDS = 5.0  # between two looks at a cluster that is shared
LATENCY_START_SECONDS = 60.0  # for the latency worker to be there before the workers that train


def connect(address: str) -> None:
    """Join the Ray cluster at `address`, or start one of our own for "".

    Raises:
        InputError: if there is none, it refuses our token, or this process has joined one.
        OperationError: if Ray does not start, or is of another version there.
    """
    if ray.is_initialized():
        raise InputError("ray: this process has joined a Ray already; ray.shutdown() leaves it (docs/python.md)")
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdigit():  # Ray would try for minutes
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"address: nothing answers at {address} ({error})") from None
    ray_worker.print_to_stdstream = _log_line
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _start() if address in ("", "local") else _join(address)
    except InputError:
        raise
    except (ConnectionError, ValueError) as error:
        raise InputError(f"address: no Ray cluster at {address!r} ({first_line(error)})") from None
    except KeyboardInterrupt:  # the process may go on: a notebook
        disconnect()
        raise
    except Exception as error:  # noqa: BLE001 - Ray raises this very class where its processes are not up within 30 s
        raise OperationError(f"Ray cannot be started or joined; was the machine busy? ({first_line(error)})") from None
    finally:
        if callable(handler):  # Ray answers SIGTERM with a stack trace of its own
            _set_handlers({signal.SIGTERM: handler})


def disconnect() -> None:
    """End a Ray of ours, or leave the cluster, which lives on. Not to be interrupted by a second Ctrl-C."""
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in STOPS}
    _set_handlers(dict.fromkeys(STOPS, signal.SIG_IGN))
    try:
        ray.shutdown()
        _read_environment()
    finally:
        _set_handlers(handlers)


def check_raylet() -> None:
    """Raise OperationError if Ray's process on this machine has died: using the object store would then end ours."""
    node: Any = ray_worker._global_node
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(node.raylet_socket_name)
        except OSError:
            why = "killed by somebody or for want of memory; the same command resumes"
            raise OperationError(f"Ray's raylet on this machine has died, {why}") from None


def first_line(error: object) -> str:
    """The first line of an error of Ray's; stack traces of other processes follow."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _set_handlers(handlers: Mapping[int, Any]) -> None:
    if current_thread() is main_thread():  # Python allows it there alone
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _log_line(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    """Log a message of Ray's processes in one line. Ray would print all of it, into tables and JSON."""
    logging.getLogger(__name__).warning("Ray: %s", first_line("\n".join(data["lines"])))


def _start() -> None:
    """Start a Ray of ours. Its processes have the token, and the addresses they listen on, from this one."""
    clusters = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False  # what Ray does where it knows no clusters: the loopback for all ports
    # Ray's processes add to their docstrings, and die where -OO has left none.
    own = {MODE: "token", TOKEN: secrets.token_hex(32), "PYTHONOPTIMIZE": ""}
    try:
        with _environment(own), _interrupt_held_back():
            _init("local", include_dashboard=False)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters


def _join(address: str) -> None:
    """Join a cluster, with the token where it asks for one. A driver that asks for it is none for one that does not.

    Raises:
        InputError: if the cluster refuses the token, or there is none.
        ConnectionError: if there is no cluster.
    """
    if "://" in address:  # Ray's client, which asks by itself
        _init(address)
        return
    asks = f"address: the Ray cluster at {address} asks for its token"
    mode = os.environ.get(MODE) or ("disabled" if _answers(address, "disabled") else "token")
    loader = AuthenticationTokenLoader.instance()
    loader.reset_cache()
    try:
        has_token = loader.has_token(ignore_auth_mode=True)
    except AuthenticationError as error:  # a file is named that cannot be read
        raise InputError(f"address: {error.message}") from None
    if mode.lower() == "token" and not has_token:
        raise InputError(f"{asks}, and there is none here: {REMEDY}")
    if not _answers(address, mode):
        source = TOKEN if os.environ.get(TOKEN) else os.environ.get(TOKEN_PATH) or "~/.ray/auth_token"  # Ray's order
        why = f"refuses that of {source}: {REMEDY}" if mode.lower() == "token" else f"{MODE} is {mode} here"
        raise InputError(f"{asks}, and {why}")
    with _environment({MODE: mode}):
        _init(address)


def _init(address: str, **more: Any) -> None:
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **more)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and have Ray read them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    _read_environment()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def _read_environment() -> None:
    """Have Ray, which keeps what it has once read, read its environment variables and its token now."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _answers(address: str, mode: str) -> bool:
    """Whether a cluster takes our calls. Where it refuses them, Ray goes on asking for 20 s, a line each.

    Raises:
        ConnectionError: if there is no cluster.
    """
    at = services.canonicalize_bootstrap_address(address)
    try:
        with _environment({MODE: mode}), _muted_stderr():
            GcsClient(address=at).check_alive([], timeout=CONNECT_SECONDS)
    except AuthenticationError:
        return False
    except RayError as error:
        raise ConnectionError(first_line(error)) from None
    return True


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Let Ctrl-C wait for the end of a block: a Ray that is half started leaves processes to a notebook that lives on.

    Raises:
        KeyboardInterrupt: at the end, if it came.
    """
    came, before = list[int](), signal.getsignal(signal.SIGINT)
    if callable(before):  # else it is ignored, as in the background of a shell
        _set_handlers({signal.SIGINT: lambda number, _: came.append(number)})
    try:
        yield
    finally:
        _set_handlers({signal.SIGINT: before})
    if came:
        raise KeyboardInterrupt


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Silence standard error, to which Ray's C++ writes whatever its log level."""
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nothing)


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
        setting: LatencySetting | None = None,
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
        busy = [self._capacities[running.place] for running in {*self._running.values()}]
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
