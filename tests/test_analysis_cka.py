"""CKA: the estimator against its definition, and maps of nets whose answer is known."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from analysed import subject
from torch import Tensor, nn

from alternas.archs import InputError
from alternas.results.analysis import cka
from alternas.results.analysis.cka import CkaSums, analyse, centred, cka_map, gram, hsic
from alternas.results.analysis_tools.findings import Finding
from alternas.results.analysis_tools.hooks import HookPoint, all_sites, residual_points
from nets import NETS


def gaussian(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def u_statistic(k: Tensor, m: Tensor) -> float:
    """Over all tuples of four distinct images (Song et al., JMLR 2012, equation 5)."""
    terms = [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in itertools.permutations(range(len(k)), 4)]
    return torch.stack(terms).mean().item()


def of_features(a_ND: Tensor, b_ND: Tensor, batch: int) -> float:
    sums = CkaSums()
    for a, b in zip(a_ND.split(batch), b_ND.split(batch), strict=True):
        sums.add([centred(gram(a, len(a)))], [centred(gram(b, len(b)))])
    return sums.cka().item()


def test_hsic_is_the_u_statistic() -> None:
    a, b = gaussian(8, 3, 0).double(), gaussian(8, 5, 1).double() + 2
    k, m = a @ a.T, (b @ b.T) ** 3
    assert hsic(k, m) == pytest.approx(u_statistic(k, m), rel=1e-12)
    assert hsic(k, k) == pytest.approx(u_statistic(k, k), rel=1e-12)
    assert hsic(centred(gram(a, 8)), m) != pytest.approx(hsic(k, k))


def test_a_gram_is_that_of_flattened_activations_up_to_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cka, "CHUNK", 7)
    x = 100 + gaussian(6, 2 * 4 * 5, 0).unflatten(1, (2, 4, 5)).contiguous(memory_format=torch.channels_last)
    flat = x.flatten(1).double()
    torch.testing.assert_close(centred(gram(x, 6)), centred(flat @ flat.T), rtol=0, atol=1e-7)
    windows = x.permute(0, 2, 3, 1).reshape(6 * 4, 5, 2)  # windows of an image follow each other
    torch.testing.assert_close(centred(gram(windows, 6)), centred(flat @ flat.T), rtol=0, atol=1e-7)


@pytest.mark.parametrize("batch", [16, 64, 512])
def test_independent_features_have_none(batch: int) -> None:
    """A biased estimator says 0.97 at batch 16, 0.89 at 64 and 0.5 at 512."""
    assert abs(of_features(gaussian(2048, 512, 0), gaussian(2048, 512, 1), batch)) < 0.02


def test_cka_is_kornbliths_formula_when_images_are_many() -> None:
    """|Y'X|^2 / (|X'X| |Y'Y|) of centred features, ICML 2019, equation 5; a rotation and a scale change nothing."""
    a = gaussian(1000, 6, 0).double() * torch.arange(1, 7)
    b = a[:, :3] + gaussian(1000, 3, 1)
    x, y = a - a.mean(0), b - b.mean(0)
    wanted = ((y.T @ x).norm() ** 2 / ((x.T @ x).norm() * (y.T @ y).norm())).item()
    assert of_features(a, b, 1000) == pytest.approx(wanted, abs=0.01)
    turn = torch.linalg.qr(gaussian(6, 6, 2).double())[0]
    assert of_features(a, 3 * a @ turn + 5, 500) == pytest.approx(1, abs=1e-9)


class InPlace(nn.Module):
    """A norm whose output the next layer overwrites."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


IN_PLACE = [HookPoint(f"net.{i}", f"net.{i}", "out", "layer", "") for i in range(4)]


def test_in_place_layers_and_a_last_batch_of_two() -> None:
    net, x = InPlace(), gaussian(66, 2 * 64, 0).unflatten(1, (2, 8, 8))
    found = cka_map(net, None, x.split(32), IN_PLACE)  # 32, 32, 2
    torch.testing.assert_close(found.diagonal(), torch.ones(4).double(), rtol=0, atol=1e-12)
    assert torch.equal(found, cka_map(net, None, x[:64].split(32), IN_PLACE))
    assert torch.allclose(found, found.T)
    torch.testing.assert_close(cka_map(net, net, iter(x.split(32)), IN_PLACE, IN_PLACE), found)
    with torch.no_grad():
        norm = net.eval().net[:2](x[:64])
        wanted = of_features(norm.flatten(1), norm.relu().flatten(1), 32)
    assert found[1, 2].item() == pytest.approx(wanted)
    assert wanted < 0.99


def test_batches_weigh_by_their_images() -> None:
    a, b = gaussian(36, 4, 0), gaussian(36, 4, 0) + gaussian(36, 4, 1)
    grams = [[part.double() @ part.double().T for part in x.split(30)] for x in (a, b)]
    cross, own, other = (
        sum(n * hsic(p, q) for n, p, q in zip((30, 6), grams[i], grams[k], strict=True))
        for i, k in ((0, 1), (0, 0), (1, 1))
    )
    assert of_features(a, b, 30) == pytest.approx(cross / (own * other) ** 0.5)


@pytest.mark.parametrize("name", NETS)
def test_every_layer_of_every_net(name: str) -> None:
    one = subject(name, 10)
    sites = all_sites(one.net, one.images.x_NCHW)
    names = [site.name for site in sites]
    assert len(set(names)) == len(names)
    stream = [site for site in sites if site.stage]
    assert stream == residual_points(one.net)
    assert [type(one.net.get_submodule(site.module)) for site in sites][-1] is nn.Linear
    found = cka_map(one.net, None, [one.images.x_NCHW], sites)
    assert found.isfinite().all()
    torch.testing.assert_close(found.diagonal(), torch.ones(len(sites)).double())


def test_an_analysis_of_one_and_of_two() -> None:
    one, two = subject("hybrid", 24), subject("basic", 24, 1)
    alone, both = analyse(one, batch=8), analyse(one, two, batch=8)
    sizes = [len(all_sites(each.net, each.images.x_NCHW)) for each in (one, two)]
    assert len(alone.rows) == sizes[0] ** 2
    assert len(both.rows) == sizes[0] * sizes[1]
    itself = [row["cka"] for row in alone.rows if row["layer"] == row["other_layer"]]
    assert itself == pytest.approx([1] * sizes[0])


BLOCKS = "blocks at stage ends"
LENGTHS = {"resnet": (1, 3, 3, 3), "uneven": (1, 2, 5, 2), "two": (3, 3)}


def gap_of(cka_LL: Any, lengths: tuple[int, ...]) -> Finding:
    stages = [str(s) for s, length in enumerate(lengths) for _ in range(length)]
    sites = [HookPoint(str(i), str(i), "out", "conv", stage) for i, stage in enumerate(stages)]
    return cka.findings_of_one(np.array(cka_LL), sites)[-1]


def blocky(lengths: tuple[int, ...]) -> np.ndarray:
    stage_L = np.repeat(np.arange(len(lengths)), lengths)
    return 0.1 + 0.8 * (stage_L[:, None] == stage_L)


def test_blocks_are_told_where_stages_end() -> None:
    told = gap_of(blocky(LENGTHS["resnet"]), LENGTHS["resnet"])
    assert (told.value, told.verdict) == (pytest.approx(0.8), BLOCKS), "1 of 84 ways to place as many ends"
    few = gap_of(blocky(LENGTHS["two"]), LENGTHS["two"])
    assert few.verdict == "undecided", "one of five ways to halve a map is the best one by chance"


@pytest.mark.parametrize("lengths", LENGTHS.values())
def test_no_smooth_map_has_blocks(lengths: tuple[int, ...]) -> None:
    """Near places are alike in any map: depth, warped or not, explains them, and blocks elsewhere are no stages."""
    places = sum(lengths)
    for depth in (np.arange(places), np.arange(places) ** 0.5, np.arange(places) ** 2 / places):
        for reach in (1.0, 3.0, 10.0):
            assert gap_of(np.exp(-np.abs(depth[:, None] - depth) / reach), lengths).verdict != BLOCKS
    assert gap_of(np.full((places, places), 0.7), lengths).verdict != BLOCKS
    stage_L = (np.arange(places) + 1) // 2
    assert gap_of(0.1 + 0.8 * (stage_L[:, None] == stage_L), lengths).verdict != BLOCKS


def test_the_gap_is_that_of_pairs_as_far_apart() -> None:
    stage_L, values = np.array([0, 0, 1, 1]), np.arange(16.0).reshape(4, 4)
    symmetric = values + values.T
    within, across = [symmetric[0, 1], symmetric[2, 3]], symmetric[1, 2]  # farther pairs are all of different stages
    assert cka.block_gap(symmetric, stage_L) == pytest.approx(np.mean(within) - across)
    assert np.isnan(cka.block_gap(symmetric, np.zeros(4)))
    assert len(list(cka.placements(30, 6))) == cka.PLACEMENTS
    assert all(stage_L[-1] == 6 for stage_L in cka.placements(30, 6))


def test_what_cannot_be_compared() -> None:
    one = subject("basic")
    with pytest.raises(InputError, match=r"^cka: needs a batch of at least 4 images, there is none$"):
        analyse(replace(one, images=replace(one.images, x_NCHW=one.images.x_NCHW[:3], y_N=one.images.y_N[:3])))
    with pytest.raises(InputError, match=r"^cka: basic and basic must take images of one size, normalised"):
        analyse(one, replace(one, images=replace(one.images, mean_C=torch.ones(2))))
