"""`Event`: a line of records.jsonl about a trial under way. `UnderWay`: what a search that is resumed makes of them.

Records hold the ends of trials. Between them stand events, which begin with `{"event": `, so that commands that want
the ends alone pass over them unread:

    strategy    what an Optuna sampler keeps: attributes of its study, and of the trial that it has just proposed
    started     a trial's genes, before its first job
    paused      its accuracy at a rung, and what its training is so far
    promoted    it goes on from that rung
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...archs.errors import InputError, short_repr
from .record import FORMS

START = b'{"event": '
EVENTS = ("strategy", "started", "paused", "promoted")


@dataclass(frozen=True)
class Event:
    """What happened to one trial; fields that its kind does not need keep their defaults, and are not written."""

    event: str
    trial: int
    key: str = ""  # started: of the net, or of net and recipe
    genes: dict[str, Any] = field(default_factory=dict)  # started
    parent: int | None = None  # started: the trial whose weights it inherits
    step: int = 0  # paused: optimiser steps so far
    accuracy: float = 0.0  # paused
    started_at: str = ""  # paused: when its first job began
    result: dict[str, Any] = field(default_factory=dict)  # paused: fields of the record that it would have
    study: dict[str, Any] = field(default_factory=dict)  # strategy: attributes of the study
    attrs: dict[str, Any] = field(default_factory=dict)  # strategy: attributes of the trial

    def to_line(self) -> bytes:
        given = {name: value for name, value in asdict(self).items() if value != DEFAULTS.get(name)}
        return json.dumps(given, allow_nan=False).encode() + b"\n"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Event:
        """Rebuild from a line's object.

        Raises:
            InputError: if a field is missing, unknown, or of the wrong kind.
        """
        try:
            event = cls(**data)
        except TypeError as error:
            raise InputError(f"not an event ({str(error).replace('Event.__init__() ', '')})") from None
        if event.event not in EVENTS:
            raise InputError(f"unknown event {short_repr(event.event)}")
        for name, value in event._checked():
            form, is_right = CHECKS[name]
            if not is_right(value):
                raise InputError(f"{name} is not {form} but {short_repr(value)}")
        return event

    def _checked(self) -> Iterator[tuple[str, Any]]:
        """Values with the field of a record whose rule they keep."""
        yield from ((name, getattr(self, name)) for name in ("trial", "key", "genes", "started_at"))
        yield from (("trial", self.parent or 0), ("seed", self.step), ("recipe", self.study), ("recipe", self.attrs))
        if self.event == "paused":
            yield "accuracies", {"accuracy": self.accuracy}
            yield "recipe", self.result
            yield from ((name, self.result.get(name)) for name in OF_RESULT)


OF_RESULT = ("metrics", "curve", "seconds", "device", "runtime", "lineage")
DEFAULTS = {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields(Event)}
CHECKS = {name: (form, is_right) for form, (names, is_right) in FORMS.items() for name in names}


@dataclass
class UnderWay:
    """A trial that has started and has no record.

    Attributes:
        trial: its number.
        key: of its net, or of net and recipe.
        genes: as drawn.
        parent: the trial whose weights it inherits.
        accuracies: at each rung passed.
        promoted: number of rungs that it was promoted from.
        paused: what it was at its last rung; None before the first.
    """

    trial: int
    key: str
    genes: dict[str, Any]
    parent: int | None
    accuracies: list[float] = field(default_factory=list)
    promoted: int = 0
    paused: Event | None = None


def under_way(events: Iterable[Event], ended: set[int]) -> list[UnderWay]:
    """The trials that have started and not ended, in the order of their numbers."""
    trials: dict[int, UnderWay] = {}
    for event in events:
        if event.trial in ended or event.event == "strategy":
            continue
        if event.event == "started":
            trials[event.trial] = UnderWay(event.trial, event.key, event.genes, event.parent)
        elif trial := trials.get(event.trial):
            if event.event == "promoted":
                trial.promoted = len(trial.accuracies)
            else:
                trial.accuracies.append(event.accuracy)
                trial.paused = event
    return [trials[number] for number in sorted(trials)]
