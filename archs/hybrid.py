"""What hybrids add to a conv net: the BiT root and a transformer encoder over the last map.

Built from timm's layers, so that timm's ViT and R+ViT nets are the reference in params, MACs
and outputs. Dosovitskiy et al., ICLR 2021; timm vision_transformer.py, vision_transformer_hybrid.py.
"""

from __future__ import annotations

import torch
from timm.layers.norm_act import GroupNormAct
from timm.layers.pool2d_same import create_pool2d
from timm.layers.std_conv import StdConv2dSame
from timm.models.vision_transformer import Block as TransformerBlock
from torch import Tensor, nn

from .parts import BIT_GROUPS, Encoder

BIT_EPS = 1e-8  # timm's; the original code says 1e-5


def bit_root(in_chans: int, width: int) -> nn.Sequential:
    """x_BCHW -> (B, width, H/4, W/4): weight-standardised 7x7 / 2 conv, GroupNorm, ReLU, 3x3 / 2 max-pool."""
    conv = StdConv2dSame(in_chans, width, 7, stride=2, eps=BIT_EPS)
    return nn.Sequential(
        conv, GroupNormAct(width, num_groups=BIT_GROUPS), create_pool2d("max", 3, stride=2, padding="same")
    )


class TransformerEncoder(nn.Module):
    """x_BCHW -> z_BD: patches of the map become tokens; z is the class token or the tokens' mean.

    Args:
        encoder: sizes.
        channels: channels of the map.
        grid: (height, width) of the token grid.
        token: whether there is a class token, read as z.
    """

    def __init__(self, encoder: Encoder, channels: int, grid: tuple[int, int], token: bool) -> None:
        super().__init__()
        dim = encoder.embed_dim
        self.proj = nn.Conv2d(channels, dim, encoder.patch, stride=encoder.patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if token else None
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, grid[0] * grid[1] + token, dim))
        ratio = (encoder.hidden + 0.5) / dim  # timm truncates dim * ratio
        self.blocks = nn.Sequential(
            *(TransformerBlock(dim, encoder.heads, mlp_ratio=ratio, qkv_bias=True) for _ in range(encoder.depth))
        )
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.apply(_init)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BNC = self.proj(x_BCHW).flatten(2).transpose(1, 2)
        if self.cls_token is not None:
            x_BNC = torch.cat([self.cls_token.expand(len(x_BNC), -1, -1), x_BNC], dim=1)
        x_BNC = self.norm(self.blocks(x_BNC + self.pos_embed))
        return x_BNC[:, 0] if self.cls_token is not None else x_BNC.mean(dim=1)


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
