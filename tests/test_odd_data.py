"""Data that are not what they seem: scales, labels that say there is none, labels in one, names of known sets."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alternas.archs import InputError
from alternas.search.data.build import images_at
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from image_files import noise, one_line, write

X, Y = np.random.default_rng(0).integers(0, 256, (40, 4, 4), np.uint8), np.arange(40) % 4


def npz(folder: Path, **held: Any) -> str:
    np.savez(folder / "a.npz", **held)
    return str(folder / "a.npz")


def parts(train: np.ndarray, other: np.ndarray, part: str = "test") -> dict[str, np.ndarray]:
    return {"x_train": train, "y_train": Y, f"x_{part}": other, f"y_{part}": Y}


@pytest.mark.whole
@pytest.mark.parametrize("part", ["val", "test"])
@pytest.mark.parametrize(("train", "other", "words"), [
    (X, X / 255, "train holds values of 0 to 255, and {} of 0 to 1; bring them to one scale"),
    (X / 255, X, "train holds values of 0 to 1, and {} of 0 to 255"),
    (X.astype(np.uint16) * 257, X, "and {} of 0 to 255"),
    (X / 127.5 - 1, X / 255, "train holds values of -1 to 1, and {} of 0 to 1"),
])  # fmt: skip
def test_splits_on_two_scales_are_refused(
    tmp_path: Path, part: str, train: np.ndarray, other: np.ndarray, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(DataConfig(npz(tmp_path, **parts(train, other, part))))
    assert words.format(part) in one_line(caught.value)


@pytest.mark.parametrize(("train", "other"), [
    (X, X.astype(np.float32)),
    (X / 255, X / 255 * 0.3),  # of darker pictures
    (X - X.mean(), X - X.mean() + 0.1),
    (X / 255, X / 255 - 0.02),
])  # fmt: skip
def test_splits_on_one_scale_are_read(tmp_path: Path, train: np.ndarray, other: np.ndarray) -> None:
    assert len(load(DataConfig(npz(tmp_path, **parts(train, other)))).train) == 36


def test_images_on_two_scales_in_one_split_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x = X.astype(np.float32)
    load(DataConfig(npz(tmp_path, x=x, y=Y)))
    assert "scale" not in caplog.text
    x[::4] /= 255
    load(DataConfig(npz(tmp_path, x=x, y=Y)))
    assert "all: 10 of 40 images hold fractions up to 1, others values up to 255" in caplog.text


def test_splits_of_an_npz_file_by_other_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = {"x_train": X, "y_train": Y, "x_valid": X[::-1], "y_valid": Y[::-1], "x_extra": X}
    data = load(DataConfig(npz(tmp_path, **held)))
    assert np.array_equal(images_at(data.val, np.arange(40)), X[::-1, None])
    assert "left aside the arrays x_extra" in caplog.text


@pytest.mark.whole
@pytest.mark.parametrize(("labels", "said"), [
    (np.where(np.arange(40) < 5, -1, Y), "5 images have the label -1, which becomes a class"),
    (np.where(np.arange(40) < 5, 255, Y).astype(np.uint8), "5 images have the label 255, which becomes a class"),
    (np.where(np.arange(40) < 5, 2**32 - 1, Y).astype(np.uint32), "5 images have the label 4294967295,"),
    (np.where(np.arange(40) < 5, 99, Y), "5 images have the label 99,"),
    (Y % 2 * 2 - 1, ""),  # -1 and 1
    (Y + 252, ""),
    (Y * 30, ""),
])  # fmt: skip
def test_labels_that_may_say_that_there_is_none_are_said(
    tmp_path: Path, labels: np.ndarray, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        load(DataConfig(npz(tmp_path, x=X, y=labels)))
    assert said in caplog.text
    assert bool(said) == ("no label" in caplog.text)


@pytest.mark.whole
@pytest.mark.parametrize(("cells", "said"), [
    (["0", "1", "-1"], "4 images have the label -1,"),
    (["red", "green;red", "-1"], "4 images have the label -1,"),
    (["red", "", "255"], "4 images have the label 255,"),
    (["1", "-1"], ""),
    (["0", "1;2", "3"], ""),
])  # fmt: skip
def test_labels_of_a_list_that_may_say_that_there_is_none_are_said(
    tmp_path: Path, cells: list[str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(12):
        Image.fromarray(np.full((8, 8), i, np.uint8)).save(tmp_path / f"{i}.png")
    rows = [f"{i}.png,{cells[i % len(cells)]}" for i in range(12)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,labels", *rows]), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        load(DataConfig(str(tmp_path)))
    assert said in caplog.text
    assert bool(said) == ("no label" in caplog.text)


@pytest.mark.whole
@pytest.mark.parametrize(("cells", "said"), [
    (["red", "green", "red|green"], "1 of 3 labels are made of others, such as 'red|green'"),
    (["red", "green", '"red, green"'], "1 of 3 labels are made of others, such as 'red, green'"),
    (["red", "green", "red green"], "1 of 3 labels are made of others"),
    (["red", "green", "red/green"], "1 of 3 labels are made of others"),
    (["red|green", "green|blue", "blue|red"], "3 of 3 labels are made of others"),
    (["red", "green", "red;green"], ""),
    (["red car", "blue car", "red bus"], ""),
    (["hot dog", "dog", "cat"], ""),
    (["AC/DC", "cat", "dog"], ""),
])  # fmt: skip
def test_several_labels_in_one_are_said(
    tmp_path: Path, cells: list[str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(30):
        write(tmp_path / f"{i}.png", noise(i))
    rows = [f"{i}.png,{cells[i % len(cells)]}" for i in range(30)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,labels", *rows]), encoding="utf-8")
    load(DataConfig(str(tmp_path)))
    assert said in caplog.text
    assert bool(said) == ("labels are separated by ;" in caplog.text)


def test_a_folder_by_the_name_of_a_known_set_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(load(DataConfig("digits")).classes) == 10
    assert not caplog.text
    for i in range(20):
        write(tmp_path / "Digits" / "ab"[i % 2] / f"{i}.png", noise(i))
    assert len(load(DataConfig("digits")).classes) == 10
    assert "digits is the known set of that name, not ./Digits here: --data ./Digits reads that" in caplog.text
    caplog.clear()
    assert load(DataConfig("./Digits")).classes == ("a", "b")
    assert "known set" not in caplog.text
