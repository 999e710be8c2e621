"""`Latencies`: those measured in a run, and a log-log ridge regression that predicts those of other nets.

Strategies compare nets before they are measured; schedulers and fronts only measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ...archs import Cost, Genotype
from ...archs.errors import InputError, OperationError
from ...archs.timm_net import Net, net_from_dict
from ...results.latency.measurements import LatencySetting, Measurement, keep, latencies_of, read_latencies
from ...results.runs.record import FREE, Record
from ..training.job import LatencyJob

MIN_POINTS = 8  # measured nets that a line is fitted to; before that, latency goes as MACs
GROWTH = 1.1  # so many times as many nets, and it is fitted anew
RIDGE = 1e-2  # on standardised columns, which go together in most spaces
MAX_RECALLED = 300  # nets of an earlier session that it is fitted to, the last ones


class Latencies:
    """Milliseconds that a batch takes, in one setting on one kind of machine.

    Attributes:
        known: of the nets measured, by key.
    """

    def __init__(
        self,
        folder: Path,
        cost_fn: Callable[[Genotype], Cost],
        setting: LatencySetting,
        image: tuple[int, int, int],
        classes: int,
    ) -> None:
        """With those that the run in `folder` has.

        Args:
            cost_fn: static cost of a net.
            setting: what latencies are measured under.
            image: channels, height, width.
            classes: of the nets.

        Raises:
            InputError: if its latency.jsonl is broken, or holds this setting on several machines.
        """
        self.setting, self._folder, self._cost_fn, self._image, self._classes = setting, folder, cost_fn, image, classes
        side = "x".join(str(length) for length in dict.fromkeys(image[1:]))
        self._place = f"{setting}/{side}"
        measured = [m for m in read_latencies(folder) if m.setting.startswith(f"{self._place}/")]
        self.known: dict[str, Measurement] = latencies_of(measured, self._place, folder.name) if measured else {}
        self._features: dict[str, np.ndarray] = {}
        self._fitted: dict[str, tuple[np.ndarray, float]] = {}  # by key: features of a net, log of its latency
        self._line, self._line_points = np.zeros(0), 0

    def recall(self, records: Sequence[Record]) -> None:
        """Learn from the nets of an earlier session.

        Raises:
            InputError: if one that was trained has no latency in this setting.
        """
        trained = [r for r in records if r.status not in FREE and r.rungs]
        missing = [r.trial for r in trained if r.key not in self.known]
        if missing:
            rule = f"{len(missing)} trained nets, trial {missing[0]} first, have no latency in {self._place}"
            raise InputError(f"run {self._folder.name!r}: {rule}; measure them: alternas latency {self._folder.name}")
        for record in trained[-MAX_RECALLED:]:
            self._learn(net_from_dict(record.genotype))

    def job(self, trial: int, net: Net, timeout_s: float) -> LatencyJob:
        """The job of measuring this net."""
        return LatencyJob(trial, net, self.setting, self._image, self._classes, timeout_s)

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
        self._learn(net)

    def of(self, net: Genotype) -> float:
        """Milliseconds of any net: measured, or predicted; before there is a line, latency goes as MACs."""
        if net.key in self.known:
            return self.known[net.key].ms
        features = self._describe(net)
        if self._line_points:
            return math.exp(float(self._line @ features))
        ratios = [latency - known[1] for known, latency in self._fitted.values()]
        return math.exp(float(features[1] + (np.median(ratios) if ratios else 0.0)))

    def _learn(self, net: Net) -> None:
        """Take in a measured net; with enough new ones the ridge regression is fitted anew, to nets of the space."""
        if not isinstance(net, Genotype):
            return
        self._fitted[net.key] = self._describe(net), math.log(self.known[net.key].ms)
        if len(self._fitted) < max(MIN_POINTS, GROWTH * self._line_points):
            return
        x = np.array([features for features, _ in self._fitted.values()])
        y = np.array([latency for _, latency in self._fitted.values()])
        mean, scale = x.mean(0), np.maximum(x.std(0), 1e-9)
        z = (x[:, 1:] - mean[1:]) / scale[1:]  # the constant is not held down
        slopes = np.linalg.solve(z.T @ z + RIDGE * len(y) * np.eye(z.shape[1]), z.T @ (y - y.mean())) / scale[1:]
        self._line, self._line_points = np.array([y.mean() - slopes @ mean[1:], *slopes]), len(y)

    def _describe(self, net: Genotype) -> np.ndarray:
        """1, and logs of MACs, parameters, activations and blocks: work, weights to fetch, memory, launches."""
        if net.key not in self._features:
            cost, encoder = self._cost_fn(net), net.encoder
            depth = sum(stage.depth for stage in net.stages) + (encoder.depth if encoder else 0)
            costs = (cost.macs, cost.params, cost.activation_bytes, max(1, depth))
            self._features[net.key] = np.array([1.0, *(math.log(value) for value in costs)])
        return self._features[net.key]
