"""A net of timm cut after a block, its maps at cuts in one pass, and their pooling; exported code holds this file."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class CutPoint:
    """A block that a net can be cut after."""

    place: str  # name of the block's module
    index: int  # of the map, as `forward_intermediates` counts: of the block's own, or of its stage's
    channels: int  # of the map
    axes: str  # of what the module gives: "NCHW", "NHWC" or "NLC"; "" where the map is not of one call of it
    # name of the stage's chain of blocks, which is shortened to `keep`; "" where the map is the stage's
    chain: str = ""
    keep: int = 0  # blocks of the chain up to the cut


def prune(model: nn.Module, point: CutPoint) -> None:
    """Drop from one of timm's nets, in place, all that its map at `point` does not need."""
    net, chains = model, {point.chain: point.keep} if point.chain else {}
    take: Any = [point.index]
    if all_blocks(net):  # timm 1.0.31 fails to prune these to a stage that ends with attention
        take, chains = 1, {"blocks": point.index} | chains
    net.prune_intermediate_layers(take, prune_norm=True, prune_head=True)  # pyright: ignore[reportCallIssue]
    for name, keep in chains.items():
        chain = net.get_submodule(name)
        for block in list(dict(chain.named_children()))[keep:]:
            delattr(chain, block)


def maps_at(model: nn.Module, points: Sequence[CutPoint], x_BCHW: Tensor) -> list[Tensor]:
    """Maps of a net, whole or cut at the last of the points, at its cut points, in one pass of normalised x_BCHW."""
    indices = sorted({point.index for point in points})
    # of a chain that is cut there already the stage's map is the block's
    inner = [p for p in points if p.chain and len(list(model.get_submodule(p.chain).children())) != p.keep]
    with watched(model, [point.place for point in inner], lambda _, output: output) as calls:
        stages = dict(zip(indices, stage_maps(model, x_BCHW, indices), strict=True))
    maps = []
    for point in points:
        map_BCHW = stages[point.index]
        maps.append(_as_map(calls[point.place][0], point.axes, map_BCHW) if point in inner else map_BCHW)
    return maps


def all_blocks(net: Any) -> dict[str, bool]:
    """The argument by which nets that leave blocks out of their maps count them all."""
    return {"extra_blocks": True} if "extra_blocks" in inspect.signature(net.forward_intermediates).parameters else {}


def stage_maps(model: nn.Module, x_BCHW: Tensor, indices: list[int] | None = None) -> list[Tensor]:
    """The maps that timm's `forward_intermediates` counts, all or some, and no more of the net than they need."""
    net: Any = model
    how = {"stop_early": True, "intermediates_only": True, "output_fmt": "NCHW", **all_blocks(net)}
    return net.forward_intermediates(x_BCHW, indices=indices, **how)


@contextmanager
def watched(
    model: nn.Module, names: Sequence[str], note: Callable[[Tensor | None, Any], Any]
) -> Iterator[dict[str, list[Any]]]:
    """While it is open, what `note` makes of a call's input and output, at each call of these modules."""
    calls: dict[str, list[Any]] = {name: [] for name in names}

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


def pooled(maps: Sequence[Tensor], pooling: str) -> Tensor:
    """Features x_BF of maps x_BCHW.

    Args:
        maps: of all cuts so far; only "all" looks at others than the last.
        pooling: "mean" over places; "mean-max", that and the maximum; "grid", means of 2 x 2 quarters, whose border
            rows and columns overlap where a side is odd; "all", means of all maps.
    """
    if pooling == "all":
        return torch.cat([map_BCHW.mean((2, 3)) for map_BCHW in maps], 1)
    x_BCHW = maps[-1]
    if pooling == "mean":
        return x_BCHW.mean((2, 3))
    if pooling == "mean-max":
        return torch.cat([x_BCHW.mean((2, 3)), x_BCHW.amax((2, 3))], 1)
    height, width = x_BCHW.shape[2:]
    halves = (x_BCHW[:, :, : (height + 1) // 2], x_BCHW[:, :, height // 2 :])
    quarters = [part for half in halves for part in (half[..., : (width + 1) // 2], half[..., width // 2 :])]
    return torch.stack([part.mean((2, 3)) for part in quarters], 2).flatten(1)
