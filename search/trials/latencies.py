"""`Latencies`: those measured in a run, and what they say of nets that were not: a line through logarithms.

Strategies weigh nets before they are drawn; schedulers and fronts weigh those that were measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ...archs import Cost, Genotype
from ...archs.errors import InputError, OperationError
from ...results.latency.store import Measurement, keep, latencies_of, read_latencies
from ...results.runs.record import FREE, Record
from ..training.job import Timing

FEWEST = 8  # measured nets that a line is drawn through; before that, latency goes as MACs
GROWTH = 1.1  # so many times as many nets, and it is drawn anew
RIDGE = 1e-2  # on standardised columns, which go together in most spaces
MOST = 300  # nets of an earlier session that it is drawn through, the last ones


class Latencies:
    """Milliseconds that a batch takes, in one setting on one kind of machine.

    Attributes:
        known: of the nets measured, by key.
    """

    def __init__(self, folder: Path, timing: Timing, price: Callable[[Genotype], Cost]) -> None:
        """With those that the run in `folder` has.

        Raises:
            InputError: if its latency.jsonl is broken, or holds this setting on several machines.
        """
        self.timing, self._folder, self._price = timing, folder, price
        side = "x".join(str(length) for length in dict.fromkeys(timing.image[1:]))
        self.setting = f"{timing.setting}/{side}"
        measured = [m for m in read_latencies(folder) if m.setting.startswith(f"{self.setting}/")]
        self.known: dict[str, Measurement] = latencies_of(measured, self.setting, folder.name) if measured else {}
        self._traits: dict[str, np.ndarray] = {}
        self._learnt: dict[str, tuple[np.ndarray, float]] = {}  # by key: what describes a net, log of its latency
        self._line, self._through = np.zeros(0), 0  # through so many nets

    def recall(self, records: Sequence[Record]) -> None:
        """Learn from the nets of an earlier session.

        Raises:
            InputError: if one that was trained has no latency in this setting.
        """
        trained = [r for r in records if r.status not in FREE and r.rungs]
        missing = [r.trial for r in trained if r.key not in self.known]
        if missing:
            rule = f"{len(missing)} trained nets, trial {missing[0]} first, have no latency in {self.setting}"
            raise InputError(f"run {self._folder.name!r}: {rule}; measure them: alternas latency {self._folder.name}")
        for record in trained[-MOST:]:
            self._learn(Genotype.from_dict(record.genotype))

    def take(self, net: Genotype, measured: dict[str, object]) -> None:
        """Keep a new measurement, on disk first.

        Raises:
            OperationError: if those before are of another kind of machine.
        """
        new = keep(self._folder, net.key, self.timing.image[1:], measured)
        before = next(iter(self.known.values()), new)
        if before.setting != new.setting:
            raise OperationError(f"latency: measured in {before.setting} before, and now in {new.setting}")
        self.known[net.key] = new
        self._learn(net)

    def of(self, net: Genotype) -> float:
        """Milliseconds of any net: measured, or guessed."""
        known = self.known.get(net.key)
        return known.ms if known else math.exp(self._guess(self._describe(net)))

    def _learn(self, net: Genotype) -> None:
        self._learnt[net.key] = self._describe(net), math.log(self.known[net.key].ms)
        if len(self._learnt) >= max(FEWEST, GROWTH * self._through):
            self._draw()

    def _guess(self, traits: np.ndarray) -> float:
        """Log of the latency."""
        if self._through:
            return float(self._line @ traits)
        ratios = [latency - known[1] for known, latency in self._learnt.values()]
        return float(traits[1] + (np.median(ratios) if ratios else 0.0))

    def _draw(self) -> None:
        """Ridge regression; the constant is not held down."""
        x = np.array([traits for traits, _ in self._learnt.values()])
        y = np.array([latency for _, latency in self._learnt.values()])
        middle, scale = x.mean(0), np.maximum(x.std(0), 1e-9)
        z = (x[:, 1:] - middle[1:]) / scale[1:]
        slopes = np.linalg.solve(z.T @ z + RIDGE * len(y) * np.eye(z.shape[1]), z.T @ (y - y.mean())) / scale[1:]
        self._line, self._through = np.array([y.mean() - slopes @ middle[1:], *slopes]), len(y)

    def _describe(self, net: Genotype) -> np.ndarray:
        """1, and logs of MACs, parameters, activations and blocks: work, weights to fetch, memory, launches."""
        if net.key not in self._traits:
            cost, encoder = self._price(net), net.encoder
            depth = sum(stage.depth for stage in net.stages) + (encoder.depth if encoder else 0)
            costs = (cost.macs, cost.params, cost.activation_bytes, max(1, depth))
            self._traits[net.key] = np.array([1.0, *(math.log(value) for value in costs)])
        return self._traits[net.key]
