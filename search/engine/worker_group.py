"""`WorkerGroup`: where one job runs at a time: a Ray worker, or several that train one net together."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ..training.bank_jobs import SupernetJob
from ..training.job import Job, TrainJob
from ..training.member import Member
from .driver_files import DriverFiles
from .resources import Resources

RENDEZVOUS = "rendezvous-"  # beginning of the names of files by which the workers of a group find each other


@dataclass(eq=False, frozen=True)
class WorkerGroup:
    """Workers that start and end together; the first one does alone what needs one device."""

    workers: Sequence[Any]  # Ray actors
    placement: Any = None  # what Ray reserves for them together; None for one

    def shared(self, job: Job, local: bool) -> list[Job]:
        """What each worker is asked: a training is for all of them, every other job for the first.

        `local`: whether all workers are on the driver's machine.
        """
        if len(self.workers) == 1 or not isinstance(job, TrainJob | SupernetJob):
            return [job]
        meet = Path(job.checkpoint).with_name(RENDEZVOUS + secrets.token_hex(8))
        meet.parent.mkdir(parents=True, exist_ok=True)
        members = (Member(rank, len(self.workers), str(meet), local) for rank in range(len(self.workers)))
        return [replace(job, member=member) for member in members]

    def end(self) -> None:
        """Kill its workers."""
        for worker in self.workers:
            ray.kill(worker)
        if self.placement is not None:
            remove_placement_group(self.placement)


def open_workers(worker: type, resources: Resources, threads: int, files: DriverFiles | None = None) -> WorkerGroup:
    """Start the workers of a trial, with so many threads each: on one node where one has room for them.

    `files`: of the driver, for those that may be on other nodes.
    """
    cpus, gpus = resources.cpus, resources.gpus_of_worker
    kind: Any = ray.remote(num_cpus=cpus, num_gpus=gpus)(worker)
    given = threads, "cuda" if gpus else "cpu", gpus, *([files] if files else [])
    if resources.world == 1:
        return WorkerGroup([kind.remote(*given)])
    bundle = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
    placement: Any = placement_group([bundle] * resources.world, "PACK")
    there = (PlacementGroupSchedulingStrategy(placement, i) for i in range(resources.world))
    return WorkerGroup([kind.options(scheduling_strategy=at).remote(*given) for at in there], placement)
