"""RandAugment against timm's, which works on Pillow's images one by one: ops, levels, draws."""

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare, ks_2samp
from timm.data import auto_augment as timm_augment
from torch import Tensor

from alternas.search.training.augment import Draws
from alternas.search.training.randaugment import MOVES, OPS, PIXEL_OPS, Draw, RandAugment, _arguments, apply

SHAPES = [(3, 32, 32), (3, 17, 40), (1, 33, 20), (1, 8, 8), (3, 2, 2), (1, 1, 5)]
NONE = len(OPS)
PLAIN = ("AutoContrast", "Equalize", "Invert")  # no level means anything to them


def timm_name(name: str) -> str:
    return f"{name}Rel" if name.startswith("Translate") else name


def timm_argument(name: str, argument: float) -> float:
    """Posterize is told bits there, a rotation degrees; all numbers are as Python's."""
    if name == "Posterize":
        return 8 - int(math.log2(argument))
    return math.degrees(argument) if name == "Rotate" else argument


def by_timm(name: str, x_CHW: Tensor, argument: float, fill: tuple[int, ...]) -> Tensor:
    array = x_CHW.byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(array[..., 0] if len(x_CHW) == 1 else array)
    told = timm_argument(name, argument)
    if (name, told) == ("Posterize", 0):  # black, by timm's own words; Pillow 13 refuses it
        return torch.zeros_like(x_CHW)
    told = int(told) if name in ("Posterize", "Solarize", "SolarizeAdd") else told
    options = {"fillcolor": fill if len(x_CHW) == 3 else fill[0], "resample": Image.Resampling.BILINEAR}
    found = timm_augment.NAME_TO_OP[timm_name(name)](image, *([] if name in PLAIN else [told]), **options)
    return torch.tensor(np.array(found)).view(*x_CHW.shape[1:], -1).permute(2, 0, 1).float()


def images(shape: tuple[int, int, int]) -> Tensor:
    """Noise, waves, little contrast, mostly one value, one value: two of each."""
    channels, height, width = shape
    rng = np.random.default_rng(channels * height + width)
    down, across = np.mgrid[:height, :width]
    waves = [127 + 120 * np.sin(down / rng.uniform(3, 9) + across / rng.uniform(3, 9) + c) for c in range(channels)]
    noise = rng.integers(0, 256, (2, *shape))
    found = [*noise, *np.stack([waves, np.clip(np.add(waves, noise[0] / 9), 0, 255)]), *(60 + noise // 9)]
    found += [*np.where(noise < 230, 7, noise), np.zeros(shape), np.full(shape, 201)]
    return torch.tensor(np.stack(found).astype(np.uint8)).float()


def one_op(name: str, x_BCHW: Tensor, argument_B: Tensor, fill: tuple[float, ...] = (128.0,)) -> Tensor:
    op_1B = torch.full((1, len(x_BCHW)), OPS.index(name))
    return apply(x_BCHW, Draw(op_1B, argument_B[None]), fill)


def arguments(name: str, level_B: Tensor, increasing: bool) -> Tensor:
    sign_B = torch.tensor([1.0, -1.0]).repeat(len(level_B))[: len(level_B)]
    return _arguments(level_B, sign_B, increasing).get(name, level_B)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PIXEL_OPS)
def test_pixel_ops_are_pillows(name: str, shape: tuple[int, int, int]) -> None:
    x_BCHW = images(shape)
    for increasing in (False, True):
        for level in (0.5,) if name in PLAIN else (0.0, 0.31, 0.77, 0.983, 1.0):
            argument_B = arguments(name, torch.full((len(x_BCHW),), level, dtype=torch.float64), increasing)
            found = one_op(name, x_BCHW, argument_B)
            for x, y, argument in zip(x_BCHW, found, argument_B.tolist(), strict=True):
                assert torch.equal(y, by_timm(name, x, argument, (128, 128, 128)))


@pytest.mark.parametrize("shape", [*SHAPES, (3, 64, 48)])
@pytest.mark.parametrize("name", MOVES)
def test_moves_are_pillows(name: str, shape: tuple[int, int, int]) -> None:
    """Border and fill included. Where the exact value is whole, Pillow may cut off one more than we do."""
    x_BCHW, fill = images(shape), (128, 3, 250)[: shape[0]]
    level_B = torch.rand(len(x_BCHW), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    argument_B = arguments(name, level_B, False)
    found = one_op(name, x_BCHW, argument_B, fill)
    wanted = [by_timm(name, x, a, fill) for x, a in zip(x_BCHW, argument_B.tolist(), strict=True)]
    off = (found - torch.stack(wanted)).abs()
    assert off.max() <= 1
    assert (off > 0).float().mean() < 1e-4


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("name", [name for name in OPS if name not in PLAIN])
def test_levels_are_timms(name: str, increasing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = timm_augment._RAND_INCREASING_TRANSFORMS if increasing else timm_augment._RAND_TRANSFORMS
    key = next(key for key in (timm_name(name), f"{name}Increasing") if key in sets)
    for sign in (1.0, -1.0):
        monkeypatch.setattr(timm_augment, "_randomly_negate", lambda value, sign=sign: sign * value)
        for level in np.linspace(0, 1, 21):
            (wanted,) = timm_augment.LEVEL_TO_ARG[key](10 * level, {})
            told = _arguments(torch.tensor(level), torch.tensor(sign), increasing)[name].item()
            assert timm_argument(name, told) == pytest.approx(wanted, abs=1e-12)


def test_the_ops_are_timms() -> None:
    names = {timm_name(name) for name in OPS}
    assert names == set(timm_augment._RAND_TRANSFORMS)
    assert names == {name.removesuffix("Increasing") for name in timm_augment._RAND_INCREASING_TRANSFORMS}


def draws(images: int, seed: int = 0) -> Draws:
    return Draws(torch.Generator().manual_seed(seed), images)


def our_draws(augment: RandAugment, batch: int) -> list[tuple[str, float]]:
    draw = augment.draw(draws(batch))
    pairs = zip(draw.op_NB.flatten().tolist(), draw.argument_NB.flatten().tolist(), strict=True)
    return [(OPS[op], timm_argument(OPS[op], argument)) for op, argument in pairs if op != NONE]


def timm_draws(text: str, images: int) -> list[tuple[str, float]]:
    """What timm's ops are told, for as many images; they leave them alone here."""
    made: list[tuple[str, float]] = []
    augment = timm_augment.rand_augment_transform(text)
    for op in augment.ops:
        name = op.name.removesuffix("Increasing").removesuffix("Rel")

        def note(image: Any, *told: float, name: str = name, **_: Any) -> Any:
            made.append((name, *(told or (0.0,))))
            return image

        op.aug_fn = note
    random.seed(0)
    np.random.seed(0)
    for _ in range(images):
        augment(None)
    return made


@pytest.mark.parametrize(
    ("text", "augment"),
    [("rand-m9-n2-mstd0.5-inc1", RandAugment(2, 9, 0.5, True)), ("rand-m6-n3-mstd2", RandAugment(3, 6, 2))],
)
def test_draws_are_spread_as_timms(text: str, augment: RandAugment) -> None:
    batch = 8_000
    ours, theirs = our_draws(augment, batch), timm_draws(text, batch)
    for made in (ours, theirs):
        counts, total = Counter(name for name, _ in made), augment.num_ops * batch
        left_out = total - len(made)
        assert chisquare([left_out, *(counts[name] for name in OPS)], [total / 2] + [total / 30] * 15).pvalue > 1e-3
    for op in set(OPS) - set(PLAIN):
        mine, other = ([argument for name, argument in made if name == op] for made in (ours, theirs))
        assert ks_2samp(mine, other)[1] > 1e-3


def many(shape: tuple[int, int, int], batch: int = 96) -> Tensor:
    return images(shape).repeat(20, 1, 1, 1)[:batch]


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_whole_chains_are_timms(shape: tuple[int, int, int]) -> None:
    x_BCHW, fill = many(shape), (9, 100, 240)[: shape[0]]
    draw = RandAugment(3, 9, 0.5, True).draw(draws(len(x_BCHW), 3))
    found = apply(x_BCHW, draw, fill)
    for i, x in enumerate(x_BCHW):
        for op, argument in zip(draw.op_NB[:, i].tolist(), draw.argument_NB[:, i].tolist(), strict=True):
            x = x if op == NONE else by_timm(OPS[op], x, argument, fill)
        assert torch.equal(found[i], x)


def test_the_generator_decides_all() -> None:
    augment, x_BCHW = RandAugment(2, 9, 0.5), many((3, 12, 15))
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 0, 1)]
    first, again, other = (augment(x_BCHW, Draws(generator, len(x_BCHW))) for generator in generators)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    augment(many((1, 5, 9)), Draws(generators[0], len(x_BCHW)))
    augment(x_BCHW, Draws(generators[1], len(x_BCHW)))
    assert torch.equal(*(generator.get_state() for generator in generators[:2]))


@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_whole_and_in_range(shape: tuple[int, int, int]) -> None:
    x_BCHW = many(shape)
    before = x_BCHW.clone().requires_grad_()
    found = RandAugment(4, 8, 2)(before, draws(len(before)))
    assert (found.shape, found.dtype, found.requires_grad) == (x_BCHW.shape, torch.float32, False)
    assert torch.equal(found, found.byte().float())
    assert torch.equal(before, x_BCHW)
    assert not torch.equal(found, x_BCHW)
    assert len(RandAugment(2, 9, 0.5)(x_BCHW[:0], draws(0))) == 0


def test_nothing_is_read_back_from_the_device() -> None:
    """A meta tensor holds no values: whatever asks for one raises."""
    draw = RandAugment(2, 9, 0.5).draw(draws(200))
    assert set(draw.op_NB[0].tolist()) == set(range(NONE + 1))
    assert apply(torch.empty(200, 3, 9, 7, device="meta"), draw, (128,)).shape == (200, 3, 9, 7)


@pytest.mark.gpu
def test_cuda_gives_the_same_and_never_waits() -> None:
    x_BCHW, augment = many((3, 32, 32)), RandAugment(3, 9, 0.5, True)
    wanted = augment(x_BCHW, draws(len(x_BCHW)))
    x_cuda = x_BCHW.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = augment(x_cuda, draws(len(x_cuda)))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (found.cpu() != wanted).float().mean() < 1e-3
