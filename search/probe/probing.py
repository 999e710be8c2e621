"""`Probing`: which pretrained net is probed next, at which image side, and the records that a probe becomes.

Its state is what the records say: `apply` takes in each, those of earlier sessions too.
"""

import logging
import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

from ...archs.cost import FORWARD_FACTOR
from ...archs.timm_net import CountedCost, CutNet, net_from_dict
from ...results.ranking.pareto import front_of
from ...results.runs.events import Line
from ...results.runs.record import Record, now
from ...results.runs.status import Status
from ...results.runs.store import Store, weights_file
from ..strategies.probe_order import ProbePair
from ..training.job import JobResult, LatencyJob
from ..trials.producer import Idle, Producer
from .job import WITHOUT_WEIGHTS, CutResult, ProbeJob
from .prepare import ProbeContext, count_cuts

Curve = tuple[tuple[float, float], ...]  # (cost, score) of cuts


class Probing(Producer):
    """Hands out probes, one for each pretrained net and image side, and makes a record of each cut.

    Attributes:
        records: of the cuts that were judged, by key.
        judged: (MACs, score) of the cuts of each pair that has ended; none where it failed.
        running: pairs at workers, by the number of their job.
        seconds: that the probe of a pair took.
    """

    def __init__(self, context: ProbeContext, store: Store) -> None:
        self.context = context
        self.records: dict[str, Record] = {}
        self.judged: dict[ProbePair, Curve] = {}
        self.running: dict[int, ProbePair] = {}
        self.seconds: dict[ProbePair, float] = {}
        self._found: dict[ProbePair, list[Record]] = defaultdict(list)
        self._unwritten = deque[Record]()
        self._next_number = 0
        self._left_out = set[str]()  # keys of cuts that do not run on a device
        for line in store.lines:
            self.apply(line)

    @property
    def complete(self) -> bool:
        return not (self.running or self._unwritten or self.unmeasured()) and self._next_pair() is None

    @property
    def flops(self) -> float:
        """FLOPs of all probes so far: 2 x MACs x pictures of the deepest cut of each."""
        return sum(FORWARD_FACTOR * r.cost["macs"] * r.runtime.get("evaluated", 0) for r in self.records.values())

    def next(self) -> ProbeJob | Record | Idle:
        """A cut to record, else the probe of the next pair that is worth it."""
        if self._unwritten:
            return self._unwritten.popleft()
        pair = self._next_pair()
        if pair is None:
            return Idle.WAIT if self.running else Idle.OVER
        context, (trunk, frozen) = self.context, self.context.trunk_of(pair.name)
        number = self.new_number(count_cuts(trunk))
        self.running[number] = pair
        return ProbeJob(
            number, trunk, pair.side, context.weights_dir, str(context.folder / "weights"),
            *((), "macs") if context.devices else (self.front, context.spec.objective), context.spec.limits.static,
            context.spec.metric, 60 * context.spec.run.budget.trial_minutes, frozen,
        )  # fmt: skip

    def new_number(self, trials: int = 1) -> int:
        """The first number of so many new trials."""
        self._next_number += trials
        return self._next_number - trials

    def take(self, job: ProbeJob, result: JobResult) -> list[Line]:
        """The record of the most accurate cut; those of the others are handed out next."""
        pair = self.running.pop(job.trial)
        if result.status != Status.OK or not result.cuts:
            return [self._failed(job, pair, result)]
        known = {r.trial for r in self._found[pair]}
        records = [self._record(job, pair, cut, result) for cut in result.cuts]
        records = [r for r in records if r.trial not in known and r.key not in self.records]
        best = max(records, key=lambda record: record.accuracy or 0.0, default=None)
        self._unwritten.extend(record for record in records if record is not best)
        return [best] if best else []

    def apply(self, line: Line) -> None:
        """Take in the record of a cut; a pair has ended with the last of its cuts."""
        if isinstance(line, Record):
            self._take_in(line)
        elif line.event == "measured":
            record = self.records.get(line.net)
            self.context.devices.apply(line, net_from_dict(record.genotype) if record else None)
            self._drop_dominated(())

    def _take_in(self, record: Record) -> None:
        if record.kind != "search" or record.weights != "frozen":
            self._next_number = max(self._next_number, record.trial + 1)
            return
        net = net_from_dict(record.genotype)
        assert isinstance(net, CutNet)
        pair = self.context.pair_of(net.name, net.side)
        self._next_number = max(self._next_number, record.trial + 1)
        if pair is None:
            return
        found = self._found[pair]
        found.append(record)
        self.records[record.key] = record
        if len(found) >= record.runtime["cuts"]:
            self._next_number = max(self._next_number, record.trial + len(found))
            self.seconds[pair] = sum(other.seconds for other in found)
            self.judged[pair] = tuple(
                sorted((float(r.cost["macs"]), r.accuracy) for r in found if r.accuracy is not None)
            )
            self._drop_dominated(found)

    @property
    def without_weights(self) -> set[str]:
        """Names of the nets whose weights a probe could not have: no other of theirs is tried."""
        return {str(r.genes["net"]) for r in self.records.values() if r.runtime.get(WITHOUT_WEIGHTS)}

    @property
    def front(self) -> Curve:
        """(cost, score) of the cuts that no other one dominates."""
        return tuple((self.context.cost_of(r), r.accuracy or 0.0) for r in self.front_records())

    def front_records(self) -> list[Record]:
        """The cuts that no other one dominates, the cheapest first."""
        records, cost = self.candidates(), self.context.cost_of
        points = [(r.accuracy or 0.0, cost(r)) for r in records]
        return sorted(front_of(records, points), key=cost)

    def candidates(self) -> list[Record]:
        """The cuts that may be on the front: judged, measured where that is needed, and then within the limits."""
        records = [r for r in self.records.values() if r.status == Status.OK and r.accuracy is not None]
        return [r for r in records if self.context.is_measured(r) and not self.context.is_over(r)]

    def unmeasured(self) -> list[Record]:
        """The cut of each probed pair that is to be measured next.

        A cut takes at least as long as one that it contains. So of a pair only those can be on the front that are more
        accurate than all that need fewer MACs, and a cut is not measured if one that it contains is over a limit, or
        something as accurate takes no longer than that.
        """
        return [cuts[0] for cuts in map(self._awaited, self.judged) if cuts]

    def _awaited(self, pair: ProbePair) -> list[Record]:
        """The cuts of a pair that may have to be measured, the shallowest first."""
        measured, waiting, front = list[Record](), list[Record](), self.front
        for record in _rising(self._found[pair]):
            if record.key in self._left_out:
                break
            if self.context.is_measured(record):
                measured.append(record)
            elif not self._is_hopeless(record, measured, front):
                waiting.append(record)
        return waiting

    def _is_hopeless(self, record: Record, shallower: Sequence[Record], front: Curve) -> bool:
        """Whether a cut cannot be on the front, for those that it contains are measured."""
        if any(map(self.context.is_over, shallower)):
            return True
        least = max(map(self.context.cost_of, shallower), default=0.0)
        return any(cost <= least and score >= (record.accuracy or 0.0) for cost, score in front)

    def leave_out(self, record: Record) -> None:
        """Take a cut, and those that contain it, for ones that do not run on a device."""
        self._left_out.add(record.key)

    def _next_pair(self) -> ProbePair | None:
        """The pair that is most worth its compute, of those that the budget allows; the first may be above it."""
        left = self.context.spec.run.budget.train_flops - self.flops
        if left <= 0:
            return None
        under_way = {*self.running.values()}
        failed = {pair for pair, curve in self.judged.items() if not curve}
        left -= sum(map(self.flops_of, under_way))
        is_first = not (self.judged or under_way)
        pairs = [
            pair
            for pair in self.context.pairs
            if pair not in under_way | failed
            and (pair.name not in self.without_weights or pair in self.judged)
            and (is_first or pair in self.judged or self.flops_of(pair) <= left)
        ]
        history = [(pair, curve) for pair, curve in self.judged.items() if curve]
        return self.context.order.ask(pairs, history)

    def flops_of(self, pair: ProbePair) -> float:
        """FLOPs of a probe, at most: nothing above the limit of MACs is passed through."""
        macs = min(pair.macs, self.context.spec.limits.get("macs", math.inf))
        return FORWARD_FACTOR * macs * self.context.images

    def _record(self, job: ProbeJob, pair: ProbePair, cut: CutResult, result: JobResult) -> Record:
        deepest = max(result.cuts, key=lambda other: other.block)
        images = self.context.images if cut is deepest else 0  # one pass through it judges all
        about = result.how | {"cuts": len(result.cuts), "evaluated": images, "judged": self.context.images}
        about |= {"weights_sha256": cut.sha256} if cut.sha256 else {}
        net = CutNet(self.context.trunk_of(pair.name)[0], cut.block, pair.side, cut.pooling)
        seconds = round(result.seconds, 3) if cut is deepest else 0.0
        return self._finished(
            job.trial + cut.block, net, cut.cost, Status.OK, result,
            accuracy=cut.accuracy, metrics=dict(cut.metrics), folds=list(cut.folds), seconds=seconds, runtime=about,
        )  # fmt: skip

    def _failed(self, job: ProbeJob, pair: ProbePair, result: JobResult) -> Record:
        """The record of a pair that could not be probed, in the place of its cuts."""
        status, error = result.status, result.error
        if status == Status.OK:
            status, error = Status.INFEASIBLE, "no cut is within the limits"
        net = CutNet(self.context.trunk_of(pair.name)[0], 0, pair.side, "mean")
        cost = CountedCost(1, max(1, round(pair.macs)))
        about = {"cuts": 1, "evaluated": 0} | result.how
        return self._finished(job.trial, net, cost, status, result, error=error, runtime=about)

    def _finished(
        self, number: int, net: CutNet, cost: CountedCost, status: Status, result: JobResult, **fields: Any
    ) -> Record:
        spec = self.context.spec
        genes = {"net": net.name, "side": net.side, "block": net.block, "pooling": net.pooling}
        lineage = {"weights": net.source, "steps": None, "flops": None}
        return Record(
            trial=number, kind="search", family=net.family, key=net.key, genotype=net.to_dict(), genes=genes,
            cost=cost.totals(), status=status, budget={"done": 0, "full": 0}, seed=spec.seed, weights="frozen",
            lineage=lineage, started_at=now(result.seconds), finished_at=now(), device=result.device,
            **(self.context.record_fields | fields),
        )  # fmt: skip

    def _drop_dominated(self, fresh: Collection[Record]) -> None:
        """Keep the weights of the front's cuts alone: those of hundreds would fill the disk."""
        awaited = map(self._awaited, self.judged)
        front = {record.key for record in chain(self.front_records(), *awaited)}
        for record in self.records.values():
            if record.key not in front and (record in fresh or record.runtime.get("weights_sha256")):
                for suffix in (".safetensors", ".npz"):
                    weights_file(self.context.folder, record).with_suffix(suffix).unlink(missing_ok=True)


def _rising(records: Sequence[Record]) -> list[Record]:
    """The cuts of a net at one side that are more accurate than all shallower ones, the shallowest first."""
    judged = sorted((r for r in records if r.status == Status.OK), key=lambda record: record.macs)
    best = accumulate((r.accuracy or 0.0 for r in judged), max, initial=-math.inf)
    return [record for record, before in zip(judged, best, strict=False) if (record.accuracy or 0.0) > before]


log = logging.getLogger("alternas")


class CutMeasuring(Producer):
    """Measures the cuts that `Probing.unmeasured` names, on one device after the other."""

    def __init__(self, probing: Probing) -> None:
        self._probing, self._context = probing, probing.context
        self.running: dict[int, Record] = {}  # the cuts that are measured, by the number of their job

    def next(self) -> LatencyJob | Idle:
        """The measurement of the next cut whose device is free."""
        waiting = self._probing.unmeasured()
        devices, minutes = self._context.devices, self._context.spec.run.budget.trial_minutes
        for record in waiting:
            net = net_from_dict(record.genotype)
            if record.trial not in self.running and devices.is_free_for(net):
                device = devices.pending(net)
                assert device is not None, "is_free_for"
                self.running[record.trial] = record
                return device.job(record.trial, net, max(1.0, 60 * minutes))
        return Idle.WAIT if waiting else Idle.OVER

    def take(self, job: LatencyJob, result: JobResult) -> Iterator[Line]:
        """The event of the measurement; a cut that does not run on the device is no longer a candidate."""
        record, device = self.running.pop(job.trial), self._context.devices.at_work(job)
        device.release()
        if result.status == Status.OK:
            yield device.measured(record.trial, record.key, result.latency)
            return
        device.fail(result)
        if result.status != Status.UNREACHABLE:
            log.warning("trial %d is left out of the front, not measured: %s", record.trial, result.error)
            self._probing.leave_out(record)
