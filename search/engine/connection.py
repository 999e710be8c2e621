"""Starts Ray, joins a cluster, and leaves it.

Since 2.60 Ray's processes answer only callers with their token, who may run anything as their user.
A Ray of ours has one that stands in no file, and listens on the loopback alone.
"""

import ctypes
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from threading import current_thread, main_thread
from typing import Any

import ray
from ray._private import ray_constants, services, utils
from ray._private import worker as ray_worker
from ray._raylet import (
    AuthenticationTokenLoader,  # pyright: ignore[reportAttributeAccessIssue]
    Config,  # pyright: ignore[reportAttributeAccessIssue]
    GcsClient,  # pyright: ignore[reportAttributeAccessIssue]
)
from ray.exceptions import AuthenticationError, RayError
from ray.job_config import JobConfig

from ...archs.children import VARIABLE, ended_after
from ...archs.cpus import usable_cpus
from ...archs.errors import InputError, OperationError

# Else the colorama that Ray brings, once tqdm has begun it, writes an escape sequence at the very end.
ray_worker.colorama.initialise.atexit_done = True  # pyright: ignore[reportPrivateImportUsage]
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

MIN_ADDRESS_SPACE = 16 * 10**9  # bytes: it starts in 16 GB, and not in 8
CONNECT_SECONDS = 10.0
STOPS = (signal.SIGINT, signal.SIGTERM)
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
CUDA_DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"  # Ray counts cards by the second alone
WORKER_DIED = "A worker died or was killed while executing a task"  # a line of Ray's
_leftovers = ExitStack()  # ends what a Ray of ours and its workers have left
LONGEST_FOLDER = 38  # characters: that of a Unix socket, 107, less what Ray puts behind
REMEDY = f"copy the head's ~/.ray/auth_token, or set {TOKEN} (docs/cluster.md)"


def _check_address_space() -> None:
    """Raise OperationError if `ulimit -v` leaves too little for Ray, which then crashes or hangs as it starts."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < MIN_ADDRESS_SPACE:
        rule = f"Ray takes {MIN_ADDRESS_SPACE / 1e9:.0f} GB of address space"
        raise OperationError(f"memory: {rule}, ulimit -v allows {limit / 1e9:.3g}")


def connect(address: str) -> None:
    """Join the Ray cluster at `address`, or start one of our own for "".

    Raises InputError if there is none, it refuses our token, or this process has joined one. Raises OperationError if
    Ray does not start, or is of another version there.
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
    if address in ("", "local"):
        _check_address_space()
    try:
        if address in ("", "local"):
            _start()
        else:
            _join(address)
            if not ray.cluster_resources().get("GPU") and (seen := torch_gpus()):
                rule = (
                    f"torch sees {seen} on this machine: nets train on CPUs; ray start --num-gpus {seen} has them used"
                )
                logging.getLogger("alternas").warning("the Ray cluster counts no GPUs, %s", rule)
    except InputError:
        raise
    except (ConnectionError, ValueError) as error:
        raise InputError(f"address: no Ray cluster at {address!r} ({first_line(error)})") from None
    except KeyboardInterrupt:  # the process may go on: a notebook
        disconnect()
        raise
    except Exception as error:  # noqa: BLE001 - Ray raises this very class where its processes are not up within 30 s
        disconnect()
        raise OperationError(f"Ray cannot be started or joined; was the machine busy? ({first_line(error)})") from None


def disconnect() -> None:
    """End a Ray of ours, or leave the cluster, which lives on. Not to be interrupted by a second Ctrl-C."""
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in STOPS}
    _set_handlers(dict.fromkeys(STOPS, signal.SIG_IGN))
    try:
        ray.shutdown()
        _read_environment()
        _leftovers.close()
    finally:
        _set_handlers(handlers)


def torch_gpus() -> int:
    """How many GPUs torch can use here. It is loaded, which takes seconds, only where CUDA's driver is installed."""
    if not _is_installed(CUDA_DRIVER):
        return 0
    import torch

    return torch.cuda.device_count()


def _is_installed(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


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
    """Log a message of Ray's processes in one line. Ray would print all of it, into tables and JSON.

    Not that a worker died: who waits for its job says so.
    """
    line = first_line("\n".join(data["lines"]))
    if not line.startswith(WORKER_DIED):
        logging.getLogger(__name__).warning("Ray: %s", line)


def _start() -> None:
    """Start a Ray of ours. Its processes have the token, and the addresses they listen on, from this one."""
    clusters = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False  # what Ray does where it knows no clusters: the loopback for all ports
    # Ray's processes add to their docstrings, and die where -OO has left none.
    # Whom a process's title overwrites its environment for, its mark is lost for.
    own = {MODE: "token", TOKEN: secrets.token_hex(32), "PYTHONOPTIMIZE": "", "SPT_NOENV": "1"}
    own |= {VARIABLE: _leftovers.enter_context(ended_after())[VARIABLE]}
    try:
        with _environment(own):
            gpus = None if _is_installed(NVML) else torch_gpus() or None  # None: Ray counts
            _init("local", include_dashboard=False, num_cpus=usable_cpus(), num_gpus=gpus, _temp_dir=_short_folder())
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters


def _join(address: str) -> None:
    """Join a cluster, with the token where it asks for one. A driver that asks for it is none for one that does not.

    Raises InputError if the cluster refuses the token, or there is none. Raises ConnectionError if there is no cluster.
    """
    if "://" in address:  # Ray's client, which asks by itself
        return _init(address)
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


def _short_folder() -> str | None:
    """Where Ray, which opens Unix sockets there, keeps its files; None for its own choice.

    Raises InputError if no folder's path is short enough.
    """
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR", "/tmp")  # Ray's order
    if len(os.fsencode(folder)) <= LONGEST_FOLDER:
        return None
    if "RAY_TMPDIR" in os.environ or not os.access("/tmp", os.W_OK):
        rule = f"must be at most {LONGEST_FOLDER} characters long, for Ray's sockets; set RAY_TMPDIR to a shorter one"
        raise InputError(f"temporary folder: {rule}, got {folder}")
    return "/tmp/ray"


def _init(address: str, **more: Any) -> None:
    """Connect. Workers import first what the driver does: Ray adds the current folder, which may hold another torch."""
    own = takewhile(lambda folder: folder != sysconfig.get_path("stdlib"), sys.path)
    last_first = [os.path.abspath(folder) for folder in own][::-1]  # as Ray puts them before its own, one by one
    job = JobConfig(_client_job=True, _py_driver_sys_path=last_first)  # to a client's job Ray adds nothing
    with _signals_held_back():
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, job_config=job, **more)


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

    Raises ConnectionError if there is no cluster.
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
def _signals_held_back() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of a block, and keep Ray, which exits with 15, from answering SIGTERM.

    A Ray that is half started leaves processes to a notebook that lives on.
    """
    came, set_by_ray = list[int](), utils.set_sigterm_handler
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in STOPS}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}  # others are ignored
    _set_handlers(dict.fromkeys(before, lambda number, _: came.append(number)))
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = set_by_ray
        _set_handlers(before)
    for number in came:
        before[number](number, None)


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
