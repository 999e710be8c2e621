"""`NetLimits`: the limits of a search, asked of the nets that it proposes; records and rankings ask `Limits`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..archs import Cost, Genotype
from ..archs.timm_net import Net
from ..results.ranking.quantities import Limits, split_number
from .trials.devices import Devices


@dataclass(frozen=True)
class NetLimits:
    """The limits of a search, for each of its nets."""

    limits: Limits
    cost_fn: Callable[[Genotype], Cost]
    devices: Devices

    def __bool__(self) -> bool:
        return bool(self.limits)

    def broken_by(self, net: Genotype) -> dict[str, float]:
        """The limits that a net breaks as far as is known, each with the share by which it does."""
        return self.broken_static(net) | self.broken_measured(net)

    def broken_static(self, net: Genotype) -> dict[str, float]:
        """The broken limits on costs in closed form, each with its share."""
        return self.limits.static.broken(self.cost_fn(net).totals()) if self.limits else {}

    def broken_measured(self, net: Net) -> dict[str, float]:
        """The broken limits on measured costs; 1 where the net does not run on a device."""
        devices = self.devices
        failed = {device.failure: 1.0 for device in devices.by_name.values() if net.key in device.failed}
        known = [cost for cost in self.limits.measured if net.key in devices.of(cost).known]
        return failed | self.limits.broken({cost: devices.value(cost, net.key) for cost in known})

    def excess(self, net: Genotype) -> float:
        """The shares by which a net is over the limits on costs in closed form, together."""
        return sum(self.broken_static(net).values())

    def expected_excess(self, net: Genotype) -> float:
        """The shares by which a net is, or is predicted to be, over all limits, and 1 where it does not run."""
        devices = self.devices
        failed = sum(net.key in device.failed for device in devices.by_name.values())
        measured = self.limits.measured.items() if devices else ()
        shares = (devices.of(cost).expected_excess(net, split_number(cost)[0], most) for cost, most in measured)
        return self.excess(net) + failed + sum(shares)
