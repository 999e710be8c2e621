"""`TimmNet`: one of timm's nets, by its name there, beside `Genotype`. `Net` is either. No torch before one is counted.

A search trains such nets as references. They have a key, a family and a cost as genotypes have them, and no genes:
what works on stages and blocks refuses them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from .cost import BACKWARD_FACTOR, Cost, static_cost
from .errors import InputError, short_repr
from .genotype import TIMM_FIELD, Genotype
from .layout import ImageSize, Map, as_map

TIMM = "timm:"  # of its name, where people name nets
NAME = re.compile(r"\w{1,100}", re.ASCII)


@dataclass(frozen=True)
class TimmNet:
    """One of timm's nets.

    Attributes:
        name: of the architecture in timm, without the tag of pretrained weights.
    """

    name: str
    family: ClassVar[str] = "timm"

    @cached_property
    def key(self) -> str:
        """12 hexadecimal digits, as those of a genotype."""
        return hashlib.sha256(f"{TIMM}{self.name}".encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """JSON of a record, in place of a genotype."""
        return {TIMM_FIELD: self.name}


Net = Genotype | TimmNet


@dataclass(frozen=True)
class CountedCost:
    """Cost of one image in a net of timm; its activations are not known."""

    params: int  # parameters
    macs: int  # multiply-accumulates of a forward pass

    def training_flops(self, images: float) -> float:
        """FLOPs of training on so many images, as `Cost.training_flops`."""
        return BACKWARD_FACTOR * self.macs * images

    def totals(self) -> dict[str, int]:
        return asdict(self)


def net_from_dict(data: Any) -> Net:
    """The net of a record, of a weights file or of an export.

    Raises:
        InputError: if it is neither a genotype nor one of timm's nets.
    """
    if not (isinstance(data, dict) and TIMM_FIELD in data):
        return Genotype.from_dict(data)
    name = data[TIMM_FIELD]
    if len(data) > 1 or not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"net: must be a genotype or the name of one of timm's, got {short_repr(data)}")
    return TimmNet(name)


def net_cost(net: Net, num_classes: int, image_size: ImageSize, in_chans: int = 3) -> Cost | CountedCost:
    """Cost of a net: of a genotype in closed form; one of timm's is counted, with torch and timm.

    Raises:
        InputError: if the net cannot be built at `image_size`, or timm does not know it.
    """
    if isinstance(net, Genotype):
        return static_cost(net, num_classes, image_size, in_chans)
    return counted_cost(net, num_classes, as_map(image_size), in_chans)


@lru_cache(maxsize=64)
def counted_cost(net: TimmNet, num_classes: int, image_size: Map, in_chans: int) -> CountedCost:
    """Cost of a net of timm; arguments and errors as of `net_cost`."""
    from .timm import count_timm

    counts, _ = count_timm(net.name, image_size, num_classes, in_chans)
    return CountedCost(counts["params"], counts["macs"])
