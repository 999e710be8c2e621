"""What a search among cuts of pretrained nets says: beforehand, while it runs, and at its end."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, RenderableType

from ...archs.errors import OperationError
from ...results.ranking.stats import count_nets, counted
from ...results.render.tables import short
from ...results.runs.record import Record
from ...results.runs.status import FAILED, Status, Weights
from ..engine.shown import Shown, front_table
from ..strategies.probe_order import ProbePair
from ..training.job import Job, LatencyJob
from ..trials.forecast import Known
from ..trials.trial import Trial, Work
from .crossval import FOLDS
from .finetuning import CutFinetuning
from .job import FinetuneCutJob, ProbeJob
from .probing import Probing

PROBE, FINETUNING = "probe", "finetuning"  # kinds of work


def announce(probing: Probing, console: Console) -> None:
    """Say what a search will do."""
    context = probing.context
    nets = counted(len({pair.name for pair in context.pairs}), "pretrained net")
    probes, pictures = counted(len(context.pairs), "probe"), counted(context.images, "picture")
    sides = sorted({pair.side for pair in context.pairs})
    share = context.spec.polish
    then = (
        f". Cheap cuts of the front are trained on then, within {share:.0%} of the compute (--polish)" if share else ""
    )
    done = f"; {len(probing.judged)} are done" if probing.judged else ""
    console.print(
        f"{nets} at {sides[0]} to {sides[-1]} px, cut after each block: {probes} "
        f"at most, each one forward pass of {pictures}, the cheapest first{done}. Every cut is judged by "
        f"{FOLDS}-fold cross-validation over training and validation pictures; what the pretraining cost is "
        f"not counted{then}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def conclude(probing: Probing, finetuning: CutFinetuning, console: Console) -> None:
    """Say how a search ended; OperationError if every probe failed."""
    records = list(probing.records.values())
    judged = [record for record in records if record.status == Status.OK]
    failed = [record for record in records if record.status in FAILED]
    if not judged:
        reason = f"; the first, {failed[0].label}: {failed[0].error}" if failed else ""
        raise OperationError(f"run {probing.context.folder.name!r}: no cut could be judged{reason}")
    lost = probing.without_weights
    left = sum(pair not in probing.judged and pair.name not in lost for pair in probing.context.pairs)
    why = f"; {left} more would hardly lift the front" if left else ""
    console.print(
        f"cuts judged: {len(judged)}, of {count_nets(len({r.genes['net'] for r in judged}))} by "
        f"{counted(len(probing.judged), 'probe')}, {short(probing.flops)} FLOPs{why}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    if names := ", ".join(probing.context.spec.measured):
        known = sum(map(probing.context.is_measured, records))
        why = "the others are no more accurate than faster ones, or over a limit"
        console.print(f"cuts measured for {names}: {known}; {why}", highlight=False, soft_wrap=True)
    if finetuning.records:
        console.print(finetuning_line(finetuning, probing), highlight=False, soft_wrap=True)


def finetuning_line(finetuning: CutFinetuning, probing: Probing) -> str:
    """What training cuts on has brought, the frozen score first."""
    frozen, value = {r.trial: r for r in probing.records.values()}, probing.context.spec.metric.text
    found = [
        f"trial {trial} at {short(record.macs)} MACs "
        + (f"{value(frozen[trial].accuracy)} to {value(record.accuracy)}" if record.accuracy else record.status)
        for trial, record in finetuning.records.items()
    ]
    return f"trained on, {short(finetuning.flops)} FLOPs: {', '.join(found)}; the better of the two is kept"


class ShownProbing(Shown):
    """A search among cuts in the live view: its work is that of the probes that may come at most."""

    def __init__(self, probing: Probing, finetuning: CutFinetuning) -> None:
        self._probing = probing
        self.live = dict[int, Trial]()
        self._finetuning = finetuning

    @property
    def records(self) -> Sequence[Record]:
        return [*self._probing.records.values(), *self._finetuning.records.values()]

    @property
    def counts(self) -> str:
        probing = self._probing
        cuts, probes = counted(len(probing.records), "cut"), counted(len(probing.context.pairs), "probe")
        return f"{cuts}, {len(probing.judged)} of at most {probes}"

    @property
    def share(self) -> float:
        return len(self._probing.judged) / max(1, len(self._probing.context.pairs))

    @property
    def done(self) -> bool:
        return self._finetuning.complete

    def work(self, job: Job) -> Known | None:
        if isinstance(job, FinetuneCutJob):
            return FINETUNING, self._finetuning.work(*self._finetuning.running[job.trial])
        return (PROBE, self._work(self._probing.running[job.trial])) if isinstance(job, ProbeJob) else None

    def left(self) -> Mapping[str, Work]:
        probing = self._probing
        pairs = [] if probing.complete else [pair for pair in probing.context.pairs if pair not in probing.judged]
        probes = sum(map(self._work, pairs), Work())
        return {PROBE: probes, FINETUNING: self._finetuning.left(probes.flops)}

    def known(self) -> Iterable[tuple[str, Work, float]]:
        seconds = self._probing.seconds
        return [(PROBE, self._work(pair), seconds[pair]) for pair in self._probing.judged if pair in seconds]

    def _work(self, pair: ProbePair) -> Work:
        return Work(self._probing.flops_of(pair), 0, 1)

    def name(self, job: Job) -> str:
        if isinstance(job, FinetuneCutJob):
            return f"{job.net.name} at {job.net.side} px, trained on"
        if isinstance(job, LatencyJob):
            return f"trial {job.trial}, measured"
        return f"{job.net} at {job.side} px" if isinstance(job, ProbeJob) else ""

    def line(self, record: Record) -> str:
        spec = self._probing.context.spec
        if record.accuracy is None:
            return f"{record.label}: {record.status} {record.error}"
        if record.weights == Weights.FINETUNED:
            return f"{record.label} at {short(record.macs)} MACs, trained on: {spec.metric.text(record.accuracy)}"
        best = f"{spec.metric.name} {spec.metric.text(record.accuracy)} at {short(record.cost['macs'])} MACs"
        cuts = counted(record.runtime["cuts"], "cut")
        return f"{record.genes['net']} at {record.genes['side']} px: {cuts}, the best {best}"

    def table(self) -> RenderableType:
        return front_table(self.records, self._probing.context.spec, self._probing.context.devices)
