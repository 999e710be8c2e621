"""TensorBoard: event files for each training and for the front, in the run's folder; tensorboardX writes them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .tracker import Points, Results, Tracker

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


class RunTracker(Tracker):
    """A folder for each training. tensorboardX imports torch, so the driver imports it for this tracker alone."""

    takes_report = False

    def __init__(self, folder: Path) -> None:
        self._folder, self._writers = folder / "tensorboard", dict[str, "SummaryWriter"]()
        self._texts = dict[str, str]()  # of trainings, written with their first points
        super().__init__("tensorboard", folder, "event files")

    def _open(self, id: str, label: str, params: Mapping[str, Any], parent: str) -> str:
        id = label if parent else "run"
        if parent and not (self._folder / id).exists():
            rows = [f"| {name} | {value} |" for name, value in params.items()]
            self._texts[id] = "\n".join(["| gene | value |", "| --- | --- |", *rows])
        return id

    def _send(self, id: str, points: Points) -> None:
        for step, values in points:
            for tag, value in values.items():
                self._writer(id).add_scalar(tag, value, step)
        self._writer(id).flush()

    def _rest(self, id: str, results: Results | None = None) -> None:
        if id in self._writers:
            self._writers.pop(id).close()

    def _close(self, id: str, ended: bool, report: Path | None) -> None:
        for open_id in [*self._writers]:
            self._rest(open_id)

    def _writer(self, id: str) -> SummaryWriter:
        from tensorboardX import SummaryWriter

        if id not in self._writers:
            unique = f".{time.time_ns()}"  # by itself it names two files of one second alike
            self._writers[id] = SummaryWriter(str(self._folder / id), filename_suffix=unique)
            if text := self._texts.pop(id, ""):
                self._writers[id].add_text("genes", text)
        return self._writers[id]
