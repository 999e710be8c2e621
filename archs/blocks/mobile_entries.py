"""The registry's entries of inverted bottlenecks, mobile attention and plain convs: cost, axes, look. Torch-free."""

from typing import Any

from ..errors import InputError
from ..layout import Block, shrink
from .accumulator import CostAccumulator, size
from .formulas import SQUEEZE, scale_cost, squeeze_cost
from .spec import BlockForm, BlockSpec, BlockStyle, Branch

KEPT_BY_OUTPUT = ("relu", "tanh")  # activations whose gradient needs their output, which the next layer keeps anyway


def divisible(channels: float) -> int:
    """The nearest multiple of 8, at least 8 and not below 0.9 of `channels`, as MobileNets and EfficientNets round."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


class BottleneckSizes(Block):
    """An inverted bottleneck: its ratios are over its input's channels."""

    @property
    def expands(self) -> bool:
        """Whether it has an expansion: with a ratio of 1 its depthwise conv stands alone."""
        return self.option("expand") != 1 or self.option("fused") or not self.kernel

    @property
    def inner(self) -> int:
        return divisible(self.c_in * self.option("expand")) if self.expands else self.c_in

    @property
    def squeezed(self) -> int:
        return max(1, round(self.c_in * self.option("se"))) if self.option("se") else 0


def check_uib(place: str, stage: Any) -> None:
    kernel, start = (stage.option("uib", name) for name in ("kernel", "start_kernel"))
    if stage.stride != 1 and not kernel and not start:
        rule = "a uib block strides in a depthwise conv: kernel or start_kernel must not be 0"
        raise InputError(f"{place}: {rule}, got both 0 with stride {stage.stride}")
    if stage.option("uib", "fused") and not kernel:
        raise InputError(f"{place}: a fused uib block is a conv of its kernel, got kernel 0")


def uib(acc: CostAccumulator, b: BottleneckSizes) -> None:
    kernel, start, inner, normed = b.kernel, b.option("start_kernel"), b.inner, not b.option("fewer_norms")
    at = b.map_in if kernel else b.map_out
    x, e, w, y = size(b.c_in, b.map_in), size(inner, at), size(inner, b.map_out), size(b.c_out, b.map_out)
    active = 1 + normed + (b.option("act") not in KEPT_BY_OUTPUT)
    largest = max(w, y)
    acc.keep_input(x)
    if start:
        s = size(b.c_in, at)
        largest = max(largest, s)
        acc.depthwise(b.c_in, start, at, bias=not normed)
        acc.norm(b.c_in * normed)
        acc.keep((1 + normed) * s)
    if b.option("fused"):
        acc.conv(b.c_in, inner, kernel, b.map_out, bias=not normed)
        acc.norm(inner * normed)
        acc.keep(active * w)
    else:
        if b.expands:
            largest = max(largest, e)
            acc.conv(b.c_in, inner, 1, at, bias=not normed)
            acc.norm(inner * normed)
            acc.keep(active * e)
        if kernel:
            acc.depthwise(inner, kernel, b.map_out, bias=not normed)
            acc.norm(inner * normed)
            acc.keep(active * w)
    if b.squeezed:
        squeeze_cost(acc, b, inner)
        acc.keep(w)
    acc.conv(inner, b.c_out, 1, b.map_out)
    acc.norm(b.c_out)
    acc.keep(y)
    scale_cost(acc, b)
    acc.alive(x, 2 * largest)


UIB = BlockSpec(
    "uib",
    BlockForm(
        ".mobile:UniversalInvertedBottleneck",
        uib,
        {
            "start": "c_in 1 start_kernel start_kernel",
            "start_norm": "c_in",
            "fused": "inner c_in kernel kernel",
            "fused_norm": "inner",
            "expand": "inner c_in 1 1",
            "expand_norm": "inner",
            "middle": "inner 1 kernel kernel",
            "middle_norm": "inner",
            **SQUEEZE,
            "project": "c_out inner 1 1",
            "project_norm": "c_out",
            "layer_scale": "c_out",
        },
        scaled_by=("project_norm",),
    ),
    sizes=BottleneckSizes,
    options={
        "kernel": 3,
        "expand": 4.0,
        "se": 0.0,
        "fused": False,
        "act": "relu",
        "start_kernel": 0,
        "layer_scale": 0.0,
        "fewer_norms": False,
    },
    optional=("kernel",),
    check=check_uib,
    projected=False,
    style=BlockStyle("U", "#8C6D31", "inverted bottleneck"),
    searched=True,
    prior=1.36,
)


def plain_conv(acc: CostAccumulator, b: Block) -> None:
    y, by_output = size(b.c_out, b.map_out), b.option("act") in KEPT_BY_OUTPUT
    acc.conv(b.c_in, b.c_out, b.kernel, b.map_out)
    acc.norm(b.c_out)
    acc.keep_input(size(b.c_in, b.map_in))
    acc.keep(2 * y)
    acc.input_kept = by_output
    acc.alive(size(b.c_in, b.map_in), 2 * y)


CONV = BlockSpec(
    "conv",
    BlockForm(".mobile:PlainConv", plain_conv, {"conv": "c_out c_in kernel kernel", "norm": "c_out"}),
    options={"kernel": 3, "act": "relu"},
    branches=(),
    style=BlockStyle("K", "#B0B7C3", "conv"),
)


def mobile_attention(acc: CostAccumulator, b: Block) -> None:
    stride, dim, inner = b.option("kv_stride"), b.stage.head_dim, b.head_channels
    at = shrink(b.map_out, stride)
    pixels, keys = b.map_out[0] * b.map_out[1], at[0] * at[1]
    x, y, q, k = size(b.c_in, b.map_in), size(b.c_out, b.map_out), inner * pixels, dim * keys
    acc.norm(b.c_in)
    acc.keep_input(x)
    acc.conv(b.c_in, inner, 1, b.map_out)
    down = 0
    for _ in range(2):
        if stride > 1:
            down = size(b.c_in, at)
            acc.depthwise(b.c_in, 3, at)
            acc.norm(b.c_in)
            acc.keep(2 * down)
        acc.conv(b.c_in, dim, 1, at)
    acc.attention(pixels, keys, inner)
    acc.conv(inner, b.c_out, 1, b.map_out)
    acc.keep(x, 2 * q, 2 * k, b.stage.heads * pixels * keys)
    scale_cost(acc, b)
    acc.alive(x, x + q + k + 2 * down, x + 4 * q + 2 * k, x + q + y, 2 * y)


MQA = BlockSpec(
    "mqa",
    BlockForm(
        ".mobile:MobileAttention",
        mobile_attention,
        {
            "norm": "c_in",
            "attn.query": "heads*head_dim c_in 1 1",
            **{
                f"attn.{part}.{layer}": axes
                for part in ("key", "value")
                for layer, axes in (("down", "c_in 1 3 3"), ("norm", "c_in"), ("proj", "head_dim c_in 1 1"))
            },
            "attn.out": "c_out heads*head_dim 1 1",
            "layer_scale": "c_out",
        },
        scaled_by=("attn.out",),
        queries={"attn.query": 0.5},
    ),
    options={"kv_stride": 1, "layer_scale": 0.0},
    ignores=("window", "per_head", "mlp_ratio"),
    projected=False,
    branches=(Branch("msa"),),
    style=BlockStyle("Q", "#AA4499", "mobile attention"),
)
