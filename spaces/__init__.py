"""Which nets are allowed: search spaces by name, bound to an image size."""

from __future__ import annotations

from collections.abc import Callable

from ..archs.errors import check_choice
from ..archs.layout import ImageSize
from .base import (
    Chooser,
    FixedChooser,
    Gene,
    Genes,
    JointSpace,
    Priors,
    RandomChooser,
    RecordingChooser,
    Space,
    draw_option,
    members,
    options_of,
    plain_genes,
    priors_of,
    random_genes,
    random_net,
)
from .bench import BenchSpace, PlacementSpace
from .families import AllSpace, AlterNetSpace, HybridSpace, ModernSpace, ResNetSpace
from .feasible import FeasibleNets, cheapest, ends, find_genes
from .free import FreeSpace
from .pretrained import PRETRAINED
from .small import EdgeSpace, MobileSpace
from .user_file import FileSpace, check, is_file

SPACES: dict[str, Callable[[ImageSize], Space]] = {
    "all": AllSpace,
    "alternet": AlterNetSpace,
    "bench": BenchSpace,
    "edge": EdgeSpace,
    "free": FreeSpace,
    "hybrid": HybridSpace,
    "mobile": MobileSpace,
    "modern": ModernSpace,
    "placements": PlacementSpace,
    "resnet": ResNetSpace,
}

__all__ = [
    "PRETRAINED",
    "SPACES",
    "Chooser",
    "FeasibleNets",
    "FileSpace",
    "FixedChooser",
    "Gene",
    "Genes",
    "JointSpace",
    "Priors",
    "RandomChooser",
    "RecordingChooser",
    "Space",
    "cheapest",
    "check",
    "draw_option",
    "ends",
    "find",
    "find_genes",
    "get",
    "is_file",
    "members",
    "options_of",
    "plain_genes",
    "priors_of",
    "random_genes",
    "random_net",
]


def get(name: str, image_size: ImageSize) -> Space:
    """The named space with the options that suit `image_size`.

    Raises:
        InputError: if the name is unknown or the space does not allow the image size.
    """
    return SPACES[check_choice("space", name, SPACES)](image_size)


def find(space: str, image_size: ImageSize) -> Space:
    """The space that was typed: a name, or a file of the user's own, such as "./my_space.py", which is run.

    Raises:
        InputError: as `get` and `FileSpace`.
    """
    if is_file(space):
        return FileSpace(space, image_size)
    return SPACES[check_choice("space", space, [*SPACES, "./my_space.py"])](image_size)
