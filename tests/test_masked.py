"""Masked patch prediction: what is corrupted and how, which colours are asked for, and that it learns."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from alternas.archs import Encoder, Genotype, Head, InputError, Network, Stage, Stem, build
from alternas.search.data.dataset import DataSet, Split
from alternas.search.training.loaders import Preprocess
from alternas.search.training.task import MASKED, RANDOM, REPLACED, MaskedPatches, black_and_white, masked_loss
from nets import CIFAR, NETS, VIT, lively, vit

ENCODERS = {name: net for name, net in NETS.items() if net.encoder is not None}
TWO = black_and_white((0.0, 0.0), (1.0, 1.0), 0.0)


def data_of(x_NCHW: np.ndarray, peak: float) -> DataSet:
    """A data set of these raw images alone."""
    split, sides = Split(x_NCHW, np.zeros(len(x_NCHW), np.int64)), x_NCHW.shape[2:]
    mean, std = x_NCHW.mean((0, 2, 3), dtype=np.float64), x_NCHW.std((0, 2, 3), dtype=np.float64)
    return DataSet("raw", sides, ("a", "b"), split, split, None, tuple(mean.tolist()), tuple(std.tolist()), peak, "")


@dataclass
class Seen:
    """What went through a masked net: embeddings before and after corruption, predictions, colours."""

    before_BNC: Tensor
    after_BNC: Tensor
    tokens_BTC: Tensor
    logits_MK: Tensor
    colour_M: Tensor


def spied(masked: MaskedPatches, x_BCHW: Tensor) -> Seen:
    encoder: Any = masked.network.encoder
    seen: dict[str, Any] = {}
    embed, encode = encoder.embed, encoder.encode

    def spy_embed(x: Tensor) -> Tensor:
        seen["before"] = embed(x)
        return seen["before"]

    def spy_encode(x: Tensor, grid: tuple[int, int]) -> Tensor:
        seen["after"], seen["tokens"] = x, encode(x, grid)
        return seen["tokens"]

    encoder.embed, encoder.encode = spy_embed, spy_encode
    with torch.no_grad():
        logits_MK, colour_M = masked(x_BCHW)
    del encoder.embed, encoder.encode
    return Seen(seen["before"], seen["after"], seen["tokens"], logits_MK, colour_M)


def marked(net: Genotype = NETS["vit"]) -> MaskedPatches:
    """A masked net whose patch embeddings, tokens and [mask] all differ."""
    torch.manual_seed(0)
    masked = MaskedPatches(lively(build(net, 5, 16, 2)), *TWO)
    with torch.no_grad():
        masked.mask.normal_()
    return masked


def changes(seen: Seen, mask_C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, N) each: unchanged, [mask], or the embedding of another patch of the batch; by comparing vectors."""
    before_BNC, after_BNC = seen.before_BNC, seen.after_BNC
    same = (after_BNC == before_BNC).all(2)
    all_AC = before_BNC.flatten(0, 1)
    found = (after_BNC[:, :, None] == all_AC).all(3).any(2)
    return same, (after_BNC == mask_C).all(2), found & ~same


@pytest.mark.parametrize("name", ENCODERS)
def test_the_parts_of_an_encoder_make_the_whole(name: str) -> None:
    torch.manual_seed(0)
    model = lively(build(NETS[name], 5, 16, 2)).eval()
    with torch.no_grad():
        x, encoder = model.forward_features(torch.randn(2, 2, 16, 16)), model.encoder
        tokens = encoder.encode(encoder.embed(x), encoder.grid_of(x))
        pooled = tokens[:, 0] if NETS[name].head.pool == "token" else tokens.mean(1)
        assert torch.equal(pooled, encoder(x))


def test_corrupted_patches_are_masked_of_another_patch_or_kept() -> None:
    masked, x = marked(), torch.randn(40, 2, 16, 16)
    counts, others_of_image, draws = torch.zeros(3), 0, 12
    for seed in range(draws):
        torch.manual_seed(seed)
        seen = spied(masked, x)
        same, at_mask, other = changes(seen, masked.mask)
        assert (same.int() + at_mask.int() + other.int() == 1).all()
        assert (same.sum(1) >= 8).all()
        corrupted = len(seen.colour_M)
        counts += torch.tensor([at_mask.sum(), other.sum(), corrupted - at_mask.sum() - other.sum()])
        inside = (seen.after_BNC[:, :, None] == seen.before_BNC[:, None]).all(3).any(2)
        others_of_image += int((inside & other).sum())
    total = draws * 40 * 8
    assert counts.sum() == total
    for count, share in zip(counts.tolist(), (0.8, 0.1, 0.1), strict=True):
        assert abs(count - share * total) < 4 * math.sqrt(total * share * (1 - share))
    own, drawn = 15 / (40 * 16 - 1), float(counts[1])  # the others are of the whole batch, rarely of the image
    assert abs(others_of_image - own * drawn) < 4 * math.sqrt(drawn * own * (1 - own))
    assert (MASKED, REPLACED, RANDOM) == (0.5, 0.8, 0.1)


def brute(raw_NCHW: np.ndarray, grid: tuple[int, int], low: list[float], high: list[float]) -> np.ndarray:
    """Colours by loops over regions of equal size, in float64."""
    count, channels, height, width = raw_NCHW.shape
    down, right = height // grid[0], width // grid[1]
    out = np.zeros((count, grid[0] * grid[1]), np.int64)
    for n in range(count):
        for i in range(grid[0]):
            for j in range(grid[1]):
                for c in range(channels):
                    region = raw_NCHW[n, c, i * down : (i + 1) * down, j * right : (j + 1) * right]
                    share = (region.astype(np.float64).mean() - low[c]) / (high[c] - low[c])
                    out[n, i * grid[1] + j] += min(7, max(0, math.floor(8 * share))) * 8 ** (channels - 1 - c)
    return out


def check_colours(raw_NCHW: np.ndarray, peak: float, net: Genotype, grid: tuple[int, int]) -> np.ndarray:
    """Colours of the whole way from raw values are the brute force's, which are returned."""
    data = data_of(raw_NCHW, peak)
    low = [0.0] * data.in_chans if peak else [m - 2 * s for m, s in zip(data.mean, data.std, strict=True)]
    high = [peak] * data.in_chans if peak else [m + 2 * s for m, s in zip(data.mean, data.std, strict=True)]
    wanted = brute(raw_NCHW, grid, low, high)
    ends = black_and_white(data.mean, data.std, data.white_level)
    masked = MaskedPatches(build(net, 2, data.image_size, data.in_chans), *ends)
    x = Preprocess(data, torch.device("cpu")).plain(torch.tensor(raw_NCHW).float())
    features = masked.network.forward_features(x)
    assert masked.network.encoder.grid_of(features) == grid
    assert torch.equal(masked.colours_of(x, grid), torch.tensor(wanted))
    assert masked.colours == 8**data.in_chans
    return wanted


def pictures(count: int, channels: int, high: int, wide: int, peak: int) -> np.ndarray:
    """Raw whole numbers: blocks of 4x4 around a colour each, so that means spread over the scale; black, white."""
    random = np.random.default_rng(0)
    blocks = random.integers(-2, peak + 3, (count, channels, high // 4, wide // 4)).repeat(4, 2).repeat(4, 3)
    x = (blocks + random.integers(-2, 3, blocks.shape)).clip(0, peak)
    x[0, :, :4], x[0, :, 4:8] = 0, peak
    return x.astype(np.uint8)


def test_colours_of_grey_digits() -> None:
    grey = pictures(40, 1, 16, 16, 16)
    for level in range(17):  # flat ones, of which every other lies on the border of two levels
        grey[level + 1] = level
    colours = check_colours(grey, 16.0, vit(encoder=replace(VIT, patch=2)), (8, 8))
    assert set(colours.flatten()) == set(range(8))
    assert [int(c) for c in colours[1:18, 0]] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7]


def test_colours_without_a_white() -> None:
    raw = pictures(40, 2, 16, 16, 255).astype(np.float32) / 10 - 7
    raw[:, 1] = 0.1 * raw[:, 1] + 20
    raw[0, 0], raw[0, 1], raw[1, 0], raw[1, 1] = -20, 17, 32, 25  # about three standard deviations off
    colours = check_colours(raw, 0.0, NETS["vit"], (4, 4))
    assert {0, 63} <= set(colours.flatten())
    assert len(set(colours.flatten())) > 30


def test_tokens_of_a_hybrid_stand_for_regions_of_the_image() -> None:
    net = Genotype(CIFAR, (Stage("basic", 1, 8), Stage("basic", 1, 8, 2)), Encoder(16, 1, 2, patch=2), Head("token"))
    colours = check_colours(pictures(40, 3, 16, 24, 255), 255.0, net, (4, 6))
    assert {0, 511} <= set(colours.flatten())
    assert len(set(colours.flatten())) > 200
    masked, x = marked(NETS["hybrid"]), torch.randn(4, 2, 16, 16)
    seen = spied(masked, x)
    map_BCHW = masked.network.forward_features(x)  # in training mode norms see the batch: the same map
    torch.testing.assert_close(seen.before_BNC, masked.network.encoder.embed(map_BCHW))
    same, at_mask, _ = changes(seen, masked.mask)
    assert at_mask.any()
    assert (same.sum(1) >= 32).all()


def test_evaluation_is_the_same_each_time_and_training_follows_the_seed() -> None:
    masked, x = marked(), torch.randn(4, 2, 16, 16)

    def after(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return spied(masked, x).after_BNC

    assert torch.equal(after(0), after(0))
    assert not torch.equal(after(0), after(1))
    masked.eval()
    assert torch.equal(after(0), after(1))
    state = torch.get_rng_state()
    masked(x)
    assert torch.equal(torch.get_rng_state(), state)


def smooth_pictures() -> np.ndarray:
    torch.manual_seed(0)
    x = F.interpolate(torch.rand(32, 3, 3, 3), size=16, mode="bicubic", align_corners=True)
    return (255 * x).round().clamp(0, 255).numpy().astype(np.uint8)


def ready(seed: int = 0) -> tuple[MaskedPatches, Tensor]:
    """A small ViT and the smooth pictures, normalised."""
    data = data_of(smooth_pictures(), 255.0)
    torch.manual_seed(seed)
    net = Genotype(Stem("none"), (), Encoder(48, 2, 3, patch=4), Head("token"))
    masked = MaskedPatches(build(net, 10, 16, 3), *black_and_white(data.mean, data.std, data.white_level))
    return masked, Preprocess(data, torch.device("cpu")).plain(torch.tensor(data.train.images).float())


def test_the_loss_falls() -> None:
    masked, x = ready()
    optimizer = torch.optim.AdamW(masked.parameters(), 3e-3, weight_decay=0.1)
    head, losses = [p.detach().clone() for p in masked.network.head.parameters()], []
    for _ in range(60):
        loss = masked_loss(masked, x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(masked.parameters(), 1.0)
        unused = {name for name, p in masked.named_parameters() if p.grad is None}
        assert unused == {"network.head.weight", "network.head.bias"}
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(512), rel=0.05)
    masked.eval()
    with torch.no_grad():
        at_end = masked_loss(masked, x).item()
    share = torch.bincount(masked.colours_of(x, (4, 4)).flatten(), minlength=512) / (32 * 16)
    blind = -(share[share > 0] * share[share > 0].log()).sum().item()  # of who knows only how common colours are
    assert max(at_end, sum(losses[-5:]) / 5) < 0.85 * blind
    for parameter, before in zip(masked.network.head.parameters(), head, strict=True):
        assert torch.equal(parameter, before)


def test_weights_load_back_into_a_plain_net() -> None:
    masked = marked(NETS["hybrid"])
    plain = build(NETS["hybrid"], 5, 16, 2)
    plain.load_state_dict(masked.network.state_dict())
    x = torch.randn(2, 2, 16, 16)
    assert torch.equal(plain.eval()(x), masked.network.eval()(x))
    extra = {name for name in masked.state_dict() if not name.startswith("network.")}
    assert extra == {"mask", "predict.weight", "predict.bias"}


@pytest.mark.parametrize(("network", "words"), [
    (lambda: build(NETS["basic"], 5, 16, 3), "net of family resnet has no encoder"),
    (lambda: build(NETS["vit"], 5, 16, 4), "at most 3 channels, 8 levels each: got 4 channels, 4096 colours"),
    (lambda: build(NETS["vit"], 5, 4, 3), "at least 2 tokens, to corrupt some and see others, got 1"),
])  # fmt: skip
def test_what_cannot_be_masked_is_refused(network: Callable[[], Network], words: str) -> None:
    model = network()
    ends = black_and_white((0.0,) * model.in_chans, (1.0,) * model.in_chans, 255.0)
    with pytest.raises(InputError, match=words):
        MaskedPatches(model, *ends)
