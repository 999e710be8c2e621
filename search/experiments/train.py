"""Train one net with several seeds: a named one from fresh weights, or one with weights for new data (transfer)."""

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ...archs import Genotype, InputError
from ...archs.errors import check_choice
from ...archs.layout import Map
from ...archs.timm_net import TIMM, Net, TimmNet
from ...results.render.describe_net import find_arch
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder
from ...results.runs.weights_spec import WeightsSpec
from ..prepare import check_drop_path
from ..pretrained import starting_from
from ..training.job import FREEZE_POLICIES
from ..training.recipe import Recipe
from .plan import ExperimentContext, repeated
from .run_plan import ExperimentConfig, run_experiment


@dataclass(frozen=True)
class Train(ExperimentConfig):
    """Training of one net."""

    # a zoo name, a genotype's .json file, RUN:TRIAL or timm:NAME, trained from fresh weights; or trained weights to
    # start from, with a new head
    net: str | WeightsSpec
    freeze: str = "none"  # which parts are frozen, of `FREEZE_POLICIES`; of weights alone

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("freeze", self.freeze, FREEZE_POLICIES)


def train(config: Train, console: Console) -> tuple[Path, list[Record]]:
    """Train, or go on with it. Returns the run's folder and the records.

    InputError if the net or the data cannot be read, or do not fit each other; OperationError if workers do not start
    or everything fails.
    """
    data, pretrained = config.opened(console), None
    if isinstance(config.net, str):
        folder = run_folder(config.name or plain_name("train", config.net, data.name))
        decided = config.decided(folder, data)
        net, factors = named_net(config.net, data.image_size, decided.recipe), {"net": config.net}
        settings = factors | {"key": net.key}
    else:
        weights, freeze = config.net.find(), config.freeze
        net, factors = headless(weights.network.genotype), {"start": weights.label, "freeze": freeze}
        settings = {"from": weights.label, "freeze": freeze}
        named = plain_name("finetune", config.net.text, data.name, "" if freeze == "none" else freeze)
        folder = run_folder(config.name or named)
        decided = config.decided(folder, data)
        if freeze == "half" and not decided.recipe.augment.any:
            console.print(f"recipe {decided.recipe.name} has no augmentation; small data sets need it", highlight=False)
        pretrained = starting_from(weights, folder, zero_head=True, freeze=freeze)
    plan = repeated(net, decided.recipe, data, range(config.seeds), factors, pretrained, test=data.test is not None)
    context = ExperimentContext(folder, "study", data, config.run, settings, pretrained, recipes=decided.kept)
    return folder, run_experiment(plan, context, console)


def named_net(arch: str, image_size: Map, recipe: Recipe) -> Net:
    """The net of a zoo name, .json file, RUN:TRIAL or timm:NAME, for fresh weights; InputError if there is none."""
    if not arch.startswith(TIMM):
        return find_arch(arch, "x".join(map(str, image_size)))[0]
    net = TimmNet(arch.removeprefix(TIMM))
    if "." in arch:
        rule = f"is trained from fresh weights, got those of {arch}; write {arch.split('.')[0]}; --from takes weights"
        raise InputError(f"arch: {rule}")
    check_drop_path(net, recipe.drop_path, "arch")
    return net


def headless(net: Genotype) -> Genotype:
    """The net with a single linear layer as its head, as the ViT paper fine-tunes (section 3.1)."""
    return replace(net, head=replace(net.head, hidden=0))
