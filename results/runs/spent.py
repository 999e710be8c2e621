"""spent.json of a run: what its workers have taken so far, in hours of CPUs and GPUs and in money."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from ...archs.errors import InputError, short_repr
from ...archs.files import parse_json, read_own
from .record import LARGEST
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

    cpu_hours: float = 0.0
    gpu_hours: float = 0.0
    cost: float = 0.0

    def plus(self, hours: float, cpus: float, gpus: float, price: float) -> Spent:
        """The same and a worker's job of so many hours; `price` is that of an hour."""
        return Spent(self.cpu_hours + hours * cpus, self.gpu_hours + hours * gpus, self.cost + hours * price)


def read_spent(folder: Path) -> Spent:
    """What a run has spent; nothing where no spent.json says so.

    Raises:
        InputError: if it cannot be read, or one of its numbers is none.
    """
    try:
        facts = parse_json(read_own(folder / FILE))
    except FileNotFoundError:
        return Spent()
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / FILE}: cannot be read ({error})") from None
    if not isinstance(facts, dict) or facts.keys() != asdict(Spent()).keys():
        raise InputError(f"{folder / FILE}: must be an object with {', '.join(asdict(Spent()))}")
    for name, number in facts.items():
        if type(number) not in (int, float) or not 0 <= number < LARGEST:
            raise InputError(f"{folder / FILE}: {name} must be a number from 0, got {short_repr(number)}")
    return Spent(**facts)


def write_spent(folder: Path, spent: Spent) -> None:
    """Write spent.json, whole or not at all."""
    write_json(folder / FILE, asdict(spent))
