"""From picture files to arrays: modes, sizes, broken files, and whole sources."""

import io
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from alternas.archs.pictures import ImageSpec, decode, form_of, to_array, to_mode
from alternas.search.data import images as pictures
from alternas.search.data.dataset import Pictures
from alternas.search.data.images import BROKEN, check_all, read_all, survey
from image_files import ORIENTATION, encoded, noise


@dataclass(frozen=True)
class Bytes:
    """Encoded pictures; reading an early one takes longest, so that threads would finish out of order."""

    files: tuple[bytes, ...]
    wait: float = 0.0

    def __len__(self) -> int:
        return len(self.files)

    def open(self, place: int) -> Image.Image:
        time.sleep(self.wait * (len(self) - place))
        return decode(io.BytesIO(self.files[place]))

    def name(self, place: int) -> str:
        return f"file {place}"


def silent(done: int, total: int) -> None:
    pass


def grey_16(values: list[int], kind: str = "<u2") -> Image.Image:
    return Image.fromarray(np.array([values], kind))


# Modes.


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
@pytest.mark.parametrize("channels", [1, 3])
def test_plain_modes_are_pillows_conversions(mode: str, channels: int) -> None:
    image = noise(0).convert(mode)
    wanted = image.convert("RGB" if channels == 3 else "L")
    made = to_mode(image, channels)
    assert made.mode == wanted.mode
    assert made.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kind", ["<u2", ">u2", "<i4"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_become_eight(kind: str, channels: int) -> None:
    image = grey_16([0, 128, 129, 257, 32768, 65406, 65407, 65535], kind)
    made = np.asarray(to_mode(image, channels)).reshape(8, channels)
    assert made[:, 0].tolist() == [0, 0, 1, 1, 128, 254, 255, 255]  # /257, to the nearest
    assert (made == made[:, :1]).all()


def test_sixteen_bits_from_files() -> None:
    image = grey_16([0, 257, 25700, 65535])
    for kind in ("png", "tiff", "ppm"):
        opened = decode(io.BytesIO(encoded(image, kind)))
        assert form_of(opened) == (1, 4, False)
        assert np.asarray(to_mode(opened, 1)).tolist() == [[0, 1, 100, 255]], kind


def test_whole_numbers_beyond_16_bits_are_clipped() -> None:
    assert np.asarray(to_mode(grey_16([-5, 70000, 65535], "<i4"), 1)).tolist() == [[0, 255, 255]]


def test_alpha_lies_on_white() -> None:
    """By hand: colour * alpha + 255 * (1 - alpha)."""
    pixels = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], np.uint8)
    made = np.asarray(to_mode(Image.fromarray(pixels), 3))
    assert made.tolist() == [[[200, 100, 0], [255, 255, 255], [244, 224, 204]]]


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_alpha_lies_on_white(channels: int) -> None:
    image = Image.merge("LA", [Image.new("L", (2, 1), 100), Image.fromarray(np.array([[255, 0]], np.uint8))])
    made = np.asarray(to_mode(image, channels)).reshape(2, channels)
    assert made.tolist() == [[100] * channels, [255] * channels]


@pytest.mark.parametrize(("kind", "transparent"), [("png", 1), ("png", bytes([255, 0, 255])), ("gif", 1)])
def test_transparent_palette_entries_are_white(kind: str, transparent: int | bytes) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    opened = decode(io.BytesIO(encoded(image, kind, transparency=transparent)))
    assert np.asarray(to_mode(opened, 3)).tolist() == [[[10, 20, 30], [255, 255, 255], [70, 80, 90]]]


def test_palette_with_alpha() -> None:
    image = Image.new("PA", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((0, 0), (1, 255))
    assert np.asarray(to_mode(image, 3)).tolist() == [[[40, 50, 60], [255, 255, 255]]]


def test_a_transparent_colour_is_white() -> None:
    image = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    opened = decode(io.BytesIO(encoded(image, "png", transparency=(1, 2, 3))))
    assert np.asarray(to_mode(opened, 3)).tolist() == [[[255, 255, 255], [4, 5, 6]]]
    deep = decode(io.BytesIO(encoded(grey_16([0, 257]), "png", transparency=0)))
    assert np.asarray(to_mode(deep, 1)).tolist() == [[255, 1]]


@pytest.mark.parametrize("mode", ["F", "HSV", "LAB", "RGBa"])
def test_other_modes_are_refused(mode: str) -> None:
    with pytest.raises(ValueError, match=f"mode {mode} "):
        to_mode(Image.new(mode, (2, 2)), 3)


@pytest.mark.parametrize(
    ("mode", "grey"),
    [("1", True), ("L", True), ("LA", True), ("I", True), ("I;16", True), ("I;16B", True), ("I;16L", True)]
    + [(mode, False) for mode in ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")],
)
def test_grey_by_mode(mode: str, grey: bool) -> None:
    assert form_of(Image.new(mode, (1, 1))) == (1, 1, not grey)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff"])
def test_pictures_stand_upright(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    file = encoded(noise(1, 5, 7), kind, exif=exif)
    made = to_mode(decode(io.BytesIO(file)), 3)
    with Image.open(io.BytesIO(file)) as image:
        wanted = ImageOps.exif_transpose(image).convert("RGB")
    assert made.size == ((5, 7) if orientation > 4 else (7, 5))
    assert made.tobytes() == wanted.tobytes()
    assert to_mode(made, 3).tobytes() == made.tobytes()  # not turned again


# Sizes.


def test_a_picture_that_fits_stays_as_it_is() -> None:
    image = noise(2, 6, 9)
    x_CHW = to_array(image, ImageSpec((6, 9), 3))
    assert x_CHW.dtype == np.uint8
    assert x_CHW.flags.c_contiguous
    assert (x_CHW == np.asarray(image).transpose(2, 0, 1)).all()
    assert (to_array(image, ImageSpec((6, 9), 1)) == np.asarray(image.convert("L"))[None]).all()


@pytest.mark.parametrize(("height", "width"), [(6, 20), (6, 21), (30, 9), (31, 9)])
def test_where_one_side_fits_the_other_is_only_cut(height: int, width: int) -> None:
    image = noise(3, height, width)
    top, left = (height - 6) // 2, (width - 9) // 2
    wanted = np.asarray(image)[top : top + 6, left : left + 9]
    assert (to_array(image, ImageSpec((6, 9), 3)) == wanted.transpose(2, 0, 1)).all()


@pytest.mark.parametrize(("size", "look", "resized"), [
    ((40, 60), (16, 16), (16, 24)),  # (height, width)
    ((60, 40), (16, 16), (24, 16)),
    ((37, 53), (16, 16), (16, 23)),
    ((10, 10), (16, 24), (24, 24)),
    ((8, 30), (16, 16), (16, 60)),
    ((50, 50), (10, 20), (20, 20)),
    ((33, 100), (31, 10), (31, 94)),
])  # fmt: skip
def test_resized_to_cover_and_cut_in_the_middle(
    size: tuple[int, int], look: tuple[int, int], resized: tuple[int, int]
) -> None:
    image = noise(4, *size)
    whole = np.asarray(image.resize(resized[::-1], Image.Resampling.BICUBIC)).astype(int)
    top, left = ((big - small) // 2 for big, small in zip(resized, look, strict=True))
    wanted = whole[top : top + look[0], left : left + look[1]].transpose(2, 0, 1)
    assert abs(to_array(image, ImageSpec(look, 3)) - wanted).max() <= 1


def test_a_strip_takes_no_memory() -> None:
    assert to_array(Image.new("L", (60000, 1)), ImageSpec((224, 224), 3)).shape == (3, 224, 224)


# Broken files.

KINDS = ("jpeg", "png", "gif", "bmp", "webp", "ppm", "tiff")


@pytest.mark.filterwarnings("ignore:Truncated File Read")
@pytest.mark.parametrize("kind", KINDS)
def test_files_cut_short_are_broken(kind: str) -> None:
    whole = encoded(noise(5, 40, 50), kind)
    assert decode(io.BytesIO(whole)).size == (50, 40)
    for share in (0.02, 0.3, 0.7, 0.95):
        with pytest.raises(BROKEN):
            decode(io.BytesIO(whole[: int(share * len(whole))]))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(size: tuple[int, int], data: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def avif_without_picture() -> bytes:
    whole = bytearray(encoded(noise(6), "avif"))
    return bytes(whole.replace(b"pitm", b"xxxx"))


BAD = {
    "empty": b"",
    "text": b"<html>404 not found</html>",
    "head of a jpeg": b"\xff\xd8\xff\xe0",
    "wrong checksum": encoded(noise(6), "png")[:-20] + b"\0" * 20,
    "too few rows": png_of((50, 40), b"\0" * 99),
    "too large": png_of((30000, 30000), b"\0"),
    "no numbers": b"P2\n2 2\n255\n1 2 x y\n",
    "junk for EXIF": encoded(noise(6), "png", exif=b"Exif\0\0junk"),
    "AVIF without a picture": avif_without_picture(),
}


@pytest.mark.parametrize("what", BAD)
def test_broken_files_say_why_in_one_line(what: str) -> None:
    read = read_all(Pictures(Bytes((BAD[what],)), np.array([0]), ImageSpec((8, 8), 3)), silent)
    assert list(read.broken) == [0]
    assert read.broken[0]
    assert "\n" not in read.broken[0]
    assert " at 0x" not in read.broken[0]  # the same every time
    assert not read.values.any()


def test_files_are_closed_and_what_was_read_stays(tmp_path: Path) -> None:
    for kind in KINDS:
        path = tmp_path / f"one.{kind}"
        path.write_bytes(encoded(noise(7), kind))
        image: Any = decode(path)
        path.unlink()
        assert getattr(image, "fp", None) is None or image.fp.closed
        assert to_array(image, ImageSpec((8, 8), 3)).shape == (3, 8, 8)


# Whole sources.


def files(count: int) -> tuple[bytes, ...]:
    return tuple(encoded(noise(seed), "png") for seed in range(count))


def test_threads_give_the_order_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "CHUNK", 8)
    told: list[tuple[int, int]] = []
    places = np.array([19, 3, 3, 0, 7, *range(8, 19)])
    read = read_all(
        Pictures(Bytes(files(20), wait=0.001), places, ImageSpec((8, 8), 3)), lambda *progress: told.append(progress)
    )
    assert read.broken == {}
    assert [form.tolist()[:3] for form in read.form_N] == [(8, 8, 1)] * 16
    assert told == [(8, 16), (16, 16)]
    for x_CHW, place in zip(read.values, places, strict=True):
        assert (x_CHW == np.asarray(noise(int(place))).transpose(2, 0, 1)).all()


def test_broken_ones_are_named_by_place_and_black() -> None:
    source = Bytes((*files(3), b"junk", encoded(Image.new("F", (8, 8)), "tiff")))
    read = read_all(Pictures(source, np.array([4, 1, 3, 0]), ImageSpec((8, 8), 3)), silent)
    checked = check_all(source, silent)
    assert list(read.broken) == [4, 3]
    assert "mode F" in read.broken[4]
    assert read.values.any(axis=(1, 2, 3)).tolist() == [False, True, False, True]
    assert checked.broken == {place: read.broken[place] for place in (3, 4)}
    assert checked.values.dtype == np.uint64
    assert checked.values[3] == checked.values[4] == 0


def test_checksums_are_of_what_is_seen() -> None:
    flat = Image.new("RGB", (4, 2))
    source = Bytes(
        (*files(2), *files(1), encoded(noise(0), "bmp"), encoded(flat, "png"), encoded(flat.resize((2, 4)), "png"))
    )
    checked = check_all(source, silent)
    crc_N = checked.values
    assert not checked.broken
    assert crc_N[0] == crc_N[2] == crc_N[3]  # the same picture, in another format too
    assert len(set(crc_N[[0, 1, 4, 5]].tolist())) == 4  # nor is a size mistaken for another


def survey_of(*images: Image.Image | bytes, **options: Any) -> tuple[list[tuple[int, int]], bool]:
    encoded_ = tuple(one if isinstance(one, bytes) else encoded(one, "png") for one in images)
    return survey([Bytes(encoded_)], **options)


def test_survey_tells_sizes_and_grey() -> None:
    grey = noise(0, 4, 6).convert("L")
    assert survey_of(grey, grey_16([1, 2]), b"junk") == ([(4, 6), (1, 2)], True)
    assert survey_of(grey, noise(1, 5, 5)) == ([(4, 6), (5, 5)], False)
    assert survey_of(b"junk")[0] == []
    exif = Image.Exif()
    exif[ORIENTATION] = 8
    assert survey_of(encoded(noise(0, 4, 6), "jpeg", exif=exif)) == ([(6, 4)], False)


def test_survey_samples_every_part_alike() -> None:
    one = Bytes(tuple(encoded(noise(0, 1, 1 + n), "png") for n in range(30)))
    two = Bytes(tuple(encoded(noise(0, 2, 1 + n), "png") for n in range(30)))
    sizes, _ = survey([one, two], most=20)
    assert len(set(sizes)) == 20
    assert {height for height, _ in sizes} == {1, 2}
    assert survey([one, two], most=20)[0] == sizes
    assert len(survey([one, two], most=500)[0]) == 60


@pytest.mark.parametrize("kind", ["gif", "tiff", "png", "webp"])
def test_of_a_moving_picture_the_first_frame(kind: str) -> None:
    file = encoded(
        noise(7), kind, save_all=True, append_images=[noise(8)], **({} if kind != "webp" else {"lossless": True})
    )
    made = np.asarray(to_mode(decode(io.BytesIO(file)), 3)).astype(int)
    assert abs(made - np.asarray(noise(7))).mean() < abs(made - np.asarray(noise(8))).mean() / 4
