"""`Latencies`: those measured in a run, and those of other nets, predicted from them.

Strategies compare nets before they are measured; schedulers and fronts only measured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...archs import Cost, Genotype
from ...archs.errors import InputError, OperationError
from ...archs.timm_net import Net, net_from_dict
from ...results.latency.measurements import LatencySetting, Measurement, keep, latencies_of, read_latencies
from ...results.latency.predictor import LatencyPredictor, fitted
from ...results.runs.record import FREE, Record
from ..training.job import LatencyJob

GROWTH = 1.1  # so many times as many nets, and the predictor is fitted anew
SURE = 2.0  # standard deviations of a prediction within which a limit is not decided
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
        self._learned: dict[str, Cost] = {}  # of measured nets of the space, by key
        self._predictor: LatencyPredictor = fitted([], [])

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
        """Milliseconds of any net: measured, or predicted."""
        return self.predict(net)[0]

    def predict(self, net: Genotype) -> tuple[float, float]:
        """Milliseconds of a net, and their standard deviation as a share of them: 0 of a measured one."""
        if net.key in self.known:
            return self.known[net.key].ms, 0.0
        return self._predictor.predict_one(self._cost_fn(net))

    def is_over(self, net: Genotype, limit_ms: float) -> bool | None:
        """Whether a net is slower than a limit; None if the error of its prediction spans that: measure it."""
        ms, error = self.predict(net)
        if error == 0 or not ms / (1 + SURE * error) <= limit_ms < ms * (1 + SURE * error):
            return ms > limit_ms
        return None

    def _learn(self, net: Net) -> None:
        """Take in a measured net of the space; with enough new ones the predictor is fitted anew."""
        if not isinstance(net, Genotype):
            return
        self._learned[net.key] = self._cost_fn(net)
        if len(self._learned) >= GROWTH * self._predictor.count:
            self._predictor = fitted([*self._learned.values()], [self.known[key].ms for key in self._learned])
