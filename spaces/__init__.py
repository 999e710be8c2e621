"""Which nets are allowed: search spaces by name, bound to an image size."""

from __future__ import annotations

from collections.abc import Callable

from ..archs.errors import one_of
from ..archs.plan import ImageSize
from .alternet import AlterNetSpace
from .bench import BenchSpace, PlacementSpace
from .check import check
from .choosers import Chooser, Gene, Genes, Memo, RandomChooser, Replay
from .file import FileSpace, is_file
from .free import FreeSpace
from .hybrid import HybridSpace
from .modern import ModernSpace
from .resnet import ResNetSpace
from .space import Space, members, options_of, plain_genes
from .union import AllSpace
from .within import Within, cheapest

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
    "FileSpace",
    "Gene",
    "Genes",
    "Memo",
    "RandomChooser",
    "Replay",
    "Space",
    "Within",
    "cheapest",
    "check",
    "find",
    "get",
    "is_file",
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


def find(space: str, image_size: ImageSize) -> Space:
    """The space that was typed: a name, or a file of the user's own, such as "./my_space.py", which is run.

    Raises:
        InputError: as `get` and `FileSpace`.
    """
    if is_file(space):
        return FileSpace(space, image_size)
    return SPACES[one_of("space", space, [*SPACES, "./my_space.py"])](image_size)
