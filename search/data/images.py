"""Whole sources of pictures, read in threads: to arrays, or to digests; and a survey of a sample."""

import logging
import struct
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from textwrap import shorten
from typing import Any

import numpy as np
from PIL import Image

from ...archs.cpus import usable_cpus
from ...archs.errors import InputError
from ...archs.pictures import DEEP, DEEP_COLOUR, LEVELS, PAGES, ImageSpec, form_of, to_array, to_mode
from .dataset import ImageSource, Pictures

# What a broken file makes Pillow raise, found by feeding it tens of thousands of them.
BROKEN = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
CHUNK = 256
WAITING = 4  # threads more than CPUs, as some wait for the disk
DEEP_BITS, COLOUR_BITS = 16, 48  # of grey pictures of more than 8 bits, and of colour, of which 8 a channel are read
FORM = np.dtype(  # what is known of a picture: its sides, upright; its bits and values; whether it is of one value
    [(name, np.int32) for name in ("height", "width", "colour", "bits", "low", "high", "flat", "pages")]
)
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # Pillow's, from 89 million pixels on

Report = Callable[[int, int], None]
MIN_LEVELS = 32  # of 256 that most pictures must have a share in
APART = 8  # times the values of another part: pictures of 12 and of 16 bits are 16 times apart
log = logging.getLogger("alternas")


def one_line(error: BaseException) -> str:
    """The message of an error in one line that is not too long."""
    return shorten(str(error), 300, placeholder=" ...") or type(error).__name__


def facts_of(image: Image.Image) -> tuple[int, ...]:
    """What is known of a picture, as FORM has it."""
    if image.mode in DEEP:  # of which Pillow tells not all extremes
        values_HW = np.asarray(image)
        bits, extremes_B2 = DEEP_BITS, np.array([[values_HW.min(), values_HW.max()]], np.int64)
    else:
        bits = COLOUR_BITS if image.info.get(DEEP_COLOUR) else 8
        extremes_B2 = np.array(image.getextrema()).reshape(-1, 2)
    low, high = int(extremes_B2[:, 0].min()), int(extremes_B2[:, 1].max())
    is_flat = bool((extremes_B2[:, 0] == extremes_B2[:, 1]).all())
    return *form_of(image), bits, low, high, is_flat, image.info.get(PAGES, 1)


@dataclass(frozen=True)
class ReadPictures:
    """Pictures of a source after one reading."""

    values: np.ndarray  # x_NCHW, or one digest a picture; 0 where a picture is broken
    form_N: np.ndarray  # of kind FORM; 0 where it could not be opened
    broken: dict[int, str]  # why pictures cannot be read, by their place in the source


def read_all(pictures: Pictures, report: Report) -> ReadPictures:
    """Read x_NCHW, uint8, in the order of `pictures`. `report` is called with (done, total)."""
    x_NCHW = np.zeros((len(pictures), pictures.spec.channels, *pictures.spec.size), np.uint8)
    return _read(pictures.source, pictures.places_N, x_NCHW, lambda image: to_array(image, pictures.spec), report)


def check_all(source: ImageSource, report: Report) -> ReadPictures:
    """Check every picture of a source, keep only a digest of what is seen, uint64; `report` as for `read_all`."""

    def digest(image: Image.Image) -> int:
        seen = np.asarray(image, np.int32) if image.mode in DEEP else np.asarray(to_mode(image, 3))
        return int.from_bytes(blake2b(seen.tobytes() + repr(seen.shape).encode(), digest_size=8).digest())

    return _read(source, np.arange(len(source)), np.zeros(len(source), np.uint64), digest, report)


def _read(
    source: ImageSource,
    places_N: np.ndarray,
    values: np.ndarray,
    value_of: Callable[[Image.Image], np.ndarray | int],
    report: Report,
) -> ReadPictures:
    form_N = np.zeros(len(places_N), FORM)

    def attempt(row: int) -> str:
        try:
            image = source.open(int(places_N[row]))
            form_N[row] = facts_of(image)
            values[row] = value_of(image)
        except BROKEN as error:
            return one_line(error)
        return ""

    broken: dict[int, str] = {}
    with ThreadPoolExecutor(usable_cpus() + WAITING) as pool:  # Pillow decodes side by side
        for start in range(0, len(places_N), CHUNK):
            rows = range(start, min(start + CHUNK, len(places_N)))
            reasons = pool.map(attempt, rows)
            broken |= {int(places_N[row]): reason for row, reason in zip(rows, reasons, strict=True) if reason}
            report(rows.stop, len(places_N))
    return ReadPictures(values, form_N, broken)


def survey(sources: Sequence[ImageSource], most: int = 256) -> tuple[list[tuple[int, int]], bool]:
    """(height, width), upright, of a fixed sample of whole pictures, and whether none of it has colour."""
    first_S = np.cumsum([0, *map(len, sources)])
    chosen = np.sort(np.random.default_rng(0).permutation(first_S[-1])[:most])
    forms = []
    for source, places_N in zip(sources, np.split(chosen, np.searchsorted(chosen, first_S[1:-1])), strict=True):
        own_N = places_N - first_S[len(forms)]
        forms.append(_read(source, own_N, np.zeros(len(own_N), bool), lambda image: True, lambda done, total: None))
    form_N = np.concatenate([read.form_N[read.values] for read in forms])
    return list(zip(form_N["height"].tolist(), form_N["width"].tolist(), strict=True)), not form_N["colour"].any()


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
