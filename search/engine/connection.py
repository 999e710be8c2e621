"""A Ray for a command: one of our own on this machine, or a cluster that runs.

Since 2.60 Ray's processes answer only callers with their token; whoever has it runs what he likes as their user.
A Ray of ours has one that stands in no file, and listens on the loopback alone.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


KNOCK_SECONDS = 10.0
STOPS = (signal.SIGINT, signal.SIGTERM)
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
REMEDY = f"copy the head's ~/.ray/auth_token, or set {TOKEN} (docs/cluster.md)"


def connect(address: str) -> None:
    """Join the Ray cluster at `address`, or start one of our own for "".

    Raises:
        InputError: if there is none, or it refuses our token.
        OperationError: if Ray does not start, or is of another version there.
    """
    _knock(address)
    ray_worker.print_to_stdstream = _say
    heard = signal.getsignal(signal.SIGTERM)
    try:
        _start() if address in ("", "local") else _join(address)
    except InputError:
        raise
    except (ConnectionError, ValueError) as error:
        raise InputError(f"address: no Ray cluster at {address!r} ({first_line(error)})") from None
    except Exception as error:  # noqa: BLE001 - Ray raises this very class where its processes are not up within 30 s
        raise OperationError(f"Ray cannot be started or joined; was the machine busy? ({first_line(error)})") from None
    finally:
        if callable(heard):  # Ray answers SIGTERM with a stack trace of its own
            hear({signal.SIGTERM: heard})


def disconnect() -> None:
    """End a Ray of ours, or leave the cluster, which lives on. Not to be interrupted by a second Ctrl-C."""
    heard: dict[int, Any] = {number: signal.getsignal(number) for number in STOPS}
    hear(dict.fromkeys(STOPS, signal.SIG_IGN))
    try:
        ray.shutdown()
    finally:
        hear(heard)


def check_raylet() -> None:
    """Look whether Ray's process on this machine lives: where it does not, the next use of the object store ends ours.

    Raises:
        OperationError: if it does not.
    """
    node: Any = ray_worker._global_node
    with socket.socket(socket.AF_UNIX) as knock:
        try:
            knock.connect(node.raylet_socket_name)
        except OSError:
            why = "killed by somebody or for want of memory; the same command resumes"
            raise OperationError(f"Ray's raylet on this machine has died, {why}") from None


def hear(handlers: Mapping[int, Any]) -> None:
    """Have signals answered so. Python allows that in the main thread alone."""
    if current_thread() is main_thread():
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def first_line(error: object) -> str:
    """What an error of Ray's begins with; stack traces of other processes follow."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _start() -> None:
    """Start a Ray of ours. Its processes have the token, and the addresses they listen on, from this one."""
    clusters = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False  # what Ray does where it knows no clusters: the loopback for all ports
    # Ray's processes add to their docstrings, and die where -OO has left none.
    own = {MODE: "token", TOKEN: secrets.token_hex(32), "PYTHONOPTIMIZE": ""}
    try:
        with _environment(own):
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
    source = _token_source()
    if mode.lower() == "token" and not source:
        raise InputError(f"{asks}, and there is none here: {REMEDY}")
    if not _answers(address, mode):
        why = f"refuses that of {source}: {REMEDY}" if mode.lower() == "token" else f"{MODE} is {mode} here"
        raise InputError(f"{asks}, and {why}")
    with _environment({MODE: mode}):
        _init(address)


def _init(address: str, **more: Any) -> None:
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **more)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that Ray, which keeps what it has once read, reads now."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def _token_source() -> str:
    """Where Ray has a token from, in its own order; "" if there is none.

    Raises:
        InputError: if a file is named that cannot be read.
    """
    loader = AuthenticationTokenLoader.instance()
    loader.reset_cache()
    try:
        if not loader.has_token(ignore_auth_mode=True):
            return ""
    except AuthenticationError as error:
        raise InputError(f"address: {error.message}") from None
    named = TOKEN if os.environ.get(TOKEN) else os.environ.get(TOKEN_PATH)
    return named or "~/.ray/auth_token"


def _answers(address: str, mode: str) -> bool:
    """Whether a cluster takes our calls. Where it refuses them, Ray goes on asking for 20 s, a line each.

    Raises:
        ConnectionError: if there is no cluster.
    """
    at = services.canonicalize_bootstrap_address(address)
    try:
        with _environment({MODE: mode}), _silenced():
            GcsClient(address=at).check_alive([], timeout=KNOCK_SECONDS)
    except AuthenticationError:
        return False
    except RayError as error:
        raise ConnectionError(first_line(error)) from None
    return True


@contextmanager
def _silenced() -> Iterator[None]:
    """Without what Ray's C++ writes to standard error whatever its log level."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _say(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    """A message of Ray's processes in one line of the log. Ray prints all of it, into tables and JSON."""
    logging.getLogger(__name__).warning("Ray: %s", first_line("\n".join(data["lines"])))


def _knock(address: str) -> None:
    """Raise InputError if nothing listens at HOST:PORT; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"address: nothing answers at {address} ({error})") from None
