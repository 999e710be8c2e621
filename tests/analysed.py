"""Small nets with random weights, and images to show them: what analyses are tested on."""

from typing import Any

import torch
from timm.models.resnet import BasicBlock, ResNet
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from alternas.archs import build
from alternas.results.analysis_tools.inputs import AnalysisInput, Images
from nets import NETS, lively

TIMM = ("timm vit", "timm resnet")


def net_of(name: str, seed: int = 0) -> Any:
    """One of NETS or of TIMM, for images of `pixels`, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "timm vit":
            return lively(VisionTransformer(16, 4, 2, 3, "avg", 12, 2, 3, init_values=0.5)).eval()
        if name == "timm resnet":
            return lively(ResNet(BasicBlock, (1, 1, 1, 1), 3, 2)).eval()
        return lively(build(NETS[name], 5, 16, 2)).eval()


def pixels(count: int = 3) -> Tensor:
    return torch.randn(count, 2, 16, 16, generator=torch.Generator().manual_seed(1))


def images(count: int) -> Images:
    """Five classes, each a little brighter than the one before."""
    y = torch.arange(count) % 5
    x = torch.rand(count, 2, 16, 16, generator=torch.Generator().manual_seed(1)) + 0.1 * y[:, None, None, None]
    return Images(x, y, torch.zeros(2), torch.ones(2))


def subject(name: str, count: int = 8, seed: int = 0) -> AnalysisInput:
    return AnalysisInput(name, net_of(name, seed), images(count))
