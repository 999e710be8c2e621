"""`alternas doctor`: the checks of checks.py on the driver and, by way of Ray, on each node of the cluster.

They ask for no CPU, so that a cluster that is busy can be looked at too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...archs.errors import InputError, OperationError
from ...archs.files import atomic_write
from ...results.runs.record import versions
from ..data.dataset import DataConfig, DataSet
from ..data.load import load
from ..training.artifact_store import ArtifactStore, StoreError, check_uri
from ..training.artifact_sync import scratch
from .checks import TOKEN, Check, Place, checked, look, one_line
from .connection import connect, disconnect

NODE_SECONDS = 300  # for all checks of a node; importing torch from a slow disk can take a minute


def examine(address: str, data: str, folder: Path, checkpoints: str = "") -> list[Check]:
    """Look at the driver and every node of the cluster at `address`, or of one of our own on this machine.

    Args:
        data: name of the data set that is to be reachable.
        folder: that every node is to write to; made for the time being if it is not there.
        checkpoints: URI of the depot that the nodes are to write to instead, if any.
    """
    if checkpoints:
        check_uri(checkpoints)
    loaded: list[DataSet] = []

    def read() -> str:
        loaded.append(load(DataConfig(data)).without_test())
        return f"{data}: {len(loaded[0].train):,} training images, {loaded[0].loader}"

    own = ", ".join(f"{name} {version}" for name, version in versions().items())
    checks = [Check("driver", "versions", True, own), checked("driver", "data", read)]
    token = uuid.uuid4().hex
    try:
        with _marked(folder, token), _met(folder, checkpoints, token) as depot:
            digits = load(DataConfig("digits")).without_test()
            place = Place(versions(), str(folder.resolve()), token, loaded[0] if loaded else None, digits, depot)
            checks.append(Check("driver", "storage", True, f"{place.folder}: writable"))
            if depot:
                checks.append(Check("driver", "checkpoints", True, f"{depot}: writable"))
            return checks + _cluster(address, place)
    except StoreError as error:
        return [*checks, Check("driver", "checkpoints", False, one_line(error))]
    except OSError as error:
        return [*checks, Check("driver", "storage", False, f"{folder}: {one_line(error)}")]


@contextmanager
def _marked(folder: Path, token: str) -> Iterator[None]:
    """The folder with a file of the driver's in it; what was made for that goes again."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / TOKEN).write_text(token)
        yield
    finally:
        (folder / TOKEN).unlink(missing_ok=True)
        for path in made:
            if not any(path.iterdir()):
                path.rmdir()


@contextmanager
def _met(folder: Path, uri: str, token: str) -> Iterator[ArtifactStore | None]:
    """A folder in the depot at `uri`, if there is one, with a file of the driver's in it; it goes again."""
    if not uri:
        yield None
        return
    depot = ArtifactStore(uri, f"{TOKEN}-{token[:8]}", folder.absolute())
    depot.check()
    try:
        with scratch() as own:
            atomic_write(own / "starts" / TOKEN, lambda file: file.write(token.encode()))
            replace(depot, home=own).send(own / "starts" / TOKEN)
        yield depot
    finally:
        depot.clear()


def _cluster(address: str, place: Place) -> list[Check]:
    """The checks of each node of the cluster."""
    try:
        connect(address)
    except (InputError, OperationError) as error:
        return [Check("driver", "cluster", False, one_line(error))]
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        have = ray.cluster_resources()
        said = f"{len(nodes)} nodes, {have.get('CPU', 0):g} CPUs, {have.get('GPU', 0):g} GPUs"
        given = ray.put(place)
        started = [(_name(node), _start(node, given)) for node in nodes]
        return [Check("driver", "cluster", True, said), *(c for name, ref in started for c in _answer(name, ref))]
    finally:
        disconnect()


def _name(node: dict[str, Any]) -> str:
    """The host, and the beginning of Ray's id: a machine may hold several nodes."""
    return f"{node['NodeManagerHostname']} {node['NodeID'][:6]}"


def _start(node: dict[str, Any], given: Any) -> Any:
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task = ray.remote(look).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
    return task.remote(_name(node), given, node["Resources"].get("GPU", 0.0))


def _answer(name: str, ref: Any) -> list[Check]:
    try:
        return ray.get(ref, timeout=NODE_SECONDS)
    except RayError as error:
        return [Check(name, "worker", False, f"{type(error).__name__}: {one_line(error)}")]
