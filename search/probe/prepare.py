"""Check a search among cuts of pretrained nets, and load what it needs: a `ProbeContext`. Nothing is written here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ...archs import static_cost
from ...archs.errors import InputError
from ...archs.own_net import Trunk
from ...archs.timm_net import picture_moments
from ...results.ranking.metric import class_of
from ...results.ranking.quantities import cost_value
from ...results.ranking.stats import SHARE
from ...results.runs.record import Record, versions
from ...results.runs.store import run_folder
from ...spaces.pretrained import PretrainedNet, find_nets
from ..data.dataset import DataSet
from ..data.load import load_showing, one_class_each
from ..data.readers.registry import find_reader
from ..prepare import devices_of
from ..pretrained import OwnWeights, load_own
from ..run_facts import check_same_run
from ..spec import ProbeSpec, SearchSpec
from ..strategies.probe_order import PATIENCE, ProbeOrder, ProbePair
from ..trials.devices import Devices
from .crossval import FOLDS

LARGEST_SIDE = 224  # px that pictures are kept at, where nobody asks for another side
DEEPER = 64.0  # times a limit on MACs that a whole net may cost for its first cuts to be within it


@dataclass(frozen=True)
class ProbeContext:
    """A search among cuts of pretrained nets. Nothing is written yet."""

    spec: SearchSpec
    data: DataSet
    pairs: tuple[ProbePair, ...]  # of net and image side, which may be probed
    folder: Path
    record_fields: dict[str, Any]  # fields that every record of the run shares
    run_settings: dict[str, Any]  # what `run.json` holds as the settings; equal ones resume a run
    # that cuts are measured on, where that is the objective or has a limit
    devices: Devices = field(default_factory=Devices)
    own: tuple[OwnWeights, ...] = ()  # nets of our own among those of the pairs

    @property
    def images(self) -> int:
        """Pictures that each cut is judged on: those for training and for validation."""
        return len(self.data.train) + len(self.data.val)

    def is_measured(self, record: Record) -> bool:
        """Whether all is known of a cut that is measured in this search."""
        return all(record.key in device.known for device in self.devices.by_name.values())

    def cost_of(self, record: Record) -> float:
        """The objective's cost of a cut, which must have been measured where that is needed."""
        cost = self.spec.objective
        measured = cost in self.spec.measured
        return self.devices.value(cost, record.key) if measured else cost_value(cost, record.cost) or 0.0

    def is_over(self, record: Record) -> bool:
        """Whether a cut that was measured breaks a limit on what is measured."""
        limits = self.spec.limits.measured
        return bool(limits.broken({cost: self.devices.value(cost, record.key) for cost in limits}))

    @property
    def weights_dir(self) -> str:
        """Folder of files of weights, absolute: a worker's current folder may be another; "" where there is none."""
        assert self.spec.probe is not None
        given = self.spec.probe.weights_dir
        return str(Path(given).absolute()) if given else ""

    @property
    def order(self) -> ProbeOrder:
        """Which pair is probed next, and when the last probes have added too little."""
        most = self.spec.limits.get("macs", 0.0)
        return ProbeOrder(high=most, patience=self.spec.run.budget.patience or PATIENCE)

    def pair_of(self, name: str, side: int) -> ProbePair | None:
        """The pair of a net and a side; None if this search has none."""
        return next((pair for pair in self.pairs if (pair.name, pair.side) == (name, side)), None)

    def trunk_of(self, name: str) -> tuple[Trunk, str]:
        """The net of a pair, timm's by its name or one of our own, and the file of its weights; "" of timm's."""
        found = ((own.net, own.weights.start.weights) for own in self.own if own.net.name == name)
        return next(found, (name, ""))


def count_cuts(net: Trunk) -> int:
    """How many cuts a net has; timm and torch are loaded."""
    from ...archs.timm.cut_points import cut_points

    return len(cut_points(net))


def prepare_probe(spec: SearchSpec, console: Console) -> ProbeContext:
    """Check a search among cuts of pretrained nets, and load its data.

    Raises InputError if a setting is wrong or of another kind of search, no weights can be had, or the run exists with
    other settings.
    """
    assert spec.probe is not None
    _check_settings(spec)
    folder = run_folder(spec.name)
    timms, own = _named(spec.probe, folder)
    nets = [*_with_weights(timms, spec.probe.weights_dir, bool(own), console), *map(_as_pretrained, own)]
    data = _load(spec, console)
    for name in (each.net.name for each in own if each.net.data == data.name):
        line = (
            f"{name} was trained on {data.name}: its cuts are more accurate on pictures that it knows than on new ones"
        )
        console.print(line, highlight=False, soft_wrap=True)
    side = max(data.image_size) if spec.data.image_size else LARGEST_SIDE
    pairs = tuple(pair for net in nets for pair in _pairs(net, side, spec))
    if not pairs:
        raise InputError(f"max-macs: no net of --nets has cuts of so few MACs, got {spec.limits.get('macs'):g}")
    names = [f"{net.name} {net.own.sha256}" if net.own else net.name for net in nets]
    settings = _run_settings(spec, data, names)
    check_same_run(folder, spec, settings)
    record_fields = {
        "data": {"name": data.name, "fraction": 1.0, "split": data.split_hash},
        "versions": versions(),
    }
    image = (data.in_chans, *data.image_size)
    devices = devices_of(
        spec, lambda net: static_cost(net, len(data.classes), image[1:], image[0]), image, len(data.classes)
    )
    return ProbeContext(spec, data, pairs, folder.absolute(), record_fields, settings, devices, own)


def _check_settings(spec: SearchSpec) -> None:
    """Raise InputError if a setting is of searches that train nets."""
    trained_only = {
        "supernet": spec.supernet, "start-with": spec.start_with, "from": spec.pretrained, "tune": spec.tune,
        "trainer": spec.trainer, "with": spec.references, "folds": spec.folds, "repeats": spec.repeats > 1,
        "scheduler": spec.scheduler != "none", "strategy": not spec.strategy.startswith("evolution"),
    }  # fmt: skip
    for name, given in trained_only.items():
        if given:
            raise InputError(f"{name}: space 'pretrained' judges nets without training them; leave it out")
    if spec.metric.within != SHARE:
        raise InputError(f"metric: of cuts it must be a share from 0 to 1, such as accuracy, got {spec.metric.name}")


def _load(spec: SearchSpec, console: Console) -> DataSet:
    """The data, pictures with values from 0 to 1: each pretrained net normalises them in its own way.

    Raises InputError if the data cannot be read, or nets of pictures cannot see them.
    """
    config = spec.data
    if config.image_size is None and not find_reader(config.name).arrays:
        config = replace(config, image_size=(LARGEST_SIDE, LARGEST_SIDE))
    data = one_class_each(load_showing(config, console))
    class_of(spec.metric, data.classes)
    if data.in_chans not in (1, 3):
        raise InputError(f"data: pretrained nets see pictures of 1 or 3 channels, {data.name} has {data.in_chans}")
    mean, std = picture_moments(data.mean, data.std, data.white_level)
    return replace(data, mean=mean, std=std)


def _named(probe: ProbeSpec, folder: Path) -> tuple[list[PretrainedNet], tuple[OwnWeights, ...]]:
    """Timm's nets asked for, by default the ladder and those of the folder of weights, and nets of our own.

    Raises InputError if there is no such net, or two have one name.
    """
    nets, others = find_nets(",".join(probe.nets))
    own = tuple(load_own(words, folder) for words in others)
    names = [each.net.name for each in own]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"nets: {twice[0]} is the name of two nets; give one file or folder another name")
    first = dict[str, str]()
    for net in (each.net for each in own):
        if first.setdefault(net.identity, net.name) != net.name:
            raise InputError(f"nets: {first[net.identity]} and {net.name} are the same net; leave one of them out")
    if probe.weights_dir and not probe.nets:
        from ...archs.timm.weights_files import nets_of_folder

        nets += [net for name in nets_of_folder(probe.weights_dir) for net in find_nets(name)[0] if net not in nets]
    return nets, own


def _as_pretrained(own: OwnWeights) -> PretrainedNet:
    net = own.net
    cost = static_cost(net.genotype, 1, net.side, net.in_chans)
    return PretrainedNet(net.name, net.side, False, cost.macs, cost.params, None, "unknown", own.words, net)


def _pairs(net: PretrainedNet, largest: int, spec: SearchSpec) -> list[ProbePair]:
    """A net with each image side at which its first cuts may be within the limits."""
    most = DEEPER * spec.limits.get("macs", math.inf)
    pairs = [
        ProbePair(net.name, side, float(net.macs_at(side)), net.top1, net.family, net.side)
        for side in net.sides
        if side <= largest or side == net.sides[0]
    ]
    return [pair for pair in pairs if pair.macs <= most]


def _with_weights(
    nets: Sequence[PretrainedNet], weights_dir: str, are_others: bool, console: Console
) -> list[PretrainedNet]:
    """The nets of timm whose weights can be had; the others are said to be left out.

    `are_others`: whether the search goes on without any of them. Raises InputError if the weights of no net can be had.
    """
    from ...archs.timm.weights_files import why_no_weights

    reasons = {net.name: why_no_weights(net.name, weights_dir) for net in nets}
    missing = [name for name, reason in reasons.items() if reason]
    if len(missing) == len(nets) and not are_others:
        hint = "--weights-dir DIR reads DIR/NAME.safetensors, .pth, .pt or .bin"
        reason = f"{missing[0]}: {reasons[missing[0]]}"
        raise InputError(f"nets: the weights of none of {len(nets)} nets can be had ({reason}); {hint}")
    if missing:
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        line = f"left out for want of weights: {missing[0]}{more} ({reasons[missing[0]]})"
        console.print(line, highlight=False, soft_wrap=True)
    return [net for net in nets if not reasons[net.name]]


def _run_settings(spec: SearchSpec, data: DataSet, nets: list[str]) -> dict[str, Any]:
    """The settings in `run.json`."""
    facts = spec.to_dict()
    kept = ("space", "data", "objective", "other_costs", "limits", "metric", "latency", "devices", "seed")
    about = {
        "data_split": data.split_hash,
        "loader": data.loader,
        "image_size": list(data.image_size),
        "nets": nets,
        "folds": FOLDS,
    }
    return {name: facts[name] for name in kept} | about
