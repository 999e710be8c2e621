"""Forward plus backward on CPU: our networks beside timm's, and AlterNet-50 beside a plain reference.

    python benchmarks/models.py [--repeats 15]

The two of a pair take turns in one process, on one thread; times are CPU time of that thread, so other work on the
machine disturbs them little. Ratios are of neighbouring turns (quartiles) and of the fastest turns. Writes
benchmarks/results/models.json.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import timm
import torch
from machine import keep, options, sized, summary
from torch import Tensor, nn

from alternas.archs import build, zoo
from alternas.archs.blocks.attention import WindowAttention
from alternas.archs.timm import convert

ZOO = (
    "efficientnet_b0",
    "mobilenetv4_conv_small",
    "convnext_atto",
    "efficientvit_b1",
    "caformer_s18",
    "repvit_m1_1",
    "shvit_s1",
)


class PlainAttention(nn.Module):
    """Windowed attention as it is written down: q, k, v from three 1x1 convs, einsum, a gathered bias."""

    offsets: Tensor

    def __init__(self, ours: WindowAttention) -> None:
        super().__init__()
        self.heads, self.window = ours.heads, ours.window
        assert ours.qkv is not None
        assert ours.table is not None
        inner, dim = ours.qkv.out_features // 3, ours.qkv.in_features
        self.q, self.k, self.v = (nn.Conv2d(dim, inner, 1, bias=False) for _ in range(3))
        self.out = nn.Conv2d(inner, ours.out.out_features, 1)
        assert self.out.bias is not None
        self.table = nn.Parameter(ours.table.detach().clone())
        side = torch.arange(self.window[0] * self.window[1])
        row, column = side // self.window[1], side % self.window[1]
        down = row[None] - row[:, None] + self.window[0] - 1
        right = column[None] - column[:, None] + self.window[1] - 1
        self.register_buffer("offsets", torch.stack([down, right]))
        with torch.no_grad():
            for conv, weight in zip((self.q, self.k, self.v), ours.qkv.weight.chunk(3), strict=True):
                conv.weight.copy_(weight[:, :, None, None])
            self.out.weight.copy_(ours.out.weight[:, :, None, None])
            self.out.bias.copy_(ours.out.bias)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        (p, q), (batch, _, height, width) = self.window, x_BCHW.shape
        x = x_BCHW.reshape(batch, -1, height // p, p, width // q, q).permute(0, 2, 4, 1, 3, 5)
        x = x.reshape(-1, x_BCHW.shape[1], p, q)
        queries, keys, values = (
            conv(x).reshape(len(x), self.heads, -1, p * q).transpose(2, 3) for conv in (self.q, self.k, self.v)
        )
        scores = torch.einsum("whid,whjd->whij", queries, keys) * queries.shape[-1] ** -0.5
        scores = scores + self.table[self.offsets[0], self.offsets[1]]
        y = torch.einsum("whij,whjd->whid", scores.softmax(-1), values)
        y = self.out(y.transpose(2, 3).reshape(len(x), -1, p, q))
        y = y.reshape(batch, height // p, width // q, -1, p, q).permute(0, 3, 1, 4, 2, 5)
        return y.reshape(batch, -1, height, width)


def plain(network: nn.Module) -> nn.Module:
    """A copy with every windowed attention replaced by its plain form."""
    network = copy.deepcopy(network)
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, WindowAttention):
                setattr(module, name, PlainAttention(child))
    return network


def pairs() -> dict[str, tuple[nn.Module, nn.Module, tuple[int, ...]]]:
    """Ours, the other, and the shape of a batch."""
    resnet, vit = timm.create_model("resnet50"), timm.create_model("vit_small_patch16_224")
    alternet = build(zoo.get("alternet50", 32), 100, 32)
    others = {name: timm.create_model(zoo.ZOO[name].timm) for name in sized(ZOO, ZOO[-1:])}
    return {
        "resnet50, 224 px, batch 4": (convert(resnet), resnet, (sized(4, 2), 3, 224, 224)),
        "vit_small_patch16, 224 px, batch 4": (convert(vit), vit, (sized(4, 2), 3, 224, 224)),
        "alternet50, 32 px, batch 16": (alternet, plain(alternet), (sized(16, 2), 3, 32, 32)),
        **{
            f"{name}, 224 px, batch 4": (convert(other), other, (sized(4, 2), 3, 224, 224))
            for name, other in others.items()
        },
    }


def step(model: nn.Module, x_BCHW: Tensor) -> float:
    """CPU seconds of a forward and backward pass."""
    model.zero_grad(set_to_none=True)
    start = time.thread_time()
    model(x_BCHW).square().mean().backward()
    return time.thread_time() - start


def compare(ours: nn.Module, other: nn.Module, shape: tuple[int, ...], repeats: int) -> dict[str, Any]:
    x_BCHW = torch.randn(shape)
    with torch.no_grad():
        apart = (ours.eval()(x_BCHW[:2]) - other.eval()(x_BCHW[:2])).abs().max().item()
    turns: list[Callable[[], float]] = [lambda: step(ours.train(), x_BCHW), lambda: step(other.train(), x_BCHW)]
    times: list[list[float]] = [[], []]
    for repeat in range(repeats + 1):
        for i in (0, 1) if repeat % 2 else (1, 0):
            times[i].append(turns[i]())
    mine, theirs = times[0][1:], times[1][1:]  # the first turn warms up
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return {
        "ours_s": summary(mine),
        "other_s": summary(theirs),
        "ratio_of_turns": summary(ratios) | {"quartiles": statistics.quantiles(ratios, n=4) if repeats > 1 else ratios},
        "ratio_of_fastest": min(mine) / min(theirs),
        "max_abs_difference": apart,
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=sized(15, 1))
    repeats = parser.parse_args().repeats
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {}
    for name, (ours, other, shape) in pairs().items():
        found[name] = compare(ours, other, shape, repeats)
    keep("models", found)


if __name__ == "__main__":
    main()
