"""Trained nets as analyses and exports take them: their weights, validation images, batches of training images."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from ...archs import Genotype, InputError
from ...archs.cpus import usable_cpus
from ...archs.errors import short_repr
from ...archs.files import read_own
from ...archs.timm_net import CutNet, Net, net_from_dict
from ...archs.timm_network import build_net
from ...archs.weights import fill, read
from ...results.analysis_tools.inputs import AnalysisInput, Images, Objective
from ...results.export.export_net import ScoringImages
from ...results.export.quantize import MAX_IMAGES
from ...results.runs.record import Record
from ...results.runs.store import read_data_facts, read_settings, write_json
from ...results.runs.trained_weights import trained_weights
from ..data.build import images_at
from ..data.dataset import DataConfig, DataSet
from ..data.load import load_showing
from ..data.views import View, fold_view, seen
from ..training.loaders import open_loader, sample
from ..training.optim import optimizer_for
from ..training.recipe import Recipe
from ..training.task import class_weights, loss_of

MINIBATCHES, MINIBATCH = 16, 16  # of augmented training images: Park & Kim take batches of 16
MAX_SCORED = 5000  # validation images of an export: beyond, the noise of the choice is below half a point
EDITION = 4  # of what analyses measure: what an earlier one cached is not read


THREADED_MACS = 1e8  # of a net, from which threads of a layer gain more than they wait for each other


@dataclass(frozen=True)
class TrainedNet:
    """A trained net: its name, the folder of its run, and its record."""

    name: str
    home: Path
    record: Record

    @property
    def recipe(self) -> Recipe:
        """How it was trained; a frozen net, which was not, is looked at under cross-entropy on pictures as they are."""
        if self.record.weights == "frozen":
            return Recipe("frozen", 1, MINIBATCH, "adamw", 1e-3, 0.0)
        return Recipe.from_dict(self.record.recipe)

    @property
    def view(self) -> View:
        """The part of the data that it was trained on."""
        facts = self.record.data
        folds = facts.get("folds", 0), facts.get("fold", 0)
        return View(facts.get("fraction", 1.0), tuple(facts.get("classes", ())), facts.get("draw", 0), *folds)


@dataclass(frozen=True, eq=False)
class AnalysisContext:
    """What the nets of a run are analysed on."""

    data: DataSet
    images: Images  # of the validation split, the same ones each time, with black 0 and white 1
    minibatches: int  # of training images, for each net

    def analysis_input(self, net: TrainedNet) -> AnalysisInput:
        """A trained net, and batches of its part of the training data, augmented by its recipe but not mixed.

        InputError if the weights are gone or are not the record's net's, or the record has no recipe.
        """
        weights = trained_weights(net.home, net.record)
        device, recipe = self.images.x_NCHW.device, net.recipe
        genotype = net_from_dict(net.record.genotype)
        network = _filled(genotype, weights, self.data).to(device).eval()
        data = seen(self.data, net.view).seen_by(genotype)
        small = replace(recipe, batch_size=min(MINIBATCH, len(data.train)), grad_accum_steps=1)
        batches = open_loader(data, device, 0).batches(small, 0, 0, self.minibatches)
        weight_K = class_weights(recipe, data.train.y_N, len(data.classes))
        objective = objective_of(network, recipe, None if weight_K is None else weight_K.to(device))
        images = self.images
        if isinstance(genotype, CutNet):
            mean_C, std_C = (
                torch.tensor(of, device=device) / (data.white_level or 1.0) for of in (data.mean, data.std)
            )
            images = replace(images, mean_C=mean_C, std_C=std_C)
        return AnalysisInput(net.name, network, images, tuple(batches), objective)


def _filled(net: Net, weights: Path, data: DataSet) -> nn.Module:
    """A net with its weights; of one of timm's timm's own module, which analyses know."""
    if isinstance(net, Genotype):
        return read(weights, net, data.image_size)
    network: Any = build_net(net, len(data.classes), data.image_size, data.in_chans)
    fill(network, weights)
    return network if isinstance(net, CutNet) else network.model


def analysis_context(data: DataSet, most: int, device: torch.device, folds: int = 0) -> AnalysisContext:
    """The context of analyses on a device: at most so many validation images, and training images for each net.

    Of a search of so many folds the images are those of the first, which the weights that it keeps have not seen.
    """
    val, peak = seen(data, fold_view(folds)).val, data.white_level or 1.0
    places = sample(len(val), most).numpy()

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.float32) / peak, device=device)

    labels = torch.as_tensor(val.y_N[places], device=device)
    images = Images(tensor(images_at(val, places)), labels, tensor(data.mean), tensor(data.std))
    return AnalysisContext(data, images, max(1, min(MINIBATCHES, most // MINIBATCH)))


@contextmanager
def threads_for(nets: Sequence[TrainedNet]) -> Iterator[None]:
    """One thread of torch where all nets are small: theirs wait for each other most of the time, and not idly."""
    before = torch.get_num_threads()
    small = all(net.record.cost["macs"] < THREADED_MACS for net in nets)
    torch.set_num_threads(1 if small else min(before, usable_cpus()))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def objective_of(net: nn.Module, recipe: Recipe, weight_K: Tensor | None = None) -> Objective:
    """The loss that a recipe lowers: label smoothing, class weights, and L2 of what its optimiser decays."""
    groups = optimizer_for(net, recipe, recipe.lr).param_groups
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"] if group["weight_decay"]}
    decay = {name: decays[id(p)] for name, p in net.named_parameters() if id(p) in decays}
    words = [recipe.loss.replace("_", "-").replace("binary", "binary cross-entropy")]
    if recipe.label_smoothing:
        words.append(f"label smoothing {recipe.label_smoothing:g}")
    if weight_K is not None:
        words.append("classes weighed alike")
    parts = "all parameters" if recipe.decay_all else "matrices and kernels"
    words.append(f"L2 of weight decay {recipe.weight_decay:g} on {parts}" if decay else "no L2")
    if recipe.augment.mixes:
        words.append("images not mixed as in training")
    return Objective(partial(loss_of, recipe, weight_K=weight_K), decay, ", ".join(words))


def cached(path: Path, measure: Callable[[], Any]) -> Any:
    """What this edition cached in the JSON file, whose name gets its number, or what `measure` returns, then cached."""
    path = path.with_suffix(f".{EDITION}.json")
    if path.exists():
        try:
            return json.loads(read_own(path))  # some numbers are NaN
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: cannot be read ({error})") from None
    result = measure()
    write_json(path, result)
    return result


def recipe_of(run: Path) -> Recipe:
    """The recipe that a run trained with; InputError if its run.json does not hold one."""
    recipe = read_settings(run).get("settings", {}).get("recipe")
    if recipe is None:
        raise InputError(f"run {run.name}: is no search, so it has no recipe; give --recipe")
    return Recipe.from_dict(recipe)


def data_of(run: Path, console: Console) -> DataSet:
    """The data that a run trained on; InputError if they cannot be read, are others now, or are at a URL."""
    facts, settings = read_data_facts(run), read_settings(run).get("settings", {})
    if settings.get("trainer") and facts.get("images", {}).get("val") == 0:
        raise InputError(
            f"data: those of run {run.name!r} are its trainer's own, {facts['name']}, which alone reads them"
        )
    if "://" in facts["name"]:
        raise InputError(
            f"data: run {run.name!r} names a URL, {short_repr(facts['name'])}; a run's URLs are not opened"
        )
    notes = facts.get("notes", {})
    size = (facts["image_size"][0], facts["image_size"][1]) if "pictures" in notes else None
    skipped = bool(notes.get("skipped") or notes.get("skipped_classes"))
    config = DataConfig(facts["name"], size, settings.get("loader", "auto"), skipped)
    data = load_showing(config, console)
    if data.split_hash != facts.get("split"):
        raise InputError(f"data: {data.name} is not what run {run.name} was trained on any more")
    return data


def scoring_images(home: Path, record: Record, console: Console) -> ScoringImages:
    """Images of the part of its data that a net was trained on, always the same, none of the test split."""
    try:
        data = seen(data_of(home, console), TrainedNet("", home, record).view)
    except InputError as error:
        raise InputError(f"export: int8 and half precision need the images of run {home.name}: {error}") from None
    train, val = sample(len(data.train), MAX_IMAGES).numpy(), sample(len(data.val), MAX_SCORED).numpy()
    return ScoringImages(images_at(data.train, train), images_at(data.val, val), data.val.y_N[val])
