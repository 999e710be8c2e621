"""`latency.jsonl` of a run: what forward passes took. A line is a measurement; of each net the last one counts.

A line holds key, latency_ms, latency_spread_ms, device, batch, dtype, runtime ("eager", "compile", "onnx"), threads,
image_size, machine and when. All between the first three and the last say in which setting it was measured; numbers
of different settings, other machines too, are never compared.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...archs.errors import InputError
from ...archs.files import open_own, parse_json, read_own
from ..runs.store import cut_torn_line

FILE = "latency.jsonl"
SETTING = ("device", "batch", "dtype", "runtime", "threads", "image_size", "machine")
log = logging.getLogger("alternas")


@dataclass(frozen=True)
class Measurement:
    """Of one net in one setting: a batch's milliseconds, and their spread."""

    key: str
    ms: float
    spread_ms: float | None
    setting: str  # DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE/MACHINE


def keep(folder: Path, key: str, image_size: Sequence[int], measured: Mapping[str, Any]) -> Measurement:
    """Add one measurement, on disk when this returns; `measured` is `Latency.to_dict()`."""
    path = folder / FILE
    cut_torn_line(path)
    line = json.dumps({"key": key, "image_size": list(image_size), **measured}).encode()
    with open_own(path, "ab") as file:
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return _parse(path, 0, line)


def read_latencies(folder: Path) -> list[Measurement]:
    """All measurements of a run, in the order written; none if there is no file. A torn last line is left out.

    Raises:
        InputError: if another line is broken, with its number.
    """
    path = folder / FILE
    if not path.exists():
        return []
    lines = read_own(path).split(b"\n")
    if lines[-1]:
        log.warning("%s: the last line is torn and left out", path)
    return [_parse(path, number, line) for number, line in enumerate(lines[:-1], start=1)]


def _parse(path: Path, number: int, line: bytes) -> Measurement:
    try:
        row = parse_json(line)
        ms, spread_ms = row["latency_ms"], row.get("latency_spread_ms")
        if not (_finite(ms) and ms > 0 and (spread_ms is None or _finite(spread_ms)) and isinstance(row["key"], str)):
            raise ValueError(f"key {row['key']!r:.40}, latency_ms {ms!r:.40}")
        parts = [row.get(name) for name in SETTING]
        return Measurement(
            row["key"], ms, spread_ms, _setting(*(tuple(p) if isinstance(p, list) else p for p in parts))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: line {number} is broken ({type(error).__name__}: {error})") from None


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


@cache
def _setting(*parts: Any) -> str:
    """A setting's name; a square side is said once."""
    sides = ["x".join(str(side) for side in dict.fromkeys(p)) if isinstance(p, tuple) else p for p in parts]
    return "/".join("-" if part is None else str(part).replace("/", "-") for part in sides)


def settings_in(measured: Iterable[Measurement]) -> list[str]:
    """The settings measured in, in order of first appearance."""
    return list(dict.fromkeys(m.setting for m in measured))


def latencies_of(measured: Iterable[Measurement], selector: str = "", where: str = "") -> dict[str, Measurement]:
    """The latest measurement of each net, by key, in the one setting that the selector means.

    Args:
        measured: of a run.
        selector: a setting, DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE/MACHINE, or so much of it as tells it from
            the others: parts left out at the end, or empty, may be any: "cpu/1", "//bfloat16". "" is all right if
            there is one.
        where: the run, for the message.

    Raises:
        InputError: if that is no setting, or several.
    """
    measured = list(measured)
    known = settings_in(measured)
    found = [setting for setting in known if _meant(selector, setting)]
    if len(found) == 1:
        return {m.key: m for m in measured if m.setting == found[0]}
    if not known:
        raise InputError(f"latency: nothing was measured in run {where}: it has no {FILE}")
    which = f"{selector!r} is {len(found) or 'none'} of those" if selector else "say which"
    raise InputError(f"latency-of: run {where} has latencies of {len(known)} settings, {which}: {', '.join(known)}")


def _meant(selector: str, setting: str) -> bool:
    wanted, parts = selector.lower().split("/"), setting.lower().split("/")
    agree = all(part.strip() in ("", own) for part, own in zip(wanted, parts, strict=False))
    return agree and len(wanted) <= len(parts)
