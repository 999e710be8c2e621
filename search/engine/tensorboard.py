"""TensorBoard event files of a search, for `--tensorboard`: written by the driver, point after point.

The bytes are made here: the libraries that make them (torch's, tensorboardX) import torch, which the
driver does without. An event file is a row of TFRecords (length, its checksum, bytes, their checksum;
tensorflow's record_writer.h), each with an Event message (tensorboard's event.proto and summary.proto).
"""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...archs import Genotype
from ...archs.files import open_own
from ...results.runs.record import Record
from ..training.job import Job, Progress, TrainJob
from ..trials.controller import Controller
from .loop import ProgressView

FILE = "events.out.tfevents.alternas"
VERSION = b"brain.Event:2"  # of the format
TEXT_TYPE = 7  # DT_STRING of tensorflow's types.proto
POINT = {"accuracy": "validation/accuracy_ema", "loss": "train/loss"}  # of a learning curve: what it is called


class EventFile:
    """One event file, only ever appended to.

    Attributes:
        last: the highest step in it; -1 for a new one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)
        self.last, whole = -1, 0
        with open_own(self._path, "a+b") as file:
            file.seek(0)
            for whole, payload in _records(file.read()):  # noqa: B007 - the last one is needed
                if not _is_version(payload):
                    self.last = max(self.last, _step(payload))
            file.truncate(whole)  # a torn last record is cut
        if not whole:
            self._append([_event(0, _field(3, VERSION))])

    def scalars(self, points: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Values by name at each step; steps that are in the file already are left out."""
        new = [(step, values) for step, values in points if step > self.last]
        self._append([_event(step, _summary([_scalar(*value) for value in values.items()])) for step, values in new])
        self.last = max([self.last, *(step for step, _ in new)])

    def texts(self, texts: Mapping[str, str]) -> None:
        """Texts by name, in Markdown, at step 0 of a new file."""
        if self.last < 0:
            self._append([_event(0, _summary([_text(*text) for text in texts.items()]))])
            self.last = 0

    def _append(self, payloads: Sequence[bytes]) -> None:
        with open_own(self._path, "ab") as file:
            file.write(b"".join(_record(payload) for payload in payloads))


class EventFiles:
    """Those of a run: a folder for each trial, and one for each further seed of it."""

    def __init__(self, run: Path, seed: int) -> None:
        self._folder, self._seed = run / "tensorboard", seed
        self._open: dict[tuple[int, int], EventFile] = {}

    def of(self, trial: int, seed: int) -> EventFile:
        """The file of one training."""
        if (trial, seed) not in self._open:
            name = f"trial-{trial:05d}" + ("" if seed == self._seed else f"-seed-{seed}")
            self._open[trial, seed] = EventFile(self._folder / name)
        return self._open[trial, seed]

    def take(self, record: Record) -> None:
        """Write what a record has and its file has not."""
        if not record.curve:
            return
        file = self.of(record.trial, record.seed)
        file.texts(_described(Genotype.from_dict(record.genotype), record.genes))
        file.scalars([(int(point["step"] or 0), _named(point)) for point in record.curve])
        del self._open[record.trial, record.seed]


class Noted:
    """A view that keeps event files beside what it shows."""

    def __init__(self, view: ProgressView, files: EventFiles, controller: Controller) -> None:
        self._view, self._files, self._controller = view, files, controller
        self._jobs: dict[int, TrainJob] = {}

    def started(self, job: Job) -> None:
        if isinstance(job, TrainJob):
            self._jobs[job.trial] = job
            genes = self._controller.live[job.trial].genes
            self._files.of(job.trial, job.seed).texts(_described(job.genotype, genes))
        self._view.started(job)

    def tick(self, tick: Progress) -> None:
        point, job = tick.point, self._jobs[tick.trial]
        values = {"accuracy": point.accuracy, "loss": point.loss}
        self._files.of(tick.trial, job.seed).scalars([(point.step, _named(values))])
        self._view.tick(tick)

    def ended(self, record: Record | None, trial: int) -> None:
        if record is not None:
            self._files.take(record)
        self._view.ended(record, trial)

    def refresh(self) -> None:
        self._view.refresh()


def _named(point: Mapping[str, float | None]) -> dict[str, float]:
    values = {shown: point.get(name) for name, shown in POINT.items()}
    return {name: math.nan if value is None else value for name, value in values.items()}


def _described(net: Genotype, genes: Mapping[str, Any]) -> dict[str, str]:
    """A net in Markdown: what it is, and the genes that gave it."""
    rows = [f"| {name} | {value} |" for name, value in {"family": net.family, "key": net.key, **genes}.items()]
    table = "\n".join(["| gene | value |", "| --- | --- |", *rows])
    return {"genes": table, "genotype": f"```\n{json.dumps(net.to_dict(), indent=1)}\n```"}


def _record(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + _checksum(length) + payload + _checksum(payload)


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Of each whole record: where it ends, and what it holds."""
    start = 0
    while start + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + 12 + length + 4
        if end > len(content):
            return
        yield end, content[start + 12 : end - 4]
        start = end


def _checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and moved, so that records within records keep theirs apart."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def _table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # Castagnoli's polynomial, reversed
        return value

    return tuple(entry(byte) for byte in range(256))


def _event(step: int, what: bytes) -> bytes:
    """An Event: time, step, and a file version or a summary."""
    return b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) + what


def _step(event: bytes) -> int:
    """The step of an event that `_event` made."""
    value = shift = 0
    for byte in event[10:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value


def _is_version(event: bytes) -> bool:
    return event.endswith(VERSION)


def _summary(values: Sequence[bytes]) -> bytes:
    return _field(5, b"".join(_field(1, value) for value in values))


def _scalar(name: str, value: float) -> bytes:
    if math.isfinite(value) and abs(value) > 3.4e38:  # more than 32 bits hold
        value = math.copysign(math.inf, value)
    return _field(1, name.encode()) + b"\x15" + struct.pack("<f", value)


def _text(name: str, text: str) -> bytes:
    """A tensor of one string, for TensorBoard's text plugin."""
    shape = _field(2, _field(2, b"\x08\x01"))
    tensor = b"\x08" + _varint(TEXT_TYPE) + shape + _field(8, text.encode())
    return _field(1, name.encode()) + _field(8, tensor) + _field(9, _field(1, _field(1, b"text")))


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, by protobuf's encoding."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
