"""A net of timm cut after a block, its maps pooled, with a linear head; exported code holds this file, too.

They take pictures of values from 0 to 1, raw values over the white level, and normalise them as the trunk was trained.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .timm.cuts import CutPoint, maps_at, pooled

HEAD = ("head.weight", "head.bias")
GREY = (0.299, 0.587, 0.114)  # shares of red, green and blue in a picture without colours (ITU-R BT.601)


class PictureInput(nn.Module):
    """Pictures x_BCHW of 0 to 1, grey or in colour, of any size -> x_BCHW as a pretrained net takes them.

    Others than of (height, width) are resized as its own evaluation does; mean and std are of its training pictures.
    """

    mean_C11: Tensor
    std_C11: Tensor

    def __init__(self, size: tuple[int, int], mean: Sequence[float], std: Sequence[float], interpolation: str) -> None:
        super().__init__()
        self.size, self.mean, self.std, self.interpolation = size, tuple(mean), tuple(std), interpolation
        self.register_buffer("mean_C11", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std_C11", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        if x_BCHW.shape[2:] != self.size:
            x_BCHW = F.interpolate(x_BCHW, self.size, mode=self.interpolation, antialias=True).clamp(0, 1)
        if x_BCHW.shape[1] > len(self.mean):
            x_BCHW = (x_BCHW * x_BCHW.new_tensor(GREY)[:, None, None]).sum(1, keepdim=True)
        return (x_BCHW - self.mean_C11) / self.std_C11  # one channel becomes three


class CutTrunk(nn.Module):
    """Pictures x_BCHW of 0 to 1 -> maps x_BCHW of a net of timm at its cut points, in their order, in one pass."""

    def __init__(self, model: nn.Module, points: Sequence[CutPoint], picture: PictureInput) -> None:
        super().__init__()
        self.model, self.points, self.picture = model, tuple(points), picture

    def forward(self, x_BCHW: Tensor) -> list[Tensor]:
        return maps_at(self.model, self.points, self.picture(x_BCHW))


class CutClassifier(nn.Module):
    """Pictures x_BCHW of 0 to 1 -> logits (B, num_classes); timm's names for the trunk, `head` for the rest."""

    def __init__(self, trunk: CutTrunk, pooling: str, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.trunk, self.pooling = trunk, pooling
        self.head = nn.Linear(num_features, num_classes)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.head(pooled(self.trunk(x_BCHW), self.pooling))

    def state_dict(self, *args: Any, prefix: str = "", **how: Any) -> Any:
        state = self.trunk.model.state_dict(*args, prefix=prefix, **how)
        return self.head.state_dict(prefix=f"{prefix}head.", **how | {"destination": state})

    def load_state_dict(self, state_dict: Any, *args: Any, **how: Any) -> Any:
        own = {name if name in HEAD else f"trunk.model.{name}": tensor for name, tensor in state_dict.items()}
        return super().load_state_dict(own, *args, **how)
