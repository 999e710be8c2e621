"""Pictures to arrays: decoding, colour modes and sizes, of one picture and, in threads, of a whole source."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import IO

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.Image import Transpose

from .dataset import ImageSource, ImageSpec, Pictures

# What a broken file makes Pillow raise, found by feeding it tens of thousands of them.
BROKEN = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
DEEP = ("I", "I;16", "I;16L", "I;16B")
KNOWN_MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "PA", "RGBA")
TURNS = {  # how to stand a picture up, by its EXIF orientation
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
LYING = (Transpose.TRANSPOSE, Transpose.ROTATE_270, Transpose.TRANSVERSE, Transpose.ROTATE_90)
CHUNK = 256
MOST_PIXELS = 2**26  # of one picture: cameras have 50 million; decoded they take up to 1 GB
TOO_LARGE = f"has more than {MOST_PIXELS:,} pixels, the most that are read of one picture; shrink it first"
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # Pillow's, from 89 million pixels on

Report = Callable[[int, int], None]


def decode(file: str | Path | IO[bytes]) -> Image.Image:
    """Decode the picture in a file, in its own mode; of a moving one the first frame.

    Raises:
        OSError, ValueError, SyntaxError and the rest of `BROKEN`: if it is broken.
    """
    try:
        with Image.open(file) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(TOO_LARGE)
            image.load()
            return image
    except Image.DecompressionBombError:
        raise ValueError(TOO_LARGE) from None
    except UnidentifiedImageError:
        raise UnidentifiedImageError("not a picture, or of a format that Pillow does not know") from None
    except (TypeError, RuntimeError) as error:  # of its TIFF and AVIF decoders, on broken files
        raise ValueError(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """The message of an error in one line that is not too long."""
    return shorten(str(error), 300, placeholder=" ...") or type(error).__name__


def form_of(image: Image.Image) -> tuple[int, int, bool]:
    """Height and width of the picture once it stands upright, and whether its mode holds colour."""
    height, width = image.size if _turn(image) in LYING else image.size[::-1]
    return height, width, image.mode not in ("1", "L", "LA", *DEEP)


def to_mode(image: Image.Image, channels: int) -> Image.Image:
    """Turn the picture upright, as its EXIF orientation says, and convert it to 8 bits: RGB for 3 channels, L for 1.

    Raises:
        ValueError: if its mode is none that a camera or a drawing has.
    """
    # ImageOps.exif_transpose does the same, but also writes the EXIF anew, and fails where that is junk.
    image = image if (turn := _turn(image)) is None else image.transpose(turn)
    if image.mode in DEEP:
        # 65535 becomes 255: Pillow's own convert would clip at 255
        deep_HW = np.asarray(image).astype(np.int64).clip(0, 65535)
        grey_HW = ((deep_HW + 128) // 257).astype(np.uint8)
        if "transparency" in image.info:
            grey_HW[deep_HW == image.info["transparency"]] = 255
        image = Image.fromarray(grey_HW)
    elif image.mode not in KNOWN_MODES:
        raise ValueError(f"pictures of mode {image.mode} are not supported")
    elif image.has_transparency_data:
        # on white, as a page would be: under what is transparent lie colours that mean nothing
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    plain = image.convert("RGB" if channels == 3 else "L")
    plain.info = {}  # its orientation holds no longer
    return plain


def _turn(image: Image.Image) -> Transpose | None:
    return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))


def fit(image: Image.Image, spec: ImageSpec) -> Image.Image:
    """Resize the picture just to cover the size of `spec`, cut out the middle, and convert it to its channels.

    Nothing is resampled where one side fits already.

    Raises:
        ValueError: as `to_mode` does.
    """
    image, (height, width) = to_mode(image, spec.channels), spec.size
    if image.size == (width, height):
        return image
    scale = max(width / image.width, height / image.height)

    def middle(old: int, new: int) -> tuple[float, float]:
        """What resizing to cover, and cutting in whole pixels, would leave of a side."""
        cover = max(new, round(old * scale))
        start = (cover - new) // 2
        return start * old / cover, (start + new) * old / cover

    # resizing that box alone gives the same, and a long strip does not fill the memory on the way
    (left, right), (top, bottom) = middle(image.width, width), middle(image.height, height)
    return image.resize((width, height), Image.Resampling.BICUBIC, (left, top, right, bottom))


def to_array(image: Image.Image, spec: ImageSpec) -> np.ndarray:
    """x_CHW, uint8, of a picture brought to a form by `fit`."""
    x_HWC = np.asarray(fit(image, spec)).reshape(*spec.size, spec.channels)
    return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))


@dataclass(frozen=True)
class ReadPictures:
    """Pictures of a source after one reading."""

    values: np.ndarray  # x_NCHW, or one checksum a picture; 0 where a picture is broken
    form_N3: np.ndarray  # height and width, upright, and 1 if it has colour; 0 where it could not be opened
    broken: dict[int, str]  # why pictures cannot be read, by their place in the source


def read_all(pictures: Pictures, report: Report) -> ReadPictures:
    """Read x_NCHW, uint8, in the order of `pictures`. `report` is called with (done, total)."""
    x_NCHW = np.zeros((len(pictures), pictures.spec.channels, *pictures.spec.size), np.uint8)
    return _read(pictures.source, pictures.places_N, x_NCHW, lambda image: to_array(image, pictures.spec), report)


def check_all(source: ImageSource, report: Report) -> ReadPictures:
    """Check every picture of a source and keep only its CRC-32 as colour, uint32; `report` as for `read_all`."""

    def checksum(image: Image.Image) -> int:
        image = to_mode(image, 3)
        return zlib.crc32(image.tobytes(), zlib.crc32(repr(image.size).encode()))

    return _read(source, np.arange(len(source)), np.zeros(len(source), np.uint32), checksum, report)


def _read(
    source: ImageSource,
    places_N: np.ndarray,
    values: np.ndarray,
    value_of: Callable[[Image.Image], np.ndarray | int],
    report: Report,
) -> ReadPictures:
    form_N3 = np.zeros((len(places_N), 3), np.int32)

    def attempt(row: int) -> str:
        try:
            image = source.open(int(places_N[row]))
            form_N3[row] = form_of(image)
            values[row] = value_of(image)
        except BROKEN as error:
            return one_line(error)
        return ""

    broken: dict[int, str] = {}
    with ThreadPoolExecutor() as pool:  # Pillow decodes side by side
        for start in range(0, len(places_N), CHUNK):
            rows = range(start, min(start + CHUNK, len(places_N)))
            reasons = pool.map(attempt, rows)
            broken |= {int(places_N[row]): reason for row, reason in zip(rows, reasons, strict=True) if reason}
            report(rows.stop, len(places_N))
    return ReadPictures(values, form_N3, broken)


def survey(sources: Sequence[ImageSource], most: int = 256) -> tuple[list[tuple[int, int]], bool]:
    """(height, width) of a sample of at most `most` pictures, and whether none of it has colour.

    Upright, always the same sample, broken ones left out.
    """
    ends = np.cumsum([len(source) for source in sources])
    chosen = np.sort(np.random.default_rng(0).permutation(ends[-1])[:most])

    def attempt(number: int) -> tuple[int, int, bool] | None:
        source = sources[which := int(np.searchsorted(ends, number, side="right"))]
        try:
            return form_of(source.open(int(number - ends[which] + len(source))))
        except BROKEN:
            return None

    with ThreadPoolExecutor() as pool:
        forms = [form for form in pool.map(attempt, chosen) if form]
    return [(height, width) for height, width, _ in forms], not any(coloured for *_, coloured in forms)
