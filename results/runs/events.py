"""`Event`: a line of records.jsonl about a trial or the run itself. `Line`: an event or a record.

Records hold the ends of trials. Between them stand events, which begin with `{"event": `, so that commands that want
the ends alone pass over them unread:

    strategy    what a strategy must not forget: of the run, and of the trial that it has just proposed
    started     a trial's genes and what it begins with, before its first job; a net's, that is trained on, has none
    paused      its accuracy at a rung, and what its training is so far
    promoted    it goes on from that rung
    measured    its net, on a device or on this machine, before or after its end
    bank        how far the shared weights of a run are trained
    opened      a session of the run begins
    ended       all that the run was asked for is done
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Required, TypedDict

from ...archs.errors import InputError, check_choice
from ...archs.json_files import Amount, Choice, Count, Number, Text, Whole, convert, parse_line
from ..latency.measurement import Measurement, measurement_of
from .record import Inner, Name, Record, Seconds, TrialNumber, check_time
from .status import Weights

START = b'{"event": '
OF_TRIALS = ("strategy", "started", "paused", "promoted")
EVENTS = (*OF_TRIALS, "measured", "bank", "opened", "ended")


@dataclass(frozen=True)
class Event:
    """What happened to a trial or the run; fields that its kind does not need keep their defaults, not written."""

    event: Text
    trial: TrialNumber  # 0 of bank, opened and ended
    key: Name = ""  # started: of the net, or of net and recipe
    genes: dict[str, Choice] = field(default_factory=dict)  # started
    parent: TrialNumber | None = None  # started: the trial whose weights it begins with
    weights: Text = Weights.ALONE.value  # started: of `Weights`, finetuned where a net is trained on
    step: Whole = 0  # paused, bank: optimiser steps so far; started: those that a net is trained on for
    accuracy: Number = 0.0  # paused
    started_at: Text = ""  # paused: when its first job began
    result: dict[str, Any] = field(default_factory=dict)  # paused: fields of its record; measured: numbers; bank: state
    run_notes: dict[str, Any] = field(default_factory=dict)  # strategy: what it notes of the run
    trial_notes: dict[str, Any] = field(default_factory=dict)  # strategy: what it notes of the trial
    net: Name = ""  # started, measured: key of the net alone
    family: Text = ""  # started

    def to_line(self) -> bytes:
        """The event as a line of records.jsonl; InputError if it could not be read again."""
        given = {name: value for name, value in asdict(self).items() if value != DEFAULTS.get(name)}
        line = json.dumps(given).encode()
        try:
            self.from_dict(parse_line(line))
        except ValueError as error:
            raise InputError(f"the event {self.event} of trial {self.trial} cannot be kept: {error}") from None
        return line + b"\n"

    @classmethod
    def from_dict(cls, data: Any) -> Event:
        """Rebuild from a line's object; InputError if a field is missing, unknown, or of the wrong kind."""
        convert(data, cls, "")
        event = cls(**data)
        if event.event not in EVENTS:
            check_choice("event", event.event, EVENTS)
        check_time("started_at", event.started_at)
        if event.event == "paused":
            convert(event.result, Outcome, "result")
            convert(event.result, Inner, "result")
        if event.event == "bank":
            convert(event.result, BankState, "result")
        if event.event == "measured":
            _ = event.measurement
        return event

    @property
    def measurement(self) -> Measurement:
        """What was measured; InputError if that is nothing."""
        return measurement_of(self.net, self.result)


def measured_event(trial: int, key: str, image_size: Sequence[int], measured: Mapping[str, Any]) -> Event:
    """The event that the net of a trial was measured; `measured` is `Latency.to_dict()`."""
    return Event("measured", trial, net=key, result={"image_size": list(image_size), **measured})


class Outcome(TypedDict):
    """The checked parts of a paused trial's result."""

    metrics: dict[str, Number | None]
    curve: list[dict[str, Number | None]]
    seconds: Seconds
    device: Text
    runtime: dict[str, Any]
    lineage: dict[str, Any]


class BankState(TypedDict, total=False):
    """The checked parts of a state of the bank's training."""

    total_steps: Required[Count]
    attempts: Required[Whole]
    curve: Required[list[dict[str, Number | None]]]
    seconds: Amount
    device: str
    predicted: dict[str, Number]
    train_flops: Amount
    eval_flops: Amount
    budget: dict[str, Number]
    facts: dict[str, Any]


DEFAULTS = {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields(Event)}

Line = Record | Event
