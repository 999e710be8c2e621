"""What was measured: `Latency` by a measurement of now, `Measurement` by a line of a run's log. Knows no torch.

A "measured" event of the log is a measurement; of each net the last one counts. It holds latency_ms,
latency_spread_ms, device, batch, dtype, runtime (of `RUNTIMES`), threads, image_size, machine and when.
All from device to machine say in which setting it was measured; numbers of different settings, other machines too,
are never compared. What a user's command has measured on a device has the device's name, the export format as runtime
and the command as machine, and what else it printed as numbers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Required, TypedDict

from msgspec import Meta

from ...archs.cost import MAX_COST, MIN_COST
from ...archs.errors import InputError
from ...archs.json_files import Amount, Text, Whole, convert
from ..ranking.quantities import LATENCY
from ..runs.status import Status
from .setting import DeviceCommand, Setting, side_text

SETTING = ("device", "batch", "dtype", "runtime", "threads", "image_size", "machine")


@dataclass(frozen=True)
class Latency:
    """Milliseconds a batch takes."""

    setting: Setting  # what it was measured under
    latency_ms: float  # the median; 0 of a device that measures other things alone
    low_ms: float  # of the 95 % interval of the median; of a device the least
    high_ms: float  # likewise, or the most
    latency_spread_ms: float  # distance of the quartiles
    repeats: int  # times that these were taken from
    tight: bool  # whether they agree as well as is asked for
    # where the figures are doubtful, load of the machine before, over its cores; of a device how far repeats differ
    busy: float = 0.0
    memory_bytes: int | None = None  # peak on a GPU, weights included; of runtime onnx, over the runtime's own
    machine: str = ""  # name of the device, or the command that measures on it
    # what else was measured, by name: energy_mj of a batch where there is a meter; all that a command prints
    numbers: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0  # that measuring took, export included; 0 where it is not known
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))  # in UTC

    @property
    def images_per_second(self) -> float:
        return 1e3 * self.setting.batch / self.latency_ms if self.latency_ms else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Flat dict, as the log keeps it."""
        rest = asdict(self)
        del rest["setting"]
        return self.setting.parts | rest | {"images_per_second": self.images_per_second}


class DeviceError(Exception):
    """A net was not measured: the device is unreachable, timeout, oom, infeasible, or error, no number was printed."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Measurement:
    """Latency of one net in one setting: a batch's milliseconds, and their spread."""

    key: str
    ms: float
    spread_ms: float | None
    setting: str  # DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE/MACHINE
    numbers: Mapping[str, float] = field(default_factory=dict)  # what else was measured, by name
    seconds: float = 0.0  # that measuring took; 0 where it is not known

    def value(self, number: str) -> float | None:
        """One of its numbers, None where it has not been measured."""
        value = self.ms if number == LATENCY else self.numbers.get(number, 0.0)
        return value if value >= MIN_COST else None

    def is_of(self, setting_id: str) -> bool:
        """Whether it was made in a setting, of which the beginning of the text will do."""
        return f"{self.setting}/".startswith(f"{setting_id}/")

    def has(self, numbers: Iterable[str]) -> bool:
        """Whether all of these were measured."""
        return None not in map(self.value, numbers)


CostValue = Annotated[float, Meta(ge=MIN_COST, le=MAX_COST)]
OtherMs = Annotated[float, Meta(ge=0, le=MAX_COST)]  # 0 where other numbers were measured


class _Row(TypedDict, total=False):
    """The checked parts of a measurement."""

    latency_ms: Required[OtherMs]
    latency_spread_ms: Amount | None
    numbers: dict[str, CostValue] | None
    seconds: Amount | None
    device: Text | None
    batch: Whole | None
    dtype: Text | None
    runtime: Text | None
    threads: Whole | None
    image_size: list[Whole] | None
    machine: Text | None


def measurement_of(key: str, measured: Any) -> Measurement:
    """The measurement of a net that an event holds; InputError if it is none."""
    row: Any = convert(measured, _Row, "")
    ms, numbers = row["latency_ms"], row.get("numbers") or {}
    if ms < MIN_COST and (ms or not numbers):
        raise InputError(f"latency_ms must be a number from {MIN_COST:g}, got {ms!r}")
    setting = _setting(*(tuple(p) if isinstance(p := row.get(name), list) else p for name in SETTING))
    return Measurement(key, ms, row.get("latency_spread_ms"), setting, numbers, row.get("seconds") or 0.0)


@cache
def _setting(*parts: Any) -> str:
    """A setting's name; a square side is said once."""
    sides = [side_text(p) if isinstance(p, tuple) else p for p in parts]
    return "/".join("-" if part is None else str(part).replace("/", "-") for part in sides)


def settings_in(measured: Iterable[Measurement]) -> list[str]:
    """The settings measured in, in order of first appearance."""
    return list(dict.fromkeys(m.setting for m in measured))


def latencies_of(measured: Iterable[Measurement], selector: str = "", where: str = "") -> dict[str, Measurement]:
    """The latest measurement of each net, by key, in the one setting that the selector means.

    A selector is DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE/MACHINE, or so much of it as tells it from the others: parts
    left out at the end, or empty, may be any: "cpu/1", "//bfloat16". "" is all right if there is one. `where` is the
    run, for the message. InputError if that is no setting, or several.
    """
    measured = list(measured)
    known = settings_in(measured)
    if not known:
        raise InputError(f"latency: nothing was measured in run {where}")
    parts = [part.strip() for part in selector.lower().split("/")]
    meant = []
    for setting in known:
        own = setting.lower().split("/")
        if len(parts) <= len(own) and all(part in ("", of) for part, of in zip(parts, own, strict=False)):
            meant.append(setting)
    if len(meant) != 1:
        which = f"{selector!r} is {len(meant) or 'none'} of those" if selector else "say which"
        raise InputError(f"latency-of: run {where} has latencies of {len(known)} settings, {which}: {', '.join(known)}")
    return {m.key: m for m in measured if m.setting == meant[0]}


def measured_on(
    measured: Iterable[Measurement], device: str, own: DeviceCommand | None = None, where: str = ""
) -> list[Measurement]:
    """Measurements on a device, by its name in any case: all in one setting.

    The command of `own`, the device of the run's search, goes before others of that name; `where` is the run, for the
    message. InputError if several commands have measured under that name.
    """
    found = [m for m in measured if m.setting.lower().startswith(f"{device.lower()}/")]
    if own:
        found = [m for m in found if m.setting.endswith(f"/{own.machine}")] or found
    if len(known := settings_in(found)) > 1:
        rule = f"run {where} has numbers of {len(known)} settings on {device!r}: {', '.join(known)}"
        raise InputError(f"objectives: {rule}; say which with --latency-of, and call it {LATENCY}")
    return found
