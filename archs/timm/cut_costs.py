"""Parameters and MACs of a net of timm cut at each of its cut points, counted in one forward pass."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import nn

from ..own_net import Trunk
from .counting import flop_counter, on_meta
from .cut_points import check_side, cut_points, trunk
from .cuts import CutPoint, prune, stage_maps, watched


@lru_cache(maxsize=1024)
def trunk_costs(name: Trunk, side: int) -> tuple[tuple[int, int], ...]:
    """(parameters, MACs) of an image of `side` x `side` pixels at each cut of a pretrained net, without a head.

    Raises:
        InputError: if timm does not know the net, or it takes no such images, or its weights do not.
    """
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
    """MACs of a net that is cut already."""
    with flop_counter() as counter:
        _run(model, side, [index])
    return counter.get_total_flops() // 2


@torch.no_grad()
def _run(model: nn.Module, side: int, indices: list[int] | None = None) -> None:
    net: Any = model
    stage_maps(net, torch.zeros(1, net.pretrained_cfg["input_size"][0], side, side), indices)
