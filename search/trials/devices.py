"""`Devices`: what a search measures of its nets, on this machine or by commands, and the limits on that. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...archs import Genotype
from ...archs.timm_net import Net
from ...results.latency.device_command import UNNAMED, split_number
from ...results.runs.record import Record
from ..training.job import Job, LatencyJob
from .latencies import Latencies


class Devices:
    """The devices of a search, by name; "" is this machine. Costs and limits are called NUMBER@DEVICE or latency_ms.

    Attributes:
        by_name: what each has measured.
        limits: largest values allowed, of what is measured.
        measures_all: whether every net is measured before it is trained; else the first ones and those near a limit,
            with the least effort where that tells.
        first: nets that are measured before any is trained, once `recall` was told of them.
    """

    def __init__(
        self,
        by_name: Mapping[str, Latencies] | None = None,
        limits: Mapping[str, float] | None = None,
        measures_all: bool = True,
    ) -> None:
        self.by_name, self.limits, self.measures_all = by_name or {}, limits or {}, measures_all
        self.first: Sequence[Genotype] = ()
        for device in self.by_name.values():
            device.quick = not measures_all

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def of(self, cost: str) -> Latencies:
        """The device that a cost is measured on."""
        return self.by_name[home_of(cost, self.by_name)]

    def value(self, cost: str, key: str) -> float:
        """A cost of a measured net."""
        return self.of(cost).value(key, split_number(cost)[0])

    def values(self, costs: Iterable[str]) -> dict[str, dict[str, float]]:
        """These costs of all measured nets, by name and key."""
        return {cost: {key: self.value(cost, key) for key in self.of(cost).known} for cost in costs}

    def recall(self, records: Sequence[Record], first: Sequence[Genotype] = ()) -> None:
        """Learn from the nets of an earlier session; InputError as `Latencies.recall`."""
        self.first = first
        for device in self.by_name.values():
            device.recall(records, first, self.measures_all)

    def note(self, net: Net) -> None:
        """Remember a net whose costs are asked for by its key."""
        for device in () if self.measures_all else self.by_name.values():
            device.note(net)

    def pending(self, net: Net) -> Latencies | None:
        """The first device that has yet to measure a net before it is trained."""
        return next((device for device in self.by_name.values() if self._is_needed(device, net)), None)

    def _is_needed(self, device: Latencies, net: Net) -> bool:
        """Whether a net is not trained before a device has measured it, or measured it again."""
        if net.key in device.known:
            return not self.is_certain(device, net.key)
        if self.measures_all or not isinstance(net, Genotype) or not (self.first or device.predicts):
            return True
        return any(device.may_exceed(net, most) for most in self._limits_of(device).values())

    def is_certain(self, device: Latencies, key: str) -> bool:
        """Whether a device has measured a net well enough to say which limits it keeps."""
        limits = self._limits_of(device).items()
        return key in device.known and all(device.is_certain(key, number, most) for number, most in limits)

    def _limits_of(self, device: Latencies) -> dict[str, float]:
        """The limits on what a device measures, by number."""
        return {split_number(cost)[0]: most for cost, most in self.limits.items() if self.of(cost) is device}

    def name_of(self, job: LatencyJob) -> str:
        """The device that does a job."""
        return next(name for name, device in self.by_name.items() if job.setting == device.setting)

    def release(self, job: Job | None) -> None:
        """Note that a job has ended; its device is free where it was measured."""
        if isinstance(job, LatencyJob):
            self.by_name[self.name_of(job)].release()

    def over(self, net: Net) -> dict[str, float]:
        """By which share a net breaks each limit, of those that it was measured to break; 1 where it does not run."""
        over = {device.failure: 1.0 for device in self.by_name.values() if net.key in device.failed}
        for cost, most in self.limits.items():
            if net.key in self.of(cost).known and (share := self.of(cost).excess(net, split_number(cost)[0], most)):
                over[cost] = share
        return over

    def expected_over(self, net: Net) -> dict[str, float]:
        """By which share a net is over each limit: as measured, or well over it as predicted."""
        excess = {cost: self.of(cost).excess(net, split_number(cost)[0], most) for cost, most in self.limits.items()}
        return {cost: share for cost, share in excess.items() if share > 0}

    def excess(self, net: Net) -> float:
        """The shares by which a net is expected to be over the limits, together, and 1 where it does not run."""
        failed = sum(net.key in device.failed for device in self.by_name.values())
        return failed + sum(self.expected_over(net).values())

    @property
    def errors(self) -> list[str]:
        """How well each device's number is predicted, a line each."""
        lines = []
        for name, device in self.by_name.items():
            cost = device.first_number if name in ("", UNNAMED) else f"{device.first_number}@{name}"
            lines += [f"{cost} {device.predictor}"] if device.predictor.count else []
        return lines

    @property
    def seconds(self) -> float:
        """Seconds that measuring has taken, in all sessions."""
        return sum(device.seconds for device in self.by_name.values())


def home_of(cost: str, devices: Mapping[str, object]) -> str:
    """The name of the device that a cost is measured on; a plain latency_ms is the unnamed one's, or this machine's."""
    _, device = split_number(cost)
    return device or (UNNAMED if UNNAMED in devices else "")
