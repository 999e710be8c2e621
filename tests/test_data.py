"""Arrays as data: digits, the composed pictures, .npz files; splits, moments, the cache."""

import logging
import sys
import tracemalloc
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

import alternas
from alternas.archs import InputError
from alternas.search.data import readers
from alternas.search.data.cache import cached, hash_of
from alternas.search.data.dataset import BrokenPicturesError, DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.data.readers import registry, synthetic
from alternas.search.data.splits import moments, places_of
from alternas.search.data.views import WHOLE, View, fold_numbers, seen
from image_files import noise, write

pytestmark = pytest.mark.usefixtures("own_cache")


def arrays(data: DataSet) -> list[np.ndarray]:
    found = [part.images for part in (data.train, data.val, data.test) if part is not None]
    assert all(isinstance(x, np.ndarray) for x in found)
    return found  # type: ignore[return-value]


def test_digits_are_scikit_learns() -> None:
    digits = load(DataConfig("digits"))
    x, y = load_digits(return_X_y=True)
    parts = [p for p in (digits.train, digits.val, digits.test) if p]
    rows = np.concatenate([np.c_[x.reshape(len(x), -1), p.y_N] for x, p in zip(arrays(digits), parts, strict=True)])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, np.c_[x, y].astype(int)))
    assert [len(p) for p in parts] == [1078, 360, 359]
    for label in range(10):
        shares = [(p.y_N == label).sum() / (y == label).sum() for p in parts]
        assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.005)
    assert digits.split_hash == "bb2c9e7c826e", "the split belongs to the data: it must never change"
    assert digits.without_test().test is None


def test_moments_are_numpys() -> None:
    x = np.random.default_rng(0).normal(3, 2, (3000, 2, 5, 4)).astype(np.float32)
    mean, std = moments(x)
    assert mean == pytest.approx(x.mean((0, 2, 3), dtype=np.float64))
    assert std == pytest.approx(x.std((0, 2, 3), dtype=np.float64))
    assert moments(np.full((9, 1, 2, 2), 7, np.uint8)) == ((7.0,), (1e-6,))


def test_moments_of_large_images_take_little_memory() -> None:
    """2,048 pictures of 224 px, which a streamed set is judged by, took 4 GiB."""
    x_NCHW = np.random.default_rng(0).integers(0, 256, (120, 3, 256, 256), dtype=np.uint8)
    tracemalloc.start()
    mean, std = moments(x_NCHW)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * 2**20
    np.testing.assert_allclose(mean, x_NCHW.mean((0, 2, 3)), rtol=1e-9)
    np.testing.assert_allclose(std, x_NCHW.std((0, 2, 3)), rtol=1e-9)


def small(monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    monkeypatch.setitem(synthetic.COMPOSED, name, replace(synthetic.COMPOSED[name], pictures=(300, 40, 40)))
    made = replace(synthetic.COMPOSED[name], hash=hash_of(synthetic._compose(name)))
    monkeypatch.setitem(synthetic.COMPOSED, name, made)
    parts = synthetic.read_composed(DataConfig(name)).parts
    return {part: (np.asarray(raw.images), raw.y_N) for part, raw in parts.items()}


def test_cue_is_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = small(monkeypatch, "cue")["train"]
    assert (x.shape, x.dtype, x.max()) == ((300, 1, 16, 16), np.uint8, 16)
    assert not x[:, :, 12].any(), "a free row above the glyph"
    for ground in x[:, 0, 13:]:
        columns = np.flatnonzero(ground.any(0))
        assert len(columns) == 3
        glyph = ground[:, columns[0] : columns[0] + 3]
        assert (glyph == 16).all() or (glyph == synthetic.CUP).all()
    digits, labels = load_digits(return_X_y=True)
    digits = digits.reshape(-1, 8, 8)
    for picture, label in zip(x[:40, 0], y[:40], strict=True):
        """The digit that the glyph points at lies there, of the label's class, under brighter fragments."""
        square = (picture[13:].max(0) == 16).sum() == 3 and (picture[13] == 16).sum() == 3
        half = picture[:12, :8] if square else picture[:12, 8:]
        fits = [(half[row : row + 8] >= digits).all((1, 2)) for row in range(5)]
        assert label in labels[np.any(fits, 0)]


@pytest.mark.parametrize(("name", "shifts"), [("clutter", range(2, 7)), ("clutter-small", range(3))])
def test_clutter_is_its_definition(name: str, shifts: range, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = small(monkeypatch, name)["val"]
    digits, labels = load_digits(return_X_y=True)
    digits = digits.reshape(-1, 8, 8)
    for picture, label in zip(x[:, 0], y, strict=True):
        spots = product(shifts, repeat=2)
        fits = [(picture[row : row + 8, column : column + 8] >= digits).all((1, 2)) for row, column in spots]
        assert label in labels[np.any(fits, 0)]


@pytest.mark.parametrize(("name", "side", "counts"), [
    pytest.param("cue", 16, [40_000, 4_000, 4_000], marks=pytest.mark.slow),
    pytest.param("clutter", 16, [40_000, 4_000, 4_000], marks=pytest.mark.slow),
    ("clutter-small", 10, [1_280, 1_000, 1_000]),
])  # fmt: skip
def test_composed_pictures_are_the_same_everywhere(name: str, side: int, counts: list[int], own_cache: Path) -> None:
    data = load(DataConfig(name))
    assert [len(p) for p in (data.train, data.val, data.test) if p] == counts
    assert (data.image_size, data.in_chans, data.mean, data.std) == ((side, side), 1, (4.8,), (0.38 * 16,))
    assert np.bincount(data.test.y_N if data.test else []).min() > 0.075 * counts[-1]
    assert load(DataConfig(name)).split_hash == data.split_hash
    path = own_cache / "made" / f"{name}.npz"
    if name == "clutter-small":
        assert not path.exists(), "it takes no time, and a search that is refused writes nothing"
        return
    changed = dict(np.load(path))
    changed["x_train"][0, 0, 0, 0] ^= 1
    np.savez(path, **changed)
    assert load(DataConfig(name)).split_hash == data.split_hash, "a damaged file is made anew"


def test_the_cache_keeps_and_checks(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    made: list[int] = []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"x": np.arange(5)}

    for _ in range(2):
        assert cached("a", make)["x"].tolist() == [0, 1, 2, 3, 4]
    assert len(made) == 1
    path = own_cache / "made" / "a.npz"
    for content in (b"", b"junk", path.read_bytes()[:-40]):
        path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            assert cached("a", make)["x"].tolist() == [0, 1, 2, 3, 4]
        assert "made anew" in caplog.text
    changed = dict(np.load(path))
    changed["x"][0] = 9
    np.savez(path, **changed)
    assert cached("a", make)["x"].tolist() == [0, 1, 2, 3, 4]
    assert len(made) == 5
    assert not list(own_cache.rglob("*.part"))


@pytest.mark.usefixtures("own_cache")
def test_without_a_home_pictures_are_read_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As for `docker run --user 54321`, whom the password file does not know."""
    for i in range(20):
        write(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png", noise(i))
    for name in ("ALTERNAS_DATA", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert len(load(DataConfig(str(tmp_path / "photos"))).train) == 12
    assert "this user has no home folder; set ALTERNAS_DATA to a folder" in caplog.text
    for name in ("cifar10", "~/photos", "~nobody-of-this-name/photos", "wds/~/shards"):
        with pytest.raises(InputError, match=r"ALTERNAS_DATA|no such (file or )?folder"):
            load(DataConfig(name))


def test_a_cache_that_cannot_be_written_is_done_without(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (own_cache / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("ALTERNAS_DATA", str(own_cache / "file"))
    with caplog.at_level(logging.WARNING):
        assert len(cached("a", lambda: {"x": np.arange(5)})["x"]) == 5
    assert "not kept" in caplog.text


def npz(path: Path, **held: Any) -> str:
    np.savez(path, **held)
    return str(path)


def test_npz_files(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (60, 9, 7, 3), dtype=np.uint8)
    found = load(DataConfig(npz(tmp_path / "a.npz", x=x, y=np.repeat([3, 9], 30))))
    assert (found.image_size, found.in_chans, found.classes, found.white_level) == ((9, 7), 3, ("3", "9"), 255.0)
    assert arrays(found)[0].dtype == np.uint8
    gray = load(DataConfig(npz(tmp_path / "b.npz", x=x[..., 0].astype(np.float64), y=np.repeat([0, 1], 30))))
    assert (gray.in_chans, gray.white_level) == (1, 0.0)
    assert arrays(gray)[0].dtype == np.float32
    named = load(DataConfig(npz(tmp_path / "c.npz", x=x, y=np.repeat([0, 2], 30), classes=np.array(["a", "b", "c"]))))
    assert named.classes == ("a", "c")


@pytest.mark.parametrize(("images", "labels"), [("x_{}", "y_{}"), ("X_{}", "y_{}"), ("{}_images", "{}_labels")])
def test_npz_files_with_splits(tmp_path: Path, images: str, labels: str) -> None:
    x, y = np.arange(60 * 4, dtype=np.uint8).reshape(60, 2, 2), np.repeat([4, 7], 30)
    held = {images.format(part): x + i for i, part in enumerate(("train", "val", "test"))}
    held |= {labels.format(part): y[:, None] for part in ("train", "val", "test")}
    data = load(DataConfig(npz(tmp_path / "a.npz", **held)))
    assert [part.tolist() for part in arrays(data)] == [(x[:, None] + i).tolist() for i in range(3)]
    assert data.train.y_N.tolist() == [0] * 30 + [1] * 30
    del held[images.format("val")]
    data = load(DataConfig(npz(tmp_path / "b.npz", **held)))
    assert [len(part) for part in arrays(data)] == [54, 6, 60]
    assert np.bincount(data.val.y_N).tolist() == [3, 3]
    assert "10% of each class" in data.notes["split"]


X, Y = np.zeros((20, 4, 4), np.uint8), np.repeat([0, 1], 10)


@pytest.mark.parametrize(("held", "words"), [
    ({"x": X}, "no array 'y'"),
    ({"x_train": X, "y_train": Y, "x_test": X}, "no array 'y_test'"),
    ({"x": X[0], "y": Y}, "x must be numbers"),
    ({"x": X[:0], "y": Y[:0]}, "x must be numbers"),
    ({"x": X, "y": Y[:3]}, "y must be 20 whole numbers"),
    ({"x": X, "y": Y.astype(float)}, "y must be"),
    ({"x": X.astype(str), "y": Y}, "x must be numbers"),
    ({"x": X, "y": Y * 0}, "at least two are needed"),
    ({"x": X, "y": np.arange(20)}, "no image is left for val"),
    ({"x_train": X, "y_train": np.arange(20)}, "no image is left for val"),
    ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y + 1}, "test has a class that train lacks"),
    ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, "differ in shape"),
    ({"x": X, "y": Y, "classes": np.array(["a"])}, "1 classes are named, but there is a label 1"),
    ({"x": X + np.nan, "y": Y}, "not finite"),
    ({"x": X + 1e300, "y": Y}, "not finite"),
    ({"x": X.astype(object), "y": Y}, "not a readable"),
])  # fmt: skip
def test_npz_files_that_are_refused(tmp_path: Path, held: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load(DataConfig(npz(tmp_path / "a.npz", **held)))
    assert len(str(caught.value).splitlines()) == 1


def test_images_of_npz_files_that_are_not_finite(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = np.random.default_rng(0).random((30, 4, 4)), np.arange(30) % 3
    x[4, 1, 1], x[6, 0, 0] = np.nan, 1e300
    x[2::3] = np.inf
    request = DataConfig(npz(tmp_path / "a.npz", x=x, y=y, classes=np.array(["a", "b", "c"])))
    with pytest.raises(
        BrokenPicturesError, match=r"12 of 30 pictures cannot be read; the first: image 2 of x"
    ) as caught:
        load(request)
    assert [one.picture for one in caught.value.broken[:4]] == [f"image {place} of x" for place in (2, 4, 5, 6)]
    data = load(replace(request, skip_broken=True))
    assert sum(map(len, arrays(data))) == 18
    assert all(np.isfinite(part).all() for part in arrays(data))
    assert (data.classes, len(data.broken)) == (("a", "b"), 12)
    assert data.notes["skipped"] == {"all": 12}
    assert data.notes["skipped_classes"] == ["c"]
    assert "1 of 3 classes have no picture to train on: 'c': left out" in caplog.text
    x[:] = np.nan
    with pytest.raises(InputError, match="no picture to train on can be read"):
        load(
            replace(
                request, name=npz(tmp_path / "b.npz", x=x, y=y, classes=np.array(["a", "b", "c"])), skip_broken=True
            )
        )


@pytest.mark.parametrize("content", [None, b"", b"PK", b"text", b"\x93NUMPY"])
def test_files_that_are_no_npz(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npz"):
        load(DataConfig(str(path)))


@pytest.mark.parametrize(("request_", "words"), [
    ({"name": "digit"}, "did you mean 'digits'"),
    ({"name": "cifar"}, "did you mean 'cifar10'"),
    ({"name": "digits", "image_size": (16, 16)}, "image-size is for pictures"),
    ({"name": "digits", "loader": "stream"}, "loader stream is for pictures"),
    ({"name": "digits", "loader": "ram"}, "known: auto, memory, stream"),
    ({"name": "./nothing"}, "no such folder"),
])  # fmt: skip
def test_requests_that_are_refused(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(DataConfig(**request_))


def test_a_reader_is_its_file_and_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an entry, a module that is not there yet is loaded, named in errors and offered for a misspelt name."""
    code = """
import numpy as np
from alternas.search.data.dataset import RawDataset, RawSplit

def read_stripes(config):
    x_NCHW = np.arange(160, dtype=np.uint8).reshape(40, 1, 2, 2)
    return RawDataset({"all": RawSplit(x_NCHW, np.arange(40) % 2)}, ("a", "b"))
"""
    (tmp_path / "stripes.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(tmp_path)])
    entry = registry.Reader("stripes/NAME", "stripes", "stripes:read_stripes", prefix="stripes/", arrays=True)
    monkeypatch.setattr(registry, "READERS", (entry, *registry.READERS))
    data = load(DataConfig("stripes/two"))
    assert (len(data.train), data.image_size, data.classes) == (24, (2, 2), ("a", "b"))
    with pytest.raises(InputError, match="image-size is for pictures"):
        load(DataConfig("stripes/two", image_size=(4, 4)))
    monkeypatch.delitem(sys.modules, "alternas.search.data.readers.stripes")


@pytest.mark.parametrize("reader", registry.READERS, ids=lambda reader: reader.form)
def test_every_reader_is_there_and_in_the_docs(reader: registry.Reader) -> None:
    module, function = reader.function.split(":")
    assert callable(getattr(import_module(f"alternas.search.data.readers.{module}"), function))
    rows = (Path(alternas.__file__).parent / "docs" / "data.md").read_text(encoding="utf-8").splitlines()
    row = next((row for row in rows if reader.help in row), "")
    assert ("`--download` fetches it" in row) == reader.downloads, f"a row of docs/data.md says: {reader.help}"
    assert all(registry.find_reader(name) is reader for name in reader.names)


@pytest.mark.parametrize(("name", "function"), [
    ("CIFAR10", "torchvision:read_torchvision"), ("hfds/x", "huggingface:read_huggingface"),
    ("wds/x", "webdataset:read_webdataset"), ("a/B.NPZ", "npz:read_npz"), ("hfds/", "folder:read_folder"),
    ("a/b", "folder:read_folder"),
])  # fmt: skip
def test_who_reads_what(name: str, function: str) -> None:
    assert registry.find_reader(name).function == function


def test_validation_is_cut_from_train_and_test_is_left_alone() -> None:
    y = np.array([0] * 30 + [1] * 4 + [2] * 100)
    places, _ = places_of("x", {"train": y, "test": y}, ("a", "b", "c"))
    train, val = places["train"][1], places["val"][1]
    assert sorted([*train, *val]) == list(range(len(y)))
    assert np.bincount(y[val]).tolist() == [3, 1, 10]
    assert places["test"] == ("test", pytest.approx(np.arange(len(y))))
    again, _ = places_of("x", {"train": y, "test": y}, ("a", "b", "c"))
    assert again["val"][1].tolist() == val.tolist()


def rows(data: DataSet) -> set[bytes]:
    assert isinstance(data.train.images, np.ndarray)
    return {image.tobytes() for image in data.train.images}


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.99])
def test_a_share_is_of_each_class(digits: DataSet, share: float) -> None:
    part = seen(digits, View(share))
    for label in range(10):
        whole, kept = (int((d.train.y_N == label).sum()) for d in (digits, part))
        assert kept == max(1, round(share * whole))
    assert part.val is digits.val
    assert (part.mean, part.std, part.classes) == (digits.mean, digits.std, digits.classes)
    assert rows(part) < rows(digits)


def test_smaller_shares_lie_within_larger_ones_and_draws_differ(digits: DataSet) -> None:
    small, large, other = (rows(seen(digits, View(s, draw=d))) for s, d in ((0.1, 0), (0.3, 0), (0.1, 1)))
    assert small < large
    assert small != other
    assert small == rows(seen(digits, View(0.1)))


def test_classes_are_kept_in_all_splits_and_renumbered(digits: DataSet) -> None:
    part = seen(digits, View(classes=(7, 2)))
    assert part.classes == ("7", "2")
    for ours, theirs in ((part.train, digits.train), (part.val, digits.val), (part.test, digits.test)):
        assert ours is not None
        assert theirs is not None
        places = np.flatnonzero(np.isin(theirs.y_N, (2, 7)))
        assert np.array_equal(ours.images, theirs.images[places])
        assert np.array_equal(np.array([7, 2])[ours.y_N], theirs.y_N[places])


def test_each_view_has_its_own_hash(digits: DataSet) -> None:
    assert seen(digits, WHOLE) is digits
    views = (WHOLE, View(0.1), View(0.3), View(0.1, draw=1), View(classes=(1, 2)), View(classes=(2, 1)))
    assert len({seen(digits, view).split_hash for view in views}) == len(views)


@pytest.mark.parametrize(("make", "rule"), [
    (lambda d: View(0.0), "share must be above 0"),
    (lambda d: View(float("nan")), "share must be above 0"),
    (lambda d: View(1.5), "at most 1"),
    (lambda d: View(classes=(1, 1)), "classes must differ"),
    (lambda d: seen(d, View(classes=(3, 10))), "no class 10; digits has 10"),
    (lambda d: seen(d, View(classes=(-1,))), "no class -1"),
])  # fmt: skip
def test_bad_views(digits: DataSet, make: object, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        make(digits)  # type: ignore[operator]


def test_folds_hold_each_image_once_and_keep_groups_and_classes_together() -> None:
    """Beside scikit-learn's stratified folds: as even by class, and a group lies in one fold."""
    random = np.random.default_rng(0)
    y_N = random.integers(0, 3, 240)
    theirs = [np.bincount(y_N[test], minlength=3) for _, test in StratifiedKFold(5).split(y_N, y_N)]
    fold_N = fold_numbers(y_N, 3, 5)
    counts = [np.bincount(y_N[fold_N == fold], minlength=3) for fold in range(5)]
    assert np.ptp(counts, axis=0).max() <= np.ptp(theirs, axis=0).max() + 1
    group_N = np.repeat(np.arange(40), 6)
    of_group = [np.unique(fold_numbers(y_N, 3, 5, group_N)[group_N == group]) for group in range(40)]
    assert all(len(folds) == 1 for folds in of_group)


def test_a_fold_validates_on_images_that_it_does_not_train_on(digits: DataSet) -> None:
    data = digits
    both_N = np.concatenate([np.asarray(data.train.images), np.asarray(data.val.images)])
    folds = [seen(data, View(folds=5, fold=fold)) for fold in range(5)]
    assert sum(len(part.val) for part in folds) == len(both_N)
    assert all(len(part.train) + len(part.val) == len(both_N) for part in folds)
    judged = np.concatenate([np.asarray(part.val.images).sum((1, 2, 3)) for part in folds])
    assert sorted(judged) == sorted(both_N.sum((1, 2, 3)))
    assert len({part.split_hash for part in folds}) == 5
    with pytest.raises(InputError, match="fold must be"):
        View(folds=5, fold=5)
