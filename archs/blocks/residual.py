"""Residual blocks of ResNets, BiTs and AlterNets. All map x_BCHW to y_BCHW.

Pre-activation blocks norm and activate before each conv, and project the shortcut with a 1x1 conv,
without norm, only where stride or width change; the projection sees the activated input, the
identity the raw one. Post-activation blocks do so after each conv, the projection has a norm,
and the last ReLU follows the addition; the 3x3 conv of a bottleneck carries the stride.
He et al., CVPR 2016 (post) and ECCV 2016 (pre); Kolesnikov et al., ECCV 2020 (BiT); Park & Kim,
ICLR 2022, models/preresnet.py and models/alternet.py (MSA blocks, variants A and B).

BiT's GroupNorm and weight-standardised convs are timm's (resnetv2.py, vision_transformer_hybrid.py), eps included:
1e-8, where the original code says 1e-5. The trunk of the ViT paper's hybrids is post-activation and pads as SAME.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import Block
from ..parts import GROUPS, Style
from .attention import WindowAttention
from .layers import Projection

BIT_EPS = 1e-8


class Layers:
    """Makes the convs and norms of one style."""

    def __init__(self, style: Style) -> None:
        self.style = style

    def conv(self, c_in: int, c_out: int, kernel: int, stride: int = 1) -> nn.Module:
        """A conv without bias that pads to ceil(side / stride)."""
        if self.style.norm == "batch":
            return nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, bias=False)
        from timm.layers.std_conv import StdConv2d, StdConv2dSame

        if self.style.order == "post":
            return StdConv2dSame(c_in, c_out, kernel, stride=stride, eps=BIT_EPS)
        return StdConv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, eps=BIT_EPS)

    def norm(self, channels: int) -> nn.Module:
        return nn.GroupNorm(GROUPS, channels) if self.style.norm == "group" else nn.BatchNorm2d(channels)

    def root_pool(self) -> list[nn.Module]:
        """The 3x3 / 2 max-pool after a 7x7 / 2 conv: BiT pads with zeros, its hybrids as SAME."""
        if self.style.norm == "batch":
            return [nn.MaxPool2d(3, stride=2, padding=1)]
        if self.style.order == "pre":
            return [nn.ConstantPad2d(1, 0.0), nn.MaxPool2d(3, stride=2)]
        from timm.layers.pool2d_same import create_pool2d

        return [create_pool2d("max", 3, stride=2, padding="same")]

    def projection(self, b: Block) -> nn.Module | None:
        """The shortcut's 1x1 conv where the block needs one, with a norm in post-activation nets."""
        if not b.projects:
            return None
        if self.style.norm == "group":
            conv = self.conv(b.c_in, b.c_out, 1, b.stride)  # of GROUPS channels or more
        else:
            conv = Projection(b.c_in, b.c_out, b.stride)
        return conv if self.style.order == "pre" else nn.Sequential(conv, self.norm(b.c_out))


class ResidualBlock(nn.Module):
    """A pre-activation block: first norm, activation, shortcut; `branch` does the rest."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        layers = Layers(Style("pre", b.style.norm))
        self.norm1 = layers.norm(b.c_in)
        self.shortcut = layers.projection(b)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        active = self.activate(self.norm1(x_BCHW))
        skip = x_BCHW if self.shortcut is None else self.shortcut(active)
        return skip + self.drop_path(self.branch(active))

    def activate(self, x_BCHW: Tensor) -> Tensor:
        return F.relu(x_BCHW)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        raise NotImplementedError


class PreBasic(ResidualBlock):
    """3x3 conv, norm, ReLU, 3x3 conv."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        layers = Layers(b.style)
        self.conv1 = layers.conv(b.c_in, b.width, 3, b.stride)
        self.norm2 = layers.norm(b.width)
        self.conv2 = layers.conv(b.width, b.c_out, 3)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        return self.conv2(F.relu(self.norm2(self.conv1(active_BCHW))))


class PreBottleneck(ResidualBlock):
    """1x1 conv, 3x3 conv, 1x1 conv, with norm and ReLU between."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        layers = Layers(b.style)
        self.conv1 = layers.conv(b.c_in, b.width, 1)
        self.norm2 = layers.norm(b.width)
        self.conv2 = layers.conv(b.width, b.width, 3, b.stride)
        self.norm3 = layers.norm(b.width)
        self.conv3 = layers.conv(b.width, b.c_out, 1)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        y = self.conv2(F.relu(self.norm2(self.conv1(active_BCHW))))
        return self.conv3(F.relu(self.norm3(y)))


class MsaBlock(ResidualBlock):
    """Variant B: 1x1 conv to the inner width, norm, windowed MSA. GELU; no MLP: the conv blocks play its role."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        layers = Layers(Style("pre", b.style.norm))
        self.conv = layers.conv(b.c_in, b.width, 1)
        self.norm2 = layers.norm(b.width)
        self.attn = window_attention(b, b.width)

    def activate(self, x_BCHW: Tensor) -> Tensor:
        return F.gelu(x_BCHW)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        return self.attn(self.norm2(self.conv(active_BCHW)))


class PostBlock(nn.Module):
    """A post-activation block: `branch`, shortcut, last activation."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.shortcut = Layers(Style("post", b.style.norm)).projection(b)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        skip = x_BCHW if self.shortcut is None else self.shortcut(x_BCHW)
        y_BCHW = skip + self.drop_path(self.branch(x_BCHW))
        return F.relu(y_BCHW, inplace=True)  # only the sum, which no hook on a module has seen

    def branch(self, x_BCHW: Tensor) -> Tensor:
        raise NotImplementedError


class PostBasic(PostBlock):
    """3x3 conv, norm, ReLU, 3x3 conv, norm."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        layers = Layers(b.style)
        self.conv1, self.norm1 = layers.conv(b.c_in, b.width, 3, b.stride), layers.norm(b.width)
        self.conv2, self.norm2 = layers.conv(b.width, b.c_out, 3), layers.norm(b.c_out)

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x_BCHW)))))


class PostBottleneck(PostBlock):
    """1x1 conv, 3x3 conv, 1x1 conv, each with a norm, ReLU between."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        layers = Layers(b.style)
        self.conv1, self.norm1 = layers.conv(b.c_in, b.width, 1), layers.norm(b.width)
        self.conv2, self.norm2 = layers.conv(b.width, b.width, 3, b.stride), layers.norm(b.width)
        self.conv3, self.norm3 = layers.conv(b.width, b.c_out, 1), layers.norm(b.c_out)
        if isinstance(self.norm3, nn.GroupNorm):
            nn.init.zeros_(self.norm3.weight)  # as the code of the ViT paper's hybrids

    def branch(self, x_BCHW: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x_BCHW)))
        return self.norm3(self.conv3(F.relu(self.norm2(self.conv2(y)))))


class PostMsaBlock(PostBlock):
    """Variant A, for ablations: 1x1 conv, norm, GELU, windowed MSA, norm; nothing after the addition."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        layers = Layers(Style("post", b.style.norm))
        self.conv, self.norm1 = layers.conv(b.c_in, b.width, 1), layers.norm(b.width)
        self.attn, self.norm2 = window_attention(b, b.width), layers.norm(b.c_out)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        skip = x_BCHW if self.shortcut is None else self.shortcut(x_BCHW)
        return skip + self.drop_path(self.branch(x_BCHW))

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.norm2(self.attn(F.gelu(self.norm1(self.conv(x_BCHW)))))


def window_attention(b: Block, dim: int) -> WindowAttention:
    """The attention of block `b` on a map of `dim` channels."""
    s = b.stage
    per_head = s.per_head and s.heads > 1
    return WindowAttention(dim, b.c_out, s.heads, s.head_dim, b.window, per_head, whole=not s.window)
