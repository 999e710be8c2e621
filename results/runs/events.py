"""`Event`: a line of records.jsonl about a trial under way. `Line`: an event or a record.

Records hold the ends of trials. Between them stand events, which begin with `{"event": `, so that commands that want
the ends alone pass over them unread:

    strategy    what a strategy must not forget: of the run, and of the trial that it has just proposed
    started     a trial's genes and what it begins with, before its first job; a net's, that is trained on, has none
    paused      its accuracy at a rung, and what its training is so far
    promoted    it goes on from that rung
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypedDict

from ...archs.errors import InputError, check_choice
from ...archs.json_files import Choice, Number, Text, Whole, convert, parse_line
from .record import Inner, Name, Record, Seconds, Trial, check_time
from .status import Weights

START = b'{"event": '
EVENTS = ("strategy", "started", "paused", "promoted")


@dataclass(frozen=True)
class Event:
    """What happened to one trial; fields that its kind does not need keep their defaults, and are not written."""

    event: Text
    trial: Trial
    key: Name = ""  # started: of the net, or of net and recipe
    genes: dict[str, Choice] = field(default_factory=dict)  # started
    parent: Trial | None = None  # started: the trial whose weights it begins with
    weights: Text = Weights.ALONE.value  # started: of `Weights`, polished where a net is trained on
    step: Whole = 0  # paused: optimiser steps so far; started: those that a net is trained on for
    accuracy: Number = 0.0  # paused
    started_at: Text = ""  # paused: when its first job began
    result: dict[str, Any] = field(default_factory=dict)  # paused: fields of the record that it would have
    study: dict[str, Any] = field(default_factory=dict)  # strategy: notes of the run
    attrs: dict[str, Any] = field(default_factory=dict)  # strategy: notes of the trial
    net: Name = ""  # started: key of the net alone
    family: Text = ""  # started

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

Line = Record | Event
