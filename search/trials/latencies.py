"""`Latencies`: what is measured of a run's nets on one device, and what is predicted of the others from that.

Strategies compare nets before they are measured; schedulers and fronts only measured ones. Of a device that a command
of the user's measures on it knows too whether it is there, and which nets do not run on it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...archs import Cost, Genotype
from ...archs.errors import InputError, OperationError
from ...archs.timm_net import Net, net_from_dict
from ...results.latency.device_command import LATENCY, TIMEOUT_SECONDS, DeviceCommand
from ...results.latency.measurements import (
    CONFIRMED,
    QUICK,
    Effort,
    LatencySetting,
    Measurement,
    keep,
    latencies_of,
    read_latencies,
)
from ...results.latency.predictor import FEWEST, LatencyPredictor, demands, fitted
from ...results.runs.record import FREE, Record
from ..training.job import JobResult, LatencyJob

log = logging.getLogger("alternas")
GROWTH = 1.1  # so many times as many nets, and the predictor is fitted anew
SURE = 2.0  # standard deviations of a prediction, beyond which a net is over a limit without being measured
NEAR = 0.1  # share of a limit, within which a quick measurement does not tell on which side of it a net is
MAX_RECALLED = 300  # nets of an earlier session that it is fitted to, the last ones
ALWAYS_FITTED = 50  # nets, up to which it is fitted anew with each
WAITS = (10.0, 30.0, 60.0, 120.0)  # seconds before a device that is not there is tried again
FAILED = "failed"  # number of the limit that a net breaks which does not run on a device


class Latencies:
    """Numbers that nets have on one device: milliseconds that a batch takes, and what else its command prints.

    Attributes:
        known: of the nets measured, by key.
        failed: why nets do not run there, by key.
        seconds: that measuring has taken, in all sessions.
        predictor: of the first number.
        quick: whether a net is measured with the least effort at first: then some are confirmed.
    """

    def __init__(
        self,
        folder: Path,
        cost_fn: Callable[[Genotype], Cost],
        setting: LatencySetting | DeviceCommand,
        image: tuple[int, int, int],
        classes: int,
        numbers: Sequence[str] = (LATENCY,),
        timeout_s: float = TIMEOUT_SECONDS,
    ) -> None:
        """With those that the run in `folder` has.

        Args:
            cost_fn: static cost of a net.
            setting: what latencies are measured under, or the device's command.
            image: channels, height, width.
            classes: of the nets.
            numbers: what every net must have, of which the first is predicted.
            timeout_s: of one run of a command.

        Raises:
            InputError: if its latency.jsonl is broken, or holds this setting on several machines.
        """
        self.setting, self._folder, self._cost_fn, self._image, self._classes = setting, folder, cost_fn, image, classes
        self._numbers, self._timeout_s = tuple(numbers), timeout_s
        self._place = setting.place("x".join(str(length) for length in dict.fromkeys(image[1:])))
        here = [m for m in read_latencies(folder) if f"{m.setting}/".startswith(f"{self._place}/")]
        measured = [m for m in here if None not in map(m.value, numbers)]
        self.known: dict[str, Measurement] = latencies_of(measured, self._place, folder.name) if measured else {}
        self.failed: dict[str, str] = {}
        self.seconds = sum(m.seconds for m in here)
        self._probe: Net | None = None
        self._misses, self._retry_at, self._at_work = 0, -math.inf, False
        self._learned: dict[str, Cost] = {}  # of measured nets of the space, by key
        self.predictor: LatencyPredictor = fitted([], [])
        self.quick = False
        self._demands: dict[str, NDArray[np.float64]] = {}  # of nets whose number is predicted by key

    def recall(self, records: Sequence[Record], first: Sequence[Genotype] = (), needs_all: bool = True) -> None:
        """Learn from the nets of an earlier session.

        Args:
            records: of its trials.
            first: nets that are measured outside of these.
            needs_all: whether all that were trained must have been measured.

        Raises:
            InputError: if one that was trained has no latency in this setting, and must.
        """
        trained = [r for r in records if r.status not in FREE and r.rungs]
        missing = [r for r in trained if r.key not in self.known]
        if not needs_all:
            for record in missing:
                self.note(net_from_dict(record.genotype))
        elif missing:
            rule = f"{len(missing)} trained nets, trial {missing[0].trial} first, have no latency in {self._place}"
            raise InputError(f"run {self._folder.name!r}: {rule}; measure them: alternas latency {self._folder.name}")
        self.failed |= {r.key: r.error for r in records if self.failure in r.constraint_violation}
        measured = [net_from_dict(r.genotype) for r in [r for r in records if r.key in self.known][-MAX_RECALLED:]]
        for net in (*(net for net in first if net.key in self.known), *measured):
            self._learn(net)

    def note(self, net: Net) -> None:
        """Remember a net, whose number `value` then predicts by its key."""
        if isinstance(net, Genotype):
            self._demands[net.key] = demands(self._cost_fn(net))

    @property
    def first_number(self) -> str:
        """The number that is predicted."""
        return self._numbers[0]

    @property
    def failure(self) -> str:
        """The constraint that a net violates which does not run on the device."""
        return f"{FAILED}@{self.setting.device}"

    @property
    def is_free(self) -> bool:
        """Whether a net can be measured now. On a device that a command is for, one at a time."""
        return not self._at_work and time.monotonic() >= self._retry_at

    def job(self, trial: int, net: Net, timeout_s: float, effort: Effort | None = None) -> LatencyJob:
        """The job of measuring this net; a command's has its own limit of time. None is the least effort that tells."""
        effort = effort or (QUICK if self.quick and net.key not in self.known else CONFIRMED)
        if not isinstance(self.setting, DeviceCommand):
            return LatencyJob(trial, net, self.setting, self._image, self._classes, timeout_s, effort=effort)
        self._at_work = True
        probe, command_timeout_s = self._probe, self._timeout_s
        more = {"needed": self._numbers, "probe": probe, "command_timeout_s": command_timeout_s, "effort": effort}
        return LatencyJob(trial, net, self.setting, self._image, self._classes, **more)

    def release(self) -> None:
        """Note that the job has ended, however it did."""
        self._at_work = False

    def add(self, net: Net, measured: dict[str, object]) -> None:
        """Take up a new measurement, on disk first.

        Raises:
            OperationError: if those before are of another kind of machine.
        """
        new = keep(self._folder, net.key, self._image[1:], measured)
        before = next(iter(self.known.values()), new)
        if before.setting != new.setting:
            raise OperationError(f"latency: measured in {before.setting} before, and now in {new.setting}")
        self.known[net.key] = new
        self.seconds += new.seconds
        self._misses = 0
        if isinstance(self.setting, DeviceCommand) and (differ := measured.get("busy")):
            log.warning("device %s is busy: its repeats differ by %.0f %%", self.setting.name, 100 * float(str(differ)))
        self._learn(net)

    def fail(self, net: Net, result: JobResult) -> None:
        """Take up that a net was not measured.

        Raises:
            OperationError: if that is the device's fault, and it has been away for too long, or none was ever measured.
        """
        if not isinstance(self.setting, DeviceCommand):
            return
        resumes = "the same command resumes"
        if result.status == "unreachable":
            if self._misses >= len(WAITS):
                raise OperationError(f"{result.error}; tried {1 + len(WAITS)} times; {resumes}")
            wait = WAITS[self._misses]
            self._misses, self._retry_at = self._misses + 1, time.monotonic() + wait
            log.warning("%s; tried again in %.0f s (%d of %d)", result.error, wait, self._misses, len(WAITS))
        elif not self.known:
            fault = "it has measured no net yet, so the command is at fault"
            raise OperationError(f"{result.error}; {fault}; correct it and search again")
        else:
            self.failed[net.key] = result.error

    def value(self, key: str, number: str = "") -> float:
        """A number of a measured net; of another one that was noted, the first number as predicted."""
        if key not in self.known:
            return float(self.predictor.predict(self._demands[key][None]).ms_N[0])
        value = self.known[key].value(number or self._numbers[0])
        assert value is not None, "nets without it are not known"
        return value

    def excess(self, net: Net, number: str, most: float) -> float:
        """The share by which a net is over a limit, as far as is known.

        0 of a net within it, of one that may be within it by its prediction or a quick measurement, and where the
        number is not predicted.
        """
        if net.key in self.known:
            return max(0.0, self.value(net.key, number) / most - 1) if self.is_certain(net.key, number, most) else 0.0
        if not (self.predicts and number == self._numbers[0] and isinstance(net, Genotype)):
            return 0.0
        predicted, error = self.predict(net)
        return max(0.0, predicted / (most * (1 + SURE * error)) - 1)

    @property
    def predicts(self) -> bool:
        """Whether enough nets are measured to call another one over a limit, or well within it."""
        return self.predictor.count >= FEWEST

    def is_confirmed(self, key: str) -> bool:
        """Whether a net was measured with more than the least effort."""
        return key in self.known and not self.known[key].is_quick

    def is_certain(self, key: str, number: str, most: float) -> bool:
        """Whether a measured net was measured well enough to say on which side of a limit it is."""
        spread_ms = self.known[key].spread_ms if number == LATENCY else None  # wide where the machine is busy
        return self.is_confirmed(key) or abs(self.value(key, number) - most) > max(NEAR * most, spread_ms or 0.0)

    def may_exceed(self, net: Genotype, most: float) -> bool:
        """Whether the first number of a net that was not measured may be over a limit."""
        predicted, error = self.predict(net)
        return predicted * (1 + SURE * error) > most

    def of(self, net: Genotype) -> float:
        """The first number of any net: measured, or predicted."""
        return self.predict(net)[0]

    def predict(self, net: Genotype) -> tuple[float, float]:
        """The first number of a net, and its standard deviation as a share of it: 0 of a measured one."""
        if net.key in self.known:
            return self.value(net.key), 0.0
        return self.predictor.predict_one(self._cost_fn(net))

    def _learn(self, net: Net) -> None:
        """Take in a measured net of the space; with enough new ones the predictor is fitted anew."""
        self._probe = net
        if not isinstance(net, Genotype):
            return
        self._learned[net.key] = self._cost_fn(net)
        if len(self._learned) <= ALWAYS_FITTED or len(self._learned) >= GROWTH * self.predictor.count:
            self.predictor = fitted([*self._learned.values()], [self.value(key) for key in self._learned])
