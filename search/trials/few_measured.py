"""`FewMeasured`: measurements outside of trials, where a search measures some nets and predicts the others.

`spanning_nets` may be measured before any is trained; in the end the front's are, until all of it is.
Knows no torch.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...archs import Cost, Genotype
from ...archs.errors import OperationError
from ...archs.timm_net import Net, net_from_dict
from ...results.latency.measurements import Effort
from ...results.latency.predictor import demands, spanning
from ...results.ranking.pareto import pareto_ranks
from ...results.runs.record import Record
from ...spaces import FeasibleNets, FixedChooser, Space, options_of, priors_of, random_genes
from ..training.job import JobResult, LatencyJob
from .devices import Devices
from .latencies import Latencies

log = logging.getLogger("alternas")
CANDIDATES = 300  # random nets that those to measure are chosen of
MAX_RETRIES = 2  # of a measurement whose worker was lost
CostNamed = Callable[[str, Record], float]  # a cost by name, of a record's net


def spanning_nets(
    space: Space, over: Callable[[Genotype], float], cost_fn: Callable[[Genotype], Cost], count: int, seed: int
) -> list[Genotype]:
    """Nets to measure, that span operators and costs: the same for the same seed.

    Args:
        over: what a net has over limits on costs in closed form.
        count: so many, or as many as are found.
    """
    draw, feasible, nets = random.Random(f"{seed}/measured"), FeasibleNets(space, over), dict[str, Genotype]()
    options, priors = options_of(space), priors_of(space)
    for _ in range(CANDIDATES):
        if genes := feasible.moved(random_genes(draw, options, priors), draw):
            net = space.sample(FixedChooser(genes))
            nets[net.key] = net
    if not nets:
        return []
    candidates = [*nets.values()]
    demands_NT = np.array([demands(cost_fn(net)) for net in candidates])
    return [candidates[place] for place in spanning(demands_NT, count)]


class FewMeasured:
    """Hands out measurements that belong to no trial, under numbers below 0, and takes their results."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._jobs: dict[int, LatencyJob] = {}  # under way, by number
        self._numbers = 0
        self._lost: Counter[str] = Counter()  # workers, by the net's key
        self._given_up: dict[tuple[str, str], str] = {}  # why, by device and key

    def missing(self, nets: Iterable[Net]) -> list[tuple[Latencies, Net]]:
        """What of these nets has yet to be measured, or measured again. Nets that failed are not tried again."""
        return [
            (device, net)
            for net in nets
            for name, device in self._devices.by_name.items()
            if not self._devices.is_certain(device, net.key) and (name, net.key) not in self._given_up
        ]

    def next_job(
        self, missing: Iterable[tuple[Latencies, Net]], effort: Effort | None, timeout_s: float
    ) -> LatencyJob | None:
        """The first of what is missing that can be measured now."""
        under_way = {(job.setting, job.genotype.key) for job in self._jobs.values()}
        for device, net in missing:
            if device.is_free and (device.setting, net.key) not in under_way:
                self._numbers -= 1
                self._jobs[self._numbers] = device.job(self._numbers, net, timeout_s, effort)
                return self._jobs[self._numbers]
        return None

    def take(self, result: JobResult) -> None:
        """Take the result of a job; what was lost, or is away, stays missing."""
        job = self._jobs.pop(result.trial)
        name, net = self._devices.name_of(job), job.genotype
        device = self._devices.by_name[name]
        device.release()
        if result.status == "ok":
            device.add(net, result.latency)
            return
        if result.status == "lost":
            self._lost[net.key] += 1
            if self._lost[net.key] <= MAX_RETRIES:
                return
        else:
            device.fail(net, result)
        if result.status != "unreachable":
            log.warning("a net could not be measured: %s", result.error)
            self._given_up[name, net.key] = result.error

    def check(self) -> None:
        """Raise OperationError if a device has measured none of the nets that others are predicted from."""
        for name, device in self._devices.by_name.items():
            if not device.predictor.count:
                why = next((error for (at, _), error in self._given_up.items() if at == name), "no net was found")
                raise OperationError(f"measured-nets: none could be measured; the first: {why}")

    def front(self, records: Sequence[Record], costs: Sequence[str], cost_named: CostNamed) -> list[Net]:
        """The nets that no other one beats and that keep the limits, by what is measured, or else predicted.

        Args:
            records: of a run.
            costs: one or two that accuracy is weighed against.
            cost_named: a cost of a record's net, by name.
        """
        trained = [r for r in records if r.status == "ok" and r.accuracy is not None]
        failed = {key for _, key in self._given_up}
        nets = {r.trial: net_from_dict(r.genotype) for r in trained if r.key not in failed}
        kept = [r for r in trained if r.trial in nets and not self._devices.excess(nets[r.trial])]
        points = [(r.accuracy or 0.0, *(cost_named(cost, r) for cost in costs)) for r in kept]
        front = [nets[r.trial] for r, rank in zip(kept, pareto_ranks(points), strict=True) if rank == 1]
        return [*{net.key: net for net in front}.values()]
