"""Whole sources of pictures, read in threads: to arrays, or to digests; and a survey of a sample."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from textwrap import shorten

import numpy as np
from PIL import Image

from ...archs.cpus import usable_cpus
from ...archs.pictures import DEEP, DEEP_COLOUR, PAGES, form_of, to_array, to_mode
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
    ends = np.cumsum([len(source) for source in sources])
    chosen = np.sort(np.random.default_rng(0).permutation(ends[-1])[:most])

    def attempt(number: int) -> tuple[int, int, bool] | None:
        source = sources[which := int(np.searchsorted(ends, number, side="right"))]
        try:
            return form_of(source.open(int(number - ends[which] + len(source))))
        except BROKEN:
            return None

    with ThreadPoolExecutor(usable_cpus() + WAITING) as pool:
        forms = [form for form in pool.map(attempt, chosen) if form]
    return [(height, width) for height, width, _ in forms], not any(coloured for *_, coloured in forms)
