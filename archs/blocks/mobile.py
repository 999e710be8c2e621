"""Blocks of MobileNets and EfficientNets: inverted bottlenecks, mobile attention, convs without a shortcut.

Post-norm: a BatchNorm follows each conv, no activation after the projection, whose output is raw. Shortcuts
are identities, where stride and width stay; there is none elsewhere.
"""

import torch.nn.functional as F
from timm.layers.activations import HardSigmoid
from timm.layers.layer_scale import LayerScale2d
from timm.layers.squeeze_excite import SqueezeExcite
from torch import Tensor, nn

from ..layout import Block
from .layers import act, conv_norm
from .mobile_entries import BottleneckSizes


class InOrder(nn.Module):
    """Its children one after the other, and a shortcut where the last one is a `drop_path`."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = x_BCHW
        for layer in self.children():
            y_BCHW = layer(y_BCHW)
        return x_BCHW + y_BCHW if hasattr(self, "drop_path") else y_BCHW


class UniversalInvertedBottleneck(InOrder):
    """Depthwise conv or none, 1x1 expansion, depthwise conv or none, squeeze-and-excitation or none, 1x1 projection.

    With the second depthwise conv it is MBConv (MobileNetV2, Sandler et al., CVPR 2018; MobileNetV3, Howard et al.,
    ICCV 2019; EfficientNet, Tan & Le, ICML 2019), with an expansion of 1 their depthwise separable conv, with the first
    one much of a ConvNeXt block, with both "extra depthwise", with neither a feed-forward layer (MobileNetV4, Qin et
    al., ECCV 2024). Fused, expansion and second depthwise conv are one full conv (EfficientNetV2, Tan & Le, ICML 2021).
    With fewer norms all convs but the last have biases instead (EfficientViT, Cai et al., ICCV 2023). The stride is
    the second one's, without it the first one's. timm _efficientnet_blocks.py, efficientvit_mit.py.
    """

    def __init__(self, b: BottleneckSizes) -> None:
        super().__init__()
        kernel, start, inner, active = b.kernel, b.option("start_kernel"), b.inner, b.option("act")
        self.fewer_norms = b.option("fewer_norms")
        if start:
            self.add("start", b.c_in, b.c_in, start, 1 if kernel else b.stride, b.c_in)
        if b.option("fused"):
            self.add("fused", b.c_in, inner, kernel, b.stride, active=active)
        else:
            if b.expands:
                self.add("expand", b.c_in, inner, 1, active=active)
            if kernel:
                self.add("middle", inner, inner, kernel, b.stride, inner, active)
        if b.squeezed:
            self.se = squeeze_excite(inner, b.squeezed, active)
        self.add("project", inner, b.c_out, 1)
        if scale := b.option("layer_scale"):
            self.layer_scale = LayerScale2d(b.c_out, scale)
        if b.skips:
            self.drop_path = nn.Identity()

    def add(
        self, name: str, c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1, active: str = ""
    ) -> None:
        """A conv, its norm or bias, and an activation where one is named."""
        biased = self.fewer_norms and name != "project"
        conv, norm = conv_norm(c_in, c_out, kernel, stride, groups, biased)
        self.add_module(name, conv)
        if not biased:
            self.add_module(f"{name}_norm", norm)
        if active:
            self.add_module(f"{name}_act", act(active))


def squeeze_excite(channels: int, hidden: int, active: str) -> SqueezeExcite:
    """Squeeze-and-excitation with ReLU and hard sigmoid, as MobileNetV3, or with `active` and sigmoid."""
    hard = active in ("relu", "hard_swish")
    inside, gate = (nn.ReLU, HardSigmoid) if hard else (type(act(active)), nn.Sigmoid)
    return SqueezeExcite(channels, rd_channels=hidden, act_layer=inside, gate_layer=gate)


class PlainConv(nn.Sequential):
    """Conv, BatchNorm, activation, without a shortcut: the first and last layers of MobileNets."""

    def __init__(self, b: Block) -> None:
        conv, norm = conv_norm(b.c_in, b.c_out, b.kernel, b.stride)
        super().__init__()
        self.conv, self.norm, self.act = conv, norm, act(b.option("act"))


class MobileAttention(InOrder):
    """BatchNorm, multi-query attention over the whole map (MobileNetV4, Qin et al., ECCV 2024).

    timm _efficientnet_blocks.py. No MLP: the inverted bottlenecks beside it play its role. No positions, no biases.
    """

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.norm, self.attn = nn.BatchNorm2d(b.c_in), MultiQueryAttention(b)
        if scale := b.option("layer_scale"):
            self.layer_scale = LayerScale2d(b.c_out, scale)
        if b.skips:
            self.drop_path = nn.Identity()


class MultiQueryAttention(nn.Module):
    """x_BCHW -> y_BCHW: all heads share one head of keys and values (Shazeer, 2019; timm attention2d.py).

    Keys and values come from the map, or from depthwise 3x3 convs of it with a stride. B batch, N heads, D channels of
    a head, Q queries, K keys.
    """

    def __init__(self, b: Block) -> None:
        super().__init__()
        heads, dim, stride = b.stage.heads, b.stage.head_dim, b.option("kv_stride")
        self.heads = heads
        self.query = nn.Conv2d(b.c_in, heads * dim, 1, bias=False)
        self.key = shared_head(b.c_in, dim, stride)
        self.value = shared_head(b.c_in, dim, stride)
        self.out = nn.Conv2d(heads * dim, b.c_out, 1, bias=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        q_BNDQ = self.query(x_BCHW).flatten(2).unflatten(1, (self.heads, -1))
        k_BKD, v_BKD = (part(x_BCHW).flatten(2).transpose(1, 2) for part in (self.key, self.value))
        q_BQD = q_BNDQ.transpose(2, 3).flatten(1, 2)  # the heads' queries one after the other: the keys are the same
        y_BQD = F.scaled_dot_product_attention(q_BQD[:, None], k_BKD[:, None], v_BKD[:, None])[:, 0]
        y_BCQ = y_BQD.unflatten(1, (self.heads, -1)).transpose(2, 3).flatten(1, 2)
        return self.out(y_BCQ.unflatten(2, x_BCHW.shape[2:]))


def shared_head(channels: int, dim: int, stride: int) -> nn.Sequential:
    """The head of keys or of values: a 1x1 conv, after a depthwise conv that strides and its norm."""
    head = nn.Sequential()
    if stride > 1:
        conv, norm = conv_norm(channels, channels, 3, stride, channels)
        head.add_module("down", conv)
        head.add_module("norm", norm)
    head.add_module("proj", nn.Conv2d(channels, dim, 1, bias=False))
    return head
