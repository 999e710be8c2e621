"""Trained nets as analyses take them: with their weights, validation images, and batches of their training images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from ...archs import Genotype, InputError
from ...archs.errors import short_repr
from ...archs.files import parse_json, read_own
from ...archs.weights import read
from ...results.analysis_tools.inputs import AnalysisInput, Images, Objective
from ...results.runs.record import Record
from ...results.runs.select import trained_weights
from ...results.runs.store import read_data_facts, read_settings, write_json
from ..data.build import images_at
from ..data.dataset import DataConfig, DataSet
from ..data.load import load_showing
from ..data.splits import View, seen
from ..training.loaders import open_loader, sample
from ..training.optim import loss_of, optimizer_for
from ..training.recipe import Recipe

MINIBATCHES, MINIBATCH = 16, 16  # of augmented training images: Park & Kim take batches of 16
EDITION = 2  # of what analyses measure: what an earlier one kept is not read


@dataclass(frozen=True)
class TrainedNet:
    """A trained net: its name, the folder of its run, and its record."""

    name: str
    home: Path
    record: Record


@dataclass(frozen=True, eq=False)
class AnalysisContext:
    """What the nets of a run are looked at on.

    Attributes:
        data: of the run.
        images: of its validation split, the same ones each time, with black 0 and white 1.
    """

    data: DataSet
    images: Images

    def subject(self, net: TrainedNet, state: str = "") -> AnalysisInput:
        """A net with its weights, and batches of what it was trained on: its part of the data, augmented by its recipe.

        Args:
            net: trained to the end.
            state: the name under which earlier weights were kept; "" takes the final ones.

        Raises:
            InputError: if the weights are gone or are not the record's net's, or the record has no recipe.
        """
        record, weights = net.record, trained_weights(net.home, net.record)
        weights = weights.with_suffix(f".{state}.safetensors") if state else weights
        device, recipe = self.images.x_NCHW.device, Recipe.from_dict(record.recipe)
        network = read(weights, Genotype.from_dict(record.genotype), self.data.image_size).to(device).eval()
        training = _training_batches(seen(self.data, view_of(record)), recipe, device)
        return AnalysisInput(net.name, network, self.images, training, objective_of(network, recipe))


def analysis_context(data: DataSet, most: int, device: torch.device) -> AnalysisContext:
    """At most so many validation images, on the device that nets are to be on."""
    places, peak = sample(len(data.val), most).numpy(), data.white_level or 1.0

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.float32) / peak, device=device)

    labels = torch.as_tensor(data.val.y_N[places], device=device)
    return AnalysisContext(
        data, Images(tensor(images_at(data.val, places)), labels, tensor(data.mean), tensor(data.std))
    )


def objective_of(net: nn.Module, recipe: Recipe) -> Objective:
    """The loss that a recipe lowers: its label smoothing, and L2 of the parameters that its optimiser decays."""
    groups = optimizer_for(net, recipe, recipe.lr).param_groups
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"] if group["weight_decay"]}
    decay = {name: decays[id(p)] for name, p in net.named_parameters() if id(p) in decays}
    words = [recipe.loss.replace("_", "-").replace("binary", "binary cross-entropy")]
    if recipe.label_smoothing:
        words.append(f"label smoothing {recipe.label_smoothing:g}")
    parts = "all parameters" if recipe.decay_all else "matrices and kernels"
    words.append(f"L2 of weight decay {recipe.weight_decay:g} on {parts}" if decay else "no L2")
    if recipe.augment.mixes:
        words.append("images not mixed as in training")
    return Objective(partial(loss_of, recipe), decay, ", ".join(words))


def view_of(record: Record) -> View:
    """The part of the data that a net was trained on."""
    facts = record.data
    return View(facts.get("fraction", 1.0), tuple(facts.get("classes", ())), facts.get("draw", 0))


def kept(path: Path, measure: Callable[[], Any]) -> Any:
    """What this edition kept in the JSON file, whose name has its number, or what `measure` finds, then kept there.

    Raises:
        InputError: if the file is there and is no JSON.
    """
    path = path.with_suffix(f".{EDITION}.json")
    if path.exists():
        try:
            return parse_json(read_own(path))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error})") from None
    found = measure()
    write_json(path, found)
    return found


def in_minibatches(recipe: Recipe, images: int) -> Recipe:
    """The recipe with the analyses' small batches."""
    return replace(recipe, batch_size=min(MINIBATCH, images), grad_accum_steps=1)


def _training_batches(data: DataSet, recipe: Recipe, device: torch.device) -> tuple[tuple[Tensor, Tensor], ...]:
    """Some small batches of training images, augmented as the recipe says but not mixed."""
    few = in_minibatches(recipe, len(data.train))
    return tuple(open_loader(data, device, 0).batches(few, 0, 0, MINIBATCHES))


def recipe_of(run: Path) -> Recipe:
    """The recipe that a run trained with.

    Raises:
        InputError: if its run.json does not hold one.
    """
    recipe = read_settings(run).get("settings", {}).get("recipe")
    if recipe is None:
        raise InputError(f"run {run.name}: is no search, so it has no recipe; give --recipe")
    return Recipe.from_dict(recipe)


def data_of(run: Path, console: Console) -> DataSet:
    """The data that a run trained on.

    Raises:
        InputError: if they cannot be read, are others now, or are at a URL.
    """
    facts, settings = read_data_facts(run), read_settings(run).get("settings", {})
    if "://" in facts["name"]:
        raise InputError(
            f"data: run {run.name!r} names a URL, {short_repr(facts['name'])}; a run's URLs are not opened"
        )
    notes = facts.get("notes", {})
    size = (facts["image_size"][0], facts["image_size"][1]) if "pictures" in notes else None
    skipped = bool(notes.get("skipped") or notes.get("skipped_classes"))
    request = DataConfig(facts["name"], size, settings.get("loader", "auto"), skipped)
    data = load_showing(request, console)
    if data.split_hash != facts.get("split"):
        raise InputError(f"data: {data.name} is not what run {run.name} was trained on any more")
    return data
