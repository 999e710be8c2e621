"""`DriverFiles`: the driver's files for workers on other nodes, by way of Ray: nodes share no disk and need no store.

A Ray actor on the driver's node reads and writes them. It ends with the driver, so that nothing is written behind it.
"""

import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util import get_node_ip_address
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...archs.files import atomic_write, check_folder, make_folder, sync_folder
from ..training.job_files import FilesError, Stamp
from ..training.member import Member

CHUNK = 2**24  # bytes sent at a time: so many of each worker are in the driver's memory at most
MEET_SECONDS = 300.0  # for the first of several workers to say where it listens
POLL_SECONDS = 0.1


class FileServer:
    """Reads and writes files on the driver's node."""

    def stamp(self, path: str) -> Stamp | None:
        """Size and time of a file; None if there is none."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns

    def read(self, path: str, start: int) -> bytes:
        """A part of a file."""
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(CHUNK)

    def write(self, path: str, start: int, chunk: bytes, last: bool) -> None:
        """Write a part of a file; with the last one it takes the place of an older file.

        Raises FileNotFoundError if the run's folder is gone. Raises FilesError if another worker has begun to send the
        same file.
        """
        check_folder(path)
        whole, part = Path(path), Path(f"{path}.part")
        make_folder(whole.parent)
        if start and (not part.exists() or part.stat().st_size != start):
            raise FilesError(f"{whole.name}: another worker sends it too")
        with open(part, "ab" if start else "wb") as file:
            file.write(chunk)
            if last:
                file.flush()
                os.fsync(file.fileno())
        if last:
            part.replace(whole)
            sync_folder(whole.parent)


@dataclass(frozen=True)
class DriverFiles:
    """The files of a driver, as workers get at them. Errors of the driver's disk are raised here."""

    server: Any  # the actor
    node: str  # of the driver

    @property
    def are_here(self) -> bool:
        """Whether this is the driver's node, whose disk the worker sees."""
        return ray.get_runtime_context().get_node_id() == self.node

    def stamp(self, path: str) -> Stamp | None:
        """Size and time of a file there; None if there is none."""
        return self._ask("stamp", path)

    def fetch(self, path: str, to: Path) -> None:
        """Bring a file here, whole or not at all."""

        def copy(file: Any) -> None:
            while chunk := self._ask("read", path, file.tell()):
                file.write(chunk)

        atomic_write(to, copy)

    def send(self, file: Path, path: str) -> None:
        """Put a file there, in place of an older one, whole or not at all."""
        left = file.stat().st_size
        with open(file, "rb") as source:
            while chunk := source.read(CHUNK):
                left -= len(chunk)
                self._ask("write", path, source.tell() - len(chunk), chunk, left <= 0)

    def meet(self, member: Member) -> Member:
        """Have the first worker of a job leave a file that says where it listens, and the others wait for that."""
        if member.rank == 0:
            with socket.socket() as free:
                free.bind(("", 0))
                address = f"{get_node_ip_address()}:{free.getsockname()[1]}"
            self._ask("write", member.rendezvous, 0, address.encode(), True)
        until = time.monotonic() + MEET_SECONDS
        while self.stamp(member.rendezvous) is None:
            if time.monotonic() > until:
                raise FilesError("a worker that was to train beside this one did not come")
            time.sleep(POLL_SECONDS)
        address = self._ask("read", member.rendezvous, 0)
        return replace(member, rendezvous=f"tcp://{address.decode()}")

    def _ask(self, what: str, *given: Any) -> Any:
        try:
            return ray.get(getattr(self.server, what).remote(*given))
        except RayTaskError as error:
            raise error.cause from None  # the server's own error
        except RayError as error:
            raise FilesError(f"the driver's files are out of reach ({type(error).__name__})") from None


def driver_files() -> DriverFiles:
    """Open the files of this driver to the nodes of the cluster that it has joined."""
    node = ray.get_runtime_context().get_node_id()
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    kind: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(FileServer)
    return DriverFiles(kind.options(scheduling_strategy=here).remote(), node)
