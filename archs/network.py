"""`build`: from a genotype to an `nn.Module`."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .blocks import BLOCKS
from .genotype import Genotype
from .parts import Stem
from .plan import ImageSize


class Network(nn.Module):
    """x_BCHW -> logits (B, num_classes). Made by `build`."""

    def __init__(self, genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int) -> None:
        super().__init__()
        plan = genotype.plan(image_size)
        self.genotype = genotype
        self.stem = _stem(genotype.stem, in_chans)
        self.stages = nn.Sequential(*(nn.Sequential(*(BLOCKS[b.kind](b) for b in stage)) for stage in plan.stages))
        # Pre-activation blocks leave their output raw: it is normalised and activated here.
        raw = genotype.encoder is None or bool(genotype.stages)
        self.norm = nn.BatchNorm2d(plan.channels) if raw else None
        self.encoder, features = None, plan.channels
        if genotype.encoder is not None:
            from .hybrid import TransformerEncoder  # timm takes seconds to import: only where it is needed

            assert plan.grid is not None
            token = genotype.head.pool == "token"
            self.encoder = TransformerEncoder(genotype.encoder, plan.channels, plan.grid, token)
            features = genotype.encoder.embed_dim
        self.head = nn.Linear(features, num_classes)

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """The last map x_BCHW, normalised, that the pooling or the encoder sees."""
        x_BCHW = self.stages(self.stem(x_BCHW))
        return x_BCHW if self.norm is None else F.relu(self.norm(x_BCHW))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.forward_features(x_BCHW)
        pooled = x_BCHW.mean(dim=(2, 3)) if self.encoder is None else self.encoder(x_BCHW)
        return self.head(pooled)


def build(genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int = 3) -> Network:
    """Build the net with fresh weights from torch's global random state.

    Args:
        genotype: the net.
        num_classes: width of the logits.
        image_size: side in pixels, or (height, width).
        in_chans: channels of the image.

    Raises:
        InputError: if the net cannot be built at `image_size`.
    """
    return Network(genotype, num_classes, image_size, in_chans)


def _stem(stem: Stem, in_chans: int) -> nn.Module:
    if stem.kind == "patchify":
        return nn.Conv2d(in_chans, stem.width, stem.patch, stride=stem.patch)
    if stem.kind == "cifar":
        return nn.Conv2d(in_chans, stem.width, 3, padding=1, bias=False)
    if stem.kind == "imagenet":
        conv = nn.Conv2d(in_chans, stem.width, 7, stride=2, padding=3, bias=False)
        return nn.Sequential(conv, nn.MaxPool2d(3, stride=2, padding=1))
    from .hybrid import bit_root

    return bit_root(in_chans, stem.width)
