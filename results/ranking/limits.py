"""`Limits`: the largest costs that a net may have, of a search or a ranking."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...archs.errors import check_choice
from ..latency.device_command import is_number_of_device
from ..runs.store import read_settings
from .quantities import cost_value, costs, static_costs


class Limits(dict[str, float]):
    """The largest costs allowed, by name: in closed form, "latency_ms" or NUMBER@DEVICE."""

    def broken(self, known: Mapping[str, Any]) -> dict[str, float]:
        """By which share each limit is broken, of those that are, by costs or totals; an unknown cost breaks none."""
        costs = {name: cost_value(name, known) or 0.0 for name in self}
        return {name: costs[name] / most - 1 for name, most in self.items() if costs[name] > most}

    @property
    def static(self) -> Limits:
        """Those on costs in closed form."""
        return Limits({name: most for name, most in self.items() if name in static_costs()})

    @property
    def measured(self) -> Limits:
        """Those on what is measured."""
        return Limits({name: most for name, most in self.items() if name not in static_costs()})

    @classmethod
    def of_run(cls, folder: Path) -> Limits:
        """The limits of a run; InputError if its run.json is broken."""
        limits = read_settings(folder).get("settings", {}).get("limits") or {}
        for name in limits:
            if not is_number_of_device(name):
                check_choice(f"{folder / 'run.json'}: limits", name, costs())
        return cls(limits)
