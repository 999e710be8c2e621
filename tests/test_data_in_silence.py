"""What goes wrong in silence with data of others: labels, caches, thumbnails, doubles, sizes, odd pictures."""

import importlib
import io
import logging
import os
import shutil
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from alternas.archs import InputError, build
from alternas.archs.pictures import ImageSpec, decode, to_array
from alternas.results.export.source import source_of
from alternas.search.data.build import images_at
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from image_files import ORIENTATION, encoded, noise, one_line, write
from nets import NETS

LEVELS = {"cat": 40, "dog": 130, "eel": 220}  # mean grey of each class
ORDERS = {"train": ("cat", "dog", "eel"), "val": ("eel", "dog", "cat"), "test": ("dog", "cat", "eel")}
COUNT = 8


def picture(name: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(LEVELS[name] - 20, LEVELS[name] + 20, (8, 8), np.uint8)


def levels(data: DataSet) -> list[dict[str, float]]:
    """Mean grey of each class, by split."""

    def of(split: Split) -> dict[str, float]:
        x = images_at(split, np.arange(len(split)))
        return {name: float(x[split.y_N == k].mean()) for k, name in enumerate(data.classes)}

    return [of(split) for split in (data.train, data.val, data.test) if split]


def hf(folder: Path) -> str:
    datasets = pytest.importorskip("datasets")
    parts = {}
    for part, order in ORDERS.items():
        kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(order))})
        rows = [(name, i) for name in order for i in range(COUNT)]
        images = [{"bytes": encoded(Image.fromarray(picture(n, i)), "png"), "path": None} for n, i in rows]
        columns = {"image": images, "label": [order.index(name) for name, _ in rows]}
        parts["validation" if part == "val" else part] = datasets.Dataset.from_dict(columns, kinds)
    datasets.DatasetDict(parts).save_to_disk(folder / "set")
    return f"hfds/{folder / 'set'}"


def folders(folder: Path) -> str:
    for part, order in ORDERS.items():
        for name in order:
            for i in range(COUNT):
                write(folder / "set" / part / name / f"{part}{i}.png", Image.fromarray(picture(name, i)))
    return str(folder / "set")


def shards(folder: Path) -> str:
    for part, order in ORDERS.items():
        (folder / "set" / part).mkdir(parents=True)
        (folder / "set" / part / "classes.txt").write_text("\ufeff" + "\n".join(order), encoding="utf-8")
        with tarfile.open(folder / "set" / part / "0.tar", "w") as tar:
            for number, name in enumerate(order):
                for i in range(COUNT):
                    for end, content in (
                        ("png", encoded(Image.fromarray(picture(name, i)), "png")),
                        ("cls", b"%d" % number),
                    ):
                        facts = tarfile.TarInfo(f"{name}{i}.{end}")
                        facts.size = len(content)
                        tar.addfile(facts, io.BytesIO(content))
    return f"wds/{folder / 'set'}"


def arrays(folder: Path) -> str:
    held: dict[str, Any] = {"classes": np.array([name.encode() for name in LEVELS])}
    for part, order in ORDERS.items():
        held[f"x_{part}"] = np.stack([picture(name, i) for name in order for i in range(COUNT)])
        held[f"y_{part}"] = np.repeat([list(LEVELS).index(name) for name in order], COUNT)
    np.savez(folder / "set.npz", **held)
    return str(folder / "set.npz")


@pytest.mark.parametrize("make", [hf, folders, shards, arrays])
def test_a_class_has_one_grey_level_in_every_split(tmp_path: Path, make: Callable[[Path], str]) -> None:
    data = load(DataConfig(make(tmp_path)))
    assert set(data.classes) == set(LEVELS)
    for split in levels(data):
        for name, level in split.items():
            assert level == pytest.approx(LEVELS[name], abs=4), "labels are of the names of their own part"


def test_loose_pictures_of_a_test_part_are_left_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Kaggle's layout."""
    name = folders(tmp_path)
    shutil.rmtree(Path(name) / "test")
    write(Path(name) / "test" / "1.png", noise(1))
    with caplog.at_level(logging.WARNING):
        assert load(DataConfig(name)).test is None
    assert "its 1 pictures lie loose, without labels" in caplog.text


def patients(folder: Path) -> str:
    """Ten pictures of each of twelve patients, whose name begins the file's; each patient has one class."""
    for patient in range(12):
        for i in range(10):
            name = ("cat", "dog")[patient % 2]
            write(folder / "set" / name / f"p{patient}_{i}.png", Image.fromarray(picture(name, 100 * patient + i)))
    return str(folder / "set")


def keys(split: Split) -> set[bytes]:
    return {image.tobytes() for image in images_at(split, np.arange(len(split)))}


@pytest.mark.parametrize("by", ["pattern", "file"])
def test_a_group_stays_in_one_split(tmp_path: Path, by: str) -> None:
    name, group_by = patients(tmp_path), r"(p\d+)_"
    owner = {np.asarray(Image.open(path)).tobytes(): path.name.split("_")[0] for path in Path(name).rglob("*.png")}
    if by == "file":
        rows = [f"{path.relative_to(name)},{path.name.split('_')[0]}\n" for path in Path(name).rglob("*.png")]
        (tmp_path / "groups.csv").write_text("\ufefffile,group\n" + "".join(rows), encoding="utf-8")
        group_by = str(tmp_path / "groups.csv")
    data = load(DataConfig(name, group_by=group_by))
    assert data.test is not None
    split = [{owner[image] for image in keys(part)} for part in (data.train, data.val, data.test)]
    assert sum(map(len, split)) == len(set.union(*split)) == 12
    assert all(split)
    numbered = set()
    for part in (data.train, data.val, data.test):
        images = images_at(part, np.arange(len(part)))
        numbered |= {(owner[x.tobytes()], group) for x, group in zip(images, part.group_N, strict=True)}
    assert len(numbered) == 12, "a number for each patient, alike in all splits"
    plain = load(DataConfig(name))
    assert {owner[image] for image in keys(plain.train)} & {owner[image] for image in keys(plain.val)}


@pytest.mark.parametrize(("group_by", "rule"), [
    ("none.csv", "must hold a group in parentheses"),
    ("(x", "no regular expression"),
    ("(z)", "120 of 120 pictures have no group"),
])  # fmt: skip
def test_wrong_groups_are_one_line(tmp_path: Path, group_by: str, rule: str) -> None:
    name = patients(tmp_path)
    with pytest.raises(InputError) as caught:
        load(DataConfig(name, group_by=group_by))
    assert rule in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_a_picture_in_two_splits_is_said(tmp_path: Path, loader: str, caplog: pytest.LogCaptureFixture) -> None:
    name = folders(tmp_path)
    for first, part in enumerate(ORDERS):  # of the folders each picture is one of its own
        for i, path in enumerate(sorted((Path(name) / part).rglob("*.png"))):
            path.write_bytes(encoded(noise(1000 * first + i), "png"))
    for path in sorted((Path(name) / "train" / "dog").iterdir())[:3]:
        shutil.copy(path, Path(name) / "val" / "dog" / f"again_{path.name}")
    with caplog.at_level(logging.WARNING):
        data = load(DataConfig(name, loader=loader))
    assert "3 images of val are in train too" in caplog.text
    assert data.notes["twice"] == {"val": 3}


def test_few_pictures_of_a_class_are_split_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for i in range(20):
        write(tmp_path / "cat" / f"{i}.png", Image.fromarray(picture("cat", i)))
    for i in range(2):
        write(tmp_path / "dog" / f"{i}.png", Image.fromarray(picture("dog", i)))
    data = load(DataConfig(str(tmp_path)))
    assert (data.train.counts(2).tolist(), data.val.counts(2).tolist()) == ([12, 1], [4, 1])


@pytest.mark.parametrize(("shape", "size", "channels"), [
    ((20, 5, 32, 32), (32, 32), 5), ((20, 32, 32, 5), (32, 32), 5), ((20, 3, 16, 24), (16, 24), 3),
    ((20, 8, 8, 1), (8, 8), 1),
])  # fmt: skip
def test_channels_are_the_smaller_side(
    tmp_path: Path, shape: tuple[int, ...], size: tuple[int, int], channels: int, caplog: pytest.LogCaptureFixture
) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(shape, np.uint8), y=np.arange(20) % 2)
    with caplog.at_level(logging.WARNING):
        data = load(DataConfig(str(tmp_path / "a.npz")))
    assert (data.image_size, data.in_chans) == (size, channels)
    usual = shape[-1] == channels <= 4
    assert (f"{channels} channels" in caplog.text) == (not usual), (
        "what was understood is said where it may be otherwise"
    )


def sized(folder: Path, sides: list[tuple[int, int]]) -> str:
    for i, (height, width) in enumerate(sides):
        write(folder / f"{i % 2}" / f"{i}.png", noise(i, height, width))
    return str(folder)


@pytest.mark.parametrize(("sides", "side", "said"), [
    ([(s, s) for s in range(28, 85, 2)], 56, True), ([(32, 32)] * 20, 32, False), ([(300, 300)] * 10, 224, False),
    ([(130, 200)] * 10, 128, False), ([(40, 400)] * 10, 40, False), ([(6, 9)] * 5 + [(7, 9)] * 5, 8, False),
])  # fmt: skip
def test_the_size_is_the_median_side(
    tmp_path: Path, sides: list[tuple[int, int]], side: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        data = load(DataConfig(sized(tmp_path, sides)))
    assert data.image_size == (side, side)
    assert ("enlarged by more than a third" in caplog.text) == said
    assert ("which --image-size changes" in data.notes["pictures"]) == (len(set(sides)) > 1 or sides[0] != (side, side))


def odd_pictures(folder: Path) -> list[Path]:
    """A file of each kind that pictures of others come in."""
    rgb, grey = noise(3, 11, 17), noise(3, 11, 17).convert("L")
    alpha = grey.point(lambda v: 255 * (v > 99))
    files = []
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[ORIENTATION] = turn
        files.append(write(folder / f"turn{turn}.jpg", rgb, exif=exif))
    junk = Image.Exif()
    junk[ORIENTATION] = 6
    raw = encoded(rgb, "jpeg", exif=junk)
    at = raw.index(b"\x01\x12")
    (folder / "junk.jpg").write_bytes(raw[: at - 2] + struct.pack(">H", 9) + raw[at:])  # one tag said to be nine
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    palette = rgb.convert("P")
    frames = [noise(i, 11, 17) for i in (3, 4)]
    return [
        *files,
        folder / "junk.jpg",
        write(folder / "cmyk.jpg", rgb.convert("CMYK")),
        write(folder / "deep.png", deep),
        write(folder / "signed.tif", Image.fromarray(np.asarray(grey).astype(np.int32) * 200 - 1500)),
        write(folder / "deep_clear.png", deep, transparency=int(np.asarray(deep)[0, 0])),
        write(folder / "la.png", Image.merge("LA", (grey, alpha))),
        write(folder / "p.png", palette, transparency=3),
        write(folder / "rgba.png", Image.merge("RGBA", (*rgb.split(), alpha))),
        write(folder / "moving.gif", frames[0], save_all=True, append_images=frames[1:]),
        write(folder / "several.mpo", frames[0], save_all=True, append_images=frames[1:]),
    ]


@pytest.mark.parametrize("channels", [1, 3])
def test_an_export_opens_odd_pictures_as_training_does(
    tmp_path: Path, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import alternas.results.export.package as export

    template = (Path(export.__file__).parent / "model_template.txt").read_text(encoding="utf-8")
    text = template.replace(
        "# SOURCES", source_of(build(NETS["basic"], 5, 16, 2), template.replace("NET_", ""), True)[0]
    )
    (tmp_path / "odd_model.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "odd_model", raising=False)
    model = importlib.import_module("odd_model")
    facts = {"pictures": True, "image_size": [12, 20], "in_chans": channels, "levels": [-1000, 40000]}
    monkeypatch.setattr(model, "config", lambda: facts)
    for path in odd_pictures(tmp_path):
        ours, theirs = to_array(decode(path), ImageSpec((12, 20), channels, (-1000, 40000))), model.open_image(path)
        assert torch.equal(theirs, torch.from_numpy(ours)[None]), path.name
    facts["pictures"] = False
    with pytest.raises(ValueError, match="arrays"):
        model.open_image(tmp_path / "p.png")


@pytest.mark.timeout(60)
def test_a_pipe_among_pictures_is_not_waited_for(tmp_path: Path) -> None:
    name = folders(tmp_path)
    os.mkfifo(Path(name) / "train" / "cat" / "pipe.png")
    with pytest.raises(InputError) as caught:
        load(DataConfig(name))
    assert "is no regular file" in one_line(caught.value)
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(InputError, match="is no regular file"):
        load(DataConfig(str(tmp_path / "a.npz")))
