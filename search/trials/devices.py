"""`Devices`: what a search measures of its nets before it trains them, on this machine or by commands of the user's.

A `Device` keeps the numbers of the nets measured on it, as lines of the run's log say, and predicts those of others, by
which strategies compare nets beforehand; schedulers, limits and fronts go by measured numbers alone. No torch.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ...archs import Cost, Genotype
from ...archs.errors import InputError, OperationError
from ...archs.timm_net import Net
from ...results.latency.measurement import Measurement
from ...results.latency.predictor import MIN_NETS, LatencyPredictor
from ...results.latency.setting import TIMEOUT_SECONDS, UNNAMED, DeviceCommand, LatencySetting, Setting
from ...results.ranking.quantities import LATENCY, split_number
from ...results.runs.events import Event, Line, measured_event
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status
from ..training.job import JobResult, LatencyJob
from .trial import Trial

log = logging.getLogger("alternas")
GROWTH = 1.1  # so many times as many nets, and the predictor is fitted anew
ALWAYS_FITTED = 50  # nets, up to which it is fitted anew with each
SLACK = 1.25  # times a limit, from which on a prediction keeps strategies from a net
WAITS = (10.0, 30.0, 60.0, 120.0)  # seconds before a device that is not there is tried again
FAILED = "failed"  # number of the limit that a net breaks which does not run on a device


class Device:
    """This machine, or one that a command measures on, with the numbers that a run's nets have there.

    None has any before `apply` has taken in the lines that say so.
    """

    def __init__(
        self,
        cost_fn: Callable[[Genotype], Cost],
        setting: Setting,
        image: tuple[int, int, int],
        classes: int,
        numbers: Sequence[str] = (LATENCY,),
        timeout_s: float = TIMEOUT_SECONDS,
    ) -> None:
        """Take what latencies are measured under, or the device's command.

        `image`: channels, height, width. `numbers`: what every net must have, of which the first is predicted.
        """
        self.setting, self._cost_fn, self._image, self._classes = setting, cost_fn, image, classes
        self._numbers, self._timeout_s = tuple(numbers), timeout_s
        self._setting_id = setting.setting_id(image[1:])
        self.known: dict[str, Measurement] = {}  # of the nets measured, by key
        self.failed: dict[str, str] = {}  # why nets do not run there, by key
        self.seconds = 0.0  # that measuring has taken, in all sessions
        self._probe: Net | None = None
        self._misses, self._retry_at, self._at_work = 0, -math.inf, False
        self._learned: dict[str, Cost] = {}  # of measured nets of the space, by key
        self._predictor = LatencyPredictor()

    def check(self, lines: Iterable[Line], run: str) -> None:
        """Raise InputError if a net that a run has trained, as its lines say, has not been measured here."""
        lines = list(lines)
        here = {m.key for line in lines if isinstance(line, Event) and (m := self._measured(line))}
        trained = [line for line in lines if isinstance(line, Record) and line.status not in UNTRAINED and line.rungs]
        if missing := [record for record in trained if record.key not in here]:
            rule = f"{len(missing)} trained nets, trial {missing[0].trial} first, have no latency in {self._setting_id}"
            raise InputError(f"run {run!r}: {rule}; measure them: alternas latency {run}")

    def _measured(self, event: Event) -> Measurement | None:
        """The measurement of an event, if it was made here."""
        if event.event != "measured":
            return None
        found = event.measurement
        return found if found.is_of(self._setting_id) and found.has(self._numbers) else None

    def apply(self, line: Line, net: Net | None) -> None:
        """Take in a line, about a net that is known where it is of this search; that of another device is none."""
        if isinstance(line, Record):
            if self.failure in line.constraint_violation:
                self.failed[line.key] = line.error
        elif found := self._measured(line):
            self.known[found.key] = found
            self.seconds += found.seconds
            if net:
                self._probe = net
            if isinstance(net, Genotype):
                self._learned[net.key] = self._cost_fn(net)

    @property
    def failure(self) -> str:
        """The constraint that a net violates which does not run on the device."""
        return f"{FAILED}@{self.setting.device}"

    @property
    def is_free(self) -> bool:
        """Whether a net can be measured now; one at a time."""
        return not self._at_work and time.monotonic() >= self._retry_at

    def job(self, trial: int, net: Net, timeout_s: float) -> LatencyJob:
        """The job of measuring a net; a command's has its own limit of time."""
        self._at_work = True
        most = math.inf if isinstance(self.setting, DeviceCommand) else timeout_s
        of = (trial, net, self.setting, self._image, self._classes, most)
        return LatencyJob(*of, self._numbers, self._probe, self._timeout_s)

    def release(self) -> None:
        """Note that the job has ended, however it did."""
        self._at_work = False

    def measured(self, trial: int, key: str, numbers: Mapping[str, Any]) -> Event:
        """The event of a new measurement; OperationError if those before are of another kind of machine."""
        event = measured_event(trial, key, self._image[1:], numbers)
        before, new = next(iter(self.known.values()), event.measurement), event.measurement
        if before.setting != new.setting:
            raise OperationError(f"latency: measured in {before.setting} before, and now in {new.setting}")
        self._misses = 0
        if differ := numbers.get("busy"):
            log.warning(
                "device %s is busy: its repeats differ by %.0f %%", self.setting.device, 100 * float(str(differ))
            )
        return event

    def fail(self, result: JobResult) -> None:
        """Take up that a net was not measured.

        Raises:
            OperationError: if that is the device's fault, and it has been away for too long, or none was ever measured.
        """
        if result.status == Status.UNREACHABLE:
            if self._misses >= len(WAITS):
                raise OperationError(f"{result.error}; tried {1 + len(WAITS)} times; the same command resumes")
            wait = WAITS[self._misses]
            self._misses, self._retry_at = self._misses + 1, time.monotonic() + wait
            log.warning("%s; tried again in %.0f s (%d of %d)", result.error, wait, self._misses, len(WAITS))
        elif not self.known and result.status not in (Status.OOM, Status.LOST):
            fault = "it has measured no net yet, so the setting or command is at fault"
            raise OperationError(f"{result.error}; {fault}; correct it and search again")

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

    @property
    def predictor(self) -> LatencyPredictor:
        """Predictor of the first number, fitted to as many of the measured nets as are worth it."""
        count = len(self._learned)
        if count > ALWAYS_FITTED:
            steps = math.floor(math.log(count / ALWAYS_FITTED, GROWTH))
            count = round(ALWAYS_FITTED * GROWTH**steps)
        if count != self._predictor.count:
            nets = dict(islice(self._learned.items(), count))
            self._predictor = LatencyPredictor([*nets.values()], [self.value(key) for key in nets])
        return self._predictor


class Devices:
    """The devices of a search, by name; "" is this machine. Costs and limits are called NUMBER@DEVICE or latency_ms."""

    def __init__(self, by_name: Mapping[str, Device] | None = None) -> None:
        self.by_name = by_name or {}

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def setting_here(self) -> LatencySetting | None:
        """How this machine measures; None where it does not."""
        settings = (device.setting for device in self.by_name.values())
        return next((setting for setting in settings if isinstance(setting, LatencySetting)), None)

    def of(self, cost: str) -> Device:
        """The device that a cost is measured on; a plain latency_ms is the unnamed one's, or this machine's."""
        return self.by_name[split_number(cost)[1] or (UNNAMED if UNNAMED in self.by_name else "")]

    def value(self, cost: str, key: str) -> float:
        """A cost of a measured net."""
        return self.of(cost).value(key, split_number(cost)[0])

    def values(self, costs: Iterable[str]) -> dict[str, dict[str, float]]:
        """These costs of all measured nets, by name and key."""
        return {cost: {key: self.value(cost, key) for key in self.of(cost).known} for cost in costs}

    def check(self, lines: Sequence[Line], run: str) -> None:
        """Raise InputError as `Device.check`."""
        for device in self.by_name.values():
            device.check(lines, run)

    def apply(self, line: Line, net: Net | None) -> None:
        """Take in a line about a net, as `Device.apply`."""
        for device in self.by_name.values():
            device.apply(line, net)

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
