"""Pictures of more than 8 bits, of several pages, and of one value: scaled by the values in use, and said."""

import importlib
import io
import logging
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alternas.archs import InputError
from alternas.archs.pictures import decode, to_mode
from alternas.search.data.build import images_at
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from command_line import QUICK, Run
from image_files import encoded, noise, one_line, write

RANDOM = np.random.default_rng(0)
TYPES = {"int16": (2, 16), "int32": (2, 32), "uint32": (1, 32), "uint16": (1, 16), "int8": (2, 8)}


def tiff(values_HW: np.ndarray) -> bytes:
    """A TIFF file of whole numbers, by the specification (Adobe, 1992): Pillow writes not all kinds."""
    (height, width), data = values_HW.shape, values_HW.tobytes()
    sample_format, bits = TYPES[values_HW.dtype.name]
    rows = {256: width, 257: height, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(data)}
    tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in (rows | {339: sample_format}).items())
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(rows) + 1) + tags + bytes(4)


def colour_png(values_HW3: np.ndarray) -> bytes:
    """A PNG file of 16 bits a channel, by the specification (ISO/IEC 15948): Pillow writes none."""
    height, width, _ = values_HW3.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values_HW3)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def folder(root: Path, files: list[bytes], end: str, part: str = ".") -> str:
    """Two classes of these files in turn."""
    for i, file in enumerate(files):
        path = root / part / "ab"[i % 2] / f"{i}.{end}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
    return str(root)


def random_tiffs(kind: str, low: int, high: int, count: int = 20) -> list[bytes]:
    """Pictures of which the first holds `low` and `high` themselves."""
    values = [RANDOM.integers(low, high + 1, (8, 8)).astype(kind) for _ in range(count)]
    values[0].flat[:2] = low, high
    return [tiff(one) for one in values]


def every_image(data: DataSet) -> list[list[int]]:
    splits = (data.train, data.val, data.test)
    return sorted(image.reshape(-1).tolist() for of in splits if of for image in images_at(of, np.arange(len(of))))


@pytest.mark.whole
@pytest.mark.parametrize("loader", ["memory", "stream"])
@pytest.mark.parametrize(("kind", "low", "high"), [
    ("int16", -1024, 200), ("int32", 0, 2_000_000), ("int32", -5, 2**31 - 1), ("uint32", 70_000, 90_000),
    ("uint16", 0, 4095), ("uint16", 0, 1023), ("uint16", 29_000, 31_000),
])  # fmt: skip
def test_values_in_use_become_0_to_255(
    tmp_path: Path, kind: str, low: int, high: int, loader: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Against exact division, rounded to the nearest."""
    files = random_tiffs(kind, low, high)
    with caplog.at_level(logging.WARNING):
        data = load(DataConfig(folder(tmp_path, files, "tif"), loader=loader))
    assert data.notes["levels"] == [low, high]
    assert f"values of picture files from {low:,} to {high:,} become 0 to 255, in exports too" in caplog.text
    raw = [np.frombuffer(file[8 : 8 + 64 * np.dtype(kind).itemsize], kind).astype(float) for file in files]
    assert every_image(data) == sorted(np.floor((one - low) * 255 / (high - low) + 0.5).tolist() for one in raw)


def test_whole_16_bits_are_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = random_tiffs("uint16", 300, 60_000)
    data = load(DataConfig(folder(tmp_path, files, "tif")))
    assert "levels" not in data.notes
    assert not caplog.text
    raw = [np.frombuffer(file[8 : 8 + 128], np.uint16) for file in files]
    assert every_image(data) == sorted(np.rint(one / 257).astype(int).tolist() for one in raw)


def test_the_levels_belong_to_the_set(tmp_path: Path) -> None:
    """Values twice as large look the same, and are another set."""
    values = [RANDOM.integers(0, 1000, (8, 8)) for _ in range(20)]
    sets = []
    for times in (1, 2):
        name = folder(tmp_path / str(times), [tiff((one * times).astype(np.uint16)) for one in values], "tif")
        sets.append(load(DataConfig(name, loader="stream")))
    assert every_image(sets[0]) == every_image(sets[1])
    assert sets[0].split_hash != sets[1].split_hash


@pytest.mark.slow
def test_an_export_scales_as_training_did(tmp_path: Path, served: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    files = random_tiffs("int16", -1024, 200)
    folder(tmp_path / "scans", files, "tif")
    search = ["search", "resnet", "--data", "scans", "--max-macs", "50k", "--trials", "1", "--name", "ct", *QUICK]
    assert served(tmp_path, *search)[0] == 0
    assert served(tmp_path, "export", "ct", "--out", "best")[0] == 0
    monkeypatch.syspath_prepend(tmp_path / "best")
    model = importlib.import_module("model")
    raw = np.frombuffer(files[3][8 : 8 + 128], np.int16).astype(float)
    opened = model.open_image(tmp_path / "scans" / "b" / "3.tif").flatten().tolist()
    assert opened == np.floor((raw + 1024) * 255 / 1224 + 0.5).tolist()
    assert "values of -1,024 to 200 in picture files are 0 to 255" in (tmp_path / "best" / "README.md").read_text(
        "utf-8"
    )


def outlier(root: Path) -> str:
    """12 bits, but for one value of one picture."""
    files = random_tiffs("uint16", 0, 1500)
    far = np.zeros((8, 8), np.uint16)
    far[0, 0] = 65535
    return folder(root, [*files[1:], tiff(far)], "tif")


def two_scales(root: Path) -> str:
    folder(root, random_tiffs("uint16", 0, 65535), "tif", "train")
    return folder(root, random_tiffs("uint16", 0, 4095), "tif", "test")


def dark_colour(root: Path) -> str:
    return folder(root, [colour_png(RANDOM.integers(0, 4096, (8, 8, 3))) for _ in range(20)], "png")


@pytest.mark.whole
@pytest.mark.parametrize(("make", "words"), [
    (outlier, "values of 0 to 65,535 would become 0 to 255, and half of the pictures have at most 6 of these"),
    (two_scales, "train holds values of 0 to 65,535, and test holds values of 0 to 4,095; bring them to one scale"),
    (dark_colour, "the upper 8 are read, and they reach from 0 to 15 of 255; scale the pictures to 8 bits"),
    (lambda root: folder(root, random_tiffs("uint32", 0, 2**32 - 1), "tif"), "numbers above 2,147,483,647 are not"),
    (lambda root: folder(root, random_tiffs("int8", -128, 127), "tif"), "numbers of 8 bits with a sign are not"),
])  # fmt: skip
def test_levels_that_would_be_lost_are_refused(tmp_path: Path, make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(InputError) as caught:
        load(DataConfig(make(tmp_path)))
    assert words in one_line(caught.value)


def test_bright_colour_of_16_bits_is_read(tmp_path: Path) -> None:
    files = [colour_png(RANDOM.integers(0, 65536, (8, 8, 3))) for _ in range(20)]
    assert load(DataConfig(folder(tmp_path, files, "png"))).in_chans == 3


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_pictures_of_one_value_are_counted(tmp_path: Path, loader: str, caplog: pytest.LogCaptureFixture) -> None:
    files = [encoded(noise(i), "png") for i in range(17)]
    flat = [Image.new("RGB", (8, 8), (9, 9, 7)), Image.new("L", (8, 8), 4), Image.new("I;16", (8, 8), 300)]
    data = load(DataConfig(folder(tmp_path, [*files, *(encoded(one, "png") for one in flat)], "png"), loader=loader))
    assert "3 of 20 pictures are of one value each" in caplog.text
    assert data.notes["one_value"] == 3


def test_arrays_of_one_value_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x = RANDOM.random((20, 4, 4, 3))
    x[5] = 0.5
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 2)
    load(DataConfig(str(tmp_path / "a.npz")))
    assert "1 of 20 pictures are of one value each" in caplog.text


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_pages_beyond_the_first_are_said(tmp_path: Path, loader: str, caplog: pytest.LogCaptureFixture) -> None:
    for i in range(24):
        kind, more = (("tif", 2), ("gif", 3), ("png", 1), ("webp", 4), ("mpo", 1), ("jpg", 0))[i % 6]
        frames = [noise(100 * i + n) for n in range(more + 1)]
        several = {"save_all": True, "append_images": frames[1:]} if more else {}
        write(tmp_path / "ab"[i // 12] / f"{i}.{kind}", frames[0], **several)
        if kind == "mpo":  # as phones name them
            (tmp_path / "ab"[i // 12] / f"{i}.mpo").rename(tmp_path / "ab"[i // 12] / f"{i}.jpg")
    data = load(DataConfig(str(tmp_path), loader=loader))
    assert "16 of 24 pictures have several pages or frames, up to 5: the first of each is read" in caplog.text
    assert data.notes["several_pages"] == 16


def test_a_damaged_second_page_leaves_the_first() -> None:
    frames = [noise(1), noise(2)]
    file = bytearray(encoded(frames[0], "tiff", save_all=True, append_images=frames[1:]))
    start = struct.unpack("<I", file[4:8])[0]
    link = start + 2 + 12 * struct.unpack("<H", file[start : start + 2])[0]
    file[link : link + 4] = struct.pack("<I", len(file) - 3)  # where no page begins
    assert (np.asarray(decode(io.BytesIO(bytes(file)))) == np.asarray(frames[0])).all()


@pytest.mark.parametrize("bits", [8, 16])
def test_the_smallest_number_of_a_tiff_file_may_be_white(tmp_path: Path, bits: int) -> None:
    """Tag 262, PhotometricInterpretation: 0 is WhiteIsZero, 1 BlackIsZero (TIFF 6.0, page 37)."""
    dark_to_light_HW = np.linspace(0, 2**bits - 1, 256).reshape(16, 16).astype(f"uint{bits}")
    for tag in (0, 1):
        values_HW = 2**bits - 1 - dark_to_light_HW if tag == 0 else dark_to_light_HW
        data = values_HW.astype(f"<u{bits // 8}").tobytes()
        entries = {256: 16, 257: 16, 258: bits, 259: 1, 262: tag, 273: 200, 277: 1, 278: 16, 279: len(data)}
        fields = b"".join(struct.pack("<HHII", number, 4, 1, value) for number, value in entries.items())
        head = struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + fields + bytes(4)
        (tmp_path / f"{tag}.tif").write_bytes(head.ljust(200, b"\0") + data)
    white_is_zero, black_is_zero = (np.asarray(to_mode(decode(tmp_path / f"{tag}.tif"), 1)) for tag in (0, 1))
    np.testing.assert_array_equal(white_is_zero, black_is_zero)
    np.testing.assert_array_equal(black_is_zero.ravel(), np.arange(256))
