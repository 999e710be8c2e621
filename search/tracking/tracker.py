"""`Tracker`: what a tracker is told of a run, by one hook `on_event`, and what it keeps between sessions."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...archs.errors import InputError, check_choice
from ...archs.files import open_own
from ...archs.json_files import convert, parse_line
from ...results.runs.append_only import cut_torn_line, read_lines
from ...results.runs.status import Status
from ...results.runs.store import read_data_facts, read_settings

PACKAGES = {"mlflow": "mlflow", "wandb": "wandb", "tensorboard": "tensorboardX"}  # that each tracker is written with
Points = Sequence[tuple[int, Mapping[str, float]]]  # steps, rising, and the values by name there
RUN = ""  # name of the run itself, among those of its trainings


@dataclass(frozen=True)
class Results:
    """Result of a training."""

    status: Status
    error: str  # one line, where it failed
    values: Mapping[str, float]  # accuracy, further metrics, costs and seconds by name
    step: int  # the last one
    seconds: float  # since 1970, when it was recorded


@dataclass(frozen=True)
class TrainingEvent:
    """A training begins or goes on, reaches points of its learning curve, pauses or ends."""

    name: str  # of the training: unique in the run, and the same in each session
    params: Mapping[str, Any]  # what tells it from the others: kind, family, key, genes or factors, seed
    points: Points = ()  # of its curve; the whole one where it has ended
    results: Results | None = None  # what came of it, in this session or an earlier one; None where it has not ended
    end: int = 1  # number of the end that comes next, or of this one, from 1
    paused: bool = False  # whether nothing comes of it for some time


@dataclass(frozen=True)
class FrontEvent:
    """The front has changed: after so many trained nets it has these values."""

    nets: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class SessionEnd:
    """The session is over; `complete` says whether the run is, `report` is its HTML page, if there is one."""

    complete: bool
    report: Path | None


TrackerEvent = TrainingEvent | FrontEvent | SessionEnd


def check_trackers(names: Sequence[str]) -> tuple[str, ...]:
    """The trackers of these names, each once; InputError if one is unknown, or its package is not installed."""
    names = tuple(dict.fromkeys(names))
    for name in names:
        check_choice("track", name, PACKAGES)
        if find_spec(PACKAGES[name]) is None:
            raise InputError(f'track: {name} needs the package {PACKAGES[name]}: pip install "alternas[{name}]"')
    return names


def open_tracker(name: str, folder: Path) -> Tracker:
    """The tracker of the run in `folder`; its package is imported here. It may raise anything."""
    return import_module(f".{name}", __package__).RunTracker(folder)


def run_label(folder: Path) -> str:
    """Name of a run: "photos", or "photos/retrain"."""
    return f"{folder.parent.name}/{folder.name}" if (folder.parent / "run.json").exists() else folder.name


def run_params(folder: Path) -> dict[str, Any]:
    """Settings, data and versions of a run, nested ones with a dot."""
    facts, data = read_settings(folder), read_data_facts(folder)
    about = {"name": data["name"], "image_size": data["image_size"], "classes": len(data["classes"])}
    return flat({**facts.get("settings", {}), "data": about, "versions": facts.get("versions") or {}})


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Objects in objects as one, with dots in the names."""
    rows: dict[str, Any] = {}
    for name, value in values.items():
        rows |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return rows


@dataclass(frozen=True)
class Note:
    """State of a training, or of the run, at a tracker."""

    where: str  # the server, database or project
    name: str  # of the training; `RUN` for the run
    id: str  # that the tracker knows it by
    step: int = -1  # the last one sent, -1 for none
    ended: int = 0  # how many ends of it were sent: a training that has failed may be tried again


class Notes(dict[str, Note]):
    """State of a run at a tracker, by name, kept in its folder: a line for each change, the last of a name holds."""

    def __init__(self, path: Path, where: str) -> None:
        """Raise InputError if a line is broken."""
        self._path, self._where = path, where
        path.parent.mkdir(exist_ok=True)
        notes = [_parsed(path, number, line) for number, line in enumerate(read_lines(path), start=1)]
        super().__init__({note.name: note for note in notes if note.where == where})
        cut_torn_line(path)

    def change(self, name: str, **fields: Any) -> Note:
        """Write down what has changed of a training, or of the run, which may be new."""
        note = self[name] = replace(self.get(name) or Note(self._where, name, ""), **fields)
        with open_own(self._path, "ab") as file:
            file.write((json.dumps(asdict(note)) + "\n").encode())
        return note


def _parsed(path: Path, number: int, line: bytes) -> Note:
    try:
        return convert(parse_line(line), Note, "")
    except ValueError as error:
        raise InputError(f"{path}: line {number} is broken ({error})") from None


class Tracker(ABC):
    """Experiment tracker of one run, opened anew by each session: a run for each training beside one for the whole.

    It notes what it has sent, and leaves that out. The HTML report is kept where `takes_report`.
    """

    takes_report = True

    def __init__(self, name: str, folder: Path, where: str) -> None:
        """`where` names the server, database or project: elsewhere all is sent anew."""
        self._notes = Notes(folder / "tracking" / f"{name}.jsonl", where)
        self._going = set[str]()  # trainings that something comes for
        self._go_on(RUN, run_label(folder), run_params(folder))

    def on_event(self, event: TrackerEvent) -> None:
        match event:
            case TrainingEvent():
                self._train(event)
            case FrontEvent():
                self._send_new(RUN, [(event.nets, event.values)])
            case SessionEnd():
                note = self._notes[RUN]
                self._close(note.id, event.complete, None if note.ended else event.report)
                self._notes.change(RUN, ended=int(event.complete))

    def _train(self, event: TrainingEvent) -> None:
        known = self._notes.get(event.name)
        if known and (known.ended >= event.end or self._is_known(event, known)):
            return
        if self._notes[RUN].ended:  # it goes on
            self._notes.change(RUN, ended=0)
        id = self._go_on(event.name, event.name, event.params)
        self._send_new(event.name, event.points)
        self._going.add(event.name)
        if event.paused or event.results:
            self._rest(id, event.results)
            self._going.remove(event.name)
        if event.results:
            self._notes.change(event.name, ended=event.end)

    def _is_known(self, event: TrainingEvent, known: Note) -> bool:
        """Whether a pause of an earlier session was told then."""
        points = event.points
        return event.paused and event.name not in self._going and not (points and points[-1][0] > known.step)

    def _send_new(self, name: str, points: Points) -> None:
        """Send the points after the last one sent, which is noted before: a killed driver sends nothing twice."""
        before = self._notes[name]
        new = [(step, values) for step, values in points if step > before.step]
        if not new:
            return
        self._notes.change(name, step=new[-1][0])
        try:
            self._send(before.id, new)
        except Exception:
            self._notes.change(name, step=before.step)  # to be sent by the next session
            raise

    def _go_on(self, name: str, label: str, params: Mapping[str, Any]) -> str:
        known, whole = self._notes.get(name), self._notes.get(RUN)
        id = self._open(known.id if known else "", label, params, whole.id if whole else "")
        if not known:
            self._notes.change(name, id=id)
        return id

    @abstractmethod
    def _open(self, id: str, label: str, params: Mapping[str, Any], parent: str) -> str:
        """Make a run, or go on with that of an id, which may be open; its id.

        `parent` is the run for the whole, "" for that itself.
        """

    @abstractmethod
    def _send(self, id: str, points: Points) -> None:
        """Send values at steps."""

    @abstractmethod
    def _rest(self, id: str, results: Results | None) -> None:
        """Nothing comes for a run of a training for some time, or, with results, any more."""

    @abstractmethod
    def _close(self, id: str, ended: bool, report: Path | None) -> None:
        """End the run for the whole, and all that are open."""
