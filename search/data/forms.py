"""What the pictures of a set are like, from what is known of each: sizes, levels, pages, and those of one value."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...archs.errors import InputError
from ...archs.pictures import LEVELS, ImageSpec
from .images import COLOUR_BITS, DEEP_BITS

MIN_LEVELS = 32  # of 256 that most pictures must have a share in
APART = 8  # times the values of another part: pictures of 12 and of 16 bits are 16 times apart
log = logging.getLogger("alternas")


def levels_in_use(name: str, forms: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """The values that become 0 and 255 in grey pictures of more than 8 bits: the least and the largest of them all.

    16 bits that are in use are LEVELS as they are. `forms` are of kind `images.FORM`, by part. InputError if 8 bits
    would leave little of most pictures, or one part has values of another scale.
    """
    _check_colour(name, np.concatenate(list(forms.values())))
    deep = {part: form_N[form_N["bits"] == DEEP_BITS] for part, form_N in forms.items()}
    deep = {part: form_N for part, form_N in deep.items() if len(form_N)}
    if not deep:
        return LEVELS
    ranges = {part: (int(form_N["low"].min()), int(form_N["high"].max())) for part, form_N in deep.items()}
    low, high = min(low for low, _ in ranges.values()), max(high for _, high in ranges.values())
    if low == high:
        return LEVELS
    spans = {part: high - low for part, (low, high) in ranges.items() if high > low}
    narrow, wide = min(spans, key=spans.__getitem__), max(spans, key=spans.__getitem__)
    if spans[wide] >= APART * spans[narrow]:
        one, other = (f"{part} holds values of {ranges[part][0]:,} to {ranges[part][1]:,}" for part in (wide, narrow))
        raise InputError(f"data: {name}: {one}, and {other}; bring them to one scale")
    is_whole = low >= LEVELS[0] and high <= LEVELS[1] and 2 * (high - low) > LEVELS[1]
    levels = LEVELS if is_whole else (low, high)
    _check_most(name, np.concatenate(list(deep.values())), levels)
    return levels


def _check_most(name: str, form_N: np.ndarray, levels: tuple[int, int]) -> None:
    """Refuse levels of which most pictures would use few, as where a single one has far larger values."""
    span_N = form_N["high"].astype(np.int64) - form_N["low"]
    usual = float(np.median(span_N[span_N > 0]))
    left = int(usual * 255 / (levels[1] - levels[0])) + 1
    if left < MIN_LEVELS:
        rule = f"values of {levels[0]:,} to {levels[1]:,} would become 0 to 255, and half of the pictures have at most"
        remedy = "cut off the few far values, or scale each picture to 8 bits"
        raise InputError(f"data: {name}: {rule} {left} of these levels; {remedy}")


def _check_colour(name: str, form_N: np.ndarray) -> None:
    """Refuse colour of 16 bits, of which Pillow reads the upper 8, where little is in these."""
    high_N = form_N["high"][form_N["bits"] == COLOUR_BITS]
    if len(high_N) and (most := int(high_N.max())) < MIN_LEVELS:
        rule = f"of colour of 16 bits a channel the upper 8 are read, and they reach from 0 to {most} of 255"
        raise InputError(f"data: {name}: {rule}; scale the pictures to 8 bits")


def notes_of(name: str, forms: Mapping[str, np.ndarray], levels: tuple[int, int]) -> dict[str, Any]:
    """Log and return, as notes: levels that are not those of 16 bits, pictures of several pages, and of one value."""
    form_N, notes = np.concatenate(list(forms.values())), dict[str, Any]()
    if levels != LEVELS:
        rule = "values of picture files from %s to %s become 0 to 255, in exports too"
        log.warning(f"data: %s: {rule}", name, f"{levels[0]:,}", f"{levels[1]:,}")
        notes["levels"] = list(levels)
    if several := int((form_N["pages"] > 1).sum()):
        rule = f"several pages or frames, up to {form_N['pages'].max():,}: the first of each is read"
        log.warning("data: %s: %s of %s pictures have %s", name, f"{several:,}", f"{len(form_N):,}", rule)
        notes["several_pages"] = several
    if flat := int((form_N["flat"] > 0).sum()):
        log.warning("data: %s: %s of %s pictures are of one value each", name, f"{flat:,}", f"{len(form_N):,}")
        notes["one_value"] = flat
    return notes


def describe_forms(spec: ImageSpec, form_N: np.ndarray, chosen: str) -> str:
    """Describe the pictures in words: colour, sizes, those that are unlike most, what they are brought to."""
    sides_N2 = np.stack([form_N["height"], form_N["width"]], axis=1)
    sizes_K2, counts_K = np.unique(sides_N2, axis=0, return_counts=True)
    usual, total, coloured = counts_K.argmax(), len(form_N), int(form_N["colour"].sum())
    others = total - int(counts_K[usual])

    def size_range(sizes_K2: np.ndarray) -> str:
        smallest, largest = ("x".join(map(str, side)) for side in (sizes_K2.min(0), sizes_K2.max(0)))
        return smallest if smallest == largest else f"{smallest} to {largest}"

    if 2 * others > total:
        text = f"of {size_range(sizes_K2)}"
    else:
        text = f"of {size_range(sizes_K2[[usual]])}"
        text += f" but for {others:,} of {total:,}, of {size_range(np.delete(sizes_K2, usual, 0))}" if others else ""
    if others or tuple(sizes_K2[usual]) != spec.size:
        text += f", brought to {spec.size[0]}x{spec.size[1]}{chosen}"
    if spec.channels == 3:
        return f"colour, {text}"
    return f"grey, {text}" + (f"; {coloured:,} of {total:,} have colour, which is left out" if coloured else "")
