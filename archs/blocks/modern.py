"""Modern residual blocks from timm's layers: MBConv, ConvNeXt and transformer blocks on maps.

The ingredients of CoAtNet, MaxViT and NextViT, whatever the net's style. A shortcut is a
1x1 conv where stride or width change, the identity elsewhere; outputs are raw, as those of
pre-activation blocks.
"""

from __future__ import annotations

import torch.nn.functional as F
from timm.layers.mlp import ConvMlp
from timm.layers.norm import LayerNorm2d
from timm.layers.squeeze_excite import SqueezeExcite
from torch import Tensor, nn

from ..layout import Block
from .layers import ModernBlock, layer_scale
from .residual import window_attention


class MBConv(ModernBlock):
    """Norm, 1x1 conv to 4x the width, depthwise 3x3 conv, squeeze-and-excitation, 1x1 conv back; GELU.

    As CoAtNet has it (Dai et al., NeurIPS 2021; timm maxxvit.py), but the shortcut strides in its
    1x1 conv instead of an average pool.
    """

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        inner = b.inner
        self.norm1 = nn.BatchNorm2d(b.c_in)
        self.conv1, self.norm2 = nn.Conv2d(b.c_in, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, b.kernel, stride=b.stride, padding=b.kernel // 2, groups=inner, bias=False)
        self.norm3 = nn.BatchNorm2d(inner)
        self.se = SqueezeExcite(inner, rd_channels=b.squeezed, act_layer=nn.SiLU) if b.squeezed else nn.Identity()
        self.conv3 = nn.Conv2d(inner, b.c_out, 1)

    def branch(self, x_BCHW: Tensor) -> Tensor:
        y = F.gelu(self.norm2(self.conv1(self.norm1(x_BCHW))))
        y = self.se(F.gelu(self.norm3(self.conv2(y))))
        return self.conv3(y)


class ConvNeXt(ModernBlock):
    """Depthwise 7x7 conv, LayerNorm, MLP of 4x the width (Liu et al., CVPR 2022; timm convnext.py).

    Of itself without the layer scale of 1e-6, under which a net trained for a few epochs stays an identity.
    """

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.scale = layer_scale(b)
        self.conv = nn.Conv2d(b.c_in, b.c_in, b.kernel, stride=b.stride, padding=b.kernel // 2, groups=b.c_in)
        self.norm = LayerNorm2d(b.c_in)
        self.mlp = ConvMlp(b.c_in, b.inner, b.c_out, act_layer=nn.GELU)

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.scale(self.mlp(self.norm(self.conv(x_BCHW))))


class TransformerBlock2d(ModernBlock):
    """LayerNorm, windowed or global MSA, add; LayerNorm, MLP, add. No bias on q, k, v."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.norm1, self.attn = LayerNorm2d(b.c_in), window_attention(b, b.c_in)
        self.norm2, self.mlp = LayerNorm2d(b.c_out), ConvMlp(b.c_out, b.hidden, act_layer=nn.GELU)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = super().forward(x_BCHW)
        return y + self.drop_path(self.mlp(self.norm2(y)))

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.attn(self.norm1(x_BCHW))
