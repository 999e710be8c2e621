"""Nets of timm by their names there, beside `Genotype`: `TimmNet`, a whole one, and `CutNet`, one cut after a block.

A search trains whole ones as references, and judges cuts of pretrained ones, of our own nets too. They have a key, a
family and a cost as genotypes have them, and no genes: what works on stages and blocks refuses them. No torch before
one is counted.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from .cost import Cost, static_cost
from .errors import InputError, check_choice, check_int, short_repr
from .genotype import OWN_FIELD, TIMM_FIELD, Genotype
from .layout import ImageSize, Map, as_map
from .own_net import OwnNet, Trunk, own_net_from_dict

TIMM = "timm:"  # of its name, where people name nets
NAME = re.compile(r"\w{1,100}", re.ASCII)
TAGGED = re.compile(r"\w{1,100}(\.\w{1,100})?", re.ASCII)  # with the tag of pretrained weights
POOLINGS = ("mean", "mean-max", "grid", "all")  # of maps to features: `archs/timm/cuts.py`
MAX_BLOCK, MAX_SIDE = 1023, 16384
PREFIXES = ("tf", "ese", "eca", "gc", "dm", "legacy", "test", "bat", "lambda")  # of names in timm, before the family


@dataclass(frozen=True)
class TimmNet:
    """One of timm's nets."""

    name: str  # of the architecture in timm, without the tag of pretrained weights
    family: ClassVar[str] = "timm"

    @cached_property
    def key(self) -> str:
        """12 hexadecimal digits, as those of a genotype."""
        return hashlib.sha256(f"{TIMM}{self.name}".encode()).hexdigest()[:12]

    @property
    def source(self) -> str:
        """Its name, and whose it is."""
        return f"timm's {self.name}"

    def to_dict(self) -> dict[str, Any]:
        """JSON of a record, in place of a genotype."""
        return {TIMM_FIELD: self.name}


@dataclass(frozen=True)
class CutNet:
    """A pretrained net, asked for when it is built or counted, cut after a block, pooled, with a linear head."""

    trunk: Trunk  # its name in timm, with or without the tag of pretrained weights, or a net of our own
    block: int  # index among the net's `cut_points` (archs/timm/cut_points.py); nothing after it is kept
    side: int  # of the images that the net sees, in pixels; not the run's
    pooling: str = POOLINGS[0]  # of the map after the block, one of `POOLINGS`

    def __post_init__(self) -> None:
        if not isinstance(self.trunk, OwnNet) and not (isinstance(self.trunk, str) and TAGGED.fullmatch(self.trunk)):
            raise InputError(f"cut net: name must be that of one of timm's nets, got {short_repr(self.trunk)}")
        check_int("cut net", "block", self.block, 0, MAX_BLOCK)
        check_int("cut net", "side", self.side, 1, MAX_SIDE)
        check_choice("cut net: pooling", self.pooling, POOLINGS)

    @cached_property
    def key(self) -> str:
        """12 hexadecimal digits, as those of a genotype."""
        weights = self.trunk.identity if isinstance(self.trunk, OwnNet) else f"{TIMM}{self.trunk}"
        text = f"{weights} {self.block} {self.side} {self.pooling}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Name of the pretrained net."""
        return str(self.trunk)

    @property
    def source(self) -> str:
        """Its name, and whose it is."""
        return self.name if isinstance(self.trunk, OwnNet) else f"timm's {self.name}"

    @cached_property
    def family(self) -> str:
        """The first word of timm's name, without the number of its layers: "mobilenetv4", "resnet"; of ours its own."""
        if isinstance(self.trunk, OwnNet):
            return self.trunk.genotype.family
        words = self.name.split(".")[0].split("_")
        word = next((word for word in words[:-1] if word not in PREFIXES), words[-1])
        return re.sub(r"(?<![v\d])\d+[a-z]{0,3}$", "", word) or word

    def to_dict(self) -> dict[str, Any]:
        """JSON of a record, in place of a genotype."""
        named = {OWN_FIELD: self.trunk.to_dict()} if isinstance(self.trunk, OwnNet) else {TIMM_FIELD: self.trunk}
        return named | {"block": self.block, "side": self.side, "pooling": self.pooling}


Net = Genotype | TimmNet | CutNet


CUT_FIELDS = {"block", "side", "pooling"}


@dataclass(frozen=True)
class CountedCost:
    """Cost of one image in a net of timm; its activations are not known."""

    params: int  # parameters
    macs: int  # multiply-accumulates of a forward pass

    def totals(self) -> dict[str, int]:
        return asdict(self)


def picture_moments(
    mean: Sequence[float], std: Sequence[float], white_level: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) by channel that make raw values the pictures of 0 to 1 that cut nets take: (raw - mean) / std.

    Where the raw value of white is not known, 0, 0 to 1 is two deviations to both sides of the data's mean.
    """
    if white_level:
        return (0.0,) * len(mean), (white_level,) * len(mean)
    return tuple(m - 2 * s for m, s in zip(mean, std, strict=True)), tuple(4 * s for s in std)


def side_seen(net: Net, image_size: Map) -> Map:
    """(height, width) of the images that a net sees in a run of images of `image_size`: a cut net has its own."""
    return (net.side, net.side) if isinstance(net, CutNet) else image_size


def net_from_dict(data: Any) -> Net:
    """The net of a record, of a weights file or of an export; InputError if it is no genotype, net of timm or cut."""
    if isinstance(data, dict) and set(data) == {OWN_FIELD, *CUT_FIELDS}:
        return CutNet(own_net_from_dict(data), data["block"], data["side"], data["pooling"])
    if not (isinstance(data, dict) and TIMM_FIELD in data):
        return Genotype.from_dict(data)
    name = data[TIMM_FIELD]
    if set(data) == {TIMM_FIELD, *CUT_FIELDS}:
        return CutNet(name, data["block"], data["side"], data["pooling"])
    if len(data) > 1 or not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"net: must be a genotype or the name of one of timm's, got {short_repr(data)}")
    return TimmNet(name)


def net_cost(net: Net, num_classes: int, image_size: ImageSize, in_chans: int = 3) -> Cost | CountedCost:
    """Cost of a net: of a genotype in closed form; one of timm's is counted, with torch and timm.

    `image_size` is a side in pixels, or (height, width); a cut net has its own. InputError if it cannot be built so.
    """
    if isinstance(net, Genotype):
        return static_cost(net, num_classes, image_size, in_chans)
    if isinstance(net, CutNet):
        return cut_cost(net, num_classes)
    return counted_cost(net, num_classes, as_map(image_size), in_chans)


@lru_cache(maxsize=64)
def counted_cost(net: TimmNet, num_classes: int, image_size: Map, in_chans: int) -> CountedCost:
    """Cost of a whole net of timm; arguments and errors as of `net_cost`."""
    from .timm import count_timm

    counts, _ = count_timm(net.name, image_size, num_classes, in_chans)
    return CountedCost(counts["params"], counts["macs"])


def cut_cost(net: CutNet, num_classes: int) -> CountedCost:
    """Cost of a cut net with its head: features x classes, with biases; errors as of `net_cost`."""
    from .timm.cut_points import num_features, trunk_costs

    weights = num_features(net.trunk, net.block, net.pooling) * num_classes
    params, macs = trunk_costs(net.trunk, net.side)[net.block]
    return CountedCost(params + weights + num_classes, macs + weights)
