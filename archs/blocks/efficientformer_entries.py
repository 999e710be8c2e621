"""The registry's entries of EfficientFormerV2 blocks: cost, axes, look of each. Torch-free."""

from __future__ import annotations

from ..layout import Block, Map, shrink
from .accumulator import CostAccumulator, size
from .formulas import scale_cost
from .spec import BlockForm, BlockSpec, BlockStyle, Branch


class DistanceSizes(Block):
    """Attention whose values have more channels than its keys, with a bias for each distance in rows and columns."""

    @property
    def value_dim(self) -> int:
        return 4 * self.stage.head_dim

    @property
    def value_channels(self) -> int:
        return self.stage.heads * self.value_dim

    @property
    def distances(self) -> Map:
        """Sides of the table: those of the map of keys."""
        if "attention_stride" in self.spec.options:
            return shrink(self.map_out, max(1, self.option("attention_stride")))
        return self.map_in

    @property
    def distance_rows(self) -> int:
        return self.distances[0]

    @property
    def distance_columns(self) -> int:
        return self.distances[1]


def conv_with_norm(acc: CostAccumulator, c_in: int, c_out: int, kernel: int, at: Map) -> None:
    acc.conv(c_in, c_out, kernel, at, bias=True)
    acc.norm(c_out)


def downsampling_cost(acc: CostAccumulator, b: Block) -> None:
    """The conv that changes the shape, and what the layers after it keep."""
    acc.keep_input(size(b.c_in, b.map_in))
    if b.projects:
        conv_with_norm(acc, b.c_in, b.c_out, 3, b.map_out)
        x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
        acc.keep(y)
        acc.alive(0, x + 2 * y)


def mlp_cost(acc: CostAccumulator, b: Block, hidden: int) -> None:
    """Add the feed-forward network; its input is counted before."""
    y, h = size(b.c_out, b.map_out), size(hidden, b.map_out)
    conv_with_norm(acc, b.c_out, hidden, 1, b.map_out)
    conv_with_norm(acc, 1, hidden, b.kernel, b.map_out)
    conv_with_norm(acc, hidden, b.c_out, 1, b.map_out)
    acc.keep(6 * h, y)
    scale_cost(acc, b)
    acc.alive(y, 3 * h)


def conv_block(acc: CostAccumulator, b: Block) -> None:
    downsampling_cost(acc, b)
    acc.keep(size(b.c_out, b.map_out) * b.projects)
    mlp_cost(acc, b, b.inner)


def products(acc: CostAccumulator, b: DistanceSizes, queries: int) -> int:
    """Products with keys and values, and the table; elements of the logits."""
    heads, keys = b.stage.heads, b.distances[0] * b.distances[1]
    acc.add("attention", 0, queries * keys * (b.head_channels + b.value_channels), queries * b.value_channels)
    acc.add("position", heads * keys)
    return heads * queries * keys


def talking_cost(acc: CostAccumulator, b: DistanceSizes) -> None:
    at, heads, stride = b.distances, b.stage.heads, b.option("attention_stride")
    pixels = at[0] * at[1]
    y, x, wide = size(b.c_out, b.map_out), size(b.c_out, at), size(b.value_channels, b.map_out)
    if stride:
        conv_with_norm(acc, 1, b.c_out, 3, at)
        acc.keep(2 * x)
    for channels in (b.head_channels, b.head_channels, b.value_channels):
        conv_with_norm(acc, b.c_out, channels, 1, at)
    conv_with_norm(acc, 1, b.value_channels, 3, at)
    logits = products(acc, b, pixels)
    for _ in range(2):
        acc.conv(heads, heads, 1, (pixels, pixels), bias=True)
    conv_with_norm(acc, b.value_channels, b.c_out, 1, b.map_out)
    qk, v = 2 * b.head_channels * pixels, b.value_channels * pixels
    acc.keep(2 * qk, 3 * v, 3 * logits, 2 * wide, y)
    scale_cost(acc, b)
    acc.alive(y + (x if stride else 0), v + qk + 2 * logits, 3 * v + logits, v + wide, 2 * wide, wide + y)


def attention_block(acc: CostAccumulator, b: DistanceSizes) -> None:
    downsampling_cost(acc, b)
    acc.keep(size(b.c_out, b.map_out) * b.projects)
    talking_cost(acc, b)
    acc.keep(size(b.c_out, b.map_out))
    mlp_cost(acc, b, b.hidden)


def attention_downsampling(acc: CostAccumulator, b: DistanceSizes) -> None:
    downsampling_cost(acc, b)
    keys, queries = b.map_in[0] * b.map_in[1], b.map_out[0] * b.map_out[1]
    acc.depthwise(b.c_in, 3, b.map_out, bias=True)
    conv_with_norm(acc, b.c_in, b.head_channels, 1, b.map_out)
    conv_with_norm(acc, b.c_in, b.head_channels, 1, b.map_in)
    conv_with_norm(acc, b.c_in, b.value_channels, 1, b.map_in)
    conv_with_norm(acc, 1, b.value_channels, 3, b.map_out)
    logits = products(acc, b, queries)
    conv_with_norm(acc, b.value_channels, b.c_out, 1, b.map_out)
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.value_channels * queries
    qk, v = b.head_channels * (queries + keys), b.value_channels * keys
    acc.keep(size(b.c_in, b.map_out), 2 * qk, 2 * v, 3 * w, logits, y)
    acc.alive(x + y, 2 * v, v + qk + 2 * logits, v + 2 * w + logits, 2 * w, w + y)


DOWN = {"down.0": "c_out c_in 3 3", "down.1": "c_out"}
SCALED = {"layer_scale": 1e-5}


def mlp_axes(hidden: str) -> dict[str, str]:
    """Axes of the feed-forward network, whose inner channels are of that name."""
    convs = {"fc1.0": f"{hidden} c_out 1 1", "mid.0": f"{hidden} 1 kernel kernel", "fc2.0": f"c_out {hidden} 1 1"}
    return {f"mlp.{name}": axes for name, axes in convs.items()} | {
        "mlp.fc1.1": hidden,
        "mlp.mid.1": hidden,
        "mlp.fc2.1": "c_out",
    }


def attention_axes(channels: str) -> dict[str, str]:
    """Axes that both attentions have, of an input with these channels."""
    return {
        "attn.table": "heads distance_rows distance_columns",
        "attn.k.0": f"heads*head_dim {channels} 1 1",
        "attn.k.1": "heads*head_dim",
        "attn.v.0": f"heads*value_dim {channels} 1 1",
        "attn.v.1": "heads*value_dim",
        "attn.local.0": "heads*value_dim 1 3 3",
        "attn.local.1": "heads*value_dim",
        "attn.proj.0": "c_out heads*value_dim 1 1",
        "attn.proj.1": "c_out",
    }


EFFICIENTFORMER = BlockSpec(
    "efficientformer",
    BlockForm(
        ".efficientformer:EfficientFormerConv",
        conv_block,
        DOWN | mlp_axes("inner") | {"scale": "c_out"},
        scaled_by=("mlp.fc2.1",),
    ),
    options={"kernel": 3, "expand": 4.0, **SCALED},
    style=BlockStyle("f", "#117733", "EfficientFormerV2 feed-forward block"),
)

EFFICIENTFORMER_ATTENTION = BlockSpec(
    "efficientformer_attention",
    BlockForm(
        ".efficientformer:EfficientFormerAttention",
        attention_block,
        {
            **DOWN,
            **attention_axes("c_out"),
            "attn.reduce.0": "c_out 1 3 3",
            "attn.reduce.1": "c_out",
            "attn.q.0": "heads*head_dim c_out 1 1",
            "attn.q.1": "heads*head_dim",
            "attn.talk1": "heads heads 1 1",
            "attn.talk2": "heads heads 1 1",
            "scale1": "c_out",
            **mlp_axes("hidden"),
            "scale2": "c_out",
        },
        scaled_by=("attn.proj.1", "mlp.fc2.1"),
        queries={"attn.q.1": 0.5},
    ),
    options={"kernel": 3, "attention_stride": 0, **SCALED},
    sizes=DistanceSizes,
    ignores=("window", "per_head"),
    strided=True,
    branches=(Branch("msa", "scale1", "mlp"), Branch("mlp", "scale2")),
    style=BlockStyle("E", "#AA4499", "EfficientFormerV2 attention block"),
)

EFFICIENTFORMER_DOWN = BlockSpec(
    "efficientformer_down",
    BlockForm(
        ".efficientformer:EfficientFormerDown",
        attention_downsampling,
        {
            "shortcut.0": "c_out c_in 3 3",
            "shortcut.1": "c_out",
            **attention_axes("c_in"),
            "attn.q.local": "c_in 1 3 3",
            "attn.q.proj.0": "heads*head_dim c_in 1 1",
            "attn.q.proj.1": "heads*head_dim",
        },
        scaled_by=("attn.proj.1",),
        queries={"attn.q.proj.1": 0.5},
    ),
    sizes=DistanceSizes,
    ignores=("window", "per_head"),
    strided=True,
    branches=(Branch("msa"),),
    style=BlockStyle("d", "#882255", "EfficientFormerV2 attention downsampling"),
)
