"""A picture file as an array of the size that a net takes: for training, and written out into every export.

Pillow and NumPy are imported when a picture is read: an export whose images are arrays needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image


DEEP = ("I", "I;16", "I;16L", "I;16B")
# what `decode` notes of a picture in its `info`
PAGES, DEEP_COLOUR, MIN_IS_WHITE = "alternas_pages", "alternas_deep_colour", "alternas_min_is_white"
KNOWN_MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "PA", "RGBA")
TURNS = {  # how to stand a picture up, by its EXIF orientation
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
SIDEWAYS = ("TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
ORIENTATION = 274  # the number of the EXIF field
LEVELS = (0, 2**16 - 1)  # black and white of pictures of 16 bits
SIGNED, SAMPLE_FORMAT, BITS = 2, 339, 258  # of a TIFF file: its whole numbers with a sign, and the tags that say so
PHOTOMETRIC = 262  # the tag of a TIFF file that is 0 where the smallest number is white
FIRST_IS_ALL = ("MPO",)  # photographs of phones, whose other frames are previews and depths of the first
MAX_PIXELS = 2**26  # of one picture: cameras have 50 million; decoded they take up to 1 GB
Shrink = Callable[["Image"], None]
TOO_LARGE = f"has more than {MAX_PIXELS:,} pixels, the most that are read of one picture; shrink it first"


@dataclass(frozen=True)
class ImageSpec:
    """Form that every picture is brought to."""

    size: tuple[int, int]  # (height, width)
    channels: int  # 1 or 3
    # values of pictures of more than 8 bits that become 0 and 255; those beyond are cut off
    levels: tuple[int, int] = LEVELS


def decode(file: str | os.PathLike[str] | IO[bytes], shrink: Shrink | None = None) -> Image:
    """Decode the picture in a file, in its own mode; of several pages or frames, counted in `info`, the first.

    `shrink` is given the picture when only its header is read, and may ask its decoder for a smaller one. OSError,
    ValueError, SyntaxError and what else Pillow raises if it is broken.
    """
    import PIL.Image

    if isinstance(file, str | os.PathLike) and os.path.exists(file) and not os.path.isfile(file):
        raise ValueError("is no regular file")  # a FIFO would be waited for
    try:
        with PIL.Image.open(file) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(TOO_LARGE)
            if shrink:
                shrink(image)
            pages = _count_pages(image)
            deep_colour = len(image.getbands()) > 1 and ";16" in str(image.tile)
            image.load()
            _check_numbers(image)
            # of a TIFF file of more than 8 bits the smallest number may be white; Pillow inverts those of 8 bits alone
            negative = image.mode in DEEP and getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == 0
            image.info |= {PAGES: pages, DEEP_COLOUR: deep_colour, MIN_IS_WHITE: negative}
            return image
    except PIL.Image.DecompressionBombError:
        raise ValueError(TOO_LARGE) from None
    except PIL.UnidentifiedImageError:
        raise PIL.UnidentifiedImageError("not a picture, or of a format that Pillow does not know") from None
    except (TypeError, RuntimeError) as error:  # of its TIFF and AVIF decoders, on broken files
        raise ValueError(str(error) or type(error).__name__) from error


def _check_numbers(image: Image) -> None:
    """Raise ValueError for whole numbers of a TIFF file that Pillow takes for others."""
    import numpy as np

    tags = getattr(image, "tag_v2", {})
    signed, bits = tags.get(SAMPLE_FORMAT, (1,))[0] == SIGNED, tags.get(BITS, (1,))[0]
    if signed and bits == 8:
        raise ValueError("numbers of 8 bits with a sign are not supported; add 128 to them")
    if not signed and image.mode == "I" and bits == 32 and np.asarray(image).min() < 0:
        raise ValueError("numbers above 2,147,483,647 are not supported; divide them first")


def _count_pages(image: Image) -> int:
    """Count the pages or frames of a file that is open; 1 where the second cannot be found."""
    try:
        return 1 if image.format in FIRST_IS_ALL else getattr(image, "n_frames", 1)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, RuntimeError):
        image.seek(0)
        return 1


def form_of(image: Image) -> tuple[int, int, bool]:
    """Height and width of the picture once it stands upright, and whether its mode holds colour."""
    height, width = image.size if is_sideways(image) else image.size[::-1]
    return height, width, image.mode not in ("1", "L", "LA", *DEEP)


def is_sideways(image: Image) -> bool:
    """Whether the picture must be turned by a right angle to stand upright."""
    return _turn(image) in SIDEWAYS


def to_mode(image: Image, channels: int, levels: tuple[int, int] = LEVELS) -> Image:
    """Turn the picture upright, as its EXIF orientation says, and convert it to 8 bits: RGB for 3 channels, L for 1.

    `levels` become 0 and 255 where it has more than 8 bits. ValueError if its mode is none that a camera or a drawing
    has.
    """
    import numpy as np
    import PIL.Image

    # ImageOps.exif_transpose does the same, but also writes the EXIF anew, and fails where that is junk.
    turn = _turn(image)
    image = image if turn is None else image.transpose(PIL.Image.Transpose[turn])
    if image.mode in DEEP:
        # Pillow's own convert would clip at 255
        (low, high), deep_HW = levels, np.asarray(image).astype(np.int64)
        grey_HW = (((deep_HW.clip(low, high) - low) * 255 + (high - low) // 2) // (high - low)).astype(np.uint8)
        if image.info.get(MIN_IS_WHITE):
            grey_HW = 255 - grey_HW
        if "transparency" in image.info:
            grey_HW[deep_HW == image.info["transparency"]] = 255
        image = PIL.Image.fromarray(grey_HW)
    elif image.mode not in KNOWN_MODES:
        raise ValueError(f"pictures of mode {image.mode} are not supported")
    elif image.has_transparency_data:
        # on white, as a page would be: under what is transparent lie colours that mean nothing
        image = image.convert("RGBA")
        image = PIL.Image.alpha_composite(PIL.Image.new("RGBA", image.size, "white"), image).convert("RGB")
    plain = image.convert("RGB" if channels == 3 else "L")
    plain.info = {}  # its orientation holds no longer
    return plain


def _turn(image: Image) -> str | None:
    return TURNS.get(image.getexif().get(ORIENTATION, 1))


def fit(image: Image, spec: ImageSpec) -> Image:
    """Resize the picture just to cover the size of `spec`, cut out the middle, and convert it to its channels.

    Nothing is resampled where one side fits already. ValueError as `to_mode` does.
    """
    import PIL.Image

    image, (height, width) = to_mode(image, spec.channels, spec.levels), spec.size
    if image.size == (width, height):
        return image
    scale = max(width / image.width, height / image.height)

    def middle(old: int, new: int) -> tuple[float, float]:
        """The part of a side that is left after resizing to cover and cutting in whole pixels."""
        cover = max(new, round(old * scale))
        start = (cover - new) // 2
        return start * old / cover, (start + new) * old / cover

    # resizing that box alone gives the same, and a long strip does not fill the memory on the way
    (left, right), (top, bottom) = middle(image.width, width), middle(image.height, height)
    return image.resize((width, height), PIL.Image.Resampling.BICUBIC, (left, top, right, bottom))


def to_array(image: Image, spec: ImageSpec) -> np.ndarray:
    """x_CHW, uint8, of a picture brought to a form by `fit`."""
    import numpy as np

    x_HWC = np.array(fit(image, spec)).reshape(*spec.size, spec.channels)
    return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))
