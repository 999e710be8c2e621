"""Which nets are allowed: search spaces by name, bound to an image size."""

from __future__ import annotations

from collections.abc import Callable

from ..archs.errors import one_of
from ..archs.plan import ImageSize
from .alternet import AlterNetSpace
from .bench import BenchSpace, PlacementSpace
from .choosers import Chooser, Gene, Genes, Memo, RandomChooser, Replay
from .free import FreeSpace
from .hybrid import HybridSpace
from .modern import ModernSpace
from .resnet import ResNetSpace
from .space import Space, cheapest, members, options_of, plain_genes
from .union import AllSpace

SPACES: dict[str, Callable[[ImageSize], Space]] = {
    "all": AllSpace,
    "alternet": AlterNetSpace,
    "bench": BenchSpace,
    "free": FreeSpace,
    "hybrid": HybridSpace,
    "modern": ModernSpace,
    "placements": PlacementSpace,
    "resnet": ResNetSpace,
}

__all__ = [
    "SPACES",
    "Chooser",
    "Gene",
    "Genes",
    "Memo",
    "RandomChooser",
    "Replay",
    "Space",
    "cheapest",
    "get",
    "members",
    "options_of",
    "plain_genes",
]


def get(name: str, image_size: ImageSize) -> Space:
    """The named space with the options that suit `image_size`.

    Raises:
        InputError: if the name is unknown or the space does not allow the image size.
    """
    return SPACES[one_of("space", name, SPACES)](image_size)
