"""`Devices`: what a search measures of its nets, on this machine or by commands, and the limits on that. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
    """

    def __init__(
        self, by_name: Mapping[str, Latencies] | None = None, limits: Mapping[str, float] | None = None
    ) -> None:
        self.by_name, self.limits = by_name or {}, limits or {}

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

    def recall(self, records: Sequence[Record]) -> None:
        """Learn from the nets of an earlier session; InputError as `Latencies.recall`."""
        for device in self.by_name.values():
            device.recall(records)

    def pending(self, net: Net) -> Latencies | None:
        """The first device that has yet to measure a net."""
        return next((device for device in self.by_name.values() if net.key not in device.known), None)

    def release(self, job: Job | None) -> None:
        """Note that a job has ended; its device is free where it was measured."""
        for device in self.by_name.values():
            if isinstance(job, LatencyJob) and job.setting == device.setting:
                device.release()

    def over(self, net: Net) -> dict[str, float]:
        """By which share a net breaks each limit, of those that it was measured to break; 1 where it does not run."""
        over = {device.failure: 1.0 for device in self.by_name.values() if net.key in device.failed}
        for cost, most in self.limits.items():
            if net.key in self.of(cost).known and self.value(cost, net.key) > most:
                over[cost] = self.value(cost, net.key) / most - 1
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
    def seconds(self) -> float:
        """Seconds that measuring has taken, in all sessions."""
        return sum(device.seconds for device in self.by_name.values())


def home_of(cost: str, devices: Mapping[str, object]) -> str:
    """The name of the device that a cost is measured on; a plain latency_ms is the unnamed one's, or this machine's."""
    _, device = split_number(cost)
    return device or (UNNAMED if UNNAMED in devices else "")
