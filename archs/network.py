"""`build`: from a genotype to an `nn.Module`."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .blocks.encoder import TransformerEncoder
from .blocks.residual import Layers
from .blocks.spec import load_class
from .errors import InputError, check_int
from .genotype import Genotype
from .layout import ImageSize
from .parts import MOST_CLASSES, Head, Stem, Style


class Network(nn.Module):
    """x_BCHW -> logits (B, num_classes). Made by `build`.

    Images of another size than built for pass where the net allows it: every window must divide its
    map, a window over the whole map and position embeddings need the map they were built for (see
    `resized`).
    """

    def __init__(
        self, genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int, dropout: float
    ) -> None:
        super().__init__()
        plan = genotype.plan(image_size, in_chans)
        self.genotype, self.num_classes, self.image_size, self.in_chans = genotype, num_classes, plan.image, in_chans
        self.stem = _stem(genotype.stem, genotype.style, in_chans)
        self.stages = nn.ModuleList(
            nn.Sequential(*(load_class(b.form.module)(b) for b in stage)) for stage in plan.stages
        )
        self.norm = Layers(genotype.style).norm(plan.channels) if plan.final_norm else None
        self.encoder, features = None, plan.channels
        if genotype.encoder is not None:
            assert plan.grid is not None
            token = genotype.head.pool == "token"
            self.encoder = TransformerEncoder(genotype.encoder, plan.channels, plan.grid, token, dropout)
            features = genotype.encoder.embed_dim
        self.head = _head(genotype.head, features, num_classes)

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """The last map x_BCHW, normalised, that the pooling or the encoder sees."""
        x_BCHW = self.stem(x_BCHW)
        for stage in self.stages:
            for block in stage.children():  # a call of `stage` would hold its input to its end
                x_BCHW = block(x_BCHW)
        return x_BCHW if self.norm is None else F.relu(self.norm(x_BCHW))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.forward_features(x_BCHW)
        pooled = x_BCHW.mean(dim=(2, 3)) if self.encoder is None else self.encoder(x_BCHW)
        return self.head(pooled)


def build(
    genotype: Genotype,
    num_classes: int,
    image_size: ImageSize,
    in_chans: int = 3,
    dropout: float = 0.0,
    drop_path: float = 0.0,
) -> Network:
    """Build the net with fresh weights from torch's global random state.

    Args:
        genotype: the net.
        num_classes: width of the logits.
        image_size: side in pixels, or (height, width).
        in_chans: channels of the image.
        dropout: of a transformer encoder, as the ViT paper's. It and `drop_path` belong to a
            training, not to the net: neither is part of the genotype.
        drop_path: stochastic depth of the last residual block; it grows linearly from 0 (Huang et
            al., ECCV 2016; Park & Kim's code counts blocks over all stages, as here).

    Raises:
        InputError: if the net cannot be built at `image_size`, or a number is wrong.
    """
    for name, rate in (("dropout", dropout), ("drop_path", drop_path)):
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
            raise InputError(f"build: {name} must be at least 0 and below 1, got {rate!r}")
    check_int("head", "num_classes", num_classes, 1, MOST_CLASSES)
    network = Network(genotype, num_classes, image_size, in_chans, dropout)
    if drop_path:
        _drop_paths(network, drop_path)
    return network


def _drop_paths(network: Network, last: float) -> None:
    from timm.layers.drop import DropPath

    blocks = [module for module in network.modules() if hasattr(module, "drop_path")]
    for i, block in enumerate(blocks):
        block.drop_path = DropPath(last * i / max(1, len(blocks) - 1))


def _head(head: Head, features: int, num_classes: int) -> nn.Module:
    if not head.hidden:
        return nn.Linear(features, num_classes)
    return nn.Sequential(nn.Linear(features, head.hidden), nn.Tanh(), nn.Linear(head.hidden, num_classes))


def _stem(stem: Stem, style: Style, in_chans: int) -> nn.Module:
    if stem.kind == "none":
        return nn.Identity()
    if stem.kind == "patchify":
        return nn.Conv2d(in_chans, stem.width, stem.patch, stride=stem.patch)
    if stem.kind == "bit" or (stem.kind == "imagenet" and style.norm == "group"):
        from .blocks.bit import bit_root, hybrid_root

        root = hybrid_root if stem.kind == "bit" or style.order == "post" else bit_root
        return root(in_chans, stem.width)
    layers, small = Layers(style), stem.kind == "cifar"
    parts = [layers.conv(in_chans, stem.width, 3 if small else 7, 1 if small else 2)]
    if style.order == "post":
        parts += [layers.norm(stem.width), nn.ReLU()]
    return nn.Sequential(*parts, *([] if small else [nn.MaxPool2d(3, stride=2, padding=1)]))
