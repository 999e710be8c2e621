"""Commands that train given nets: train, retrain, finetune, buildup, few-shot, study, studies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..archs.errors import InputError
from ..results.render.terminal import plain, print_json, print_lines, print_listing, print_text
from ..results.runs.status import Status
from ..results.runs.store import as_argument
from .command import command
from .options import (
    ImageOptions,
    LimitOptions,
    RunOptions,
    TrainingOptions,
    WeightsOptions,
    console_for,
    print_result,
    run_and_trial_of,
)
from .search import run_search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..results.ranking.metric import Metric
    from ..results.runs.record import Record
    from ..results.runs.weights_spec import WeightsSpec
    from ..search.spec import SearchSpec

MAX_SWAPS = 32  # nets of a build-up: more than ResNet-152 has places for


@dataclass(frozen=True, kw_only=True)
class PlanOptions(RunOptions, TrainingOptions, ImageOptions):
    """What every experiment is given."""

    data: str
    seeds: int = 3
    name: str = ""

    def of_plan(self) -> dict[str, Any]:
        """The fields of an `ExperimentConfig`."""
        recipe, run = self.on(self.data), self.config()
        return {"data": self.of(self.data), "recipe": recipe, "seeds": self.seeds, "name": self.name, "run": run}


@dataclass(frozen=True, kw_only=True)
class StudyOptions(PlanOptions):
    """What a study is given."""

    data: str = "cue"


@command(resumes=True)
def retrain(
    run: str,
    *,
    running: RunOptions,
    within: LimitOptions,
    top: int = 3,
    trials: tuple[int, ...] | None = None,
    seeds: int = 3,
    recipe: str = "",
    epochs: float | None = None,
    trainer: str = "",
    as_json: bool = False,
) -> None:
    """Retrain the best nets of a run with several seeds and test them; the same command again resumes."""
    from ..results.ranking.metric import run_metric
    from ..results.runs.retrained import summary
    from ..results.runs.store import read_data_facts, read_records
    from ..search.experiments.retrain import Retrain
    from ..search.experiments.retrain import retrain as run_retrain
    from ..search.training import recipes
    from ..search.training.trainer_file import read_trainer

    folder, named = run_and_trial_of(run, None)
    if named is not None and trials:
        raise InputError(f"trials: RUN:TRIAL names one, only one of them, got both {run} and {trials[0]}")
    own_recipe = recipes.get(recipe) if recipe else None
    numbers = trials or () if named is None else (named,)
    file = read_trainer(trainer) if trainer else None
    config = Retrain(folder, seeds, running.config(), top, numbers, within.limits(), own_recipe, epochs, file)
    records, metric = run_retrain(config, console_for(as_json)), run_metric(folder)
    searched = {r.trial: r.accuracy for r in read_records(folder) if r.status == Status.OK}
    data = read_data_facts(folder)
    rows = summary(records, searched, data.get("images", {}), metric)
    best = f"{as_argument(folder)}:{rows[0]['trial']}" if numbers and rows else as_argument(folder)
    export = f"alternas export {best} --out {folder.name}-retrained"
    _print_trained(records, rows, metric, data, export, rows if as_json else None)


def _print_trained(
    records: Sequence[Record], rows: list[dict[str, Any]], metric: Metric, data: dict[str, Any], export: str, facts: Any
) -> None:
    """Print `facts` as JSON; without them a table, what failed, and how the best is exported or that all guess."""
    from ..results.ranking.chance import retrained_guess
    from ..results.runs.retrained import failures, table

    if facts is not None:
        return print_json(facts)
    print_text(table(rows, metric))
    print_lines(*failures(records))
    if guess := retrained_guess(records, metric, data):
        print_text(plain(guess))
    elif rows:
        print_lines("", f"export the best:  {export}")


@command(resumes=True)
def finetune(*, weights: WeightsOptions, plan: PlanOptions, freeze: str = "none", as_json: bool = False) -> None:
    """Fine-tune trained weights on new data, with a new head, at any image size that fits the net."""
    _train(weights.spec(), freeze, plan, as_json)


@command(resumes=True)
def train(arch: str, *, plan: PlanOptions, as_json: bool = False) -> None:
    """Train one named net from fresh weights with several seeds and test it; the same command again resumes."""
    _train(arch, "none", plan, as_json)


def _train(net: str | WeightsSpec, freeze: str, plan: PlanOptions, as_json: bool) -> None:
    from ..results.ranking.metric import Metric
    from ..results.runs.retrained import summary
    from ..results.runs.store import read_data_facts
    from ..search.experiments.train import Train
    from ..search.experiments.train import train as run_training

    folder, records = run_training(Train(**plan.of_plan(), net=net, freeze=freeze), console_for(as_json))
    data = read_data_facts(folder)
    rows = summary(records, {}, data.get("images", {}))
    facts = {"folder": str(folder), "rows": rows, "lineage": records[0].lineage if records else {}}
    export = f"alternas export {as_argument(folder)} --out {folder.name}-best"
    _print_trained(records, rows, Metric(), data, export, facts if as_json else None)


@command(resumes=True, then=run_search)
def buildup(
    *, start: str, plan: PlanOptions, arch: str = "", from_size: tuple[int, int] | None = None, as_json: bool = False
) -> SearchSpec:
    """Swap a ResNet's blocks for attention, backwards from the end, each kept if it helps beyond the noise."""
    from ..archs import zoo
    from ..results.ranking.metric import parse_metric
    from ..results.runs.store import plain_name
    from ..search.data.readers.registry import find_reader
    from ..search.spec import SearchSpec
    from ..spaces.families import SWAPS

    fresh = start in zoo.names() or start.endswith(".json")
    return SearchSpec(
        space=start if fresh else SWAPS,
        data=plan.of(plan.data),
        recipe=plan.on(plan.data),
        name=plan.name or plain_name("buildup", start, plan.data),
        trials=MAX_SWAPS,
        run=plan.config(),
        strategy="buildup",
        metric=parse_metric("", False, False, find_reader(plan.data).several_labels),
        repeats=plan.seeds,
        pretrained=None if fresh else WeightsOptions(weights=start, arch=arch, from_size=from_size).spec(),
    )


@command(name="few-shot")
def few_shot(
    *,
    weights: WeightsOptions,
    data: str,
    images: ImageOptions,
    shots: tuple[int, ...] = (1, 5, 10),
    ways: tuple[int, ...] = (2, 5),
    episodes: int = 600,
    seeds: int = 5,
    plot: str = "",
    as_json: bool = False,
) -> None:
    """Evaluate trained features with few images: linear probes and episodes, in closed form."""
    from ..search.experiments.few_shot_curves import FewShotConfig, drawing, few_shot_curves
    from ..search.experiments.few_shot_curves import plot as draw_curves

    request = images.of(data)
    k, n = tuple(dict.fromkeys(shots)), tuple(dict.fromkeys(ways))
    curves = few_shot_curves(FewShotConfig(weights.spec(), request, k, n, episodes, seeds), console_for(as_json))
    curves["files"] = [str(path) for path in draw_curves(curves, Path(plot))] if plot else []
    print_result(as_json, curves, lambda: drawing(curves))


@command(resumes=True)
def study(study: str, *, plan: StudyOptions, quick: bool = False, cnn: str = "resnet", as_json: bool = False) -> None:
    """Run one of the papers' studies: table and plot with intervals; the same command again resumes."""
    from ..search.experiments.studies import StudyConfig, run_study

    config = StudyConfig(**plan.of_plan(), study=study, quick=quick, cnn=cnn)
    result, drawing = run_study(config, console_for(as_json))
    print_result(as_json, result, lambda: drawing)


@command()
def studies(*, as_json: bool = False) -> None:
    """List the papers' studies that `alternas study` can run."""
    from ..search.experiments.studies import STUDIES

    rows = [{"study": name, "about": study.about, "source": study.source} for name, study in STUDIES.items()]
    print_listing(rows, as_json)
