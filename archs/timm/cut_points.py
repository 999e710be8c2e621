"""Where a pretrained net can be cut, its trunk, and what each cut costs: of timm's nets here, of ours in own_trunk.py.

timm's `forward_intermediates` gives a net's maps, of conv nets one a stage, of vision transformers one a block, and
`prune_intermediate_layers` drops what is behind one. Where a stage is a plain chain of blocks, each of these is a cut
too: the net is pruned to the stage, whose chain is shortened then.
"""

from functools import lru_cache
from typing import Any

import timm
import torch
from timm.models.regnet import RegStage
from torch import Tensor, nn

from ..errors import InputError
from ..own_net import OwnNet, Trunk
from ..own_trunk import own_points, own_trunk
from .cuts import CutPoint, all_blocks, prune, stage_maps, watched
from .models import create, flop_counter, on_meta


@lru_cache(maxsize=256)
def cut_points(name: Trunk) -> tuple[CutPoint, ...]:
    """All blocks of a net that it can be cut after, in order; InputError if there are none."""
    if isinstance(name, OwnNet):
        return own_points(name)
    return on_meta(name, lambda: _found(name))


def trunk(
    name: Trunk, side: int | None = None, state: dict[str, Tensor] | None = None, drop_path: float = 0.0
) -> nn.Module:
    """A net without its classifier, for images of `side` x `side` pixels; None takes its own side.

    `state` are weights of the whole net at its own side, whose tables of positions are resampled as timm does; None
    draws fresh ones. InputError if timm does not know the net, or it takes no such images or weights.
    """
    if isinstance(name, OwnNet):
        return own_trunk(name, side, state, drop_path)
    more = {} if state is None else {"pretrained_cfg_overlay": {"state_dict": dict(state)}}
    size = None if side is None else (side, side)
    model = create(name, state is not None, 0, None, size, drop_path, **more)
    if not hasattr(model, "forward_intermediates") or not hasattr(model, "prune_intermediate_layers"):
        raise InputError(f"timm: {name} cannot be cut: it has no forward_intermediates")
    needed = model.state_dict()
    if state is not None and (missing := [of for of in needed if of not in state]):  # timm goes on without them
        raise InputError(f"timm: {name}: {len(missing)} of its {len(needed)} tensors are missing, first {missing[0]}")
    return model


def check_side(name: Trunk, side: int) -> None:
    """Raise InputError if a net takes no weights of its own side at `side` pixels, as LeViT's tables."""
    if isinstance(name, OwnNet):
        name.check(side)
        return
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.fixed_input_size or config.input_size[-1] == side:
        return
    with torch.device("meta"):
        own = trunk(name).state_dict()
    try:
        trunk(name, side, {of: torch.zeros_like(tensor, device="cpu") for of, tensor in own.items()})
    except InputError:
        own_side = config.input_size[-1]
        raise InputError(f"timm: weights of {name} are for images of {own_side} px alone, got {side}") from None


def num_features(name: Trunk, block: int, pooling: str) -> int:
    """Numbers that pooling makes of an image at a cut; InputError if the net has no such cut."""
    points = cut_points(name)
    if block >= len(points):
        raise InputError(f"cut net: {name} can be cut after blocks 0 to {len(points) - 1}, got {block}")
    points = points[: block + 1]
    if pooling == "all":
        return sum(point.channels for point in points)
    return points[-1].channels * {"mean": 1, "mean-max": 2, "grid": 4}[pooling]


def _found(name: str) -> tuple[CutPoint, ...]:
    model: Any = trunk(name).eval()
    known = dict(model.named_modules())
    x_BCHW = torch.zeros(1, *model.pretrained_cfg["input_size"])
    with watched(model, [place for place in known if place], lambda *call: call) as calls, torch.no_grad():
        maps = stage_maps(model, x_BCHW)
    points = list[CutPoint]()
    for index, (place, map_BCHW) in enumerate(zip(_places(model, len(maps)), maps, strict=True)):
        axes = _axes(calls.get(place, []), map_BCHW)
        channels = map_BCHW.shape[1]
        chain, blocks = _chain(place, known, calls) if axes else ("", [])
        inner = [CutPoint(block, index, channels, axes, chain, i + 1) for i, block in enumerate(blocks[:-1])]
        points += [*inner, CutPoint(place, index, channels, axes)]
    return tuple(points)


def _places(model: Any, maps: int) -> list[str]:
    """Names of the modules that give a net's maps, as timm says them."""
    if not all_blocks(model):
        return [of["module"] for of in model.feature_info][:maps]
    return ["bn1" if hasattr(model, "bn1") else "conv_stem", *(f"blocks.{i}" for i in range(maps - 1))]


def _axes(calls: list[tuple[Any, Any]], map_BCHW: Tensor) -> str:
    """Order of axes of a module's output that a map is made of; "" if the map is not of that module's one call."""
    output = calls[0][1] if len(calls) == 1 else None
    if output is map_BCHW:
        return "NCHW"
    if not isinstance(output, Tensor):
        return ""
    batch, channels, height, width = map_BCHW.shape
    if output.dim() == 3 and output.shape[1] >= height * width and output.shape[2] == channels:
        return "NLC"
    return "NHWC" if output.shape == (batch, height, width, channels) else ""


def _chain(place: str, known: dict[str, nn.Module], calls: dict[str, list[Any]]) -> tuple[str, list[str]]:
    """Name of a stage's chain of blocks and of these; "" where some block does more than follow the one before."""
    stage = known[place]
    chain = place if isinstance(stage, nn.Sequential | RegStage) else f"{place}.blocks"
    if not isinstance(known.get(chain), nn.Sequential | nn.ModuleList | RegStage):
        return "", []
    blocks = [f"{chain}.{child}" for child, _ in known[chain].named_children()]
    if any(len(calls[block]) != 1 for block in blocks):
        return "", []
    given, outputs = zip(*(calls[block][0] for block in blocks), strict=True)
    result = calls[place][0][1]
    follows = all(a is b for a, b in zip(outputs, [*given[1:], result], strict=True))
    alike = all(isinstance(output, Tensor) and output.shape == result.shape for output in outputs)
    composed = all(list(known[block].children()) for block in blocks)  # not a conv, a norm and an activation
    return (chain, blocks) if follows and alike and composed else ("", [])


@lru_cache(maxsize=1024)
def trunk_costs(name: Trunk, side: int) -> tuple[tuple[int, int], ...]:
    """(parameters, MACs) at each cut of a net, headless, of a picture of `side`; errors as of `trunk`."""
    check_side(name, side)
    return on_meta(str(name), lambda: _counted(cut_points(name), name, side))


def _counted(points: tuple[CutPoint, ...], name: Trunk, side: int) -> tuple[tuple[int, int], ...]:
    model = trunk(name, side).eval()
    places = [point.place for point in points if point.axes]
    with flop_counter() as counter, watched(model, places, lambda *_: counter.get_total_flops()) as flops:
        _run(model, side)
    costs = list[tuple[int, int]]()
    for point in reversed(points):
        cut = model if point.axes else trunk(name, side).eval()  # nets whose maps do not follow each other
        prune(cut, point)
        params = sum(parameter.numel() for parameter in cut.parameters())
        costs.append((params, flops[point.place][0] // 2 if point.axes else _macs(cut, point.index, side)))
    return tuple(reversed(costs))


def _macs(model: nn.Module, index: int, side: int) -> int:
    with flop_counter() as counter:
        _run(model, side, [index])
    return counter.get_total_flops() // 2


@torch.no_grad()
def _run(model: Any, side: int, indices: list[int] | None = None) -> None:
    stage_maps(model, torch.zeros(1, model.pretrained_cfg["input_size"][0], side, side), indices)
