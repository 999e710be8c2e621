"""`Devices`: what a search measures of its nets before it trains them, on this machine or by commands of the user's.

A `Device` keeps the numbers of the nets measured on it and predicts those of others, by which strategies compare nets
beforehand; schedulers, limits and fronts go by measured numbers alone. No torch.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ...archs import Cost, Genotype
from ...archs.errors import InputError, OperationError
from ...archs.timm_net import Net, net_from_dict
from ...results.latency.device_command import LATENCY, TIMEOUT_SECONDS, UNNAMED, DeviceCommand, split_number
from ...results.latency.measurements import LatencySetting, Measurement, keep, latencies_of, read_latencies
from ...results.latency.predictor import MIN_NETS, LatencyPredictor
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status
from ..training.job import JobResult, LatencyJob
from .trial import Trial

log = logging.getLogger("alternas")
GROWTH = 1.1  # so many times as many nets, and the predictor is fitted anew
ALWAYS_FITTED = 50  # nets, up to which it is fitted anew with each
MAX_RECALLED = 300  # nets of an earlier session that it is fitted to, the last ones
SLACK = 1.25  # times a limit, from which on a prediction keeps strategies from a net
WAITS = (10.0, 30.0, 60.0, 120.0)  # seconds before a device that is not there is tried again
FAILED = "failed"  # number of the limit that a net breaks which does not run on a device


class Device:
    """This machine, or one that a command measures on, with the numbers that a run's nets have there.

    Attributes:
        known: of the nets measured, by key.
        failed: why nets do not run there, by key.
        seconds: that measuring has taken, in all sessions.
        predictor: of the first number.
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
        """Read what the run in `folder` has measured there.

        Args:
            setting: what latencies are measured under, or the device's command.
            image: channels, height, width.
            numbers: what every net must have, of which the first is predicted.

        Raises:
            InputError: if the run's latency.jsonl is broken, or holds this setting on several machines.
        """
        self.setting, self._folder, self._cost_fn, self._image, self._classes = setting, folder, cost_fn, image, classes
        self._numbers, self._timeout_s = tuple(numbers), timeout_s
        self._setting_id = setting.setting_id(image[1:])
        here = [m for m in read_latencies(folder) if f"{m.setting}/".startswith(f"{self._setting_id}/")]
        measured = [m for m in here if None not in map(m.value, numbers)]
        self.known: dict[str, Measurement] = latencies_of(measured, self._setting_id, folder.name) if measured else {}
        self.failed: dict[str, str] = {}
        self.seconds = sum(m.seconds for m in here)
        self._probe: Net | None = None
        self._misses, self._retry_at, self._at_work = 0, -math.inf, False
        self._learned: dict[str, Cost] = {}  # of measured nets of the space, by key
        self.predictor = LatencyPredictor()

    def recall(self, records: Sequence[Record]) -> None:
        """Learn from the nets of an earlier session; InputError if one that was trained has not been measured here."""
        missing = [r for r in records if r.status not in UNTRAINED and r.rungs and r.key not in self.known]
        if missing:
            rule = f"{len(missing)} trained nets, trial {missing[0].trial} first, have no latency in {self._setting_id}"
            raise InputError(f"run {self._folder.name!r}: {rule}; measure them: alternas latency {self._folder.name}")
        self.failed |= {r.key: r.error for r in records if self.failure in r.constraint_violation}
        for record in [r for r in records if r.key in self.known][-MAX_RECALLED:]:
            self._learn(net_from_dict(record.genotype))

    @property
    def failure(self) -> str:
        """The constraint that a net violates which does not run on the device."""
        return f"{FAILED}@{self.setting.device}"

    @property
    def is_free(self) -> bool:
        """Whether a net can be measured now. On a device that a command is for, one at a time."""
        return not self._at_work and time.monotonic() >= self._retry_at

    def job(self, trial: int, net: Net, timeout_s: float) -> LatencyJob:
        """The job of measuring a net; a command's has its own limit of time."""
        if not isinstance(self.setting, DeviceCommand):
            return LatencyJob(trial, net, self.setting, self._image, self._classes, timeout_s)
        self._at_work = True
        more = {"needed": self._numbers, "probe": self._probe, "command_timeout_s": self._timeout_s}
        return LatencyJob(trial, net, self.setting, self._image, self._classes, **more)

    def release(self) -> None:
        """Note that the job has ended, however it did."""
        self._at_work = False

    def add(self, net: Net, measured: dict[str, object]) -> None:
        """Take up a new measurement, on disk first; OperationError if those before are of another kind of machine."""
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
        if result.status == Status.UNREACHABLE:
            if self._misses >= len(WAITS):
                raise OperationError(f"{result.error}; tried {1 + len(WAITS)} times; the same command resumes")
            wait = WAITS[self._misses]
            self._misses, self._retry_at = self._misses + 1, time.monotonic() + wait
            log.warning("%s; tried again in %.0f s (%d of %d)", result.error, wait, self._misses, len(WAITS))
        elif not self.known:
            fault = "it has measured no net yet, so the command is at fault"
            raise OperationError(f"{result.error}; {fault}; correct it and search again")
        else:
            self.failed[net.key] = result.error

    def value(self, key: str, number: str = "") -> float:
        """A number of a measured net, by default the first."""
        value = self.known[key].value(number or self._numbers[0])
        assert value is not None, "nets without it are not known"
        return value

    def predict(self, net: Genotype) -> float:
        """The first number of any net: measured, or predicted."""
        return self.value(net.key) if net.key in self.known else self.predictor.predict(self._cost_fn(net))

    def expected_excess(self, net: Genotype, number: str, limit: float) -> float:
        """The share by which a net is over a limit: as measured, or where it is predicted to be far over."""
        if net.key in self.known:
            return max(0.0, self.value(net.key, number) / limit - 1)
        if number != self._numbers[0] or self.predictor.count < MIN_NETS:
            return 0.0
        return max(0.0, self.predict(net) / (SLACK * limit) - 1)

    def _learn(self, net: Net) -> None:
        """Take in a measured net of the space; with enough new ones the predictor is fitted anew."""
        self._probe = net
        if not isinstance(net, Genotype):
            return
        self._learned[net.key] = self._cost_fn(net)
        if len(self._learned) <= ALWAYS_FITTED or len(self._learned) >= GROWTH * self.predictor.count:
            self.predictor = LatencyPredictor([*self._learned.values()], [self.value(key) for key in self._learned])


class Devices:
    """The devices of a search, by name; "" is this machine. Costs and limits are called NUMBER@DEVICE or latency_ms."""

    def __init__(self, by_name: Mapping[str, Device] | None = None) -> None:
        self.by_name = by_name or {}

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def of(self, cost: str) -> Device:
        """The device that a cost is measured on; a plain latency_ms is the unnamed one's, or this machine's."""
        return self.by_name[split_number(cost)[1] or (UNNAMED if UNNAMED in self.by_name else "")]

    def value(self, cost: str, key: str) -> float:
        """A cost of a measured net."""
        return self.of(cost).value(key, split_number(cost)[0])

    def values(self, costs: Iterable[str]) -> dict[str, dict[str, float]]:
        """These costs of all measured nets, by name and key."""
        return {cost: {key: self.value(cost, key) for key in self.of(cost).known} for cost in costs}

    def recall(self, records: Sequence[Record]) -> None:
        """Learn from the nets of an earlier session; InputError as `Device.recall`."""
        for device in self.by_name.values():
            device.recall(records)

    def delay(self, trial: Trial) -> bool:
        """Whether a trial's net must be measured before it is trained."""
        return not trial.last_result and self.pending(trial.net) is not None

    def pending(self, net: Net) -> Device | None:
        """The first device that has yet to measure a net before it is trained."""
        return next((device for device in self.by_name.values() if net.key not in device.known), None)

    def at_work(self, job: LatencyJob) -> Device:
        """The device that does a job."""
        return next(device for device in self.by_name.values() if job.setting == device.setting)

    def is_free_for(self, net: Net) -> bool:
        """Whether a net has yet to be measured, and its next device is free."""
        device = self.pending(net)
        return device is not None and device.is_free

    @property
    def seconds(self) -> float:
        """Seconds that measuring has taken, in all sessions."""
        return sum(device.seconds for device in self.by_name.values())
