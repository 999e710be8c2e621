"""The registry's entries of RepViT and RepVGG blocks: cost as trained and as shipped, axes, look. Torch-free."""

from __future__ import annotations

from functools import partial

from ..layout import Block, Map, share_of
from .accumulator import CostAccumulator, size
from .formulas import squeeze_cost
from .spec import BlockForm, BlockSpec, BlockStyle


class RepVitSizes(Block):
    """A RepViT block, with the MLP before its downsampling."""

    @property
    def inner_of_c_in(self) -> int:
        """Inner channels of that MLP."""
        return share_of(self.c_in, self.option("expand"))


def _conv(acc: CostAccumulator, c_in: int, c_out: int, kernel: int, at: Map, fused: bool) -> None:
    """A conv with BatchNorm, or with a bias instead."""
    acc.conv(c_in, c_out, kernel, at, bias=fused)
    if not fused:
        acc.norm(c_out)


def _mixer(acc: CostAccumulator, channels: int, kernel: int, at: Map, fused: bool) -> None:
    """Depthwise conv, depthwise 1x1 conv and identity, or one depthwise conv."""
    x = size(channels, at)
    _conv(acc, 1, channels, kernel, at, fused)
    if not fused:
        acc.depthwise(channels, 1, at, bias=True)
        acc.norm(channels)
    acc.keep_input(x)
    acc.keep(2 * x)
    acc.alive(x, x if fused else 3 * x)


def _mlp(acc: CostAccumulator, channels: int, hidden: int, at: Map, fused: bool) -> None:
    x, h = size(channels, at), size(hidden, at)
    _conv(acc, channels, hidden, 1, at, fused)
    _conv(acc, hidden, channels, 1, at, fused)
    acc.keep(x, 3 * h, x)
    acc.alive(x, 2 * h, h + x, 2 * x)


def repvit(acc: CostAccumulator, b: RepVitSizes, fused: bool = False) -> None:
    _mixer(acc, b.c_in, b.kernel, b.map_in, fused)
    if b.reshapes:
        _mlp(acc, b.c_in, b.inner_of_c_in, b.map_in, fused)
        _conv(acc, 1, b.c_in, b.kernel, b.map_out, fused)
        _conv(acc, b.c_in, b.c_out, 1, b.map_out, fused)
        between = size(b.c_in, b.map_out)
        acc.keep(size(b.c_in, b.map_in), 2 * between, size(b.c_out, b.map_out))
    elif b.squeezed:
        squeeze_cost(acc, b, b.c_out)
        acc.keep(size(b.c_out, b.map_out))
    _mlp(acc, b.c_out, b.inner, b.map_out, fused)


def _mlp_axes(name: str, channels: str, hidden: str) -> dict[str, str]:
    return {
        f"{name}.0.conv": f"{hidden} {channels} 1 1",
        f"{name}.0.norm": hidden,
        f"{name}.2.conv": f"{channels} {hidden} 1 1",
        f"{name}.2.norm": channels,
    }


REPVIT = BlockSpec(
    "repvit",
    BlockForm(
        ".reparam:RepVit",
        repvit,
        {
            "token_mixer.conv.conv": "c_in 1 kernel kernel",
            "token_mixer.conv.norm": "c_in",
            "token_mixer.pointwise": "c_in 1 1 1",
            "token_mixer.norm": "c_in",
            "se.fc1": "squeezed c_out 1 1",
            "se.fc2": "c_out squeezed 1 1",
            **_mlp_axes("mlp", "c_in", "inner_of_c_in"),
            "down.0.conv": "c_in 1 kernel kernel",
            "down.0.norm": "c_in",
            "down.1.conv": "c_out c_in 1 1",
            "down.1.norm": "c_out",
            **_mlp_axes("channel_mixer", "c_out", "inner"),
        },
        scaled_by=("token_mixer.conv.norm", "token_mixer.pointwise", "channel_mixer.2.norm"),
        fused_cost=partial(repvit, fused=True),
    ),
    sizes=RepVitSizes,
    options={"kernel": 3, "expand": 2.0, "se": 0.0},
    style=BlockStyle("R", "#D55E00", "RepViT block"),
)


def repvgg(acc: CostAccumulator, b: Block, fused: bool = False) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    _conv(acc, b.c_in, b.c_out, 3, b.map_out, fused)
    if not fused:
        _conv(acc, b.c_in, b.c_out, 1, b.map_out, fused)
        if not b.reshapes:
            acc.norm(b.c_out)
    acc.keep_input(x)
    acc.keep(3 * y)
    acc.input_kept = True
    acc.alive(x, y if fused else 3 * y)


REPVGG = BlockSpec(
    "repvgg",
    BlockForm(
        ".reparam:RepVgg",
        repvgg,
        {
            "identity": "c_out",
            "conv.conv": "c_out c_in 3 3",
            "conv.norm": "c_out",
            "pointwise.conv": "c_out c_in 1 1",
            "pointwise.norm": "c_out",
        },
        scaled_by=("conv.norm", "pointwise.norm"),
        fused_cost=partial(repvgg, fused=True),
    ),
    projected=False,
    style=BlockStyle("V", "#E69F00", "RepVGG block"),
)
