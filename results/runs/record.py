"""`Record`: one line of `records.jsonl`, everything known about one proposal's fate."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import chain
from types import NoneType
from typing import Any

from ...archs.errors import InputError, short_repr

STATUSES = ("ok", "pruned", "error", "nan", "oom", "timeout", "lost", "infeasible", "duplicate")
WEIGHTS = ("alone", "inherited", "shared", "polished")
KINDS = ("search", "baseline", "reference", "retrain", "study")
BESIDE = ("baseline", "reference")  # trained beside the nets of a search, to compare them with
FAILED = ("error", "nan", "oom", "timeout", "lost")
FREE = ("infeasible", "duplicate")  # never trained, so they use up no trial
PACKAGES = ("alternas", "torch", "timm", "optuna", "ray")
FORMAT = 3  # of run.json and records.jsonl; raised when what they hold changes


@dataclass(frozen=True)
class Record:
    """What came of one trial."""

    format: int = field(default=FORMAT, kw_only=True)  # version of the fields below; another one is refused
    trial: int  # its number, unique in the run
    kind: str  # who asked for it: search, baseline, reference, retrain or study
    family: str  # resnet, alternet, hybrid, vit or modern; timm for one of timm's nets
    key: str  # of the genotype; two spellings of one net share it
    genotype: dict[str, Any]  # as JSON; of one of timm's nets its name there, as "timm"
    genes: dict[str, Any]  # what the strategy chose, by gene, dormant ones included; `genotype` is the net
    cost: dict[str, int]  # params, macs and activation_bytes of one image
    status: str  # ok, pruned, error, nan, oom, timeout, lost, infeasible or duplicate
    error: str = ""  # one line, where the status is a failure or says why a net was not trained
    # on the validation split, a fraction, or the score of the run's other metric, more is better; for a duplicate, its
    # twin's. None if unknown
    accuracy: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)  # further measurements of the same weights
    # points of step, loss and accuracy; None where a number was not finite
    curve: list[dict[str, float | None]] = field(default_factory=list)
    # of a net that was trained with several seeds, at full budget by seed; `accuracy` is their mean
    accuracies: dict[str, float] = field(default_factory=dict)
    rung: int = 0  # rungs passed; the last one is the full budget
    # each of them: step, accuracy there, and whether the scheduler sent the net on
    rungs: list[dict[str, Any]] = field(default_factory=list)
    # of an infeasible net: by which share it is over each limit
    constraint_violation: dict[str, float] = field(default_factory=dict)
    # optimiser steps "done" and "full"; a net that inherits weights has a smaller full budget
    budget: dict[str, int] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)  # as a dict
    data: dict[str, Any] = field(default_factory=dict)  # name, fraction and split hash
    seed: int = 0  # of the training
    # alone (from fresh ones), inherited (from another net's), shared (slices of a supernet's bank) or polished
    # (trained on from such slices)
    weights: str = "alone"
    # the weights it started from, what was taken of them part by part, and the steps they cost
    lineage: dict[str, Any] = field(default_factory=dict)
    # of a study: what this training varies, by name; its seeds repeat them
    factors: dict[str, Any] = field(default_factory=dict)
    # of a retraining, a study, or a search that draws recipes: 12 hexadecimal digits that identify all that defines it,
    # or net and recipe; its weights are weights/TRAINING_ID.safetensors
    training_id: str = ""
    # RUN:TRIAL of the earlier run that trained it and whose record this is; "" if this run did
    taken_from: str = ""
    seconds: float = 0.0  # of training and evaluation
    # when its first training began, in UTC and ISO 8601; "" if it was never trained. Between that and its end other
    # nets may have had the worker: between its seeds, and while it waited at a rung
    started_at: str = ""
    finished_at: str = ""  # when it was recorded, likewise
    device: str = ""  # what it ran on
    # what the trainer settled: loader, precision, passes a step, whether compiled, images evaluated
    runtime: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # of python, alternas, torch, ...

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        error = f": {self.error}" if self.error else ""
        net = f"{self.kind}, {self.family} {self.key}, {self.cost.get('macs')} MACs"
        return f"<Record {self.trial}: {net}, {self.status}{error}{accuracy}>"

    @property
    def label(self) -> str:
        """Its family; of timm's nets the name there."""
        return f"timm:{self.genotype.get('timm')}" if self.family == "timm" else self.family

    @property
    def name(self) -> str:
        """What a person calls it: its trial, but a reference by its name, for whose number nobody asked."""
        return self.label if self.kind == "reference" else f"trial {self.trial}"

    @property
    def training_macs(self) -> int:
        """MACs of a forward pass while the net is trained; its `cost` is of what is shipped."""
        return self.cost.get("training_macs", self.cost["macs"])

    @property
    def trial_key(self) -> str:
        """What tells trainings of a run apart that are no repeats: of the net, or of the net and how it is trained."""
        return self.training_id or self.key

    @property
    def own_accuracy(self) -> float | None:
        """Accuracy of its first seed, whose weights, `metrics` and `curve` are kept."""
        return self.accuracies.get(str(self.seed), self.accuracy)

    @property
    def spent_seconds(self) -> float:
        """Seconds of training and evaluation in this run."""
        return 0.0 if self.taken_from else self.seconds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Record:
        """Rebuild from `to_dict`.

        Raises:
            InputError: if it has another format, a field is missing or unknown, or a value is of the wrong kind.
        """
        if not isinstance(data, dict):
            raise InputError(f"not an object but {short_repr(data)}")
        check_format("record", data)
        try:
            record = cls(**data)
        except TypeError as error:
            raise InputError(f"not a record ({str(error).replace('Record.__init__() ', '')})") from None
        record._check()
        return record

    def _check(self) -> None:
        for form, (names, is_right) in FORMS.items():
            for name in names:
                if not is_right(getattr(self, name)):
                    raise InputError(f"{name} is not {form} but {short_repr(getattr(self, name))}")
        for name, inner, form, is_right in INNER:
            value = getattr(self, name)
            if inner in value and not is_right(value[inner]):
                raise InputError(f"{name} {inner} is not {form} but {short_repr(value[inner])}")
        if "macs" not in self.cost or "params" not in self.cost:
            raise InputError(f"cost does not hold the numbers macs and params but {short_repr(self.cost)}")
        if self.status not in STATUSES or self.kind not in KINDS:
            raise InputError(f"unknown status {short_repr(self.status)} or kind {short_repr(self.kind)}")
        if self.weights not in WEIGHTS:
            raise InputError(f"unknown weights {short_repr(self.weights)}")


def check_format(name: str, data: dict[str, Any]) -> None:
    """Raise InputError if `data`, read from a record or a run.json, was written in another format; none means 1."""
    number = data.get("format", 1)
    if type(number) is not int or number != FORMAT:
        rule = f"has format {short_repr(number)}, this alternas reads {FORMAT}"
        raise InputError(f"{name}: {rule}; train it again or use the alternas that made it")


MOST = 2**63 - 1  # of whole numbers
LARGEST = 1e150  # of numbers: its square is one too
MOST_TRIAL = 10**7
MOST_SECONDS = 1e10  # three centuries
LONGEST = 20_000  # characters of a text
NAME = re.compile(r"[A-Za-z0-9_-]{0,64}")  # of keys and trainings, which name files
NUMBERS = (int, float)
POINT_TYPES = {int, float, bool, NoneType}


def _between(least: float, most: float, *types: type) -> Callable[[Any], bool]:
    """A check for a number, or None if that is one of the types, from `least` to `most`."""
    return lambda value: type(value) in types and (value is None or least <= value <= most)


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value) <= LONGEST


def _is_time(value: Any) -> bool:
    """ "" or a time with its zone."""
    try:
        return type(value) is str and (not value or datetime.fromisoformat(value).tzinfo is not None)
    except ValueError:
        return False


def _numbers_by_name(least: float, most: float, *types: type) -> Callable[[Any], bool]:
    """A check for objects of numbers (or None, if that is one of the types) from `least` to `most`."""
    return lambda value: (
        isinstance(value, dict)
        and set(map(type, value.values())) <= {*types}
        and all(least <= number <= most for number in value.values() if number is not None)
    )


def _are_within(values: Iterable[Any], most: float) -> bool:
    """Whether numbers, or None for those not known, are finite and no larger. All at once: a run may hold millions."""
    try:
        return sum(map(abs, filter(None, values))) <= most  # not so of NaN
    except OverflowError:  # a whole number too large for a float, among floats
        return False


def _are_choices(values: Iterable[Any]) -> bool:
    """Whether these are what a gene can be: texts, numbers, True or False."""
    values = list(values)
    types_fit = set(map(type, values)) <= {str, bool, *NUMBERS}
    return types_fit and _are_within([value for value in values if type(value) is not str], LARGEST)


def _are_factors(value: Any) -> bool:
    """Choices, lists of them, or None, by name."""
    if not isinstance(value, dict):
        return False
    levels = [part for level in value.values() for part in (level if isinstance(level, list) else [level])]
    return _are_choices(level for level in levels if level is not None)


def _are_points(value: Any) -> bool:
    """Numbers that are known at steps, of which the step itself is looked at."""
    if not isinstance(value, list) or not set(map(type, value)) <= {dict}:
        return False
    numbers = list(chain.from_iterable(map(dict.values, value)))
    if not set(map(type, numbers)) <= POINT_TYPES or not _are_within(numbers, LARGEST):
        return False
    steps = [point.get("step") for point in value]
    return set(map(type, steps)) <= {int} and min(steps, default=0) >= 0 and max(steps, default=0) <= MOST


_is_whole = _between(0, MOST, int)
FORMS: dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]] = {  # what a field is: which fields, and whether it is
    f"a whole number from 0 to {MOST_TRIAL:,}": (("trial", "rung"), _between(0, MOST_TRIAL, int)),
    "a whole number from 0": (("seed",), _is_whole),
    f"a number from 0 to {MOST_SECONDS:g}": (("seconds",), _between(0, MOST_SECONDS, *NUMBERS)),
    "a number, or null": (("accuracy",), _between(-LARGEST, LARGEST, *NUMBERS, NoneType)),
    f"a text of at most {LONGEST:,} characters": (
        ("kind", "family", "status", "error", "device", "taken_from"),
        _is_text,
    ),
    "a name of at most 64 letters and digits": (
        ("key", "training_id"),
        lambda value: type(value) is str and NAME.fullmatch(value) is not None,
    ),
    "a time": (("started_at", "finished_at"), _is_time),
    "an object": (
        ("genotype", "recipe", "data", "lineage", "runtime", "versions"),
        lambda value: isinstance(value, dict),
    ),
    "choices by name": (("genes",), lambda value: isinstance(value, dict) and _are_choices(value.values())),
    "choices, or lists of them, by name": (("factors",), _are_factors),
    "whole numbers above 0 by name": (("cost",), _numbers_by_name(1, MOST, int)),
    "whole numbers from 0 by name": (("budget",), _numbers_by_name(0, MOST, int)),
    "numbers by name": (("accuracies",), _numbers_by_name(-LARGEST, LARGEST, *NUMBERS)),
    "numbers or null by name": (
        ("metrics", "constraint_violation"),
        _numbers_by_name(-LARGEST, LARGEST, *NUMBERS, NoneType),
    ),
    "a list of points, each with a step": (("curve",), _are_points),
    "a list of points, each with step and accuracy": (
        ("rungs",),
        lambda value: _are_points(value) and all(point.get("accuracy") is not None for point in value),
    ),
}
INNER: tuple[tuple[str, str, str, Callable[[Any], bool]], ...] = (  # what is reckoned with inside of objects
    ("recipe", "batch_size", "a whole number from 0", _is_whole),
    ("lineage", "trial", "a whole number from 0", _is_whole),
    ("lineage", "steps", "a whole number from 0, or null", _between(0, MOST, int, NoneType)),
    ("lineage", "flops", "a number, or null", _between(-LARGEST, LARGEST, *NUMBERS, NoneType)),
    ("runtime", "evaluated", "a whole number from 0", _is_whole),
    ("data", "fraction", "a number from 0 to 1", _between(0, 1, *NUMBERS)),
    ("data", "draw", "a whole number from 0", _is_whole),
    ("data", "classes", "a list of whole numbers from 0", lambda v: isinstance(v, list) and all(map(_is_whole, v))),
    ("data", "split", "a text", _is_text),
)


def now(less: float = 0.0) -> str:
    """The time so many seconds ago, in UTC and ISO 8601 to the millisecond."""
    return (datetime.now(UTC) - timedelta(seconds=less)).isoformat(timespec="milliseconds")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that shape a result, without importing them."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
