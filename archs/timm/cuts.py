"""Where a net of timm can be cut, its maps there in one forward pass, and the net cut there.

timm's `forward_intermediates` gives a net's maps, of conv nets one a stage, of vision transformers one a block, and
`prune_intermediate_layers` drops what is behind one. Where a stage is a plain chain of blocks, each of these is a cut
too: the net is pruned to the stage, whose chain is shortened then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from timm.models.regnet import RegStage
from torch import Tensor, nn

from ..errors import InputError
from .counting import on_meta
from .models import create

Calls = dict[str, list[Any]]  # by a module's name, a note of each call of it


@dataclass(frozen=True)
class CutPoint:
    """A block that a net can be cut after.

    Attributes:
        place: name of the block's module.
        index: of the map, as `forward_intermediates` counts: of the block's own, or of its stage's.
        channels: of the map.
        axes: of what the module gives: "NCHW", "NHWC" or "NLC"; "" where the map is not of one call of it.
        chain: name of the stage's chain of blocks, which is shortened to `keep`; "" where the map is the stage's.
        keep: blocks of the chain up to the cut.
    """

    place: str
    index: int
    channels: int
    axes: str
    chain: str = ""
    keep: int = 0


@lru_cache(maxsize=256)
def cut_points(name: str) -> tuple[CutPoint, ...]:
    """All blocks of timm's net `name` that it can be cut after, in their order; the same at every image side.

    Raises:
        InputError: if timm does not know the net, or it gives no maps.
    """
    return on_meta(name, lambda: _found(name))


def trunk(
    name: str, side: int | None = None, state: dict[str, Tensor] | None = None, drop_path: float = 0.0
) -> nn.Module:
    """timm's net `name` without its classifier, for images of `side` x `side` pixels; None takes its own side.

    Args:
        name: in timm, with or without the tag of weights.
        side: of images. Tables of positions in `state` are resampled to it, as timm does that.
        state: weights of the whole net by timm's names, at the net's own side; None draws fresh ones.
        drop_path: stochastic depth, as timm's nets have it.

    Raises:
        InputError: if timm does not know the net, or it takes no such images or weights.
    """
    more = {} if state is None else {"pretrained_cfg_overlay": {"state_dict": dict(state)}}
    size = None if side is None else (side, side)
    model = create(name, state is not None, 0, None, size, drop_path, **more)
    if not hasattr(model, "forward_intermediates") or not hasattr(model, "prune_intermediate_layers"):
        raise InputError(f"timm: {name} cannot be cut: it has no forward_intermediates")
    needed = model.state_dict()
    if state is not None and (missing := [of for of in needed if of not in state]):  # timm goes on without them
        raise InputError(f"timm: {name}: {len(missing)} of its {len(needed)} tensors are missing, first {missing[0]}")
    return model


def prune(model: nn.Module, point: CutPoint) -> None:
    """Drop from one of timm's nets, in place, all that its map at `point` does not need."""
    net, chains = model, {point.chain: point.keep} if point.chain else {}
    take: Any = [point.index]
    if _all_blocks(net):  # timm 1.0.31 fails to prune these to a stage that ends with attention
        take, chains = 1, {"blocks": point.index} | chains
    net.prune_intermediate_layers(take, prune_norm=True, prune_head=True)  # pyright: ignore[reportCallIssue]
    for name, keep in chains.items():
        chain = net.get_submodule(name)
        for block in list(dict(chain.named_children()))[keep:]:
            delattr(chain, block)


def maps_at(model: nn.Module, points: Sequence[CutPoint], x_BCHW: Tensor) -> list[Tensor]:
    """Maps x_BCHW of a net at some of its cut points, in one forward pass of normalised images.

    Args:
        model: one of timm's, whole or cut at the last of the points.
        points: of it, in their order.
        x_BCHW: three channels, normalised as the net was trained.
    """
    indices = sorted({point.index for point in points})
    inner = [point for point in points if point.chain and not _ends_at(model, point)]
    with watched(model, [point.place for point in inner], lambda _, output: output) as calls:
        stages = dict(zip(indices, stage_maps(model, x_BCHW, indices), strict=True))
    maps = []
    for point in points:
        map_BCHW = stages[point.index]
        maps.append(_as_map(calls[point.place][0], point.axes, map_BCHW) if point in inner else map_BCHW)
    return maps


def num_features(name: str, block: int, pooling: str) -> int:
    """Numbers that pooling makes of an image at a cut.

    Raises:
        InputError: if the net has no such cut.
    """
    points = cut_points(name)[: check_block(name, block) + 1]
    if pooling == "all":
        return sum(point.channels for point in points)
    return points[-1].channels * {"mean": 1, "mean-max": 2, "grid": 4}[pooling]


def check_block(name: str, block: int) -> int:
    """Return `block` if the net has such a cut, else raise InputError."""
    if block >= (cuts := len(cut_points(name))):
        raise InputError(f"cut net: {name} can be cut after blocks 0 to {cuts - 1}, got {block}")
    return block


def _all_blocks(net: Any) -> dict[str, bool]:
    """The argument by which nets that leave blocks out of their maps count them all."""
    return {"extra_blocks": True} if "extra_blocks" in inspect.signature(net.forward_intermediates).parameters else {}


def stage_maps(model: nn.Module, x_BCHW: Tensor, indices: list[int] | None = None) -> list[Tensor]:
    """The maps that timm's `forward_intermediates` counts, all or some, and no more of the net than they need."""
    net: Any = model
    how = {"stop_early": True, "intermediates_only": True, "output_fmt": "NCHW", **_all_blocks(net)}
    return net.forward_intermediates(x_BCHW, indices=indices, **how)


def _ends_at(model: nn.Module, point: CutPoint) -> bool:
    """Whether the chain of a cut point is cut there already, so that the stage's map is the block's."""
    return len(list(model.get_submodule(point.chain).children())) == point.keep


@contextmanager
def watched(model: nn.Module, names: Sequence[str], note: Callable[[Tensor | None, Any], Any]) -> Iterator[Calls]:
    """While it is open, what `note` makes of a call's input and output, at each call of these modules."""
    calls: Calls = {name: [] for name in names}

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _, given, output: calls[name].append(note(given[0] if given else None, output))

    hooks = [model.get_submodule(name).register_forward_hook(hook(name)) for name in calls]
    try:
        yield calls
    finally:
        for handle in hooks:
            handle.remove()


def _as_map(x: Tensor, axes: str, like_BCHW: Tensor) -> Tensor:
    """What a block gives, as a map x_BCHW of the shape of another."""
    if axes == "NCHW":
        return x
    if axes == "NHWC":
        return x.permute(0, 3, 1, 2).contiguous()
    height, width = like_BCHW.shape[2:]
    return x[:, -height * width :].mT.unflatten(2, (height, width)).contiguous()  # other tokens are in front


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
    if not _all_blocks(model):
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


def _chain(place: str, known: dict[str, nn.Module], calls: Calls) -> tuple[str, list[str]]:
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
