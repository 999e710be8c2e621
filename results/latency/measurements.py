"""Latency: in which setting it is measured, and what a run's log keeps of it. Knows no torch.

A "measured" event of the log is a measurement; of each net the last one counts. It holds latency_ms,
latency_spread_ms, device, batch, dtype, runtime (of `RUNTIMES`), threads, image_size, machine and when.
All from device to machine say in which setting it was measured; numbers of different settings, other machines too,
are never compared. What a user's command has measured on a device (device_command.py) has the device's name, the
export format as runtime and the command as machine, and what else it printed as numbers.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

from msgspec import Meta

from ...archs.cost import MAX_COST, MIN_COST
from ...archs.errors import InputError, check_choice, is_whole, short_repr
from ...archs.json_files import Amount, Text, Whole, convert

DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16", "int8")
ONNX_FORMATS = {"float32": "onnx", "float16": "onnx-fp16", "int8": "onnx-int8"}  # of export, by dtype
RUNTIMES = ("eager", "compile", "graph", "onnx")
MAX_BATCH = 2**20  # and threads
SETTING = ("device", "batch", "dtype", "runtime", "threads", "image_size", "machine")


@dataclass(frozen=True)
class LatencySetting:
    """Setting of a latency measurement; `str` spells it DEVICE/BATCH/DTYPE/RUNTIME/THREADS."""

    device: str = "cpu"  # cpu or cuda
    batch: int = 1  # images at once
    dtype: str = "float32"  # float32, bfloat16, float16 or, by onnxruntime alone, int8
    runtime: str = "eager"  # eager, compile (torch.compile), graph (a CUDA graph) or onnx (onnxruntime)
    threads: int = 1  # of the CPU

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("runtime", self.runtime, RUNTIMES)
        for name, value in (("batch", self.batch), ("threads", self.threads)):
            if not 1 <= value <= MAX_BATCH:
                raise InputError(f"{name}: must be from 1 to {MAX_BATCH}, got {short_repr(value)}")
        if self.runtime == "onnx" and (self.dtype not in ONNX_FORMATS or self.device != "cpu"):
            rule = f"measured in {', '.join(ONNX_FORMATS)} on the CPU alone"
            raise InputError(f"runtime onnx: {rule}, got {self.dtype} on {self.device}")
        if self.runtime == "graph" and self.device != "cuda":
            raise InputError(f"runtime graph: measured on cuda alone, got {self.device}")
        if self.dtype == "int8" and self.runtime != "onnx":
            raise InputError(f"dtype int8: measured by runtime onnx alone, got {self.runtime}")

    def __str__(self) -> str:
        return "/".join(str(getattr(self, field.name)) for field in fields(self))

    @property
    def parts(self) -> dict[str, Any]:
        """The setting's fields in a measurement."""
        return asdict(self)

    def setting_id(self, image_size: Sequence[int]) -> str:
        """The setting with an image size; the machine is that of the first measurement."""
        return f"{self}/{side_text(image_size)}"

    @classmethod
    def parse(cls, text: str) -> LatencySetting:
        """The setting that "cuda/32/float16" spells; parts left out, at the end or between, are the defaults."""
        parts, names = [part.strip() for part in text.split("/")], [field.name for field in fields(cls)]
        if len(parts) > len(names):
            raise InputError(f"latency: DEVICE/BATCH/DTYPE/RUNTIME/THREADS, got {short_repr(text)}")
        given: dict[str, Any] = {name: part for name, part in zip(names, parts, strict=False) if part}
        for name in given.keys() & {"batch", "threads"}:
            if not is_whole(given[name]):
                raise InputError(f"latency: {name} must be a whole number, got {short_repr(given[name])}")
            given[name] = int(given[name])
        return cls(**given)


@dataclass(frozen=True)
class Effort:
    """How long a net is measured, and until its figures agree how well."""

    repeats: int = 3  # runs of a device's command at least; of two runs both must agree
    warm_s: float = 0.3  # seconds of warm-up on this machine
    least_s: float = 0.5  # and of measuring
    most_s: float = 10.0


FULL = Effort()
SHORT = Effort(repeats=2, warm_s=0.1, least_s=0.1, most_s=1.0)  # of the nets of a search


def latency_settings(
    device: str, batch: str, dtype: str, compiled: bool, graph: bool, onnx: bool, threads: int
) -> list[LatencySetting]:
    """Every batch size of a comma list with every dtype of another; InputError if one is unknown or does not fit."""
    flags = {"compile": compiled, "graph": graph, "onnx": onnx}
    runtime, *more = [name for name, wanted in flags.items() if wanted] or ["eager"]
    if more:
        raise InputError(f"{runtime} and {more[0]}: one of them")
    sizes = [part.strip() for part in batch.split(",") if part.strip()]
    if bad := [size for size in sizes if not is_whole(size)] or (not sizes and [batch]):
        raise InputError(f"batch: whole numbers with commas between, such as 1,32, got {short_repr(bad[0])}")
    dtypes = [part.strip() for part in dtype.split(",") if part.strip()] or [dtype]
    return [LatencySetting(device, int(size), name, runtime, threads) for name in dtypes for size in sizes]


def cpu_name() -> str:
    """The CPU's model, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


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
        value = self.ms if number == "latency_ms" else self.numbers.get(number, 0.0)
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


def side_text(image_size: Iterable[int]) -> str:
    """An image size in a setting: "32" of a square, "32x48"."""
    return "x".join(map(str, dict.fromkeys(image_size)))


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
