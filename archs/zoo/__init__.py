"""Named nets, with paper, original code and what differs. Names follow timm without the resolution.

One file a family. The functions that make the families of the papers are public: `alternet`, `resnet`, `preresnet`,
`bit`, `vit`, `vit_hybrid`.
"""

from ..errors import check_choice
from ..genotype import Genotype
from ..layout import ImageSize
from .families import Entry, alternet, alternets, bit, bits, hybrids, preresnet, resnet, resnets, vit, vit_hybrid, vits
from .mobile import mobiles
from .modern import convnexts, efficientvits, mambaouts

__all__ = [
    "BY_ORDER",
    "ZOO",
    "alternet",
    "bit",
    "get",
    "names",
    "preresnet",
    "resnet",
    "timm_name",
    "vit",
    "vit_hybrid",
]

ZOO: dict[str, Entry] = (
    alternets()
    | resnets()
    | bits()
    | vits()
    | hybrids()  # of the papers
    | mobiles()
    | efficientvits()
    | convnexts()
    | mambaouts()
)
BY_ORDER = {entry.timm: entry for entry in ZOO.values() if entry.by_order}  # by timm's name


def names() -> list[str]:
    """The names that `get` knows."""
    return list(ZOO)


def get(name: str, image_size: ImageSize = 224) -> Genotype:
    """The named net, with the stem and window that suit `image_size`; InputError if the name is unknown."""
    return ZOO[check_choice("architecture", name, ZOO)].make(image_size)


def timm_name(genotype: Genotype) -> str | None:
    """The model of timm that is this net at 224 px, if one of the zoo's is."""
    return next((e.timm for e in ZOO.values() if e.timm and e.make(224).key == genotype.key), None)
