"""What BiT nets are made of beside GroupNorm: weight-standardised convs and their roots.

Kolesnikov et al., ECCV 2020; the trunk of the ViT paper's hybrids differs: post-activation and
SAME padding, which depends on the map's size. Both are timm's (resnetv2.py,
vision_transformer_hybrid.py), eps included: 1e-8, where the original code says 1e-5.
"""

from __future__ import annotations

from timm.layers.pool2d_same import create_pool2d
from timm.layers.std_conv import StdConv2d, StdConv2dSame
from torch import nn

from ..parts import GROUPS

BIT_EPS = 1e-8


def standardised_conv(c_in: int, c_out: int, kernel: int, stride: int, same: bool) -> nn.Module:
    """A conv whose weights are standardised per output channel; SAME or symmetric padding."""
    if same:
        return StdConv2dSame(c_in, c_out, kernel, stride=stride, eps=BIT_EPS)
    return StdConv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, eps=BIT_EPS)


def hybrid_root(in_chans: int, width: int) -> nn.Sequential:
    """x_BCHW -> (B, width, H/4, W/4): 7x7 / 2 conv, GroupNorm, ReLU, 3x3 / 2 max-pool, SAME padding."""
    conv = standardised_conv(in_chans, width, 7, 2, same=True)
    pool = create_pool2d("max", 3, stride=2, padding="same")
    return nn.Sequential(conv, nn.GroupNorm(GROUPS, width), nn.ReLU(), pool)


def bit_root(in_chans: int, width: int) -> nn.Sequential:
    """x_BCHW -> (B, width, H/4, W/4): 7x7 / 2 conv, 3x3 / 2 max-pool that pads with zeros; pre-activation."""
    conv = standardised_conv(in_chans, width, 7, 2, same=False)
    return nn.Sequential(conv, nn.ConstantPad2d(1, 0.0), nn.MaxPool2d(3, stride=2))
