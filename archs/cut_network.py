"""`CutNetwork`: a `CutNet` as a module that is trained, saved and exported as `Network` is; `cut_trunk` for probes."""

from typing import Any

from torch import Tensor

from .cut_classifier import CutClassifier, CutTrunk, PictureInput
from .errors import InputError
from .own_net import Trunk
from .timm.cut_points import cut_points, num_features, trunk
from .timm.cuts import prune
from .timm_net import CutNet

Weights = dict[str, Tensor]
CHANNELS = (1, 3)  # of pictures: grey ones have the same value in all three of the net


def cut_trunk(name: Trunk, side: int, state: Weights | None = None) -> CutTrunk:
    """A whole net in eval mode, which gives the maps of all its `cut_points` of pictures from 0 to 1.

    Pictures are resized to `side`; `state`, by the net's own names, is at its own side, None draws fresh weights.
    InputError if timm does not know the net, or it takes no such images or weights.
    """
    model = trunk(name, side, state)
    return CutTrunk(model, cut_points(name), picture_input(model, side)).eval()


def picture_input(model: Any, side: int) -> PictureInput:
    """What is done to pictures for a net: mean and standard deviation of its training, and how it resizes."""
    known = model.pretrained_cfg
    smooth = "bicubic" if known["interpolation"] == "bicubic" else "bilinear"
    return PictureInput((side, side), known["mean"], known["std"], smooth)


class CutNetwork(CutClassifier):
    """Pictures x_BCHW of 0 to 1 -> logits (B, num_classes): what a cut net is, and what `Network` says of itself.

    Pictures are (raw - mean) / std with the numbers of `picture_moments`: the net normalises them as its trunk was
    trained, and resizes those that are not of its side. `picture` holds how. `state` and errors as of `cut_trunk`.
    """

    def __init__(
        self, net: CutNet, num_classes: int, in_chans: int = 3, state: Weights | None = None, drop_path: float = 0.0
    ) -> None:
        if in_chans not in CHANNELS:
            raise InputError(f"cut net: pictures must have 1 or 3 channels, got {in_chans}")
        features = num_features(net.trunk, net.block, net.pooling)
        points = cut_points(net.trunk)[: net.block + 1]
        model = trunk(net.trunk, net.side, state, drop_path)
        prune(model, points[-1])
        kept = points if net.pooling == "all" else points[-1:]
        super().__init__(CutTrunk(model, kept, picture_input(model, net.side)), net.pooling, features, num_classes)
        self.genotype, self.num_classes, self.in_chans = net, num_classes, in_chans
        self.image_size = (net.side, net.side)

    @property
    def picture(self) -> PictureInput:
        """What it does to pictures: `size`, `mean`, `std`, `interpolation`."""
        return self.trunk.picture
