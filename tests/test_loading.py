"""From a folder of pictures to batches: one look, broken files, memory and stream, and the export's own reader."""

import dataclasses
import gc
import logging
import os
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from alternas.archs import InputError
from alternas.search.data import build as loading
from alternas.search.data.build import images_at
from alternas.search.data.dataset import BrokenPicturesError, DataConfig, DataSet, Pictures
from alternas.search.data.load import load
from alternas.search.data.readers.folder import read_folder
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import open_loader
from alternas.search.training.loop import train
from alternas.search.training.member import Member
from alternas.search.training.recipe import Augment
from alternas.spaces import get

CPU = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("own_cache")


def draw(folder: Path, count: int = 12, size: tuple[int, int] = (16, 16), mode: str = "RGB") -> Path:
    """Two classes of `count` pictures: noise around dark and around bright."""
    random = np.random.default_rng(0)
    for label, (name, level) in enumerate((("dark", 60), ("light", 190))):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            array = random.integers(level - 50, level + 50, (*size, 3), np.uint8)
            Image.fromarray(array).convert(mode).save(folder / name / f"{label}{i:03}.png")
    return folder


def images(data: DataSet) -> np.ndarray:
    assert isinstance(data.train.images, np.ndarray)
    return data.train.images


@pytest.mark.parametrize(("size", "mode", "asked", "look"), [
    ((16, 16), "RGB", None, (3, 16, 16)), ((16, 16), "L", None, (1, 16, 16)), ((40, 24), "RGB", None, (3, 40, 24)),
    ((16, 16), "RGB", (8, 12), (3, 8, 12)), ((120, 100), "RGB", None, (3, 96, 96)),
])  # fmt: skip
def test_the_look_of_a_set(
    tmp_path: Path, size: tuple[int, int], mode: str, asked: tuple[int, int] | None, look: tuple[int, ...]
) -> None:
    data = load(DataConfig(str(draw(tmp_path / "set", size=size, mode=mode)), asked))
    assert images(data).shape[1:] == look
    assert (data.in_chans, *data.image_size) == look
    assert (data.classes, data.white_level, data.loader) == (("dark", "light"), 255.0, "memory")
    assert [len(p) for p in (data.train, data.val, data.test) if p] == [14, 6, 4]
    assert images(data).mean((0, 2, 3)).tolist() == pytest.approx(data.mean)
    for x, label in zip(images(data), data.train.y_N, strict=True):
        assert (x.mean() > 125) == label


def test_splits_of_a_folder_are_used(tmp_path: Path) -> None:
    for part, count in (("train", 20), ("test", 5)):
        draw(tmp_path / part, count)
    data = load(DataConfig(str(tmp_path)))
    assert [len(p) for p in (data.train, data.val, data.test) if p] == [36, 4, 10]
    draw(tmp_path / "val", 3)
    data = load(DataConfig(str(tmp_path)))
    assert [len(p) for p in (data.train, data.val, data.test) if p] == [40, 6, 10]


def spoil(folder: Path) -> None:
    (folder / "dark" / "0003.png").write_bytes(b"not a picture")
    whole = (folder / "light" / "1005.png").read_bytes()
    (folder / "light" / "1005.png").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_broken_pictures(tmp_path: Path, loader: str, caplog: pytest.LogCaptureFixture) -> None:
    request = DataConfig(str(draw(tmp_path / "set")), loader=loader)
    spoil(tmp_path / "set")
    for _ in range(2):  # the second time from the cache
        with pytest.raises(InputError, match=r"2 of 24 pictures cannot be read; the first: .*0003\.png.*--skip-broken"):
            load(request)
    with caplog.at_level(logging.WARNING):
        data = load(dataclasses.replace(request, skip_broken=True))
    assert "left out" in caplog.text
    assert sum(len(p) for p in (data.train, data.val, data.test) if p) == 22
    assert data.notes["skipped"] == {"all": 2}
    bench = open_loader(data, CPU, 0)
    assert sum(len(y) for _, y in bench.images("train", 4)) == len(data.train)


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_a_class_without_a_whole_picture_is_skipped(
    tmp_path: Path, loader: str, caplog: pytest.LogCaptureFixture
) -> None:
    for part in ("train", "val"):
        draw(tmp_path / part)
        draw(tmp_path / part / "more", 3)
        for name in ("dark", "light"):
            (tmp_path / part / "more" / name).rename(tmp_path / part / f"a {name}")
        (tmp_path / part / "more").rmdir()
    for path in (tmp_path / "train" / "a light").iterdir():
        path.write_bytes(b"not a picture")
    (tmp_path / "train" / "empty").mkdir()
    request = DataConfig(str(tmp_path), loader=loader)
    with pytest.raises(InputError, match=r"1 of 5 classes hold no pictures .* 'empty'; --skip-broken leaves them out"):
        load(request)
    with caplog.at_level(logging.WARNING):
        data = load(dataclasses.replace(request, skip_broken=True))
    assert (
        "2 of 5 classes have no picture to train on: 'a light, empty': left out, with 3 pictures of val" in caplog.text
    )
    assert data.classes == ("a dark", "dark", "light")
    assert data.notes["skipped"] == {"train": 3}
    assert data.notes["skipped_classes"] == ["a light", "empty"]
    assert np.bincount(data.train.y_N).tolist() == [3, 12, 12]
    assert np.bincount(data.val.y_N).tolist() == [3, 12, 12]
    bench = open_loader(data, CPU, 0)
    for split in ("train", "val"):
        for x, y in bench.images(split, 64):
            assert ((x.mean((1, 2, 3)) > 0) == (y == 2)).all()


def test_a_class_that_is_named_but_has_no_pictures(tmp_path: Path) -> None:
    """As Hugging Face's sets and the classes.txt of shards name them."""
    request = DataConfig(str(draw(tmp_path / "set")))
    found = read_folder(request)
    found = dataclasses.replace(found, classes=(*found.classes, "none"))
    with pytest.raises(InputError, match="'none' has 0; --skip-broken leaves out classes that have none"):
        loading.build_dataset(request, found, lambda what, done, total: None)
    data = loading.build_dataset(dataclasses.replace(request, skip_broken=True), found, lambda what, done, total: None)
    assert (data.classes, data.notes["skipped_classes"]) == (("dark", "light"), ["none"])


def test_a_set_without_a_whole_picture(tmp_path: Path) -> None:
    request = DataConfig(str(draw(tmp_path / "set", 3)))
    for path in (tmp_path / "set").rglob("*.png"):
        path.write_bytes(b"not a picture")
    with pytest.raises(BrokenPicturesError, match="6 of 6 pictures cannot be read; the first") as caught:
        load(request)
    assert [Path(one.picture).name for one in caught.value.broken] == [
        *(f"0{i:03}.png" for i in range(3)),
        *(f"1{i:03}.png" for i in range(3)),
    ]
    with pytest.raises(InputError, match="no picture to train on can be read"):
        load(dataclasses.replace(request, skip_broken=True))


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_what_is_unlike_most_is_counted(tmp_path: Path, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(name: str, **options: Any) -> str:
        return load(DataConfig(str(tmp_path / name), loader=loader, **options)).notes["pictures"]

    draw(tmp_path / "grey", 12, mode="L")
    assert note("grey") == "grey, of 16x16"
    monkeypatch.setattr(loading, "SURVEYED", 4)
    sample = "; size and channels go by a sample of 4 of 24"
    assert note("grey") == f"grey, of 16x16{sample}"
    places = np.random.default_rng(0).permutation(24)  # the sample's are the first
    for place, size, mode in ((places[4], (20, 16), "L"), (places[5], (9, 12), "RGB")):
        path = tmp_path / "grey" / ("dark", "light")[place // 12] / f"{place // 12}{place % 12:03}.png"
        Image.new(mode, size, "red" if mode == "RGB" else 50).save(path)
    brought = ", brought to 16x16, which --image-size changes"
    odd = f"but for 2 of 24, of 12x9 to 16x20{brought}; 1 of 24 have colour, which is left out"
    assert note("grey") == f"grey, of 16x16 {odd}{sample}"
    assert note("grey", image_size=(8, 8)) == f"grey, of 16x16 {odd.replace(brought, ', brought to 8x8')}{sample}"
    for number, path in enumerate(sorted((tmp_path / "grey").rglob("*.png"))):
        Image.new("RGB", (20 + number, 30)).save(path)
    assert note("grey") == f"colour, of 30x20 to 30x43, brought to 28x28, which --image-size changes{sample}"


def test_memory_or_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = DataConfig(str(draw(tmp_path / "set")))
    assert load(request).loader == "memory"
    monkeypatch.setattr(loading, "MEMORY_LIMIT", 24 * 3 * 16 * 16 - 1)
    streamed = load(request)
    assert streamed.loader == "stream"
    assert load(dataclasses.replace(request, loader="memory")).loader == "memory"
    assert streamed.split_hash != load(dataclasses.replace(request, loader="memory")).split_hash
    assert streamed.facts()["loader"] == "stream"
    assert images_at(streamed.val, np.arange(3)).shape == (3, 3, 16, 16)


def test_reading_is_remembered_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, opened = DataConfig(str(draw(tmp_path / "set"))), []

    def read_all(pictures: Pictures, report: Any) -> Any:
        opened.append(len(pictures))
        return real(pictures, report)

    real = loading.read_all
    monkeypatch.setattr(loading, "read_all", read_all)
    first = load(request)
    assert load(request).split_hash == first.split_hash
    assert opened == [24]
    path = tmp_path / "set" / "dark" / "0000.png"
    Image.new("RGB", (16, 16), "red").save(path)
    os.utime(path, ns=(1, 1))
    assert load(request).split_hash != first.split_hash
    assert opened == [24, 24]


@pytest.fixture(params=[0, 2], ids=["in process", "two workers"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    """The benches of one folder, read into memory and streamed."""
    folder = str(draw(tmp_path / "set", 20))
    found = [load(DataConfig(folder, loader=loader)) for loader in ("memory", "stream")]
    return open_loader(found[0], CPU, 0), open_loader(found[1], CPU, request.param)


def test_streamed_images_are_those_in_memory(both: tuple[Any, Any]) -> None:
    for split, most in (("train", None), ("val", None), ("train", 5)):
        pairs = [list(bench.images(split, 6, most)) for bench in both]
        assert len(pairs[0]) == len(pairs[1])
        for (x, y), (u, v) in zip(*pairs, strict=True):
            torch.testing.assert_close(x, u)
            assert torch.equal(y, v)


def test_readers_end_once_nobody_holds_their_loader(tmp_path: Path) -> None:
    """At once, not when a cycle of references is found: then torch cannot tell them to, and waits 5 s for each."""
    others = {*active_children()}
    loader = open_loader(load(DataConfig(str(draw(tmp_path / "set")), loader="stream")), CPU, 2)
    list(loader.images("val", 6))
    readers = {*active_children()} - others
    assert len(readers) == 2
    gc.disable()
    try:
        del loader
        assert not readers & {*active_children()}
    finally:
        gc.enable()


def test_streamed_batches(both: tuple[Any, Any]) -> None:
    """Unaugmented they are those in memory; augmented, a function of their step alone."""
    plain = dataclasses.replace(recipes.smoke(), batch_size=5, augment=Augment())
    for (x, y), (u, v) in zip(*(bench.batches(plain, 1, 2, 9) for bench in both), strict=True):
        torch.testing.assert_close(x, u)
        assert torch.equal(y, v)
    how = Augment(rrc_min_scale=0.5, pad=2, flip=True, ra_num_ops=2, ra_magnitude=9, ra_magnitude_std=0.5, reprob=0.5)
    rich = dataclasses.replace(plain, augment=how)
    _, stream = both
    whole, late = list(stream.batches(rich, 1, 0, 7)), list(stream.batches(rich, 1, 4, 7))
    for (x, y), (u, v) in zip(whole[4:], late, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
    assert not torch.equal(whole[0][0], next(stream.batches(rich, 2, 0, 1))[0])
    assert {y.tolist()[0] for _, y in whole} == {0, 1}


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_what_two_devices_see_is_what_one_sees(loader: str, tmp_path: Path) -> None:
    """The same images, moved, coloured and hidden by the same random numbers."""
    bench = open_loader(load(DataConfig(str(draw(tmp_path / "set")), loader=loader)), CPU, 0)
    how = Augment(rrc_min_scale=0.5, pad=2, flip=True, ra_num_ops=2, ra_magnitude=9, ra_magnitude_std=0.5, reprob=0.5)
    recipe = dataclasses.replace(recipes.smoke(), batch_size=5, augment=how)
    whole = list(bench.batches(recipe, 1, 0, 6))
    for member in (Member(0, 2), Member(1, 2)):
        own = list(member.places(5))
        for (x, y), (u, v) in zip(bench.batches(recipe, 1, 0, 6, member), whole, strict=True):
            torch.testing.assert_close(x, u[own])
            assert torch.equal(y, v[own])
    parts = [list(bench.images("val", 3, None, Member(rank, 2))) for rank in (0, 1)]
    seen, alike = (torch.cat([x for x, _ in batches]) for batches in (parts[0] + parts[1], bench.images("val", 3)))
    torch.testing.assert_close(seen, alike)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [Augment(pad=2), Augment(flip=True), Augment(rrc_min_scale=0.3)], ids=["pad", "flip", "scale"]
)
def test_streamed_augmentation_is_that_of_memory(both: tuple[Any, Any], how: Augment) -> None:
    """Not draw for draw, but in what it does to the mean and to the spread over many draws."""
    recipe = dataclasses.replace(recipes.smoke(), batch_size=24, augment=how)
    means = [torch.cat([x for x, _ in bench.batches(recipe, 0, 0, 40)]).mean(0) for bench in both]
    deviation = (means[0] - means[1]).square().mean().sqrt()
    assert deviation < 0.06
    plain = next(both[0].images("train", 24))[0]
    assert not any(torch.equal(row, x) for x, _ in [next(both[1].batches(recipe, 0, 0, 1))] for row in plain[:1])


def test_readers_live_on_and_leave_what_was_begun(both: tuple[Any, Any]) -> None:
    """An evaluation begins no processes anew; a training that was left in its midst spoils no later one."""
    stream = both[1]
    recipe = dataclasses.replace(recipes.smoke(), batch_size=5, augment=Augment(flip=True))
    first, left = [[y for _, y in stream.images("val", 2)]], stream.batches(recipe, 0, 0, 9)
    next(left)
    workers = [getattr(readers.loader._iterator, "_workers", None) for readers in (stream.training, stream.evaluation)]
    first.append([y for _, y in stream.images("val", 2)])
    assert [y.tolist() for y in first[0]] == [y.tolist() for y in first[1]]
    again = [y.tolist() for _, y in stream.batches(recipe, 0, 3, 6)]
    assert again == [y.tolist() for _, y in both[0].batches(recipe, 0, 3, 6)]
    assert workers == [getattr(r.loader._iterator, "_workers", None) for r in (stream.training, stream.evaluation)]
    with pytest.raises(AssertionError, match="another list was begun"):
        next(left)


@pytest.mark.slow
def test_readers_need_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's /dev/shm has 64 MB; a reader whose tensor does not fit there never answers."""
    monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", lambda *_: os._exit(1))
    monkeypatch.setattr(torch.UntypedStorage, "_share_filename_cpu_", lambda *_: os._exit(1))
    bench = open_loader(load(DataConfig(str(draw(tmp_path / "set")), loader="stream")), CPU, 1)
    assert sum(len(y_B) for _, y_B in bench.images("train", 4)) == 14


@pytest.mark.slow
def test_a_resumed_streamed_training_is_the_unbroken_one(tmp_path: Path) -> None:
    data = load(DataConfig(str(draw(tmp_path / "set", 40)), loader="stream"))
    recipe = dataclasses.replace(
        recipes.smoke(),
        batch_size=8,
        augment=Augment(rrc_min_scale=0.5, flip=True, ra_num_ops=1, ra_magnitude=5, mixup=0.5),
    )
    net, bench = get("resnet", 16).baselines()[2], open_loader(data, CPU, 1)

    def run(name: str, until: int) -> JobResult:
        folder = tmp_path / name
        given = TrainJob(0, net, recipe, 0, until, 12, str(folder / "c.pt"), str(folder / "w.safetensors"))
        *_, outcome = train(given, bench)
        assert isinstance(outcome, JobResult)
        return outcome

    whole = run("whole", 12)
    for until in (5, 12):
        broken = run("broken", until)
    assert (broken.curve, broken.metrics, broken.how["loader"]) == (whole.curve, whole.metrics, "stream")
    ours, theirs = (load_file(tmp_path / name / "w.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
