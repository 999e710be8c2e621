"""Pictures as training reads them: crops beside Pillow's, and JPEGs that are decoded small."""

from __future__ import annotations

from io import BytesIO
from random import Random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alternas.archs.pictures import ImageSpec, decode
from alternas.search.training.pictures import _box, cropped
from image_files import ORIENTATION, encoded, noise


class _Open:
    """A source of one picture, which counts the pixels that were decoded."""

    def __init__(self, file: bytes) -> None:
        self.file, self.decoded = file, (0, 0)

    def open(self, place: int, shrink: Any = None) -> Image.Image:
        image = decode(BytesIO(self.file), shrink)
        self.decoded = image.size
        return image


def test_a_crop_is_pillows() -> None:
    """Of a picture that needs no shrinking: the box cut out and resized, within a level or two of Pillow's bicubic."""
    image = noise(0, 90, 120).resize((120, 90), Image.Resampling.BICUBIC, (0, 0, 30, 20))
    x_CHW = cropped(_Open(encoded(image, "png")), 0, ImageSpec((64, 48), 3), 0.6, Random(3))
    draws = Random(3)
    left, top, wide, high = _box((120, 90), 0.6, [draws.random() for _ in range(4)])
    wanted = image.crop((left, top, left + wide, top + high)).resize((48, 64), Image.Resampling.BICUBIC)
    difference = np.abs(x_CHW.transpose(1, 2, 0).astype(int) - np.asarray(wanted).astype(int))
    assert x_CHW.shape == (3, 64, 48)
    assert difference.max() <= 2


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_small_and_shows_the_same(orientation: int) -> None:
    picture = noise(1, 6, 8).resize((1600, 1200), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    jpeg, png = (_Open(encoded(picture, kind, exif=exif)) for kind in ("jpeg", "png"))
    spec = ImageSpec((40, 40), 3)
    small, whole = (cropped(source, 0, spec, 0.5, Random(2)).astype(int) for source in (jpeg, png))
    assert (jpeg.decoded, png.decoded) == ((200, 150), (1600, 1200))
    assert np.abs(small - whole).mean() < 3
    fine = _Open(jpeg.file)
    cropped(fine, 0, ImageSpec((800, 800), 3), 0.5, Random(2))
    assert fine.decoded == (1600, 1200), "the box needs all of it"
