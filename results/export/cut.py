"""Exports of pretrained nets that are cut after a block: what is known of them, and the lines that make them again."""

import re
from typing import Any

from torch import nn

from ...archs import Network
from ...archs.cut_network import CutNetwork
from ...archs.own_net import OwnNet
from ...archs.timm import create_args
from ...archs.timm.cut_points import cut_points
from ...archs.timm.cuts import CutPoint, all_blocks
from ...archs.timm.models import origin_of
from ...archs.timm_net import cut_cost
from .net_values import whole_net

POOLED = {
    "mean": "mean over places",
    "mean-max": "mean and maximum over places",
    "grid": "means of 2 x 2 quarters",
    "all": "means of the maps of all cuts up to it",
}
BUILD = '''\
POINTS = (
    CUT_POINTS
)


def build() -> CutClassifier:
    """The net with fresh weights."""
    CUT_MODEL
    prune(model, POINTS[-1])
    picture = PictureInput(CUT_PICTURE)
    return CutClassifier(CutTrunk(model, POINTS, picture), CUT_HEAD)
'''


def cut_facts(network: CutNetwork) -> dict[str, Any]:
    """Facts of a cut net for config.json, without its run."""
    net, point = network.genotype, network.trunk.points[-1]
    cut = {
        "trunk": net.source,
        "place": point.place,
        "block": net.block,
        "blocks": len(cut_points(net.trunk)),
        "pooling": POOLED[net.pooling],
        "features": network.head.in_features,
        **origin_of(net.trunk),
        "recipe": recipe(network),
        "indices": [point.index],
        "picture": {"mean": list(network.picture.mean), "std": list(network.picture.std)},
    }
    whole = re.sub(r"\W+", "_", net.name) if isinstance(net.trunk, OwnNet) else net.name.partition(".")[0]
    name = f"{whole}_cut{net.block}_{net.side}px"
    cost = cut_cost(net, network.num_classes)
    return {"name": name, "stages": 0, "fixed_size": True, "cut": cut, **cost.totals()}


def cut_drawing(network: CutNetwork) -> list[str]:
    """Lines that draw a cut net: trunk, pooling, head."""
    net, point = network.genotype, network.trunk.points[-1]
    where = f"up to {point.place}, cut {net.block} of 0 to {len(cut_points(net.trunk)) - 1}"
    return [
        f"trunk    {net.source} {where}, {point.channels} channels",
        f"pooling  {POOLED[net.pooling]}, {network.head.in_features} features",
        f"head     linear, {network.num_classes} classes",
    ]


def cut_build(network: CutNetwork) -> str:
    """Python source of a function that builds the net from the classes of `archs/cut_classifier.py`."""
    picture, points = network.picture, network.trunk.points
    parts = {
        "CUT_POINTS": "\n    ".join(f"{point}," for point in points),
        "CUT_MODEL": _whole(network),
        "CUT_PICTURE": f"{picture.size}, {picture.mean}, {picture.std}, {picture.interpolation!r}",
        "CUT_HEAD": f"{network.pooling!r}, {network.head.in_features}, {network.num_classes}",
    }
    source = BUILD
    for mark, part in parts.items():
        source = source.replace(mark, part)
    return source


def recipe(network: CutNetwork) -> list[str]:
    """Lines of Python that make the trunk from timm alone, as `prune` does; none of a net that timm does not have."""
    point, net = network.trunk.points[-1], network.trunk.model
    if isinstance(net, Network):
        return []
    lines = [f"trunk = timm.create_model({_arguments(network)})"]
    if all_blocks(net):
        lines.append("trunk.prune_intermediate_layers(1, prune_norm=True)")
        lines.append(f"del trunk.blocks[{point.index}:]")
    else:
        lines.append(f"trunk.prune_intermediate_layers([{point.index}], prune_norm=True)")
    return lines + _shortened(point, net)


def _shortened(point: CutPoint, net: nn.Module) -> list[str]:
    """The line that shortens a stage's chain of blocks; none where the map is the stage's."""
    if not point.chain:
        return []
    path = "trunk" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in point.chain.split("."))
    if isinstance(net.get_submodule(point.chain), nn.Sequential | nn.ModuleList):
        return [f"del {path}[{point.keep}:]"]
    return [f"for name in list({path}._modules)[{point.keep}:]: delattr({path}, name)"]


def _whole(network: CutNetwork) -> str:
    """Lines of Python that make the net before it is cut."""
    if isinstance(network.trunk.model, Network):
        return f"model = {whole_net(network.trunk.model)}"
    return f"import timm\n\n    model = timm.create_model({_arguments(network)})"


def _arguments(network: CutNetwork) -> str:
    net = network.genotype
    given = create_args(net.name, 0, None, network.image_size)
    return ", ".join([repr(net.name), *(f"{name}={value!r}" for name, value in given.items())])
