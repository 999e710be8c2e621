"""EfficientFormerV2 blocks: convs and attention with BatchNorm on maps, and their downsampling.

Li et al., "Rethinking Vision Transformers for MobileNet Size and Speed", ICCV 2023; timm efficientformer_v2.py.
Every conv has a bias and BatchNorm, activations are GELU. B batch, C channels, H x W map, N heads, D channels of a
head, P positions of a map.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import Block
from .attention import check_sides, relative_bias
from .efficientformer_entries import DistanceSizes
from .layers import conv_norm, layer_scale


def biased_conv_norm(c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A conv with a bias, and its BatchNorm."""
    return nn.Sequential(*conv_norm(c_in, c_out, kernel, stride, groups, bias=True))


def conv_downsampling(b: Block) -> nn.Module:
    """A strided 3x3 conv with BatchNorm where the shape changes: before a block, or beside attention."""
    return biased_conv_norm(b.c_in, b.c_out, 3, b.stride) if b.projects else nn.Identity()


class EfficientFormerMlp(nn.Module):
    """1x1 conv, depthwise conv, 1x1 conv; GELU after the first two."""

    def __init__(self, channels: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.fc1 = biased_conv_norm(channels, hidden)
        self.mid = biased_conv_norm(hidden, hidden, kernel, groups=hidden)
        self.fc2 = biased_conv_norm(hidden, channels)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.mid(F.gelu(self.fc1(x_BCHW)))))


class EfficientFormerConv(nn.Module):
    """Feed-forward network with a depthwise conv in its middle, and layer scale."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.down, self.shortcut = conv_downsampling(b), nn.Identity()
        self.mlp = EfficientFormerMlp(b.c_out, b.inner, b.kernel)
        self.scale = layer_scale(b)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.down(x_BCHW)
        return self.shortcut(x_BCHW) + self.drop_path(self.scale(self.mlp(x_BCHW)))


class DistanceAttention(nn.Module):
    """Base of both attentions: values of 4x a head's channels, a bias for each distance in rows and columns."""

    def __init__(self, b: DistanceSizes) -> None:
        super().__init__()
        self.heads = b.stage.heads
        self.table = nn.Parameter(torch.zeros(self.heads, *b.distances))

    def logits(self, queries_BCHW: Tensor, keys_BCHW: Tensor, stride: int = 1) -> Tensor:
        """(B, N, P, P), queries by keys; queries are at every `stride`-th row and column of the keys' map."""
        side = keys_BCHW.shape[2:]
        check_sides("attention: built for a map of", self.table.shape[1:], side)
        queries_BNDP, keys_BNDP = self.split(queries_BCHW), self.split(keys_BCHW)
        products = queries_BNDP.mT @ keys_BNDP * queries_BNDP.shape[2] ** -0.5
        bias = distance_bias(self.table).unflatten(1, tuple(side))[:, ::stride, ::stride].flatten(1, 2)
        return products + bias.to(products.dtype)

    def split(self, x_BCHW: Tensor) -> Tensor:
        """x_BNDP."""
        return x_BCHW.flatten(2).unflatten(1, (self.heads, -1))

    def mixed(self, weights_BNPP: Tensor, values_BCHW: Tensor, local_BCHW: Tensor) -> Tensor:
        """Values weighted by head, laid out as `local_BCHW` and added to it."""
        y_BNDP = (weights_BNPP @ self.split(values_BCHW).mT).mT
        return y_BNDP.reshape(local_BCHW.shape) + local_BCHW


def distance_bias(table_NHW: Tensor) -> Tensor:
    """(N, P, P) of a table of distances between query and key."""
    rows = torch.cat([table_NHW[:, 1:].flip(1), table_NHW], 1)
    return relative_bias(torch.cat([rows[:, :, 1:].flip(2), rows], 2))


class TalkingAttention(DistanceAttention):
    """Talking heads; a depthwise conv of the values beside them; all on a map smaller by `attention_stride`."""

    def __init__(self, b: DistanceSizes) -> None:
        super().__init__(b)
        stride, dim, heads = b.option("attention_stride"), b.c_out, b.stage.heads
        self.reduce = biased_conv_norm(dim, dim, 3, stride, dim) if stride else None
        self.q, self.k = biased_conv_norm(dim, b.head_channels), biased_conv_norm(dim, b.head_channels)
        self.v = biased_conv_norm(dim, b.value_channels)
        self.local = biased_conv_norm(b.value_channels, b.value_channels, 3, groups=b.value_channels)
        self.talk1, self.talk2 = nn.Conv2d(heads, heads, 1), nn.Conv2d(heads, heads, 1)
        self.proj = biased_conv_norm(b.value_channels, dim)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        sides = x_BCHW.shape[2:]
        x_BCHW = x_BCHW if self.reduce is None else self.reduce(x_BCHW)
        values = self.v(x_BCHW)
        weights = self.talk2(self.talk1(self.logits(self.q(x_BCHW), self.k(x_BCHW))).softmax(3))
        y_BCHW = self.mixed(weights, values, self.local(values))
        if self.reduce is not None:
            y_BCHW = F.interpolate(y_BCHW, size=sides, mode="bilinear")
        return self.proj(F.gelu(y_BCHW))


class EfficientFormerAttention(nn.Module):
    """Attention, add; feed-forward network with a depthwise conv, add; both with layer scale."""

    def __init__(self, b: DistanceSizes) -> None:
        super().__init__()
        self.down, self.shortcut = conv_downsampling(b), nn.Identity()
        self.attn, self.scale1 = TalkingAttention(b), layer_scale(b)
        self.mlp, self.scale2 = EfficientFormerMlp(b.c_out, b.hidden, b.kernel), layer_scale(b)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.down(x_BCHW)
        x_BCHW = self.shortcut(x_BCHW) + self.drop_path(self.scale1(self.attn(x_BCHW)))
        return x_BCHW + self.drop_path(self.scale2(self.mlp(x_BCHW)))


class LocalQuery(nn.Module):
    """Queries of a smaller map: a strided depthwise conv and every `stride`-th position, added, and a 1x1 conv."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.local = nn.Conv2d(c_in, c_in, 3, stride=stride, padding=1, groups=c_in)
        self.proj = biased_conv_norm(c_in, c_out)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.proj(self.local(x_BCHW) + x_BCHW[:, :, :: self.stride, :: self.stride])


class DownsamplingAttention(DistanceAttention):
    """Queries and a depthwise conv of the values stride; keys and values are of the whole map."""

    def __init__(self, b: DistanceSizes) -> None:
        super().__init__(b)
        self.stride = b.stride
        self.q, self.k = LocalQuery(b.c_in, b.head_channels, b.stride), biased_conv_norm(b.c_in, b.head_channels)
        self.v = biased_conv_norm(b.c_in, b.value_channels)
        self.local = biased_conv_norm(b.value_channels, b.value_channels, 3, b.stride, b.value_channels)
        self.proj = biased_conv_norm(b.value_channels, b.c_out)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        values = self.v(x_BCHW)
        weights = self.logits(self.q(x_BCHW), self.k(x_BCHW), self.stride).softmax(3)
        return self.proj(F.gelu(self.mixed(weights, values, self.local(values))))


class EfficientFormerDown(nn.Module):
    """Downsampling by a strided 3x3 conv and by attention, added."""

    def __init__(self, b: DistanceSizes) -> None:
        super().__init__()
        self.shortcut = conv_downsampling(b)
        self.attn = DownsamplingAttention(b)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.shortcut(x_BCHW) + self.drop_path(self.attn(x_BCHW))
