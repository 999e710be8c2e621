"""TensorBoard: a folder with an event file for each training, in the run's folder."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...archs.files import open_own
from .tracker import FrontEvent, Points, TrackedTraining, TrackerEvent, TrainingEvent

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

EVENT_FILE = "events.out.tfevents.alternas"


def open_run(folder: Path) -> TensorBoardTracker:
    """The tracker of the run in `folder`."""
    return TensorBoardTracker(folder / "tensorboard")


class EventFile:
    """TensorBoard event file of one training, only ever appended to: a later session writes what is not there.

    tensorboardX has the messages and the checksums; its own writer would begin a new file each time. It imports torch,
    so the driver imports it for this tracker alone.
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

    def scalars(self, points: Points) -> None:
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


class TensorBoardTracker:
    """Event files say themselves what is in them, so that nothing is noted elsewhere."""

    takes_report = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, EventFile] = {}  # of the trainings under way
        self._run: EventFile | None = None

    def on_event(self, event: TrackerEvent) -> None:
        match event:
            case TrainingEvent(training, points, results, paused):
                if points or not (results or paused):
                    self._file(training).scalars(points)
                if results or paused:
                    self._files.pop(training.name, None)
            case FrontEvent(nets, values):
                self._run = self._run or EventFile(self._folder / "run")
                self._run.scalars([(nets, values)])

    def _file(self, training: TrackedTraining) -> EventFile:
        if training.name not in self._files:
            self._files[training.name] = file = EventFile(self._folder / training.name)
            file.texts(_described(training))
        return self._files[training.name]


def _described(training: TrackedTraining) -> dict[str, str]:
    """A training in Markdown: what tells it from others, and its net."""
    rows = [f"| {name} | {value} |" for name, value in training.params.items()]
    table = "\n".join(["| gene | value |", "| --- | --- |", *rows])
    return {"genes": table, "genotype": f"```\n{json.dumps(training.net.to_dict(), indent=1)}\n```"}
