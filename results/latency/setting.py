"""`Setting`: what a latency is measured under, and how it is spelled. Knows no torch."""

from __future__ import annotations

import platform
from dataclasses import dataclass, fields
from pathlib import Path

from ...archs.errors import InputError, check_choice, is_whole, short_repr

DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16")
MOST = 2**20
RUNTIMES = ("eager", "compile", "onnx")


@dataclass(frozen=True)
class LatencySetting:
    """What a latency is measured under; `str` spells it DEVICE/BATCH/DTYPE/RUNTIME/THREADS.

    Attributes:
        device: cpu or cuda.
        batch: images at once.
        dtype: float32, bfloat16 or float16.
        runtime: eager, compile (torch.compile) or onnx (onnxruntime).
        threads: of the CPU.
    """

    device: str = "cpu"
    batch: int = 1
    dtype: str = "float32"
    runtime: str = "eager"
    threads: int = 1

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("runtime", self.runtime, RUNTIMES)
        for name, value in (("batch", self.batch), ("threads", self.threads)):
            if not 1 <= value <= MOST:
                raise InputError(f"{name}: must be from 1 to {MOST}, got {short_repr(value)}")
        if self.runtime == "onnx" and (self.dtype, self.device) != ("float32", "cpu"):
            raise InputError(f"runtime onnx: measured in float32 on the CPU alone, got {self.dtype} on {self.device}")

    def __str__(self) -> str:
        return "/".join(str(getattr(self, field.name)) for field in fields(self))

    @classmethod
    def parse(cls, text: str) -> LatencySetting:
        """Of "cuda/32/float16"; parts left out, at the end or between, are cpu/1/float32/eager/1.

        Raises:
            InputError: if a part is none, or they do not go together.
        """
        parts = [part.strip() for part in text.split("/")]
        names = [field.name for field in fields(cls)]
        if len(parts) > len(names):
            raise InputError(f"latency: DEVICE/BATCH/DTYPE/RUNTIME/THREADS, got {short_repr(text)}")
        given = {name: part for name, part in zip(names, parts, strict=False) if part}
        for name in given.keys() & {"batch", "threads"}:
            if not is_whole(given[name]):
                raise InputError(f"latency: {name} must be a whole number, got {short_repr(given[name])}")
        return cls(**given | {name: int(given[name]) for name in given.keys() & {"batch", "threads"}})  # type: ignore[arg-type]


def settings_of(device: str, batch: str, dtype: str, flags: tuple[bool, bool], threads: int) -> list[LatencySetting]:
    """Every batch with every dtype; `flags` say whether nets are compiled, or run in onnxruntime.

    Raises:
        InputError: if a value is unknown or they do not go together.
    """
    if all(flags):
        raise InputError("compile and onnx: one of them")
    runtime = RUNTIMES[1 + flags.index(True)] if any(flags) else RUNTIMES[0]
    sizes = [part.strip() for part in batch.split(",") if part.strip()]
    if bad := [size for size in sizes if not size.isdecimal()] or (not sizes and [batch]):
        raise InputError(f"batch: whole numbers with commas between, such as 1,32, got {bad[0]!r}")
    kinds = [part.strip() for part in dtype.split(",") if part.strip()] or [dtype]
    return [LatencySetting(device, int(size), kind, runtime, threads) for kind in kinds for size in sizes]


def cpu_name() -> str:
    """The CPU's model, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
