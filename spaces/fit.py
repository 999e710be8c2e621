"""Windows of attention, patches and stems that fit a map."""

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from ..archs import Genotype, Stage, Stem
from ..archs.layout import ImageSize, Map

PLAIN_STEMS = {1: "cifar", 2: "conv2", 4: "imagenet"}  # by their stride
MODERN_STEMS = PLAIN_STEMS | {4: "conv4"}  # the plain one of stride 4 costs more than a small modern net after it
KEPT = 2**16  # stages
WHOLE = 400  # pixels of the largest map over the whole of which a block attends
WIDEST = 8  # the side of windows on a larger map, where the whole of it was asked for


def pixels(at: Map) -> int:
    return prod(at)


def maps_of(net: Genotype, image_size: ImageSize) -> list[Map]:
    """The map after each stage."""
    return [stage[-1].map_out for stage in net.plan(image_size).stages]


@lru_cache(maxsize=KEPT)
def varied(stage: Stage, *changes: tuple[str, Any]) -> Stage:
    """The stage with other values of fields; each is made and checked once, however many nets have it."""
    return replace(stage, **dict(changes))


def fit_window(window: int, side: int) -> int:
    """The largest window of at most `window` that divides a map of `side`; 0, the whole map, if none but 1 does."""
    if window == 0 or window >= side:
        return 0
    return next((w for w in range(window, 1, -1) if side % w == 0), 0)


def window_of(window: int, at: Map) -> int | None:
    """The largest window of at most `window` (0: of any) that divides the map `at`; 0 is the whole map.

    Of maps above `WHOLE` pixels one of at most `WIDEST`; None if none but 1 divides such a map.
    """
    if (window == 0 or window >= max(at)) and pixels(at) <= WHOLE:
        return 0
    widest = next((w for w in range(min(window or WIDEST, *at), 1, -1) if at[0] % w == at[1] % w == 0), None)
    return 0 if widest is None and pixels(at) <= WHOLE else widest


def fit_patch(patch: int, at: Map, most_tokens: int) -> int:
    """`patch`, doubled until at most `most_tokens` remain; 1 if it does not divide the map or leaves one token."""
    while at[0] * at[1] > most_tokens * patch * patch:
        patch *= 2
    fits = at[0] % patch == 0 and at[1] % patch == 0 and at[0] * at[1] > patch * patch
    return patch if fits else 1


def free_stems(strides: tuple[int, ...], image: Map) -> tuple[str, ...]:
    """Stems of these strides; patches of the least where they divide the image, and of twice it, or convs."""
    least = strides[0]
    plain = [PLAIN_STEMS[stride] for stride in strides]
    patches = [f"patchify{least}"] if least > 1 and _divides(least, image) else []
    modern = [MODERN_STEMS[stride] for stride in strides]
    twice = f"patchify{2 * least}" if _divides(2 * least, image) else f"conv{2 * least}"
    return tuple(dict.fromkeys([*plain, *patches, *modern, twice]))


def make_stem(name: str, width: int) -> Stem:
    """The stem of a name such as "cifar", "patchify4" or "conv4", 3x3 convs that stride by 4 together."""
    kind = name.rstrip("0123456789")
    stride = int(name[len(kind) :] or 1)
    if kind != "conv":
        return Stem(kind, width, stride if kind == "patchify" else 0)
    halvings = stride.bit_length() - 1
    return Stem(kind, width, before=tuple(max(1, width >> n) for n in range(halvings - 1, 0, -1)), halvings=halvings)


def stem_name(stem: Stem) -> str:
    """The name by which `make_stem` gives a stem of this kind and stride."""
    return stem.kind + (str(stem.stride) if stem.kind in ("patchify", "conv") else "")


def _divides(patch: int, image: Map) -> bool:
    return image[0] % patch == 0 and image[1] % patch == 0
