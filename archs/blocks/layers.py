"""Layers that blocks of several kinds, stems and heads are made of."""

import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import Block


class Projection(nn.Conv2d):
    """A 1x1 conv with a stride and without bias, for shortcuts.

    Where a gradient goes back through it on a CPU, it strides by slicing its input and computes the same with stride 1:
    in channels_last, torch 2.15's gradient of a strided 1x1 conv of 2 to 15 channels writes beyond its memory there.
    """

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__(c_in, c_out, 1, stride=stride, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        down, right = self.stride
        if down * right > 1 and input.requires_grad and input.device.type == "cpu":
            return F.conv2d(input[:, :, ::down, ::right], self.weight)
        return super().forward(input)


def act(name: str) -> nn.Module:
    """The activation of that name."""
    known = {"relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU, "hard_swish": nn.Hardswish, "relu6": nn.ReLU6}
    return (known | {"tanh": nn.Tanh})[name]()


def conv_norm(
    c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> list[nn.Module]:
    """A conv that pads to ceil(side / stride), and its BatchNorm."""
    if kernel == 1 and groups == 1 and not bias:
        conv = Projection(c_in, c_out, stride)
    else:
        conv = nn.Conv2d(c_in, c_out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=bias)
    return [conv, nn.BatchNorm2d(c_out)]


def layer_scale(b: Block) -> nn.Module:
    """A learned scale of each channel of a branch (Touvron et al., ICCV 2021), where the block has it."""
    from timm.layers.layer_scale import LayerScale2d

    start = b.option("layer_scale")
    return LayerScale2d(b.c_out, start) if start else nn.Identity()


class ModernBlock(nn.Module):
    """A shortcut around `branch`."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.shortcut = Projection(b.c_in, b.c_out, b.stride) if b.projects else nn.Identity()
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.shortcut(x_BCHW) + self.drop_path(self.branch(x_BCHW))

    def branch(self, x_BCHW: Tensor) -> Tensor:
        raise NotImplementedError
