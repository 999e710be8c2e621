"""A run's folder: `run.json` (its settings) and `records.jsonl` (the truth), read and appended.

runs/NAME/run.json          settings, data facts, versions, the exact command
runs/NAME/records.jsonl     the one truth: what came of trials, and what was measured; only appended
runs/NAME/sample.npz        a few validation images, for exports to be checked on
runs/NAME/checkpoints/      states of nets in training
runs/NAME/weights/          final weights, KEY.safetensors, KEY-finetuned, KEY-shared; TRAINING_ID.safetensors elsewhere
runs/NAME/tensorboard/      event files, a folder for each trial
runs/NAME/tracking/         what each other tracker has, and under which ids
runs/NAME/retrain/          the same again, of the retraining of its best nets

A line of records.jsonl is a record, the end of a trial, or an event (see `events`). A record is synced when it is
written, and all files that it names before it (`atomic_write`); so a power cut leaves no record without its weights.
Events are not synced: what follows from a lost one is done again, from the trial's checkpoint.
"""

import errno
import fcntl
import gc
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from ...archs.errors import InputError, OperationError, did_you_mean, short_repr
from ...archs.files import atomic_write, check_own, make_folder, naming, open_own, sync_folder
from ...archs.json_files import Amount, Number, Share, Whole, convert, parse_line, read_json
from ...archs.parts import MAX_CLASSES, Width
from .append_only import cut_torn_line, no_collection, read_lines
from .events import OF_TRIALS, START, Event, Line
from .record import Record, check_format
from .status import Weights


class Settings(TypedDict, total=False):
    """The settings in run.json that other commands than the search read."""

    space: str | None
    study: str | None
    objective: str
    other_costs: list[str]
    devices: list[dict[str, Any]]
    latency: str | None
    loader: str
    trainer: str
    recipe: dict[str, Any] | None
    limits: dict[str, Amount] | None
    seed: Whole
    metric: dict[str, Any]
    tune: dict[str, Any]
    supernet: Amount
    scheduler: str
    folds: Whole


class RunFacts(TypedDict, total=False):
    """Content of run.json."""

    settings: Settings
    recipes: dict[str, dict[str, Any]]
    trials: Whole
    data: dict[str, Any]
    command: list[str] | None  # only a report needs these
    versions: dict[str, str] | None
    start_with: list[dict[str, Any]]


class DataFacts(TypedDict):
    """Facts about the data in run.json."""

    name: str
    image_size: Annotated[list[Annotated[int, Meta(ge=1, le=16384)]], Meta(min_length=2, max_length=2)]
    in_chans: Width
    classes: Annotated[list[str], Meta(min_length=1, max_length=MAX_CLASSES)]
    mean: list[Number]
    std: list[Amount]
    white_level: NotRequired[Amount]
    split: NotRequired[str]
    pictures: NotRequired[str]
    notes: NotRequired[dict[str, Any]]
    images: NotRequired[dict[str, Whole]]
    positives: NotRequired[Share]  # of several labels


RUNS = Path("runs")
SAMPLE = 32  # validation images in sample.npz, at most
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def run_folder(name: str) -> Path:
    """The folder below `runs/` of a new or existing run; InputError if its name could lead out of there."""
    if not NAME.fullmatch(name):
        rule = "letters, digits, '.', '_' and '-', starting with a letter or digit"
        raise InputError(f"run name: {rule}, got {short_repr(name)}")
    return RUNS / name


def as_argument(folder: Path) -> str:
    """A run as commands take it: its name below `runs/`, else its path."""
    return folder.name if folder == RUNS / folder.name and NAME.fullmatch(folder.name) else str(folder.resolve())


def plain_name(*parts: str) -> str:
    """A name for a run, made of parts that may hold anything: paths, weights, spaces."""
    stems = "-".join(Path(part).stem for part in parts if part)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stems).strip("-._")[:100] or "run"


def find_run(run: str | Path) -> Path:
    """The folder of an existing run, a name below `runs/` or a path; InputError if there is none that can be read."""
    candidates = [Path(run)]
    if isinstance(run, str) and NAME.fullmatch(run):
        candidates.insert(0, RUNS / run)
    for folder in candidates:
        if os.path.isfile(folder / "run.json"):  # unlike Path's, False where no file can have that name
            check_own(folder)
            read_settings(folder)
            return folder
        if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
            raise InputError(f"{folder}: cannot be read ({os.strerror(errno.EACCES)})")
    names = sorted(path.parent.name for path in RUNS.glob("*/run.json"))
    there = f"runs: {', '.join(names)}" if names else "there are no runs"
    raise InputError(f"no run {short_repr(str(run))} in {RUNS}/ here{did_you_mean(str(run), names)}; {there}")


def read_settings(folder: Path) -> dict[str, Any]:
    """The content of `run.json`; InputError if it is no object, of another format, or a part is of the wrong kind."""
    path = folder / "run.json"
    facts = read_json(path, dict[str, Any])
    check_format(label_of(folder), facts)
    return dict[str, Any](convert(facts, RunFacts, str(path)))


def label_of(folder: Path) -> str:
    """Name of a run in messages, as commands take it."""
    name = folder.relative_to(RUNS) if folder.is_relative_to(RUNS) else folder
    return f"run {str(name)!r}"


def read_data_facts(folder: Path) -> dict[str, Any]:
    """Facts about the data in `run.json`; InputError if a part of it is missing or of the wrong kind."""
    place = f"{folder / 'run.json'}: data"
    facts = convert(read_settings(folder).get("data", {}), DataFacts, place)
    for name in ("mean", "std"):
        if len(facts[name]) != facts["in_chans"]:
            raise InputError(f"{place}: {name} must hold {facts['in_chans']} numbers, got {len(facts[name])}")
    return dict[str, Any](facts)


def read_records(folder: Path) -> list[Record]:
    """The records of ended trials, in order, without a torn last line; InputError, with its number, of a broken one."""
    return [row for row in _rows(folder, lambda line: not line.startswith(START)) if isinstance(row, Record)]


def read_events(folder: Path, *kinds: str) -> list[Event]:
    """The events of these kinds, of trials before their end if none are given, in the order written."""
    starts = tuple(START + json.dumps(kind).encode() for kind in kinds or OF_TRIALS)
    return [row for row in _rows(folder, lambda line: line.startswith(starts)) if isinstance(row, Event)]


def has_ended(folder: Path) -> bool:
    """Whether all that a run was asked for is done."""
    return [event.event for event in read_events(folder, "opened", "ended")][-1:] == ["ended"]


def _rows(folder: Path, is_asked: Callable[[bytes], bool]) -> list[Line]:
    path, label = folder / "records.jsonl", label_of(folder)
    with no_collection():
        return [parse_row(path, label, i, line) for i, line in enumerate(read_lines(path), start=1) if is_asked(line)]


def read_log(folder: Path) -> list[Line]:
    """All lines, in the order written."""
    return _rows(folder, lambda line: True)


def has_trained(folder: Path) -> bool:
    """Whether a run has a record, or a net that is paused at a rung."""
    return bool(read_records(folder)) or any(event.event == "paused" for event in read_events(folder))


def parse_row(path: Path, label: str, number: int, line: bytes) -> Line:
    """A line of a run's log; InputError if it is broken."""
    try:
        row = parse_line(line)
    except ValueError as error:  # bad UTF-8 or bad JSON
        raise InputError(f"{path}: line {number} is broken ({error})") from None
    is_event = isinstance(row, dict) and "event" in row
    if isinstance(row, dict) and not is_event:
        check_format(label, row)
    try:
        return Event.from_dict(row) if is_event else Record.from_dict(row)
    except InputError as error:
        raise InputError(f"{path}: line {number} is broken ({error})") from None


class LogReader:
    """Reads a run's records.jsonl while another process may append to it."""

    def __init__(self, folder: Path) -> None:
        self._path, self._label = folder / "records.jsonl", label_of(folder)
        self._lines = self._bytes = 0  # read so far

    def new(self) -> list[Line]:
        """The lines since the last call; InputError if one is broken. A torn last one is yet to come."""
        if not self._path.exists():
            return []
        with open_own(self._path) as file:
            file.seek(self._bytes)
            *lines, _ = file.read().split(b"\n")
        first = self._lines + 1
        self._lines, self._bytes = self._lines + len(lines), self._bytes + sum(len(line) + 1 for line in lines)
        return [parse_row(self._path, self._label, number, line) for number, line in enumerate(lines, start=first)]


def weights_file(folder: Path, record: Record) -> Path:
    """Where a net's final weights are kept: by its training, or in a search by its key and how it came by them."""
    return folder / "weights" / f"{weights_name(record.training_id or record.key, record.weights)}.safetensors"


def weights_name(key: str, weights: str) -> str:
    """Name of the files of a net in a search, which may have it on slices, and trained on, beside its own weights."""
    return f"{key}-{weights}" if weights in (Weights.SHARED, Weights.FINETUNED) else key


class Store:
    """The one writer of a run: `records` of all ended trials, and `lines`, the log as it was when the run began."""

    def __init__(self, folder: Path, records: Iterable[Record] = ()) -> None:
        """Open a run; one that has no record yet begins with `records`, all of them or none."""
        self.folder, path = folder, folder / "records.jsonl"
        with no_collection():
            self.lines = read_log(folder)
            gc.freeze()  # else the garbage collector looks at all of it again and again, a third of the time
        self.records = [line for line in self.lines if isinstance(line, Record)]
        if not self.records and (taken := list(records)):
            atomic_write(path, lambda file: file.writelines(record.to_line() for record in taken))
            self.records, self.lines = taken, list[Line](taken)
        cut_torn_line(path)
        self._file = open_own(path, "ab", buffering=0)
        self._opened = os.fstat(self._file.fileno())
        sync_folder(folder)

    def append(self, line: Line) -> None:
        """Write one line, which outlives this process; a record is on disk when this returns, and all lines before it.

        InputError if it could not be read again; OSError if the disk is full or broken. What is torn then is cut when
        the run is opened again.
        """
        content = line.to_line()
        self.check()
        with naming(self.folder / "records.jsonl"):
            if self._file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if isinstance(line, Record):
                os.fsync(self._file.fileno())
                self.records.append(line)

    def check(self) -> None:
        """Raise OperationError if the run's folder is elsewhere now: what others write would go to the old place."""
        path = self.folder / "records.jsonl"
        if not (path.exists() and os.path.samestat(os.stat(path), self._opened)):
            rule = "was moved, deleted or replaced while in use; put it back, and the same command resumes"
            raise OperationError(f"run folder {self.folder}: {rule}")

    def close(self) -> None:
        self._file.close()
        gc.unfreeze()


def write_json(path: Path, value: Any) -> None:
    """Write JSON to `path`, whole or not at all."""
    text = json.dumps(value, indent=2) + "\n"
    atomic_write(path, lambda file: file.write(text.encode()))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the run's folder and keep a second driver out of it; InputError if it is in use or cannot be written."""
    try:
        make_folder(folder)
        check_own(folder)
        file = open_own(folder / "lock", "ab")
    except OSError as error:
        raise InputError(f"run folder {folder}: cannot be written ({error.strerror})") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"run {folder} is being worked on by another process") from None
        yield
