"""Commands that train given nets: train, retrain, finetune, buildup, few-shot, study, studies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..archs.errors import InputError, check_choice
from ..results.render.terminal import print_json, print_lines, print_listing, print_text
from ..results.runs.store import as_argument
from . import complete
from .options import (
    Arch,
    Data,
    FromSize,
    ImageOptions,
    Json,
    MaxMacs,
    MaxParams,
    Name,
    RunOptions,
    Seeds,
    Trainer,
    TrainingOptions,
    argument,
    command,
    console_for,
    option,
    print_result,
    run_and_trial_of,
)
from .values import limits, whole_numbers

if TYPE_CHECKING:
    from ..results.runs.weights_spec import WeightsSpec


@dataclass(frozen=True)
class WeightsOptions:
    """Trained weights to start from."""

    weights: Annotated[
        str,
        option(
            "Trained weights: timm:NAME, RUN, RUN:TRIAL, an exported folder, or a .safetensors file.",
            "--from",
            autocompletion=complete.run_names,
        ),
    ]
    arch: Arch = ""
    from_size: FromSize = None

    def spec(self) -> WeightsSpec:
        from ..results.runs.weights_spec import WeightsSpec

        return WeightsSpec(self.weights, self.arch, self.from_size)


@command(
    "alternas retrain first --top 3 --seeds 3",
    "alternas retrain first:7 --epochs 30",
    resumes=True,
)
def retrain(
    run: Annotated[str, argument("Run name or folder; RUN:TRIAL selects one net.", autocompletion=complete.run_names)],
    running: RunOptions,
    top: Annotated[int, option("Number of nets to retrain, by Pareto rank, then by accuracy.")] = 3,
    trials: Annotated[
        tuple[int, ...] | None, option("Trials to retrain instead, such as 4,7.", parse=whole_numbers)
    ] = None,
    max_macs: MaxMacs = None,
    max_params: MaxParams = None,
    seeds: Seeds = 3,
    recipe: Annotated[
        str, option("Training recipe: a name from `alternas recipes` or a JSON file (default: the search's).")
    ] = "",
    epochs: Annotated[float | None, option("Epochs per training (default: the recipe's).")] = None,
    trainer: Trainer = "",
    as_json: Json = False,
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
    weights: WeightsOptions,
    data: Data,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    freeze: Annotated[
        str,
        option(
            "Which blocks to freeze: none (default), half, three-quarters, backbone (all but the head), inherited (all "
            "that came from the weights), or none-low-lr (inherited weights learn at a tenth of the rate)."
        ),
    ] = "",
    regime: Annotated[
        str,
        option(
            "Choose what to freeze by size of the new data and likeness to the old: small-similar (backbone), "
            "small-different (half), large-similar (three-quarters), or large-different (none-low-lr)."
        ),
    ] = "",
    seeds: Seeds = 3,
    name: Name = "",
    as_json: Json = False,
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
    arch: Annotated[
        str,
        argument(
            "Net to train: a zoo name, a genotype's .json file, RUN:TRIAL, or timm:NAME.",
            autocompletion=complete.net_names,
        ),
    ],
    data: Data,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    seeds: Seeds = 3,
    name: Name = "",
    as_json: Json = False,
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
    start: Annotated[
        str,
        option(
            "A ResNet: trained weights, which its nets inherit (timm:NAME, RUN, RUN:TRIAL, an exported folder, or a "
            ".safetensors file), or a zoo name or a genotype's .json file, trained from fresh weights.",
            "--from",
            autocompletion=complete.net_names,
        ),
    ],
    data: Data,
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    arch: Arch = "",
    from_size: FromSize = None,
    msa: Annotated[
        tuple[int, ...] | None,
        option(
            "Swap so many blocks at the end of each stage at once, such as 0,1,1,2 (default: one by one, by rule).",
            parse=whole_numbers,
        ),
    ] = None,
    train: Annotated[str, option("What to train: all, or new (only the head and the swapped blocks).")] = "all",
    seeds: Seeds = 3,
    name: Name = "",
    as_json: Json = False,
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
    weights: WeightsOptions,
    data: Data,
    images: ImageOptions,
    shots: Annotated[
        tuple[int, ...], option("Training images per class.", parse=whole_numbers, show_default="1,5,10")
    ] = (1, 5, 10),
    ways: Annotated[tuple[int, ...], option("Classes per episode.", parse=whole_numbers, show_default="2,5")] = (2, 5),
    episodes: Annotated[int, option("Number of episodes of each kind.")] = 600,
    seeds: Annotated[int, option("Number of random draws of the training images.")] = 5,
    plot: Annotated[str, option("Draw the curves to PLOT.png and PLOT.svg.")] = "",
    as_json: Json = False,
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
    name: Annotated[str, argument("Name of a study from `alternas studies`.")],
    images: ImageOptions,
    training: TrainingOptions,
    running: RunOptions,
    data: Data = "cue",
    quick: Annotated[
        bool, option("Few points, short trainings and two seeds, to finish in minutes.", "--quick")
    ] = False,
    cnn: Annotated[
        str, option("CNN that others are compared with: resnet, or bit (GroupNorm, weight-standardised convs).")
    ] = "resnet",
    seeds: Seeds = 3,
    run_name: Annotated[str, option("Name of the run (default: derived from study and data).", "--name")] = "",
    as_json: Json = False,
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
def studies(as_json: Json = False) -> None:
    """List the papers' studies that `alternas study` can run."""
    from ..search.experiments.comparisons import STUDIES

    rows = [{"study": name, "about": study.about, "source": study.source} for name, study in STUDIES.items()]
    print_listing(rows, as_json)
