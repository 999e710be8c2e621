"""Pictures and files of them, for the tests of readers."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ORIENTATION = 274  # the number of the EXIF field


def noise(seed: int, height: int = 8, width: int = 8) -> Image.Image:
    """A colour picture of random pixels."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of a file of that kind, such as "png"."""
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def write(path: Path, image: Image.Image, **options: Any) -> Path:
    """The picture as a file of the kind that its name says, in folders made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def one_line(error: BaseException) -> str:
    """The message of an error, which must be one line that begins with what it is about."""
    message = str(error)
    assert "\n" not in message
    assert message.startswith("data: ")
    assert message.count("data: ") == 1  # not wrapped in another
    return message


def shows(opened: Image.Image, wanted: Image.Image) -> bool:
    """Whether two pictures are the same in colour."""
    return np.array_equal(np.asarray(opened.convert("RGB")), np.asarray(wanted.convert("RGB")))
