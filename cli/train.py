"""Commands that train given nets: train, retrain, finetune, buildup, few-shot, study, studies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..archs.errors import InputError, check_choice
from ..results.render.terminal import print_json, print_lines, print_listing, print_text
from ..results.runs.store import as_argument
from .command import command
from .options import ImageOptions, RunOptions, TrainingOptions, console_for, print_result, run_and_trial_of
from .values import Amount, limits

if TYPE_CHECKING:
    from ..results.runs.weights_spec import WeightsSpec


@dataclass(frozen=True)
class WeightsOptions:
    """Trained weights to start from."""

    weights: str
    arch: str = ""
    from_size: tuple[int, int] | None = None

    def spec(self) -> WeightsSpec:
        from ..results.runs.weights_spec import WeightsSpec

        return WeightsSpec(self.weights, self.arch, self.from_size)


@command(
    "alternas retrain first --top 3 --seeds 3",
    "alternas retrain first:7 --epochs 30",
    resumes=True,
)
def retrain(
    run: str,
    *,
    running: RunOptions,
    top: int = 3,
    trials: tuple[int, ...] | None = None,
    max_macs: Amount | None = None,
    max_params: Amount | None = None,
    seeds: int = 3,
    recipe: str = "",
    epochs: float | None = None,
    trainer: str = "",
    as_json: bool = False,
) -> None:
    """Retrain the best nets of a run with several seeds and test them; the same command again resumes."""
    from ..results.ranking.metric import run_metric
    from ..results.runs.retrained import failures, summary, table
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
    config = Retrain(
        folder, seeds, running.config(), top, numbers, limits(max_macs, max_params), own_recipe, epochs, file
    )
    records = run_retrain(config, console_for(as_json))
    metric = run_metric(folder)
    searched = {r.trial: r.accuracy for r in read_records(folder) if r.status == "ok"}
    rows = summary(records, searched, read_data_facts(folder).get("images", {}), metric)
    if as_json:
        print_json(rows)
        return
    print_text(table(rows, metric))
    lines = failures(records)
    if rows:
        best = f"{as_argument(folder)}:{rows[0]['trial']}" if numbers else as_argument(folder)
        lines += ["", f"export the best:  alternas export {best} --out {folder.name}-best"]
    print_lines(*lines)


@command(
    "alternas finetune --from first:7 --data photos",
    "alternas finetune --from best --data photos --freeze backbone",
    resumes=True,
)
def finetune(
    *,
    weights: WeightsOptions,
    data: str,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    freeze: str = "",
    regime: str = "",
    seeds: int = 3,
    name: str = "",
    as_json: bool = False,
) -> None:
    """Fine-tune trained weights on new data, with a new head, at any image size that fits the net."""
    from ..search.training.freezing import REGIMES

    if regime and freeze:
        raise InputError(f"regime: chooses what to freeze, got --freeze {freeze} too")
    freeze = REGIMES[check_choice("regime", regime, REGIMES)] if regime else freeze or "none"
    _train(weights.spec(), freeze, data, images, training, running, seeds, name, as_json)


@command(
    "alternas train resnet18 --data photos",
    "alternas train timm:vit_tiny_patch16_224 --data photos --image-size 224 --recipe fast --seeds 1",
    resumes=True,
)
def train(
    arch: str,
    *,
    data: str,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    seeds: int = 3,
    name: str = "",
    as_json: bool = False,
) -> None:
    """Train one named net from fresh weights with several seeds and test it; the same command again resumes."""
    _train(arch, "none", data, images, training, running, seeds, name, as_json)


def _train(
    net: str | WeightsSpec,
    freeze: str,
    data: str,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    seeds: int,
    name: str,
    as_json: bool,
) -> None:
    from ..results.runs.retrained import failures, summary, table
    from ..results.runs.store import read_data_facts
    from ..search.experiments.train import Train
    from ..search.experiments.train import train as run_training

    config = Train(images.of(data), training.on(data), seeds, name, running.config(), net, freeze)
    folder, records = run_training(config, console_for(as_json))
    rows = summary(records, {}, read_data_facts(folder).get("images", {}))
    if as_json:
        print_json({"folder": str(folder), "rows": rows, "lineage": records[0].lineage if records else {}})
        return
    print_text(table(rows))
    lines = failures(records)
    if rows:
        lines += ["", f"export the best:  alternas export {as_argument(folder)} --out {folder.name}-best"]
    print_lines(*lines)


@command(
    "alternas buildup --from first:7 --data photos",
    "alternas buildup --from timm:resnet18.a1_in1k --data photos --msa 0,0,1,1",
    resumes=True,
)
def buildup(
    *,
    start: str,
    data: str,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    arch: str = "",
    from_size: tuple[int, int] | None = None,
    msa: tuple[int, ...] | None = None,
    train: str = "all",
    seeds: int = 3,
    name: str = "",
    as_json: bool = False,
) -> None:
    """Swap a ResNet's blocks for attention, backwards from the end, each kept if it helps beyond the noise."""
    from ..search.experiments.build_up import BuildUp, build_up

    request, recipe = images.of(data), training.on(data)
    spec = WeightsOptions(start, arch, from_size).spec()
    config = BuildUp(request, recipe, seeds, name, running.config(), spec, msa or (), train)
    result, drawing = build_up(config, console_for(as_json))
    print_result(as_json, result, lambda: drawing)


@command(
    "alternas few-shot --from first:7 --data photos --shots 1,5",
    name="few-shot",
)
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


@command(
    "alternas study data-size --data cue --quick",
    resumes=True,
)
def study(
    name: str,
    *,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    data: str = "cue",
    quick: bool = False,
    cnn: str = "resnet",
    seeds: int = 3,
    run_name: str = "",
    as_json: bool = False,
) -> None:
    """Run one of the papers' studies: table and plot with intervals; the same command again resumes."""
    from ..search.experiments.comparisons import ComparisonRun, run_comparison

    request, recipe = images.of(data), training.on(data)
    config = ComparisonRun(request, recipe, seeds, run_name, running.config(), name, quick, cnn)
    result, drawing = run_comparison(config, console_for(as_json))
    print_result(as_json, result, lambda: drawing)


@command(
    "alternas studies",
)
def studies(*, as_json: bool = False) -> None:
    """List the papers' studies that `alternas study` can run."""
    from ..search.experiments.comparisons import STUDIES

    rows = [{"study": name, "about": study.about, "source": study.source} for name, study in STUDIES.items()]
    print_listing(rows, as_json)
