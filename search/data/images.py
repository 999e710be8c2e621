"""From picture files to arrays: decoding, modes and sizes, and the same over whole sources, in threads."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import IO

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from .dataset import ImageSource, ImageSpec, Pictures, RawSplit

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
    """The picture in a file, decoded, in its own mode; of a moving one the first frame.

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
        raise ValueError(why(error)) from error


def why(error: BaseException) -> str:
    """What went wrong, in one line that is not too long."""
    return shorten(str(error), 300, placeholder=" ...") or type(error).__name__


def is_grey(image: Image.Image) -> bool:
    """Whether its mode holds no colour."""
    return image.mode in ("1", "L", "LA", *DEEP)


def to_mode(image: Image.Image, channels: int) -> Image.Image:
    """The picture upright, with 8 bits: RGB for 3 channels, L for 1.

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
    """Cameras store what the sensor saw, and how to turn it.

    ImageOps.exif_transpose does the same, but also writes the EXIF anew, and fails where that is junk.
    """
    turn = _turn(image)
    return image if turn is None else image.transpose(turn)


def _turn(image: Image.Image) -> Image.Transpose | None:
    return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))


def _eight_bits(image: Image.Image) -> Image.Image:
    """65535 becomes 255: Pillow's own convert would clip at 255."""
    deep_HW = np.asarray(image).astype(np.int64).clip(0, 65535)
    grey_HW = ((deep_HW + 128) // 257).astype(np.uint8)
    if "transparency" in image.info:
        grey_HW[deep_HW == image.info["transparency"]] = 255
    return Image.fromarray(grey_HW)


def _on_white(image: Image.Image) -> Image.Image:
    """What a page would show: under what is transparent lie the colours that a program happened to leave there."""
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def fit(image: Image.Image, look: ImageSpec) -> Image.Image:
    """The picture in the look's channels, cut in the middle of what was resized just to cover its size.

    Nothing is resampled where one side fits already.

    Raises:
        ValueError: as `to_mode` does.
    """
    image, (height, width) = to_mode(image, look.channels), look.size
    if image.size == (width, height):
        return image
    return image.resize((width, height), Image.Resampling.BICUBIC, _middle(image.size, (width, height)))


def to_array(image: Image.Image, look: ImageSpec) -> np.ndarray:
    """x_CHW, uint8, of a picture brought to a look by `fit`."""
    x_HWC = np.asarray(fit(image, look)).reshape(*look.size, look.channels)
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
class Measured:
    """A source that keeps what it opens was: form_N3, its height and width, upright, and 1 if it has colour.

    Zeros stand for pictures that were not opened, or are broken.
    """

    source: ImageSource
    form_N3: np.ndarray

    def __len__(self) -> int:
        return len(self.source)

    def open(self, place: int) -> Image.Image:
        image = self.source.open(place)
        size = image.size if _turn(image) in LYING else image.size[::-1]
        self.form_N3[place] = (*size, not is_grey(image))
        return image

    def name(self, place: int) -> str:
        return self.source.name(place)


def read_all(pictures: Pictures, report: Report) -> tuple[np.ndarray, dict[int, str]]:
    """x_NCHW, uint8, in the order of `pictures`, and why some are broken, by their place in the source.

    The rows of broken ones are black. `report` is called with (done, total).
    """
    x_NCHW = np.zeros((len(pictures), pictures.look.channels, *pictures.look.size), np.uint8)

    def use(row: int, image: Image.Image) -> None:
        x_NCHW[row] = to_array(image, pictures.look)

    return x_NCHW, _over(pictures.source, pictures.places_N, use, report)


def check_all(source: ImageSource, report: Report) -> tuple[np.ndarray, dict[int, str]]:
    """crc_N, uint32, of every picture as colour, and why some are broken, by place; keeps no picture.

    The checksums of broken ones are 0. `report` is called with (done, total).
    """
    crc_N = np.zeros(len(source), np.uint32)

    def use(row: int, image: Image.Image) -> None:
        image = to_mode(image, 3)
        crc_N[row] = zlib.crc32(image.tobytes(), zlib.crc32(repr(image.size).encode()))

    return crc_N, _over(source, np.arange(len(source)), use, report)


def _over(
    source: ImageSource, places_N: np.ndarray, use: Callable[[int, Image.Image], None], report: Report
) -> dict[int, str]:
    """`use` every row and its picture, in threads (Pillow decodes side by side); why some are broken, by place."""

    def attempt(row: int) -> str:
        try:
            use(row, source.open(int(places_N[row])))
        except BROKEN as error:
            return why(error)
        return ""

    broken: dict[int, str] = {}
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(places_N), CHUNK):
            rows = range(start, min(start + CHUNK, len(places_N)))
            reasons = pool.map(attempt, rows)
            broken |= {int(places_N[row]): reason for row, reason in zip(rows, reasons, strict=True) if reason}
            report(rows.stop, len(places_N))
    return broken


def survey(parts: Iterable[RawSplit], most: int = 256) -> tuple[list[tuple[int, int]], bool]:
    """(height, width) of a sample of at most `most` pictures, and whether none of it has colour.

    Upright, always the same sample, broken ones left out.
    """
    sources = [part.source for part in parts]
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
        found = [one for one in pool.map(attempt, chosen) if one]
    return [size for size, _ in found], all(grey for _, grey in found)
