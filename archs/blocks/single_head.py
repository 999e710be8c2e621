"""Single-head attention blocks and blocks of a depthwise conv and an FFN, as SHViT has them.

Yun & Ro, CVPR 2024; timm shvit.py. BatchNorm after every conv; the norms at the ends of the branches are born at 0.
B batch, C channels, H x W map, P positions of the map, D channels of queries and keys, V channels that attend.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers.squeeze_excite import SqueezeExcite
from torch import Tensor, nn

from .layers import conv_norm
from .single_head_entries import SingleHeadSizes


class SingleHeadAttention(nn.Module):
    """Self-attention of one head among the first `part` channels of a map; a 1x1 conv mixes them with the others."""

    def __init__(self, channels: int, part: int, query_dim: int) -> None:
        super().__init__()
        self.parts, self.part = (query_dim, query_dim, part), part
        self.norm = nn.GroupNorm(1, part)
        self.qkv = nn.Sequential(*conv_norm(part, 2 * query_dim + part, 1))
        self.proj = nn.Sequential(nn.ReLU(), *conv_norm(channels, channels, 1))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        queries, keys, values = self.projected(x_BCHW)
        return self.out(F.scaled_dot_product_attention(queries, keys, values).squeeze(1), x_BCHW)

    def projected(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, 1, P, D), values (B, 1, P, V)."""
        qkv_BPC = self.qkv(self.norm(x_BCHW[:, : self.part])).flatten(2).transpose(1, 2)
        queries, keys, values = qkv_BPC.unsqueeze(1).split(self.parts, dim=3)
        return queries, keys, values

    def out(self, y_BPV: Tensor, x_BCHW: Tensor) -> Tensor:
        """The output from what the head gives, beside the other channels of the input."""
        attended = y_BPV.transpose(1, 2).unflatten(2, x_BCHW.shape[2:])
        return self.proj(torch.cat([attended, x_BCHW[:, self.part :]], dim=1))


class PatchMerging(nn.Sequential):
    """1x1 conv to 4x the channels, strided depthwise 3x3 conv, squeeze-and-excitation, 1x1 conv; ReLU."""

    def __init__(self, b: SingleHeadSizes) -> None:
        wide = b.merged
        super().__init__(
            nn.Conv2d(b.c_in, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            *conv_norm(wide, wide, 3, b.stride, groups=wide),
            nn.ReLU(),
            SqueezeExcite(wide, rd_channels=b.merged_squeezed),
            nn.Conv2d(wide, b.c_out, 1, bias=False),
            nn.BatchNorm2d(b.c_out),
        )


class SingleHeadBlock(nn.Module):
    """Depthwise conv, single-head attention where the kind attends, FFN: each is added to its input.

    Where stride or width change, a patch merging stands before them.
    """

    def __init__(self, b: SingleHeadSizes) -> None:
        super().__init__()
        channels, hidden = b.c_out, b.hidden
        self.shortcut = PatchMerging(b) if b.projects else nn.Identity()
        self.skip, self.drop_path = nn.Identity(), nn.Identity()  # what comes in beside the first conv, for analyses
        self.conv = nn.Sequential(*conv_norm(channels, channels, b.kernel, groups=channels))
        self.attn = SingleHeadAttention(channels, b.part, b.query_dim) if b.spec.attends else None
        self.mlp = nn.Sequential(*conv_norm(channels, hidden, 1), nn.ReLU(), *conv_norm(hidden, channels, 1))
        for branch in (self.conv, self.mlp, *([self.attn.proj] if self.attn is not None else [])):
            nn.init.zeros_(branch.get_submodule(str(len(branch) - 1)).get_parameter("weight"))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.shortcut(x_BCHW)
        x_BCHW = self.skip(x_BCHW) + self.drop_path(self.conv(x_BCHW))
        if self.attn is not None:
            x_BCHW = x_BCHW + self.drop_path(self.attn(x_BCHW))
        return x_BCHW + self.drop_path(self.mlp(x_BCHW))
