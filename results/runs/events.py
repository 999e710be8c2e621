"""`Event`: a line of records.jsonl about a trial under way. `UnderWay`: a trial that a resumed search takes up.

Records hold the ends of trials. Between them stand events, which begin with `{"event": `, so that commands that want
the ends alone pass over them unread:

    strategy    what an Optuna sampler keeps: attributes of its study, and of the trial that it has just proposed
    started     a trial's genes, before its first job
    paused      its accuracy at a rung, and what its training is so far
    promoted    it goes on from that rung
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypedDict

from ...archs.errors import InputError, check_choice
from ...archs.json_files import Choice, Number, Text, Whole, convert, parse_line
from .record import Inner, Name, Seconds, Trial, check_time

START = b'{"event": '
EVENTS = ("strategy", "started", "paused", "promoted")


@dataclass(frozen=True)
class Event:
    """What happened to one trial; fields that its kind does not need keep their defaults, and are not written."""

    event: Text
    trial: Trial
    key: Name = ""  # started: of the net, or of net and recipe
    genes: dict[str, Choice] = field(default_factory=dict)  # started
    parent: Trial | None = None  # started: the trial whose weights it inherits
    step: Whole = 0  # paused: optimiser steps so far
    accuracy: Number = 0.0  # paused
    started_at: Text = ""  # paused: when its first job began
    result: dict[str, Any] = field(default_factory=dict)  # paused: fields of the record that it would have
    study: dict[str, Any] = field(default_factory=dict)  # strategy: attributes of the study
    attrs: dict[str, Any] = field(default_factory=dict)  # strategy: attributes of the trial

    def to_line(self) -> bytes:
        """The event as a line of records.jsonl.

        Raises:
            InputError: if it could not be read again.
        """
        given = {name: value for name, value in asdict(self).items() if value != DEFAULTS.get(name)}
        line = json.dumps(given).encode()
        try:
            self.from_dict(parse_line(line))
        except ValueError as error:
            raise InputError(f"the event {self.event} of trial {self.trial} cannot be kept: {error}") from None
        return line + b"\n"

    @classmethod
    def from_dict(cls, data: Any) -> Event:
        """Rebuild from a line's object.

        Raises:
            InputError: if a field is missing, unknown, or of the wrong kind.
        """
        convert(data, cls, "")
        event = cls(**data)
        if event.event not in EVENTS:
            check_choice("event", event.event, EVENTS)
        check_time("started_at", event.started_at)
        if event.event == "paused":
            convert(event.result, Outcome, "result")
            convert(event.result, Inner, "result")
        return event


class Outcome(TypedDict):
    """The checked parts of a paused trial's result."""

    metrics: dict[str, Number | None]
    curve: list[dict[str, Number | None]]
    seconds: Seconds
    device: Text
    runtime: dict[str, Any]
    lineage: dict[str, Any]


DEFAULTS = {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields(Event)}


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
