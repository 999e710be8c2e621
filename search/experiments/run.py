"""Carry out a plan: open its folder, start the workers, train what is left."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from ...archs import Cost, Genotype, InputError, OperationError, static_cost
from ...results.render.experiment import PlotSpec, study_rows, study_table
from ...results.render.tables import short
from ...results.runs.record import FAILED, FORMAT, Record, versions
from ...results.runs.store import Store, locked, read_settings, write_json
from ..config import differences
from ..data.build import keep_sample
from ..data.dataset import DataSet
from ..data.splits import View
from ..engine.loop import run_loop
from ..engine.pool import Pool, Resources
from ..engine.progress import view
from ..training.artifacts import ArtifactStore, artifact_store, check_store, without_secrets
from ..training.job import Job
from ..training.recipe import check_on
from .plan import ExperimentController, PlanContext
from .training import Training

if TYPE_CHECKING:
    from ...archs import Network


@dataclass(frozen=True)
class ExperimentContext:
    """Where and on what a plan is carried out.

    Attributes:
        folder: of the run.
        kind: of its records, "retrain" or "study".
        data: that all of it is trained on.
        resources: where.
        settings: what the command was given, kept in run.json.
        test: whether the workers may see the test split.
        starts: networks to start from, by the file in the folder that they are kept in.
        about: what it is for, in a line that is printed once all is checked.
    """

    folder: Path
    kind: str
    data: DataSet
    resources: Resources
    settings: dict[str, Any] = field(default_factory=dict)
    test: bool = False
    starts: Mapping[Path, Network] = field(default_factory=dict)
    about: str = ""


def run_experiment(plan: Sequence[Training], room: ExperimentContext, console: Console) -> list[Record]:
    """Train what of the plan is not trained yet. Returns the records of all of it, in its order.

    Raises:
        InputError: if the folder holds trainings on other data, or a recipe or net does not fit the data.
        OperationError: if workers do not start or everything fails.
    """
    for training in plan:
        check_on(training.recipe, room.data.white_level, room.data.in_chans, room.data.image_size)
        training.net.check(room.data.image_size)
    depot = artifact_store(room.folder, room.resources.storage_path)
    check_store(depot)
    with locked(room.folder), closing(Store(room.folder)) as store:
        _settle(room, bool(store.records), depot)
        work = ExperimentController(plan, _terms(room, depot), store)
        left = [training for training in plan if training.id not in work.ended]
        if room.about:
            console.print(room.about, highlight=False, markup=False, soft_wrap=True)
        console.print(_announced(left, len(plan), room.data), highlight=False, soft_wrap=True)
        if left:
            _run(work, room, console)
    found = work.records
    if found and all(r.status in FAILED for r in found):
        raise OperationError(f"{room.folder}: all {len(found)} trainings failed; the first: {found[0].error}")
    return found


def compute_of(plan: Sequence[Training], data: DataSet) -> float:
    """FLOPs of all trainings of a plan: 6 x MACs x images."""
    classes, size, channels = len(data.classes), data.image_size, data.in_chans
    each = (
        static_cost(t.net, len(t.view.classes) or classes, size, channels).training_flops(t.steps * t.recipe.batch_size)
        for t in plan
    )
    return float(sum(each))


def _announced(left: Sequence[Training], count: int, data: DataSet) -> str:
    before = f"{count - len(left)} of {count} trainings are done; " if len(left) < count else ""
    trainings = "1 training" if len(left) == 1 else f"{len(left)} trainings"
    what = f"{trainings}, {compute_of(left, data):.2g} FLOPs (6 x MACs x images)" if left else "nothing to do"
    return before + what


def _run(work: ExperimentController, room: ExperimentContext, console: Console) -> None:
    left = len(work.plan) - len(work.ended)
    if work.terms.depot:
        console.print(f"checkpoints and weights: {work.terms.depot}", highlight=False, soft_wrap=True)
    data = room.data if room.test else room.data.without_test()
    with view(ShownPlan(work), console) as shown, closing(Pool(room.resources, data, left)) as pool:
        run_loop(work, pool, shown)


def _settle(room: ExperimentContext, begun: bool, depot: ArtifactStore | None) -> None:
    """Write what the folder is, unless it holds something else.

    Raises:
        InputError: if it holds a search, or trainings of another kind or on other data.
    """
    hint = "give this one another --name"
    if begun:
        there = read_settings(room.folder)
        if "trials" in there:
            raise InputError(f"{room.folder} holds a search; {hint}")
        here = {"settings": room.settings, "split": room.data.split_hash}
        other = differences({"settings": there.get("settings"), "split": there.get("data", {}).get("split")}, here)
        if other:
            raise InputError(f"{room.folder} holds other trainings: {'; '.join(other)}; {hint}")
    if room.starts:
        _keep_starts(room.starts)
    keep_sample(room.data, room.folder)
    command = without_secrets(sys.argv, room.resources.storage_path)
    facts = {"format": FORMAT, "settings": room.settings, "data": room.data.facts()}
    facts |= {"command": command, "versions": versions()}
    write_json(room.folder / "run.json", facts | ({"storage_path": depot.note} if depot else {}))


def _keep_starts(starts: Mapping[Path, Network]) -> None:
    from ...archs.weights import save

    for file, network in starts.items():
        if not file.exists():
            save(network, file)


def _terms(room: ExperimentContext, depot: ArtifactStore | None) -> PlanContext:
    data = room.data

    def price(net: Genotype, part: View) -> Cost:
        return static_cost(net, len(part.classes) or len(data.classes), data.image_size, data.in_chans)

    about = {"name": data.name, "split": data.split_hash}
    there = room.folder.absolute()  # a worker's current folder may be another
    return PlanContext(room.kind, price, {"versions": versions()}, about, there, depot)


class ShownPlan:
    """A plan in the live view: its work is counted in multiply-accumulates."""

    unit = "MACs"

    def __init__(self, work: ExperimentController) -> None:
        self.work = work
        self._macs = {i: work.terms.price(t.net, t.view).macs * t.recipe.batch_size for i, t in work.plan.items()}

    @property
    def records(self) -> Sequence[Record]:
        return self.work.records

    @property
    def target(self) -> int:
        return len(self.work.plan)

    def amount(self, job: Job, step: int) -> float:
        training = self.work.live.get(job.trial)
        return 0.0 if training is None else 3.0 * step * self._macs[training.id]

    def left(self) -> float:
        plan, ended = self.work.plan, self.work.ended
        return sum(3.0 * t.steps * self._macs[i] for i, t in plan.items() if i not in ended)

    def name(self, job: Job) -> str:
        training = self.work.live.get(job.trial)
        return _said(training) if training else ""

    def line(self, record: Record) -> str:
        found = f"accuracy {record.accuracy:.4f}" if record.accuracy is not None else record.error or "pre-trained"
        said = _said(self.work.plan[record.training])
        return f"{said}: {record.status} {found}, {short(record.cost['macs'])} MACs"

    def table(self) -> RenderableType:
        return study_table(study_rows(self.records, ("accuracy",)), PlotSpec("so far", "", metrics=("accuracy",)))


def _said(training: Training) -> str:
    return ", ".join([*(f"{name} {value}" for name, value in training.factors.items()), f"seed {training.seed}"])
