"""Carry out a plan: open its folder, start the workers, train what is left."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console, RenderableType

from ...archs import InputError, OperationError
from ...archs.cost import training_flops
from ...archs.errors import MAX_SEEDS, check_count
from ...results.ranking.metric import Metric
from ...results.ranking.stats import counted
from ...results.render.experiment import PlotSpec, study_rows, study_table
from ...results.render.tables import short
from ...results.runs.record import Record
from ...results.runs.status import FAILED, Status
from ...results.runs.store import Store, locked, read_settings
from ..data.dataset import DataConfig, DataSet
from ..data.load import load_at
from ..data.views import WHOLE
from ..driver import Driver
from ..engine.resources import check_one_device
from ..engine.shown import Shown
from ..fitted_recipe import DecidedRecipe, at_outset, decided_recipe
from ..run import drive
from ..run_config import RunConfig
from ..run_facts import differences, write_run_json
from ..training import recipes
from ..training.job import Job
from ..training.recipe import Recipe, check_devices, check_on
from ..trials.forecast import ALONE, Known
from ..trials.trial import Work
from .plan import ExperimentContext, PlanTrials, Training


@dataclass(frozen=True)
class ExperimentConfig:
    """Settings that all experiments share: nets are trained on some data by a recipe, with several seeds."""

    data: DataConfig  # that all of it is trained on
    recipe: Recipe
    seeds: int  # number of trainings of each net
    name: str  # of the run; "" derives it from the inputs
    run: RunConfig  # where, for how long, and which trackers are told

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds, most=MAX_SEEDS)

    def opened(self, console: Console) -> DataSet:
        """The data, of one class a picture; InputError if they cannot be read."""
        return load_at(self.data, partial(recipes.usual_side, self.recipe), console)

    def decided(self, folder: Path, data: DataSet) -> DecidedRecipe:
        """The recipe of the run in `folder`."""
        return decided_recipe(folder, self.recipe, data, Metric())


def run_experiment(plan: Sequence[Training], context: ExperimentContext, console: Console) -> list[Record]:
    """Train what of the plan is not trained yet. Returns the records in its order: of all, unless the time was over.

    InputError if the folder holds trainings on other data, or a recipe or net does not fit the data; OperationError if
    workers do not start or everything fails.
    """
    data, folder = context.data, context.folder
    if context.trainer:
        check_one_device(context.run.resources)
    for training in plan:
        check_on(training.recipe, data.white_level, data.in_chans, data.image_size, data.several_labels)
        check_devices(training.recipe, len(data.train), context.run.resources.world)
        training.cost(data)  # refuses a net that cannot be built for these images
    with locked(folder), closing(Store(folder)) as store:
        if store.records:
            _check_same_plan(context)
        if context.pretrained:
            context.pretrained.save()
        write_run_json(folder, data, settings=context.settings, recipes=context.recipes)
        trials = PlanTrials(plan, context, store)
        left = [training for training in trials.plan.values() if training.id not in trials.ended]
        if context.about:
            console.print(context.about, highlight=False, markup=False, soft_wrap=True)
        for line in _at_outset(left, context):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        console.print(_announced(left, len(trials.plan), data), highlight=False, soft_wrap=True)
        driver = Driver(store, trials.folder, [trials])
        seen = data if any(training.test for training in plan) else data.without_test()
        ended = drive(driver, ShownPlan(trials), context.run, seen, len(left), console)
    records = trials.records
    if ended and records and all(r.status in FAILED for r in records):
        raise OperationError(f"{folder}: all {len(records)} trainings failed; the first: {records[0].error}")
    return records


def _at_outset(left: Sequence[Training], context: ExperimentContext) -> list[str]:
    """What the data tell and how nets are trained, where all are trained on all of them by one recipe."""
    how = {(json.dumps(training.recipe.to_dict()), training.view) for training in left}
    if len(how) != 1 or left[0].view != WHOLE or context.trainer or not len(context.data.val):
        return []
    return at_outset(context.data, left[0].recipe, context.metric)


def compute_of(plan: Sequence[Training], data: DataSet) -> float:
    """FLOPs of all trainings of a plan: 6 x MACs x images."""
    return float(sum(training_flops(t.cost(data).macs, t.steps, t.recipe.batch_size) for t in plan))


def _announced(left: Sequence[Training], count: int, data: DataSet) -> str:
    before = f"{count - len(left)} of {count} trainings are done; " if len(left) < count else ""
    trainings = counted(len(left), "training")
    what = f"{trainings}, {compute_of(left, data):.2g} FLOPs (6 x MACs x images)" if left else "nothing to do"
    return before + what


def _check_same_plan(context: ExperimentContext) -> None:
    """Raise InputError if the folder holds a search, or trainings of another kind or on other data."""
    folder, hint, old = context.folder, "give this one another --name", read_settings(context.folder)
    if "trials" in old:
        raise InputError(f"{folder} holds a search; {hint}")
    old_facts = {"settings": old.get("settings"), "split": old.get("data", {}).get("split")}
    differing = differences(old_facts, {"settings": context.settings, "split": context.data.split_hash})
    if differing:
        raise InputError(f"{folder} holds other trainings: {'; '.join(differing)}; {hint}")


class ShownPlan(Shown):
    """A plan in the live view."""

    def __init__(self, trials: PlanTrials) -> None:
        self.trials, self.live = trials, trials.live
        self._macs = dict[str, float]()  # by training

    @property
    def records(self) -> Sequence[Record]:
        return self.trials.records

    @property
    def statuses(self) -> Counter[Status]:
        return Counter(record.status for record in self.trials.ended.values())

    @property
    def counts(self) -> str:
        return f"{len(self.trials.ended)} of {counted(len(self.trials.plan), 'training')}"

    @property
    def share(self) -> float:
        return len(self.trials.ended) / max(1, len(self.trials.plan))

    @property
    def done(self) -> bool:
        return len(self.trials.ended) >= len(self.trials.plan)

    def work(self, job: Job) -> Known | None:
        training = self.trials.training(job.id)
        return (ALONE, self._work(training)) if training else None

    def left(self) -> Mapping[str, Work]:
        plan, ended = self.trials.plan, self.trials.ended
        return {ALONE: sum((self._work(t) for i, t in plan.items() if i not in ended), Work())}

    def known(self) -> Iterable[tuple[str, Work, float]]:
        plan = self.trials.plan
        ended = ((plan[i], record) for i, record in self.trials.ended.items() if i in plan)
        return [(ALONE, self._work(training), record.seconds) for training, record in ended]

    def _work(self, training: Training) -> Work:
        if training.id not in self._macs:
            self._macs[training.id] = training.cost(self.trials.context.data).macs
        flops = training_flops(self._macs[training.id], training.steps, training.recipe.batch_size)
        return Work(flops, training.steps, 1)

    def name(self, job: Job) -> str:
        training = self.trials.training(job.id)
        return _label(training) if training else ""

    def line(self, record: Record) -> str:
        metric, error = self.trials.context.metric, record.error or "pre-trained"
        result = f"{metric.name} {metric.text(record.accuracy)}" if record.accuracy is not None else error
        label = _label(self.trials.plan[record.training_id])
        return f"{label}: {record.status} {result}, {short(record.cost['macs'])} MACs"

    def table(self) -> RenderableType:
        names = (self.trials.context.metric.name,)
        return study_table(study_rows(self.records, names), PlotSpec("so far", "", metrics=names))


def _label(training: Training) -> str:
    return ", ".join([*(f"{name} {value}" for name, value in training.factors.items()), f"seed {training.seed}"])
