"""The registry's entries of SHViT's blocks, with single-head attention and without: cost, axes, look. Torch-free."""

from __future__ import annotations

from ..layout import Block, share_of
from .accumulator import CostAccumulator, size
from .axes import Axis
from .spec import BlockForm, BlockSpec, BlockStyle, Branch


class SingleHeadSizes(Block):
    """A block of SHViTs, with attention or without, and the patch merging before it."""

    query_dim = 16  # channels of queries and of keys, in nets of every size

    @property
    def part(self) -> int:
        """Channels that attend."""
        return share_of(self.c_out, self.option("part"))

    @property
    def qkv_channels(self) -> int:
        return 2 * self.query_dim + self.part

    @property
    def part_qkv(self) -> Axis:
        return Axis((self.qkv_channels,), runs=(self.query_dim, self.query_dim, self.part))

    @property
    def merged(self) -> int:
        """Inner channels of the patch merging."""
        return 4 * self.c_in

    @property
    def merged_squeezed(self) -> int:
        """Hidden channels of its squeeze-and-excitation: its input's, to the nearest multiple of 8."""
        return max(8, (self.c_in + 4) // 8 * 8)


def merging_cost(acc: CostAccumulator, b: SingleHeadSizes) -> None:
    """The patch merging before a block, where stride or width change."""
    if not b.projects:
        return
    x, y, wide = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.merged
    w_in, w = size(wide, b.map_in), size(wide, b.map_out)
    acc.conv(b.c_in, wide, 1, b.map_in)
    acc.depthwise(wide, 3, b.map_out)
    acc.conv(wide, b.merged_squeezed, 1, (1, 1), bias=True)
    acc.conv(b.merged_squeezed, wide, 1, (1, 1), bias=True)
    acc.conv(wide, b.c_out, 1, b.map_out)
    for channels in (wide, wide, b.c_out):
        acc.norm(channels)
    acc.keep(2 * w_in, 3 * w, 2 * y)
    acc.alive(0, x + 2 * w_in, w_in + 2 * w, 3 * w)


def conv_ffn(acc: CostAccumulator, b: SingleHeadSizes) -> None:
    y, h = size(b.c_out, b.map_out), size(b.hidden, b.map_out)
    acc.keep_input(size(b.c_in, b.map_in))
    merging_cost(acc, b)
    acc.depthwise(b.c_out, b.kernel, b.map_out)
    acc.conv(b.c_out, b.hidden, 1, b.map_out)
    acc.conv(b.hidden, b.c_out, 1, b.map_out)
    for channels in (b.c_out, b.hidden, b.c_out):
        acc.norm(channels)
    acc.keep(3 * y, 2 * h)
    acc.alive(y, 2 * y, 2 * h, h + y)


def single_head(acc: CostAccumulator, b: SingleHeadSizes) -> None:
    conv_ffn(acc, b)
    pixels, part, qkv = b.map_out[0] * b.map_out[1], b.part, b.qkv_channels
    y = size(b.c_out, b.map_out)
    acc.conv(part, qkv, 1, b.map_out)
    acc.add("attention", 0, pixels * pixels * (b.query_dim + part), pixels * part)
    acc.conv(b.c_out, b.c_out, 1, b.map_out)
    for channels in (part, qkv, b.c_out):
        acc.norm(channels)
    acc.keep(3 * y, pixels * (2 * part + 2 * qkv + 2 * b.query_dim), pixels * pixels)
    acc.alive(y, pixels * (qkv + 2 * b.query_dim + part) + 2 * pixels * pixels, 3 * y)


CONV_AXES = {
    "shortcut.0": "merged c_in 1 1",
    "shortcut.1": "merged",
    "shortcut.3": "merged 1 3 3",
    "shortcut.4": "merged",
    "shortcut.6.fc1": "merged_squeezed merged 1 1",
    "shortcut.6.fc2": "merged merged_squeezed 1 1",
    "shortcut.7": "c_out merged 1 1",
    "shortcut.8": "c_out",
    "conv.0": "c_out 1 kernel kernel",
    "conv.1": "c_out",
    "mlp.0": "hidden c_out 1 1",
    "mlp.1": "hidden",
    "mlp.3": "c_out hidden 1 1",
    "mlp.4": "c_out",
}

CONV_FFN = BlockSpec(
    "conv_ffn",
    BlockForm(".single_head:SingleHeadBlock", conv_ffn, CONV_AXES, scaled_by=("conv.1", "mlp.4")),
    sizes=SingleHeadSizes,
    options={"kernel": 3},
    branches=(Branch("conv", "conv", "mlp"), Branch("mlp", "mlp")),
    style=BlockStyle("J", "#009E73", "depthwise conv and FFN"),
)

SINGLE_HEAD = BlockSpec(
    "single_head",
    BlockForm(
        ".single_head:SingleHeadBlock",
        single_head,
        {
            **CONV_AXES,
            "attn.norm": "part",
            "attn.qkv.0": "part_qkv part 1 1",
            "attn.qkv.1": "part_qkv",
            "attn.proj.1": "c_out c_out 1 1",
            "attn.proj.2": "c_out",
        },
        scaled_by=("conv.1", "attn.proj.2", "mlp.4"),
    ),
    sizes=SingleHeadSizes,
    options={"kernel": 3, "part": 0.25},
    ignores=("heads", "head_dim", "window", "per_head"),
    strided=True,
    branches=(Branch("conv", "conv", "attn"), Branch("msa", "attn", "mlp"), Branch("mlp", "mlp")),
    style=BlockStyle("s", "#CC79A7", "single-head attention block"),
)
