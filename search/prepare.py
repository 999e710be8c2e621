"""Check what a search was asked for, and load what it needs: a `SearchContext`. Nothing is written here."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from .. import spaces
from ..archs import Cost, Genotype, InputError, static_cost
from ..archs.timm_net import TIMM, CountedCost, TimmNet, counted_cost
from ..results.export.formats import check_formats
from ..results.ranking.metric import class_of
from ..results.ranking.quantities import cost_value, quantity
from ..results.runs.bank_progress import read_about, read_progress
from ..results.runs.record import Record, versions
from ..results.runs.store import find_run, read_records, read_settings, run_folder
from ..spaces import FileSpace, JointSpace, Space, SwapSpace
from .context import NetLimits, SearchContext
from .data.dataset import DataSet
from .data.load import load_showing, one_class_each
from .data.views import fold_view, seen
from .fitted_recipe import DecidedRecipe, decided_recipe
from .known_nets import GeneFinder, KnownNets, find_known_nets, noted_genes, trained_alike
from .pretrained import Pretrained, load_pretrained
from .run_facts import check_same_run, differences, previous_settings
from .spec import SearchSpec
from .strategies.registry import check_strategy, is_own
from .supernet.draws import MIN_BATCH, NetSampler
from .training.check_trainer import check_trainer
from .training.recipe import Recipe, check_devices, check_on
from .training.trainer_file import TrainerFile
from .training.tuned import own_genes, single_changes
from .trials.devices import Device, Devices
from .trials.schedulers import Scheduler


def prepare(settings: SearchSpec, console: Console) -> SearchContext:
    """Check a search and load its data; InputError as `search`."""
    folder = run_folder(settings.name)
    Scheduler(settings.scheduler, settings.rungs, settings.eta)
    check_strategy(settings.strategy)
    data = _load(settings, console)
    of_training = seen(data, fold_view(settings.folds))
    if settings.trainer:
        decided = DecidedRecipe(settings.recipe.on(len(data.train)), {})
    else:
        decided = decided_recipe(folder, settings.recipe, of_training, settings.metric)
    settings = replace(settings, recipe=decided.recipe)
    whole = folder.absolute()  # a worker's current folder may be another
    pretrained = load_pretrained(settings.pretrained, whole, data.classes) if settings.pretrained else None
    nets = spaces.find(settings.space, data.image_size, pretrained and pretrained.network.genotype)
    space = JointSpace(nets, settings.tune, own_genes(settings.recipe, settings.tune)) if settings.tune else nets

    def cost_fn(net: Genotype) -> Cost:
        return static_cost(net, len(data.classes), data.image_size, data.in_chans)

    _check_limits(space, settings, data, cost_fn)
    references = count_references(settings.references, data, settings.recipe)
    run_settings = _run_settings(settings, data, nets, pretrained)
    check_same_run(folder, settings, run_settings)
    image = (data.in_chans, *data.image_size)
    devices = devices_of(settings, cost_fn, image, len(data.classes))
    record_fields = {
        "recipe": asdict(settings.recipe),
        "data": {"name": data.name, "split": data.split_hash} | fold_view(settings.folds).facts(),
        "seed": settings.seed,
        "versions": versions(),
    }
    steps = settings.recipe.steps(len(of_training.train))
    check_devices(settings.recipe, len(of_training.train), settings.run.resources.world)
    context = SearchContext(
        settings, data, space, cost_fn, steps, whole, record_fields, run_settings, devices,
        references=references, pretrained=pretrained, recipes=decided.kept,
    )  # fmt: skip
    if settings.supernet:
        context = _with_bank(context)
    if settings.start_with:
        context = replace(context, known=_known_nets(context, console))
    if is_own(settings.strategy):
        from .strategies.optuna_strategy import validate_sampler

        validate_sampler(settings.strategy, context.strategy_context())
    if settings.trainer and not read_records(folder):
        _try_trainer(settings.trainer, context, console)
    return context


def _with_bank(context: SearchContext) -> SearchContext:
    """A search on shared weights: of another run's bank, or of its own that it will train."""
    settings, data = context.settings, context.data
    one_class_each(data)
    if settings.recipe.batch_size < MIN_BATCH:
        raise InputError(f"batch_size: a supernet's must be at least {MIN_BATCH}, got {settings.recipe.batch_size}")
    facts = {name: context.run_settings[name] for name in ("space", "data_split", "image_size")}
    assert settings.supernet is not None
    other = settings.supernet.bank
    bank = find_bank(other, facts) if other else context.folder / "bank.safetensors"

    def macs(net: Genotype) -> float:
        return float(context.cost_fn(net).macs)

    nets = NetSampler(context.space, macs, context.limits.excess, settings.seed)
    nets.check_shared()
    return replace(context, bank=bank, nets=nets, bank_facts=facts)


def devices_of(
    settings: SearchSpec, cost_fn: Callable[[Genotype], Cost], image: tuple[int, int, int], classes: int
) -> Devices:
    """The devices that a search measures nets on; InputError if a package is missing that a model's form needs."""
    numbers, others = (settings.numbers_by_device(of) for of in (settings.measured, settings.measured_at_end))
    for device in settings.devices:
        check_formats(device.form)
    made = {
        name: Device(
            cost_fn, settings.setting_of(name), image, classes,
            # what such a device prints beside is kept too
            tuple(dict.fromkeys([*wanted, *others.get(name, [])])), settings.run.budget.device_timeout_s,
        )
        for name, wanted in numbers.items()
    }  # fmt: skip
    return Devices(made)


def _load(settings: SearchSpec, console: Console) -> DataSet:
    """The data; InputError if recipe or metric do not fit them."""
    trainer = settings.trainer
    if trainer and trainer.images:
        return trainer.data_set()
    data = load_showing(settings.data, console)
    for recipe in (settings.recipe, *single_changes(settings.recipe, settings.tune)):
        check_on(recipe, data.white_level, data.in_chans, data.image_size, data.several_labels)
    if trainer is None:
        class_of(settings.metric, data.classes)  # which the data must have
    return data


def _run_settings(settings: SearchSpec, data: DataSet, space: Space, pretrained: Pretrained | None) -> dict[str, Any]:
    """The settings in `run.json`."""
    run_settings = settings.to_dict() | {
        "data_split": data.split_hash, "loader": data.loader, "image_size": list(data.image_size),
    }  # fmt: skip
    if settings.start_with:
        run_settings["start_with"] = str(settings.start_with)
    if isinstance(space, FileSpace):  # another source, or other genes, is another search
        run_settings |= {"space": space.identity, "genes": {name: list(opts) for name, opts in space.options.items()}}
    if isinstance(space, SwapSpace):
        run_settings["space"] = space.identity
    if pretrained:
        run_settings["from"] = pretrained.digest
    return run_settings


def _try_trainer(trainer: TrainerFile, context: SearchContext, console: Console) -> None:
    """Train the cheapest net for two steps."""
    settings, data = context.settings, context.data.without_test()
    _, cheapest = spaces.cheapest(context.space, lambda net: context.cost_fn(net).macs)
    console.print(f"trainer {trainer.path}: trying two steps", highlight=False, soft_wrap=True)
    gpu = context.settings.run.resources.gpus != 0
    check_trainer(trainer, cheapest, settings.recipe, context.steps, settings.metric, data, gpu)


def _known_nets(context: SearchContext, console: Console) -> KnownNets:
    """The nets to begin with: those that the run has noted once it has begun, whatever has become of their source."""
    if read_records(context.folder):
        return KnownNets(noted_genes(read_settings(context.folder), context.space))

    def counts(run: Path, record: Record) -> bool:
        measured = bool(context.devices)  # a net of this run needs a latency of its own
        return (
            not measured and not context.pretrained and trained_alike(run, record, context.run_settings, context.steps)
        )

    start, size = context.settings.start_with, context.data.image_size
    assert start is not None
    known = find_known_nets(start, GeneFinder(context.space, size, context.limits.broken_static), size, counts)
    for line in known.left_out:
        console.print(f"start-with: left out: {line}", highlight=False, soft_wrap=True)
    if known.records:
        console.print(f"start-with: {len(known.records)} nets of {known.run} count as trained", highlight=False)
    return known


def bank_trainings(run: str) -> float:
    """The compute of the supernet of another run, in full trainings.

    Raises InputError if it is no search on shared weights.
    """
    trainings = previous_settings(find_run(run)).get("supernet", 0)
    if not trainings >= 1:
        raise InputError(f"supernet: run {run!r} is no search on shared weights")
    return float(trainings)


def find_bank(run: str, facts: dict[str, Any]) -> Path:
    """The file of the bank of another run, which must be of the same space and data.

    Raises InputError if it has none, a broken one, or one for something else.
    """
    folder = find_run(run).absolute()
    progress = read_progress(folder)
    if progress is None or progress["step"] < progress.get("total_steps", math.inf):
        raise InputError(f"supernet: run {run!r} has no bank of shared weights that is trained to the end")
    differing = differences(progress.get("facts", {}), facts)
    if differing:
        raise InputError(f"supernet: the bank of run {run!r} is for something else: {'; '.join(differing)}")
    read_about(folder / "bank.safetensors")
    return folder / "bank.safetensors"


def _check_limits(space: Space, settings: SearchSpec, data: DataSet, cost_fn: Callable[[Genotype], Cost]) -> None:
    """Raise InputError if no net of the space is found that keeps each limit, and all of them together."""
    size = "x".join(str(side) for side in data.image_size)
    for cost, most in settings.limits.static.items():
        least, _ = spaces.cheapest(space, lambda net, cost=cost: cost_value(cost, cost_fn(net).totals()) or 0.0)
        if least > most:
            few, unit = f"no net of space {space.name!r} at {size} px has so few", quantity(cost).unit
            rule = f"{few} {unit}; the least found are {least}"
            raise InputError(f"max-{cost}: {rule}, got {most}")
    over, nearest = spaces.cheapest(space, NetLimits(settings.limits, cost_fn, Devices()).excess, 0)
    if over > 0:
        totals = cost_fn(nearest).totals()
        costs = " and ".join(f"{cost_value(cost, totals)} {cost}" for cost in settings.limits.static)
        rule = f"no net of space {space.name!r} at {size} px was found that keeps all limits; the nearest has {costs}"
        raise InputError(f"{' and '.join(f'max-{cost}' for cost in settings.limits.static)}: {rule}")


def count_references(nets: Sequence[TimmNet], data: DataSet, recipe: Recipe) -> dict[TimmNet, CountedCost]:
    """Costs of nets of timm on the data; limits are for candidates. timm and torch are loaded if there is one.

    Raises InputError if timm does not know a net, or it takes no such images or not the recipe's stochastic depth.
    """
    costs = {net: counted_cost(net, len(data.classes), data.image_size, data.in_chans) for net in nets}
    for net in nets:
        check_drop_path(net, recipe.drop_path)
    return costs


def check_drop_path(net: TimmNet, drop_path: float, option: str = "with") -> None:
    """Raise InputError if a net of timm cannot be trained with so much stochastic depth."""
    if not drop_path:
        return
    import torch

    from ..archs.timm import create

    try:
        with torch.device("meta"):
            create(net.name, drop_path=drop_path)
    except InputError as error:
        rule = f"{TIMM}{net.name} cannot have the recipe's drop_path {drop_path:g}"
        raise InputError(f"{option}: {rule} ({error})") from None
