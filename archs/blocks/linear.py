"""Attention blocks of EfficientViT (Cai et al., ICCV 2023; timm efficientvit_mit.py).

Multi-scale linear attention with a feed-forward network that has a depthwise conv. Its conv blocks are inverted
bottlenecks (mobile.py).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import ModernBlock, act, conv_norm
from .linear_entries import LinearSizes

ATTENTION_EPS = 1e-5  # beside the sum of a query's weights
SCALE_KERNEL = 5  # as in linear_entries.py, whose constants an exported source does not have


class FeedForward(nn.Module):
    """1x1 conv, depthwise 3x3 conv, an activation after each; 1x1 conv, norm."""

    def __init__(self, channels: int, hidden: int, act_name: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, hidden, 1)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.conv3, self.norm3 = conv_norm(hidden, channels, 1)
        self.act1, self.act2 = act(act_name), act(act_name)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = self.act2(self.conv2(self.act1(self.conv1(x_BCHW))))
        return self.norm3(self.conv3(y))


class LinearAttention(nn.Module):
    """Multi-scale ReLU linear attention, x_BCHW -> y_BCHW: its cost is linear in the number of positions.

    Weights are relu(q) relu(k)^T over their sum instead of a softmax, so that k^T v is the first product. Queries, keys
    and values are taken twice: as projected, and aggregated around each position by a depthwise 5x5 conv and a 1x1 conv
    of each head's part. S heads of both scales, D channels of a head, P positions.
    """

    def __init__(self, dim: int, dim_out: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim, width = heads, head_dim, 3 * heads * head_dim
        self.qkv = nn.Conv2d(dim, width, 1, bias=False)
        self.aggregate = nn.Sequential(
            nn.Conv2d(width, width, SCALE_KERNEL, padding=SCALE_KERNEL // 2, groups=width, bias=False),
            nn.Conv2d(width, width, 1, groups=3 * heads, bias=False),
        )
        self.out = nn.Conv2d(2 * heads * head_dim, dim_out, 1, bias=False)
        self.norm = nn.BatchNorm2d(dim_out)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        qkv_BCHW = self.qkv(x_BCHW)
        qkv_BCHW = torch.cat([qkv_BCHW, self.aggregate(qkv_BCHW)], dim=1)
        qkv_BSDP = qkv_BCHW.unflatten(1, (-1, 3, self.head_dim)).flatten(4).unbind(2)
        device = x_BCHW.device.type
        if device != "meta" and torch.is_autocast_enabled(device):  # half precision cannot hold sums over a map
            with torch.autocast(device, enabled=False):
                y_BSDP = self.attend(*qkv_BSDP)
        else:
            y_BSDP = self.attend(*qkv_BSDP)
        return self.norm(self.out(y_BSDP.flatten(1, 2).unflatten(2, x_BCHW.shape[2:])))

    def attend(self, q_BSDP: Tensor, k_BSDP: Tensor, v_BSDP: Tensor) -> Tensor:
        """Values by weights, and by a row of ones their sum, in float32."""
        q, k = F.relu(q_BSDP).float(), F.relu(k_BSDP).float()
        v = F.pad(v_BSDP.float(), (0, 0, 0, 1), value=1.0)
        y = (v @ k.transpose(2, 3)) @ q
        return (y[:, :, :-1] / (y[:, :, -1:] + ATTENTION_EPS)).to(v_BSDP.dtype)


class LinearTransformerBlock(ModernBlock):
    """Linear attention, add; a feed-forward network with a depthwise 3x3 conv and a norm at its end, add."""

    def __init__(self, b: LinearSizes) -> None:
        super().__init__(b)
        self.attn = LinearAttention(b.c_in, b.c_out, b.head_count, b.stage.head_dim)
        self.mlp = FeedForward(b.c_out, b.hidden, b.option("act"))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = super().forward(x_BCHW)
        return y + self.drop_path(self.mlp(y))

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.attn(x_BCHW)
