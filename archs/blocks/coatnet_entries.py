"""The registry's entries of CoAtNet blocks: cost, axes, look of each. Torch-free."""

from __future__ import annotations

from ..layout import Block, share_of
from .accumulator import CostAccumulator, size
from .formulas import MLP, SQUEEZE, squeeze_cost
from .spec import BlockForm, BlockSpec, BlockStyle, Branch

POOLED_SHORTCUT = {"shortcut.1": "c_out c_in 1 1"}


class ConvSizes(Block):
    """MBConv whose ratios are over its input's and its inner channels."""

    @property
    def inner(self) -> int:
        return share_of(self.c_in, self.option("expand"))

    @property
    def squeezed(self) -> int:
        return share_of(self.inner, self.option("se")) if self.option("se") else 0


def pooled(acc: CostAccumulator, b: Block) -> int:
    """The shortcut, and the pool of the branch; elements of what both pools give."""
    small = size(b.c_in, b.map_out) if b.stride > 1 else 0
    if b.c_in != b.c_out:
        acc.conv(b.c_in, b.c_out, 1, b.map_out)
        acc.keep(small)
    acc.keep(small)
    return small


def mbconv_pooled(acc: CostAccumulator, b: Block) -> None:
    x, y, w, inner = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.inner, b.map_out), b.inner
    small = pooled(acc, b)
    for channels in (b.c_in, inner, inner):
        acc.norm(channels)
    acc.conv(b.c_in, inner, 1, b.map_out)
    acc.depthwise(inner, b.kernel, b.map_out)
    squeeze_cost(acc, b, inner)
    acc.conv(inner, b.c_out, 1, b.map_out)
    acc.keep_input(x)
    acc.keep(2 * x, (7 if b.squeezed else 6) * w)
    acc.alive(x, 2 * x, small + 2 * w, 3 * w if b.squeezed else 2 * w, w + y, 2 * y + small)


def relative_attention(acc: CostAccumulator, b: Block) -> None:
    x, y, h = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.hidden, b.map_out)
    (height, width), inner = b.map_out, size(b.head_channels, b.map_out)
    small, pixels = pooled(acc, b), height * width
    acc.norm(b.c_in)
    acc.conv(b.c_in, 3 * b.head_channels, 1, b.map_out, bias=True)
    acc.attention(pixels, pixels, b.head_channels)
    acc.add("position", b.stage.heads * (2 * height - 1) * (2 * width - 1))
    acc.conv(b.head_channels, b.c_out, 1, b.map_out, bias=True)
    acc.norm(b.c_out)
    acc.conv(b.c_out, b.hidden, 1, b.map_out, bias=True)
    acc.conv(b.hidden, b.c_out, 1, b.map_out, bias=True)
    acc.keep_input(x)
    acc.keep(x, 4 * inner, b.stage.heads * pixels * pixels, 2 * y, 2 * h)
    acc.alive(x, small + 6 * inner, y + inner, 2 * y + h, y + 2 * h)


COATNET_MBCONV = BlockSpec(
    "coatnet_mbconv",
    BlockForm(
        ".coatnet:CoAtNetConv",
        mbconv_pooled,
        {
            **POOLED_SHORTCUT,
            "norm1": "c_in",
            "conv1": "inner c_in 1 1",
            "norm2": "inner",
            "conv2": "inner 1 kernel kernel",
            **SQUEEZE,
            "norm3": "inner",
            "conv3": "c_out inner 1 1",
        },
        scaled_by=("conv3",),
        norms_input=True,
    ),
    sizes=ConvSizes,
    options={"kernel": 3, "expand": 4.0, "se": 0.25},
    style=BlockStyle("m", "#44AA99", "CoAtNet MBConv block"),
)

COATNET = BlockSpec(
    "coatnet",
    BlockForm(
        ".coatnet:CoAtNetAttention",
        relative_attention,
        {
            **POOLED_SHORTCUT,
            "norm1": "c_in",
            "qkv": "heads*3*head_dim c_in 1 1",
            "attn.table": "heads rows columns",
            "proj": "c_out heads*head_dim 1 1",
            "norm2": "c_out",
            **MLP,
        },
        scaled_by=("proj", "mlp.fc2"),
        queries={"qkv": 0.5},
        norms_input=True,
    ),
    ignores=("window", "per_head"),
    strided=True,
    branches=(Branch("msa", "proj", "norm2"), Branch("mlp", "mlp")),
    style=BlockStyle("O", "#CC6677", "CoAtNet attention block (MSA, MLP)"),
)
