"""Transfer: train a net on new data from weights that it has already, with a new head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ...archs import Genotype
from ...archs.errors import check_choice
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder
from ...results.runs.weights_spec import WeightsSpec
from ..data.load import load_classes
from ..pretrained import saved_start
from ..training.job import FREEZE_POLICIES
from .plan import ExperimentConfig, ExperimentContext, Training
from .run_plan import run_experiment


@dataclass(frozen=True)
class Finetune(ExperimentConfig):
    """Fine-tuning of `weights` on new data; `freeze` says which parts are frozen, see `FREEZE_POLICIES`."""

    weights: WeightsSpec
    freeze: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("freeze", self.freeze, FREEZE_POLICIES)


def finetune(config: Finetune, console: Console) -> tuple[Path, list[Record]]:
    """Fine-tune, or go on with it. Returns the run's folder and the records.

    Raises:
        InputError: if weights or data cannot be read, or the net does not fit the images.
        OperationError: if workers do not start or everything fails.
    """
    weights, recipe, freeze = config.weights.find(), config.recipe, config.freeze
    data = load_classes(config.data, console)
    net = headless(weights.network.genotype)
    net.check(data.image_size)
    how = recipe.augment
    if freeze == "half" and not any(
        (how.rrc_min_scale, how.pad, how.flip, how.ra_num_ops, how.cutout, how.reprob, how.mixes)
    ):
        console.print(f"recipe {recipe.name} has no augmentation; small data sets need it", highlight=False)
    name = config.name or plain_name("finetune", config.weights.text, data.name, "" if freeze == "none" else freeze)
    folder = run_folder(name)
    origin, start = saved_start(weights, folder, zero_head=True, freeze=freeze)
    steps, test = recipe.steps(len(data.train)), data.test is not None
    factors = {"start": weights.label, "freeze": freeze}
    plan = [
        Training(net, recipe, steps, seed, factors, start=start, origin=origin, test=test)
        for seed in range(config.seeds)
    ]
    settings, starts = {"from": weights.label, "freeze": freeze}, {Path(start.weights): weights.network}
    context = ExperimentContext(folder, "study", data, config.run, settings, starts)
    return folder, run_experiment(plan, context, console)


def headless(net: Genotype) -> Genotype:
    """The net with a single linear layer as its head, as the ViT paper fine-tunes (section 3.1)."""
    return replace(net, head=replace(net.head, hidden=0))
