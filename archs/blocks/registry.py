"""The registry of residual blocks: for each kind its cost in closed form and its entry. Torch-free.

A new block is its nn.Module in a file of this folder, and its formula and its `BlockSpec` here.
"""

from __future__ import annotations

from ..layout import Block
from ..stage import CONV_EXPANSION, squeezed
from .cost import CostAccumulator, size
from .spec import BLOCKS, BlockForm, BlockSpec, BlockStyle, Branch


def pre_basic(tally: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _pre_ends(tally, b)
    tally.conv(b.c_in, b.width, 3, b.map_out)
    tally.norm(b.width)
    tally.conv(b.width, b.c_out, 3, b.map_out)
    tally.keep(w, w)
    tally.alive(2 * x + skip, x, 2 * w, w + y, 2 * y)


def pre_bottleneck(tally: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = _pre_ends(tally, b)
    _bottleneck_convs(tally, b)
    tally.norm(b.width)
    tally.norm(b.width)
    tally.keep(w_in, w_in, w, w)
    tally.alive(2 * x + skip, x, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def post_basic(tally: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _post_ends(tally, b)
    tally.conv(b.c_in, b.width, 3, b.map_out)
    tally.norm(b.width)
    tally.conv(b.width, b.c_out, 3, b.map_out)
    tally.norm(b.c_out)
    tally.keep(w, w, y)
    tally.alive(x + skip, 2 * w, w + y, 2 * y)


def post_bottleneck(tally: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = _post_ends(tally, b)
    _bottleneck_convs(tally, b)
    for channels in (b.width, b.width, b.c_out):
        tally.norm(channels)
    tally.keep(w_in, w_in, w, w, y)
    tally.alive(x + skip, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def msa(tally: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _pre_ends(tally, b)
    tally.conv(b.c_in, b.width, 1, b.map_out)
    tally.norm(b.width)
    tally.keep(x, w)  # GELU keeps its input, ReLU would keep its output
    inner = window_attention(tally, b, b.width)
    tally.alive(2 * x + skip, x, 2 * w + inner, w + 2 * y, 2 * y)


def msa_a(tally: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    tally.keep_input(x)
    skip = 0
    if b.projects:
        tally.conv(b.c_in, b.c_out, 1, b.map_out)
        tally.norm(b.c_out)
        tally.keep(y)
        skip = y
    tally.conv(b.c_in, b.width, 1, b.map_out)
    tally.norm(b.width)
    tally.norm(b.c_out)
    tally.keep(w, w, y)
    inner = window_attention(tally, b, b.width)
    tally.alive(x + skip, 2 * w + inner, w + 2 * y, 2 * y)


def mbconv(tally: CostAccumulator, b: Block) -> None:
    x, y, inner = size(b.c_in, b.map_in), size(b.c_out, b.map_out), CONV_EXPANSION * b.c_out
    w_in, w = size(inner, b.map_in), size(inner, b.map_out)
    skip = _modern_skip(tally, b)
    for channels in (b.c_in, inner, inner):
        tally.norm(channels)
    tally.conv(b.c_in, inner, 1, b.map_in)
    tally.depthwise(inner, 3, b.map_out)
    tally.conv(inner, squeezed(b.c_out), 1, (1, 1), bias=True)
    tally.conv(squeezed(b.c_out), inner, 1, (1, 1), bias=True)
    tally.conv(inner, b.c_out, 1, b.map_out, bias=True)
    tally.keep_input(x)
    tally.keep(x, 3 * w_in, 4 * w)
    tally.alive(x + skip, x + w_in, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def convnext(tally: CostAccumulator, b: Block) -> None:
    x, y, hidden = size(b.c_in, b.map_in), size(b.c_out, b.map_out), CONV_EXPANSION * b.c_out
    w, h = size(b.c_in, b.map_out), size(hidden, b.map_out)
    skip = _modern_skip(tally, b)
    tally.depthwise(b.c_in, 7, b.map_out, bias=True)
    tally.norm(b.c_in)
    tally.conv(b.c_in, hidden, 1, b.map_out, bias=True)
    tally.conv(hidden, b.c_out, 1, b.map_out, bias=True)
    tally.keep_input(x)
    tally.keep(2 * w, 2 * h)
    tally.alive(x + skip, 2 * w, w + h, 2 * h, h + y, 2 * y)


def transformer(tally: CostAccumulator, b: Block) -> None:
    x, y, h = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.stage.hidden, b.map_out)
    skip = _modern_skip(tally, b)
    tally.norm(b.c_in)
    tally.keep_input(x)
    inner = window_attention(tally, b, b.c_in)
    tally.norm(b.c_out)
    tally.conv(b.c_out, b.stage.hidden, 1, b.map_out, bias=True)
    tally.conv(b.stage.hidden, b.c_out, 1, b.map_out, bias=True)
    tally.keep(2 * y, 2 * h)
    tally.alive(x + skip, 2 * x + inner, x + 2 * y, 2 * y + h, y + 2 * h)


def window_attention(tally: CostAccumulator, b: Block, dim: int) -> int:
    """Projections, products and table of attention on a map of `dim` channels; elements of q, k, v and the result."""
    (height, width), pixels = b.window, b.map_out[0] * b.map_out[1]
    inner, tables = b.stage.heads * b.stage.head_dim, b.stage.heads if b.stage.per_head else 1
    tally.linear(dim, 3 * inner, pixels, bias=False)
    tally.attention(pixels, height * width, inner)
    tally.add("position", tables * (2 * height - 1) * (2 * width - 1))
    tally.linear(inner, b.c_out, pixels)
    qkv, logits = 3 * inner * pixels, b.stage.heads * pixels * height * width
    # Kept: the windows, q and k once more scaled, v, the weights, what the output layer takes.
    tally.keep(dim * pixels, qkv, logits, inner * pixels)
    return qkv + 2 * inner * pixels


def _pre_ends(tally: CostAccumulator, b: Block) -> int:
    """First norm and shortcut of a pre-activation block; elements of a projected shortcut."""
    x = size(b.c_in, b.map_in)
    tally.norm(b.c_in)
    tally.keep_input(x)
    tally.keep(x)
    if not b.projects:
        return 0
    tally.conv(b.c_in, b.c_out, 1, b.map_out)
    return size(b.c_out, b.map_out)


def _post_ends(tally: CostAccumulator, b: Block) -> int:
    """Shortcut and last ReLU of a post-activation block, whose output the next block need not keep."""
    y = size(b.c_out, b.map_out)
    tally.keep_input(size(b.c_in, b.map_in))
    tally.keep(y)
    tally.input_kept = True
    if not b.projects:
        return 0
    tally.conv(b.c_in, b.c_out, 1, b.map_out)
    tally.norm(b.c_out)
    tally.keep(y)
    return y


def _modern_skip(tally: CostAccumulator, b: Block) -> int:
    if not b.projects:
        return 0
    tally.conv(b.c_in, b.c_out, 1, b.map_out)
    return size(b.c_out, b.map_out)


def _bottleneck_convs(tally: CostAccumulator, b: Block) -> None:
    tally.conv(b.c_in, b.width, 1, b.map_in)
    tally.conv(b.width, b.width, 3, b.map_out)
    tally.conv(b.width, b.c_out, 1, b.map_out)


BASIC = BlockSpec(
    "basic",
    BlockForm(".residual:PreBasic", pre_basic, ("conv2",), ("norm2",), norms_input=True),
    BlockForm(".residual:PostBasic", post_basic, ("norm2",)),
    style=BlockStyle("C", "#0072B2", "basic conv block"),
)
BOTTLENECK = BlockSpec(
    "bottleneck",
    BlockForm(".residual:PreBottleneck", pre_bottleneck, ("conv3",), ("norm3",), norms_input=True),
    BlockForm(".residual:PostBottleneck", post_bottleneck, ("norm3",)),
    expansion=4,
    style=BlockStyle("B", "#0072B2", "bottleneck conv block"),
)
MBCONV = BlockSpec(
    "mbconv",
    BlockForm(".modern:MBConv", mbconv, ("conv3",), norms_input=True),
    modern=True,
    style=BlockStyle("M", "#009E73", "MBConv block"),
    searched=True,
)
CONVNEXT = BlockSpec(
    "convnext",
    BlockForm(".modern:ConvNeXt", convnext, ("mlp.fc2",)),
    modern=True,
    style=BlockStyle("N", "#56B4E9", "ConvNeXt block"),
    searched=True,
)
MSA = BlockSpec(
    "msa",
    BlockForm(".residual:MsaBlock", msa, ("attn.out",), norms_input=True),
    inner_of_input=True,
    branches=(Branch("msa"),),
    style=BlockStyle("A", "#D55E00", "MSA block"),
    searched=True,
)
MSA_A = BlockSpec(
    "msa_a",
    BlockForm(".residual:PostMsaBlock", msa_a, ("norm2",)),
    inner_of_input=True,
    branches=(Branch("msa"),),
    style=BlockStyle("a", "#D55E00", "MSA block, variant A"),
)
TRANSFORMER = BlockSpec(
    "transformer",
    BlockForm(".modern:TransformerBlock2d", transformer, ("attn.out", "mlp.fc2"), norms_input=True),
    modern=True,
    branches=(Branch("msa", "attn", "norm2"), Branch("mlp", "mlp")),
    style=BlockStyle("T", "#CC79A7", "transformer layer (MSA, MLP)"),
    searched=True,
)
ENTRIES = (BASIC, BOTTLENECK, MBCONV, CONVNEXT, MSA, MSA_A, TRANSFORMER)  # in the order of lists and legends
BLOCKS.update((spec.name, spec) for spec in ENTRIES)
