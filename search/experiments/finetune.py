"""Transfer: train a net on new data from weights that it has already, with a new head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ...archs import Genotype
from ...archs.errors import MOST_SEEDS, check_choice, check_count
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder
from ...results.runs.weights import LoadedWeights, WeightsSpec
from ..data.dataset import DataConfig
from ..data.load import load_showing
from ..engine.pool import Resources
from ..training.job import FREEZE_POLICIES
from ..training.recipe import Recipe
from .run import ExperimentContext, run_experiment
from .training import Training, WeightsOrigin


@dataclass(frozen=True)
class Finetune:
    """What is fine-tuned on what.

    Attributes:
        weights: where they start.
        data: the new data.
        recipe, seeds: of the trainings.
        freeze: which parts are frozen; see `FREEZE_POLICIES`.
        folder: name of the run; "" makes one of the weights and the data.
        resources: where.
    """

    weights: WeightsSpec
    data: DataConfig
    recipe: Recipe
    seeds: int
    freeze: str
    folder: str
    resources: Resources

    def __post_init__(self) -> None:
        check_choice("freeze", self.freeze, FREEZE_POLICIES)
        check_count("seeds", self.seeds, most=MOST_SEEDS)


def finetune(asked: Finetune, console: Console) -> tuple[Path, list[Record]]:
    """Fine-tune, or go on with it. Returns the run's folder and the records.

    Raises:
        InputError: if weights or data cannot be read, or the net does not fit the images.
        OperationError: if workers do not start or everything fails.
    """
    found = asked.weights.find()
    data = load_showing(asked.data, console)
    net = headless(found.network.genotype)
    net.check(data.image_size)
    if asked.freeze == "half" and not moves(asked.recipe):
        console.print(f"recipe {asked.recipe.name} has no augmentation; small data sets need it", highlight=False)
    frozen = "" if asked.freeze == "none" else asked.freeze
    folder = run_folder(asked.folder or plain_name("finetune", asked.weights.text, data.name, frozen))
    origin = origin_of(found, folder, zero_head=True, freeze=asked.freeze)
    steps, test = asked.recipe.steps(len(data.train)), data.test is not None
    plan = [
        Training(
            net, asked.recipe, steps, seed, {"start": found.label, "freeze": asked.freeze}, origin=origin, test=test
        )
        for seed in range(asked.seeds)
    ]
    settings = {"from": found.label, "freeze": asked.freeze}
    starts = {Path(origin.file): found.network}
    return folder, run_experiment(
        plan, ExperimentContext(folder, "study", data, asked.resources, settings, test, starts), console
    )


def headless(net: Genotype) -> Genotype:
    """The net with a single linear layer as its head, as the ViT paper fine-tunes (section 3.1)."""
    return replace(net, head=replace(net.head, hidden=0))


def moves(recipe: Recipe) -> bool:
    """Whether a recipe augments."""
    how = recipe.augment
    return bool(how.rrc_min_scale or how.pad or how.flip or how.ra_num_ops or how.cutout or how.reprob or how.mixes)


def origin_of(found: LoadedWeights, folder: Path, zero_head: bool, freeze: str) -> WeightsOrigin:
    """Where trainings start: a file in the run's folder, which every worker can read, and what it came from."""
    digest = found.lineage["sha256"]
    file = folder.absolute() / "starts" / f"{digest}.safetensors"
    return WeightsOrigin(digest, found.label, str(file), found.lineage["steps"], zero_head, freeze)
