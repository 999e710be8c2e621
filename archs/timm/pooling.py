"""Maps of a net pooled to features: for a linear head, and for classifiers in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pooled(maps: Sequence[Tensor], pooling: str) -> Tensor:
    """Features x_BF of maps x_BCHW.

    Args:
        maps: of all cuts so far; only "all" looks at others than the last.
        pooling: "mean" over places; "mean-max", that and the maximum; "grid", means of 2 x 2 quarters, whose border
            rows and columns overlap where a side is odd; "all", means of all maps.
    """
    if pooling == "all":
        return torch.cat([map_BCHW.mean((2, 3)) for map_BCHW in maps], 1)
    x_BCHW = maps[-1]
    if pooling == "mean":
        return x_BCHW.mean((2, 3))
    if pooling == "mean-max":
        return torch.cat([x_BCHW.mean((2, 3)), x_BCHW.amax((2, 3))], 1)
    height, width = x_BCHW.shape[2:]
    halves = (x_BCHW[:, :, : (height + 1) // 2], x_BCHW[:, :, height // 2 :])
    quarters = [part for half in halves for part in (half[..., : (width + 1) // 2], half[..., width // 2 :])]
    return torch.stack([part.mean((2, 3)) for part in quarters], 2).flatten(1)
