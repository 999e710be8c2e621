"""What layers know, depend on and keep: linear probes, receptive fields and token places, against other ways."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from analysed import images, net_of, subject
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from alternas.archs import Genotype, InputError, Stage, Stem, build
from alternas.results.analysis import linear_probe as linear
from alternas.results.analysis import receptive_field as field
from alternas.results.analysis import token_localization as tokens
from alternas.results.analysis.cka import hsic
from alternas.results.analysis.linear_probe import PENALTIES, Labelled, draw_shots, features_of
from alternas.results.analysis.receptive_field import outside_share, receptive_fields, square_side
from alternas.results.analysis.token_localization import patches, token_map, token_rows
from alternas.results.analysis_tools.hooks import HookPoint, as_map, captured, listening, residual_points
from alternas.results.analysis_tools.inputs import AnalysisInput


def test_features_are_what_the_stream_holds() -> None:
    net, x = net_of("hybrid"), images(5).x_NCHW
    sites = residual_points(net)
    found, heard = features_of(net, sites, x.split(2)), captured(net, sites, x)
    last = heard["encoder 2 mlp"]
    torch.testing.assert_close(found["encoder 2 mlp", "cls"], last[:, 0])
    torch.testing.assert_close(found["encoder 2 mlp", "gap"], last[:, 1:].mean(1))
    torch.testing.assert_close(found["encoder 2 mlp", "token 2,6"], last[:, 1 + 2 * 8 + 6])
    torch.testing.assert_close(found["stem", "token 12,4"], heard["stem"][:, :, 12, 4])
    assert ("stem", "cls") not in found
    assert len(found) == len(sites) * 5 + sum(site.lead for site in sites)


def test_a_probe_along_the_net_is_scikit_learns() -> None:
    net, shown = net_of("basic"), images(200)
    finding = linear.analyse(AnalysisInput("basic", net, shown), shots=10, draws=1)
    f_ND = captured(net, residual_points(net), shown.x_NCHW)["stage 1 block 2"].mean((2, 3))
    first = torch.arange(200) // 5 % 2 == 0  # labels count 0 to 4
    train, test = Labelled(f_ND[first], shown.y_N[first]), Labelled(f_ND[~first], shown.y_N[~first])
    drawn, held_out = draw_shots(train, 10, 0)
    mean, std = drawn.f_ND.double().mean(0), drawn.f_ND.double().std(0, correction=0) + 1e-5

    def accuracy(on: Labelled, penalty: float) -> float:
        fit = Ridge(alpha=penalty).fit(((drawn.f_ND - mean) / std).numpy(), 2 * np.eye(5)[drawn.y_N] - 1)
        return float((fit.predict(((on.f_ND - mean) / std).numpy()).argmax(1) == on.y_N.numpy()).mean())

    chosen = max(reversed(PENALTIES), key=lambda penalty: accuracy(held_out, penalty))
    (row,) = [row for row in finding.rows if (row["place"], row["features"]) == ("stage 1 block 2", "gap")]
    assert row["accuracy"] == pytest.approx(accuracy(test, chosen), abs=0.011)
    assert row["accuracy"] > 0.4


def test_linear_probes_of_an_encoder_name_all_three() -> None:
    finding = linear.analyse(subject("vit", 60), shots=2, draws=2)
    quarters = {f"token {row},{column}" for row in (1, 3) for column in (1, 3)}
    assert {row["features"] for row in finding.rows} == {"cls", "gap"} | quarters
    names = {found.name for found in finding.findings}
    assert {"probe of the class token, last place", "probe of a single token, last place"} < names
    with pytest.raises(InputError, match=r"^probe: 50 shots need 50 training images of class"):
        linear.analyse(subject("vit", 60), shots=50)


def by_jacobian(net: nn.Module, site: HookPoint, x: Tensor) -> Tensor:
    """Every channel of every image by itself."""

    def middle(one: Tensor) -> Tensor:
        with listening(net, [site]) as heard:
            net(one)
        map_BCHW = as_map(site, heard[site.name])
        return map_BCHW[0, :, map_BCHW.shape[2] // 2, map_BCHW.shape[3] // 2]

    found: list[Any] = [torch.autograd.functional.jacobian(middle, one[None]) for one in x]
    return torch.stack(found).abs().mean((0, 1, 2, 3))


@pytest.mark.parametrize("name", ["post basic", "vit", "transformer"])
def test_with_all_channels_a_field_is_the_jacobian(name: str) -> None:
    net, x = net_of(name), images(3).x_NCHW
    site = residual_points(net)[-1]
    found = receptive_fields(net, [site], x, passes=1000)[site.name]
    torch.testing.assert_close(found, by_jacobian(net, site, x), rtol=1e-4, atol=1e-7)


def test_with_fewer_passes_each_takes_other_channels() -> None:
    """4 images x 4 passes look at each of the 16 channels once."""
    net, x = net_of("vit"), images(1).x_NCHW.expand(4, -1, -1, -1)
    site = residual_points(net)[-1]
    few, all_of_them = (receptive_fields(net, [site], x, passes)[site.name] for passes in (4, 16))
    torch.testing.assert_close(few, all_of_them)


def convs(depth: int) -> AnalysisInput:
    """A stack of 3x3 convs without norms, weights above 0: every pixel in reach has a gradient."""
    genotype = Genotype(Stem("cifar", 8), (Stage("basic", depth, 8),))
    net: Any = build(genotype, 5, 16, 2)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.fill_(0.01)
    return AnalysisInput("convs", net, images(4))


def test_fields_grow_by_two_pixels_a_conv() -> None:
    one = convs(2)
    net, sites = one.net, residual_points(one.net)
    found = receptive_fields(net, sites, one.images.x_NCHW, 8)
    widths = [int((found[site.name].sum(0) > 0).sum()) for site in sites]
    assert widths == [3, 7, 11]
    assert square_side(found["stem"], (16, 16), 1) == 3
    rows = field.analyse(one).rows
    assert [row["side_90_px"] for row in rows] == sorted(row["side_90_px"] for row in rows)
    assert rows[0]["side_90_px"] == 3
    assert rows[0]["image_px"] == 16


def test_squares_of_known_fields() -> None:
    single = torch.zeros(16, 16)
    single[8, 8] = 2
    assert square_side(single, (16, 16), 0.9) == 1
    patch = torch.zeros(16, 16)
    patch[8:12, 8:12] = 1
    assert square_side(patch, (4, 4), 0.9) == 4
    assert square_side(patch, (4, 4), 0.25) == 2
    even = torch.ones(15, 15)
    assert square_side(even, (15, 15), 1) == 15
    assert square_side(even, (15, 15), 0.5) == 11  # 121 of 225 pixels; 9 x 9 are 81
    assert math.isnan(square_side(torch.zeros(4, 4), (4, 4), 0.5))


def test_shares_outside_a_patch() -> None:
    """A ViT's own patch is the middle cell of its grid; a CNN is held against a square as large around its middle."""
    patch = torch.zeros(16, 16)
    patch[8:12, 8:12] = 1
    assert outside_share(patch, (4, 4), (4, 4)) == 0
    assert outside_share(torch.ones(16, 16), (4, 4), (4, 4)) == pytest.approx(1 - 16 / 256)
    assert outside_share(torch.ones(16, 16), (16, 16), (4, 4)) == pytest.approx(1 - 16 / 256), "edges count by half"
    single = torch.zeros(16, 16)
    single[8, 10] = 1  # two pixels from the middle: on the edge of a square of 4
    assert outside_share(single, (16, 16), (4, 4)) == 0.5
    assert math.isnan(outside_share(torch.zeros(4, 4), (4, 4), (1, 1)))


def test_what_the_first_block_sees_outside_its_patch() -> None:
    """Whatever share of a ViT's gradient does not lie on its own patch."""
    vit = subject("vit", 4)
    seen = field.analyse(vit).findings[-1]
    assert (seen.name, seen.unit) == (field.OUTSIDE, "outside 4 px")
    (f_HW,) = receptive_fields(vit.net, residual_points(vit.net)[1:2], vit.images.x_NCHW, 8).values()
    assert seen.value == pytest.approx(outside_share(f_HW, (4, 4), (4, 4)), rel=1e-3)


def test_patches_are_the_cells_of_the_image() -> None:
    x = torch.arange(2 * 2 * 8 * 12).reshape(2, 2, 8, 12).float()
    found = patches(x, (2, 3))
    assert found.shape == (6, 2, 2 * 4 * 4)
    assert torch.equal(found[4, 1], x[1, :, 4:8, 4:8].flatten())
    with pytest.raises(InputError, match=r"^tokens: a map of 3x3 does not divide an image of 8x12$"):
        patches(x, (3, 3))


def placed(shift: int) -> tuple[nn.Module, HookPoint]:
    """Each token is a linear map of the patch `shift` places on."""
    turn = nn.Conv2d(2, 32, 4, stride=4)

    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = turn

        def forward(self, x: Tensor) -> Tensor:
            return self.out(x.roll(-4 * shift, 3))

    return Moved(), HookPoint("out", "out", "out", "conv", "1")


def test_tokens_that_are_their_patches_are_found() -> None:
    x = images(60).x_NCHW
    for shift in (0, 1):
        found, grid = token_map(*placed(shift), x.split(29))  # 29, 29, 2
        rows = token_rows(found.numpy(), grid)
        assert grid == (4, 4)
        assert all(row["best_column"] == (row["column"] + shift) % 4 for row in rows)
        assert all(row["best_row"] == row["row"] for row in rows)
        assert [row["rank"] == 1 for row in rows] == [shift == 0] * 16
        assert {row["cells_off"] for row in rows} == ({0} if shift == 0 else {1, 3})


def test_a_token_and_patch_have_the_cka_of_their_values() -> None:
    net, x = net_of("vit"), images(30).x_NCHW
    site = residual_points(net)[-1]
    found, _ = token_map(net, site, [x])
    token = captured(net, [site], x)[site.name][:, 1 + 6].double()
    patch = x[:, :, 8:12, 4:8].flatten(1).double()  # number 9
    k, m = token @ token.T, patch @ patch.T
    assert found[6, 9].item() == pytest.approx(hsic(k, m) / math.sqrt(hsic(k, k) * hsic(m, m)), abs=1e-6)


def test_tokens_need_images() -> None:
    one = subject("vit", 3)
    with pytest.raises(InputError, match=r"^tokens: needs a batch of at least 4 images, there is none$"):
        tokens.analyse(one)
    blurred = replace(one, images=images(40))
    assert len(tokens.analyse(blurred).rows) == 16
