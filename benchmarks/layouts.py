"""Shortcuts that stride, on a CPU: what each way around torch's own gradient of their conv takes in a whole net.

    python benchmarks/layouts.py [--repeats 15] [--threads 1]

Forward plus backward. "contiguous" leaves channels_last altogether; the others stay in it, and slice the shortcut's
input (as `Projection` does), leave channels_last for that conv alone, or pad its channels to 16. torch's own conv in
channels_last is left out: it may write beyond its memory. The ways take turns; ratios are to "contiguous", of
neighbouring turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from machine import keep, options, sized, summary
from torch import Tensor, nn

from alternas.archs import Genotype, Stage, Stem, build
from alternas.archs.blocks.layers import Projection
from alternas.spaces import get

WIDE = 16  # channels from which on the gradient is sound
BATCH = sized(64, 2)


def alone(conv: Projection, x_BCHW: Tensor) -> Tensor:
    """That conv alone out of channels_last."""
    weight = conv.weight.flatten().view(conv.weight.shape)  # a 1x1 weight keeps the strides of its layout otherwise
    return F.conv2d(x_BCHW.contiguous(), weight, stride=conv.stride).contiguous(memory_format=torch.channels_last)


def padded(conv: Projection, x_BCHW: Tensor) -> Tensor:
    """Zeros as further channels."""
    more = (0, 0, 0, 0, 0, max(0, WIDE - conv.in_channels))
    return F.conv2d(F.pad(x_BCHW, more), F.pad(conv.weight, more), stride=conv.stride)


WAYS: dict[str, tuple[torch.memory_format, Callable[[Projection, Tensor], Tensor] | None]] = {
    "contiguous": (torch.contiguous_format, lambda conv, x_BCHW: nn.Conv2d.forward(conv, x_BCHW)),
    "sliced": (torch.channels_last, None),
    "that conv contiguous": (torch.channels_last, alone),
    "padded": (torch.channels_last, padded),
}


def nets() -> dict[str, tuple[Genotype, int, int]]:
    """Genotype, side and channels of the images."""

    def resnet(width: int) -> Genotype:
        return Genotype(Stem("cifar", width), tuple(Stage("basic", 2, width * 2**i, 2 if i else 1) for i in range(3)))

    def alternet(width: int) -> Genotype:
        last = Stage("basic", 2, 4 * width, 2, msa=1, heads=4, head_dim=8)
        return Genotype(Stem("cifar", width), (*resnet(width).stages[:2], last))

    return {
        "digits' cheapest baseline, 8 px": (get("resnet", 8).baselines()[0], 8, 1),
        "ResNet of width 8, 32 px": (resnet(8), 32, 3),
        "ResNet of width 8, 64 px": (resnet(8), 64, 3),
        "AlterNet of width 8, 48 px": (alternet(8), 48, 3),
        "AlterNet of width 16, 48 px": (alternet(16), 48, 3),
    }


def step(net: Genotype, side: int, channels: int, way: str) -> Callable[[], float]:
    """A turn: seconds of a forward and backward pass."""
    torch.manual_seed(0)
    layout, forward = WAYS[way]
    model: Any = build(net, 10, side, channels).train()
    model.to(memory_format=layout)
    if forward is not None:
        for conv in model.modules():
            if isinstance(conv, Projection):
                conv.forward = forward.__get__(conv)
    x_BCHW = torch.randn(BATCH, channels, side, side).contiguous(memory_format=layout)

    def turn() -> float:
        begin = time.perf_counter()
        model(x_BCHW).square().mean().backward()
        return time.perf_counter() - begin

    return turn


def compare(net: Genotype, side: int, channels: int, repeats: int) -> dict[str, Any]:
    turns = {way: step(net, side, channels, way) for way in WAYS}
    ms: dict[str, list[float]] = {way: [] for way in WAYS}
    for repeat in range(repeats + 1):
        for way in list(WAYS) if repeat % 2 else list(WAYS)[::-1]:
            ms[way].append(1e3 * turns[way]())
    found: dict[str, Any] = {way: {"ms": summary(times[1:])} for way, times in ms.items()}  # the first turn warms up
    for way, times in ms.items():
        found[way]["of contiguous"] = summary([a / b for a, b in zip(times[1:], ms["contiguous"][1:], strict=True)])
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=sized(15, 1))
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    found = {name: compare(*net, asked.repeats) for name, net in nets().items()}
    keep(f"layouts_{asked.threads}", {"threads": asked.threads, "images": BATCH} | found)


if __name__ == "__main__":
    main()
