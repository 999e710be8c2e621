"""Batched augmentation against brute force, one image at a time, and against timm's definitions."""

import dataclasses
from io import BytesIO
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from alternas.archs.pictures import ImageSpec, decode
from alternas.search.data.dataset import DataSet, Split
from alternas.search.training import augment, recipes
from alternas.search.training.augment import Draws
from alternas.search.training.loaders import MemoryLoader, generator_of
from alternas.search.training.pictures import _box, cropped
from alternas.search.training.recipe import Augment
from image_files import ORIENTATION, encoded, noise


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draws(images: int = 64) -> Draws:
    return Draws(generator(), images)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(64, 3, 9, 7, generator=generator(1))


def test_shifts_are_crops_of_the_padded_image(images: Tensor) -> None:
    found, padded, seen = (
        augment.moved(images, 2, *augment.moves_of((9, 7), 2, False, draws())),
        F.pad(images, (2,) * 4),
        set(),
    )
    for image, whole in zip(found, padded, strict=True):
        crops = {(i, j): whole[:, i : i + 9, j : j + 7] for i in range(5) for j in range(5)}
        fits = [at for at, crop in crops.items() if torch.equal(crop, image)]
        assert len(fits) == 1
        seen.add(fits[0])
    assert len(seen) > 20


def test_flips(images: Tensor) -> None:
    found = augment.moved(images, 0, *augment.moves_of((9, 7), 0, True, draws()))
    same = [torch.equal(a, b) for a, b in zip(found, images, strict=True)]
    mirrored = [torch.equal(a, b.flip(2)) for a, b in zip(found, images, strict=True)]
    assert all(a != b for a, b in zip(same, mirrored, strict=True))
    assert 20 < sum(same) < 44


def test_a_resized_crop_of_everything_is_the_image(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = tuple(torch.full((64,), side) for side in (0.0, 0.0, 9.0, 7.0))
    monkeypatch.setattr(augment, "_boxes", lambda *_: boxes)
    torch.testing.assert_close(augment.cropped(images, 1.0, draws()), images)


def test_a_resized_crop_is_the_crop_resized(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(4, 3, 16, 16, generator=generator())
    given = [0, 4, 8, 3], [2, 0, 8, 5], [8, 12, 8, 6], [8, 16, 4, 9]
    boxes = tuple(torch.tensor(v, dtype=torch.float) for v in given)
    monkeypatch.setattr(augment, "_boxes", lambda *_: boxes)
    found = augment.cropped(x, 0.1, draws(4))
    for image, got, (top, left, high, wide) in zip(x, found, torch.stack(boxes, 1).int().tolist(), strict=True):
        crop = image[None, :, top : top + high, left : left + wide]
        wanted = F.interpolate(crop, (16, 16), mode="bilinear", align_corners=False)[0]
        inner = slice(2, -2)  # at the border, the crop's own neighbours are seen
        torch.testing.assert_close(got[:, inner, inner], wanted[:, inner, inner], atol=1e-5, rtol=1e-4)


def test_boxes_have_the_areas_and_ratios_of_their_ranges() -> None:
    top, left, high, wide = augment._boxes((200, 200), (0.02, 0.3), (0.3, 1 / 0.3), draws(20_000))
    area, ratio = high * wide / 200**2, wide / high
    assert area.min() > 0.018
    assert area.max() < 0.305
    assert area.mean() == pytest.approx(0.16, abs=0.003)
    assert ratio.log().mean() == pytest.approx(0, abs=0.02)
    assert ratio.log().std() == pytest.approx(2 * np.log(1 / 0.3) / 12**0.5, rel=0.03)
    assert (top >= 0).all()
    assert (top + high <= 200).all()
    assert (left + wide <= 200).all()


def test_erasing_takes_its_share(images: Tensor) -> None:
    found = augment.erased(images, 0.5, draws())
    changed = (found != images).all(1)
    hit = changed.flatten(1).any(1)
    assert 20 < hit.sum() < 44
    for mask in changed[hit]:
        assert mask.sum() == mask.any(0).sum() * mask.any(1).sum(), "a box"


@pytest.mark.parametrize("how", [Augment(mixup=1.0), Augment(cutmix=1.0), Augment(mixup=0.4, cutmix=1.0)])
def test_mixing_mixes_labels_as_it_mixes_pixels(how: Augment) -> None:
    y = torch.arange(8) % 4
    x = F.one_hot(y, 4).float()[:, :, None, None].expand(-1, -1, 10, 10).contiguous()
    weights = []
    for step in range(300):
        mixed, t = augment.mixed(x, y, 4, how, (0, step))
        torch.testing.assert_close(mixed.mean((2, 3)), t, msg="images of their label: the mean pixel is the target")
        torch.testing.assert_close(t.sum(1), torch.ones(8))
        weights.append(t[0, 0].item())
    if how == Augment(mixup=1.0):
        assert np.mean(weights) == pytest.approx(0.5, abs=0.05)
        assert np.std(weights) == pytest.approx(12**-0.5, rel=0.1)


def test_a_share_of_the_batches_is_mixed() -> None:
    x, y = torch.randn(8, 1, 4, 4), torch.arange(8)
    how = Augment(mixup=1.0, mix=0.3)
    left = [torch.equal(augment.mixed(x, y, 8, how, (0, step))[0], x) for step in range(400)]
    assert np.mean(left) == pytest.approx(0.7, abs=0.06)


def tiny(images: int = 50) -> DataSet:
    x = np.random.default_rng(0).integers(0, 256, (images, 3, 8, 8), np.uint8)
    split = Split(x, np.arange(images) % 3)
    return DataSet("tiny", (8, 8), ("a", "b", "c"), split, split, None, (127.0,) * 3, (74.0,) * 3, 255.0, "")


def test_an_epoch_sees_every_image_once() -> None:
    bench = MemoryLoader(tiny(), torch.device("cpu"))
    recipe = dataclasses.replace(recipes.smoke(), batch_size=10, augment=Augment())
    epochs = [torch.cat([x for x, _ in bench.batches(recipe, 0, 5 * e, 5 * e + 5)]) for e in (0, 1)]
    images, _ = next(bench.images("train", 50))
    for seen in epochs:
        assert sorted(seen.sum((1, 2, 3)).tolist()) == pytest.approx(sorted(images.sum((1, 2, 3)).tolist()))
    assert not torch.equal(*epochs)
    assert images.mean().abs() < 0.05


def test_a_batch_depends_on_its_step_alone() -> None:
    bench = MemoryLoader(tiny(), torch.device("cpu"))
    how = Augment(rrc_min_scale=0.3, pad=1, flip=True, ra_num_ops=2, ra_magnitude=9, ra_magnitude_std=1, reprob=0.5)
    recipe = dataclasses.replace(recipes.smoke(), batch_size=16, augment=how)
    whole = list(bench.batches(recipe, 3, 0, 9))
    late = list(bench.batches(recipe, 3, 5, 9))
    for (a, y), (b, z) in zip(whole[5:], late, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(y, z)
    other = next(bench.batches(recipe, 4, 0, 1))
    assert not torch.equal(other[0], whole[0][0])
    assert torch.rand(1, generator=generator_of(1, 2, 3)) != torch.rand(1, generator=generator_of(1, 2, 2))


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
