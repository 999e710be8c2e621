"""`Subject`: a net to export, with what is known of it and the images that its formats are checked on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from ...archs import Network


@dataclass(frozen=True)
class ExportNet:
    """One net on its way out.

    Attributes:
        network: in eval mode, float32, on the CPU.
        facts: what config.json says: name, classes, mean, std, image_size, in_chans and more.
        images_BCHW: in the data's own values; two or more.
    """

    network: Network
    facts: Mapping[str, Any]
    images_BCHW: Tensor

    def normalised(self) -> Tensor:
        """x_BCHW, the images as the net takes them."""
        mean, std = (torch.tensor(self.facts[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
        return (self.images_BCHW.float() - mean) / std

    @property
    def batch_sizes(self) -> tuple[int, int]:
        """Every format is run on the first image alone and on all of them."""
        return 1, len(self.images_BCHW)

    @cached_property
    def program(self) -> ExportedProgram:
        """The net as torch.export traces it, with any number of images in a batch; what onnx and pt2 are made of."""
        batch = Dim("batch", min=1)
        two_BCHW = self.normalised()[:2]  # one image would be taken for a net of one image
        with torch.no_grad():  # a net is traced as it predicts
            return torch.export.export(self.network, (two_BCHW,), dynamic_shapes=({0: batch},))

    def logits(self) -> Tensor:
        """The net's own logits, first of the first image alone, then of all."""
        with torch.no_grad():
            return torch.cat([self.network(self.normalised()[:n]) for n in self.batch_sizes])
