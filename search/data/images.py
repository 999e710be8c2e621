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

from .dataset import ImageSource, ImageSpec, Pictures

# What a broken file makes Pillow raise, found by feeding it tens of thousands of them.
BROKEN = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)
DEEP = ("I", "I;16", "I;16L", "I;16B")
ALPHA = ("LA", "PA", "RGBA")
PLAIN = ("1", "L", "P", "RGB", "CMYK", "YCbCr")
TURNS = {  # how to stand a picture up, by its EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LYING = (Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_270, Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_90)
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


def is_grey(image: Image.Image) -> bool:
    """Whether its mode holds no colour."""
    return image.mode in ("1", "L", "LA", *DEEP)


def to_mode(image: Image.Image, channels: int) -> Image.Image:
    """Turn the picture upright and convert it to 8 bits: RGB for 3 channels, L for 1.

    Raises:
        ValueError: if its mode is none that a camera or a drawing has.
    """
    image = _upright(image)
    if image.mode in DEEP:
        image = _eight_bits(image)
    elif image.mode not in (*ALPHA, *PLAIN):
        raise ValueError(f"pictures of mode {image.mode} are not supported")
    elif image.has_transparency_data:
        image = _on_white(image)
    plain = image.convert("RGB" if channels == 3 else "L")
    plain.info = {}  # its orientation holds no longer
    return plain


def _upright(image: Image.Image) -> Image.Image:
    """Turn the picture as its EXIF orientation says: cameras store what the sensor saw, and how to turn it.

    ImageOps.exif_transpose does the same, but also writes the EXIF anew, and fails where that is junk.
    """
    turn = _turn(image)
    return image if turn is None else image.transpose(turn)


def _turn(image: Image.Image) -> Image.Transpose | None:
    return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16 bits to 8, so that 65535 becomes 255: Pillow's own convert would clip at 255."""
    deep_HW = np.asarray(image).astype(np.int64).clip(0, 65535)
    grey_HW = ((deep_HW + 128) // 257).astype(np.uint8)
    if "transparency" in image.info:
        grey_HW[deep_HW == image.info["transparency"]] = 255
    return Image.fromarray(grey_HW)


def _on_white(image: Image.Image) -> Image.Image:
    """Lay the picture on white, as a page would: under what is transparent lie colours that mean nothing."""
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def fit(image: Image.Image, spec: ImageSpec) -> Image.Image:
    """Resize the picture just to cover the size of `spec`, cut out the middle, and convert it to its channels.

    Nothing is resampled where one side fits already.

    Raises:
        ValueError: as `to_mode` does.
    """
    image, (height, width) = to_mode(image, spec.channels), spec.size
    if image.size == (width, height):
        return image
    return image.resize((width, height), Image.Resampling.BICUBIC, _middle(image.size, (width, height)))


def to_array(image: Image.Image, spec: ImageSpec) -> np.ndarray:
    """x_CHW, uint8, of a picture brought to a form by `fit`."""
    x_HWC = np.asarray(fit(image, spec)).reshape(*spec.size, spec.channels)
    return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))


def _middle(size: tuple[int, int], wanted: tuple[int, int]) -> tuple[float, float, float, float]:
    """(left, top, right, bottom) of what resizing to cover `wanted`, and cutting there in whole pixels, would leave.

    Resizing that box alone gives the same, and a long strip does not fill the memory on the way.
    """
    scale = max(wanted[0] / size[0], wanted[1] / size[1])
    (left, right), (top, bottom) = (_middle_of_side(old, new, scale) for old, new in zip(size, wanted, strict=True))
    return left, top, right, bottom


def _middle_of_side(old: int, new: int, scale: float) -> tuple[float, float]:
    cover = max(new, round(old * scale))
    start = (cover - new) // 2
    return start * old / cover, (start + new) * old / cover


@dataclass(frozen=True)
class ReadPictures:
    """Pictures of a source after one reading.

    Attributes:
        values: x_NCHW, or one checksum a picture; 0 where a picture is broken.
        form_N3: height and width, upright, and 1 if the picture has colour; 0 where it could not be opened.
        broken: why pictures cannot be read, by their place in the source.
    """

    values: np.ndarray
    form_N3: np.ndarray
    broken: dict[int, str]


def read_all(pictures: Pictures, report: Report) -> ReadPictures:
    """Read x_NCHW, uint8, in the order of `pictures`. `report` is called with (done, total)."""
    x_NCHW = np.zeros((len(pictures), pictures.spec.channels, *pictures.spec.size), np.uint8)
    return _read(pictures.source, pictures.places_N, x_NCHW, lambda image: to_array(image, pictures.spec), report)


def check_all(source: ImageSource, report: Report) -> ReadPictures:
    """Check every picture of a source and keep only its CRC-32 as colour, uint32; `report` as for `read_all`."""
    return _read(source, np.arange(len(source)), np.zeros(len(source), np.uint32), _checksum, report)


def _checksum(image: Image.Image) -> int:
    image = to_mode(image, 3)
    return zlib.crc32(image.tobytes(), zlib.crc32(repr(image.size).encode()))


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
            size = image.size if _turn(image) in LYING else image.size[::-1]
            form_N3[row] = (*size, not is_grey(image))
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

    def attempt(number: int) -> tuple[tuple[int, int], bool] | None:
        source = sources[which := int(np.searchsorted(ends, number, side="right"))]
        try:
            image = _upright(source.open(int(number - ends[which] + len(source))))
        except BROKEN:
            return None
        return (image.height, image.width), is_grey(image)

    with ThreadPoolExecutor() as pool:
        forms = [form for form in pool.map(attempt, chosen) if form]
    return [size for size, _ in forms], all(grey for _, grey in forms)
