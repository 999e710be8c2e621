"""TensorBoard event files of a run, written by the driver beside whatever view is shown."""

from __future__ import annotations

import json
import math
import re
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...archs.files import open_own
from ...archs.timm_net import Net, net_from_dict
from ...results.runs.record import Record
from ..training.job import Job, Progress, TrainJob
from ..trials.controller import Controller
from .loop import ProgressView

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

EVENT_FILE = "events.out.tfevents.alternas"
POINT = {"accuracy": "validation/accuracy_ema", "loss": "train/loss"}  # of a learning curve: its tag in TensorBoard


class EventFile:
    """TensorBoard event file of one training, only ever appended to: a later session writes what is not there.

    tensorboardX has the messages and the checksums; its own writer would begin a new file each time. It imports torch,
    so the driver imports it for --tensorboard alone.
    """

    def __init__(self, folder: Path) -> None:
        from google.protobuf.message import DecodeError
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        self._path, self._event = folder / EVENT_FILE, Event
        folder.mkdir(parents=True, exist_ok=True)
        self.last, end = -1, 0  # the highest step in it, -1 for a new one; where its last whole event ends
        with open_own(self._path, "a+b") as file:
            file.seek(0)
            while len(header := file.read(12)) == 12:
                (length,) = struct.unpack_from("<Q", header)
                if len(body := file.read(length + 4)) < length + 4:
                    break
                try:
                    event = Event.FromString(body[:-4])
                except DecodeError:
                    break
                end += 16 + length
                self.last = max(self.last, -1 if event.file_version else event.step)
            file.truncate(end)  # a torn last event is cut
        if not end:
            self._append([Event(file_version="brain.Event:2")])

    def scalars(self, points: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Values by tag at each step; steps that are in the file already are left out."""
        events = []
        for step, values in points:
            if step > self.last:
                event = self._event(step=step)
                for tag, value in values.items():
                    event.summary.value.add(tag=tag, simple_value=value)
                events.append(event)
        self._append(events)
        self.last = max([self.last, *(event.step for event in events)])

    def texts(self, texts: Mapping[str, str]) -> None:
        """Texts by tag, in Markdown, at step 0 of a new file."""
        from tensorboardX.summary import text

        if self.last < 0:
            event = self._event()
            for tag, content in texts.items():
                (value,) = text(tag, content).value
                value.tag = tag
                event.summary.value.append(value)
            self._append([event])
            self.last = 0

    def _append(self, events: Sequence[Event]) -> None:
        from tensorboardX.record_writer import masked_crc32c

        def record(content: bytes) -> bytes:
            return content + struct.pack("<I", masked_crc32c(content))

        for event in events:
            event.wall_time = time.time()
        contents = [event.SerializeToString() for event in events]
        with open_own(self._path, "ab") as file:
            file.write(b"".join(record(struct.pack("<Q", len(content))) + record(content) for content in contents))


class TensorBoardView:
    """A view that writes event files beside what it shows: first what the run's records have and its files have not."""

    def __init__(self, view: ProgressView, controller: Controller) -> None:
        self._view, self._controller = view, controller
        self._files: dict[int, EventFile] = {}  # of the trainings begun in this session, by trial
        for record in controller.store.records:
            self._complete(record)

    def started(self, job: Job) -> None:
        if isinstance(job, TrainJob):
            trial = self._controller.live[job.trial]
            self._files[job.trial] = self._open(job.trial, job.seed, job.genotype, trial.genes, trial.record_fields)
        self._view.started(job)

    def tick(self, tick: Progress) -> None:
        if file := self._files.get(tick.trial):
            point = tick.point
            file.scalars([(point.step, _tagged({"accuracy": point.accuracy, "loss": point.loss}))])
        self._view.tick(tick)

    def ended(self, record: Record | None, trial: int) -> None:
        if record is not None:
            self._complete(record)
        self._view.ended(record, trial)

    def refresh(self) -> None:
        self._view.refresh()

    def _complete(self, record: Record) -> None:
        if record.curve:
            net = net_from_dict(record.genotype)
            file = self._open(record.trial, record.seed, net, record.genes, vars(record))
            file.scalars([(int(point["step"] or 0), _tagged(point)) for point in record.curve])

    def _open(self, trial: int, seed: int, net: Net, genes: Mapping[str, Any], fields: Mapping[str, Any]) -> EventFile:
        """The file of one training: of a trial, of a further seed of it, or of a plan's training.

        Args:
            trial: its number.
            seed: of the training; the trial's own is in `fields`.
            net: what is trained.
            genes: that gave it.
            fields: of the trial's record.
        """
        name = f"trial-{trial:05d}" + ("" if seed == fields["seed"] else f"-seed-{seed}")
        if identity := fields.get("training_id"):  # of a plan, whose trials the next session numbers anew
            genes = {**fields["factors"], "seed": seed}
            label = re.sub("[^A-Za-z0-9.]+", "-", " ".join(f"{name} {value}" for name, value in genes.items()))
            name = f"{label[:80]}-{identity}"
        file = EventFile(self._controller.folder / "tensorboard" / name)
        file.texts(_described(net, genes))
        return file


def _tagged(point: Mapping[str, float | None]) -> dict[str, float]:
    values = {tag: point.get(name) for name, tag in POINT.items()}
    return {tag: math.nan if value is None else value for tag, value in values.items()}


def _described(net: Net, genes: Mapping[str, Any]) -> dict[str, str]:
    """A net in Markdown: what it is, and the genes that gave it."""
    rows = [f"| {name} | {value} |" for name, value in {"family": net.family, "key": net.key, **genes}.items()]
    table = "\n".join(["| gene | value |", "| --- | --- |", *rows])
    return {"genes": table, "genotype": f"```\n{json.dumps(net.to_dict(), indent=1)}\n```"}
