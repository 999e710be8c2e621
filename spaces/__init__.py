"""Which nets are allowed: search spaces by name, bound to an image size."""

from collections.abc import Callable
from pathlib import Path

from ..archs import Genotype, zoo
from ..archs.errors import InputError, check_choice
from ..archs.json_files import read_json
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
from .families import SWAPS, AllSpace, AlterNetSpace, HybridSpace, ModernSpace, ResNetSpace, SwapSpace
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
    "SwapSpace",
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
    """The named space with the options that suit `image_size`; InputError if there is none."""
    return SPACES[check_choice("space", name, SPACES)](image_size)


def find(space: str, image_size: ImageSize, start: Genotype | None = None) -> Space:
    """The space that was typed: a name; a file of the user's own, such as "./my_space.py", which is run; or swaps.

    Those are of a plain ResNet: of the zoo by its name, of a genotype's .json file, or of `start` by the name "swaps".
    InputError as `get`, `FileSpace` and `SwapSpace`.
    """
    if space.endswith(".json"):
        return SwapSpace(read_json(Path(space), Genotype, Path.read_bytes), image_size)
    if is_file(space):
        return FileSpace(space, image_size)
    if space in zoo.names():
        return SwapSpace(zoo.get(space, image_size), image_size)
    if space == SWAPS:
        if start is None:
            raise InputError(f"space {SWAPS}: is of the ResNet of --from, got none")
        return SwapSpace(start, image_size)
    return SPACES[check_choice("space", space, [*SPACES, SWAPS, "./my_space.py"])](image_size)
