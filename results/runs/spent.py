"""spent.json of a run: what its workers have taken so far, in hours of CPUs and GPUs and in money."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from ...archs.json_files import Amount, read_json
from .store import write_json

FILE = "spent.json"


@dataclass(frozen=True)
class Spent:
    """What workers have taken while they had a job, in all sessions: work that was lost or done again included.

    Attributes:
        cpu_hours: hours of workers, times the CPUs of each.
        gpu_hours: the same for GPUs.
        cost: of these hours, at the prices of their sessions; those of sessions without prices cost nothing.
    """

    cpu_hours: Amount = 0.0
    gpu_hours: Amount = 0.0
    cost: Amount = 0.0

    def plus(self, hours: float, cpus: float, gpus: float, price: float) -> Spent:
        """The same and a worker's job of so many hours; `price` is that of an hour."""
        return Spent(self.cpu_hours + hours * cpus, self.gpu_hours + hours * gpus, self.cost + hours * price)


def read_spent(folder: Path) -> Spent:
    """What a run has spent; nothing where no spent.json says so.

    Raises:
        InputError: if it cannot be read, or one of its numbers is none.
    """
    path = folder / FILE
    return read_json(path, Spent) if os.path.lexists(path) else Spent()


def write_spent(folder: Path, spent: Spent) -> None:
    """Write spent.json, whole or not at all."""
    write_json(folder / FILE, asdict(spent))
