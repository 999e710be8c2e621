"""Corruptions and translations: against another library, closed forms, and nets equivariant by construction."""

import colorsys
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from alternas.archs import Encoder, Genotype, Head, InputError, Stage, Stem, build
from alternas.results.analysis import robustness
from alternas.results.analysis.translation import LOGITS, Correlation, analyse, shifts
from alternas.results.analysis_tools.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from alternas.results.analysis_tools.inputs import AnalysisInput, Images
from nets import lively

FALL = ("glass blur", "frost", "elastic transform")  # published strengths of which a later one is nearer
NOT_RANDOM = ("defocus blur", "zoom blur", "brightness", "contrast", "pixelate", "jpeg compression")


def pictures(count: int = 12, channels: int = 3, size: tuple[int, int] = (32, 32)) -> Tensor:
    """Smooth, with some grain."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, channels, 6, 6, generator=generator)
    grain = 0.05 * torch.randn(count, channels, *size, generator=generator)
    return (F.interpolate(coarse, size=size, mode="bicubic") + grain).clamp(0, 1)


def distances(name: str, x: Tensor) -> list[float]:
    return [(corrupted(x, name, severity) - x).square().mean().sqrt().item() for severity in SEVERITIES]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_stay_images(name: str) -> None:
    for x in (pictures(3, 3, (12, 20)), pictures(3, 1, (8, 8))):
        before = x.clone()
        for severity in (1, 5):
            y = corrupted(x, name, severity)
            assert (y.shape, y.dtype) == (x.shape, x.dtype)
            assert 0 <= y.min() <= y.max() <= 1
            assert torch.equal(y, corrupted(x, name, severity, seed=0))
            if x.shape[1] == 3:
                assert torch.equal(y, corrupted(x, name, severity, seed=1)) is (name in NOT_RANDOM)
                assert not torch.equal(y, x)
        assert torch.equal(x, before)


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in FALL])
def test_a_higher_severity_is_farther(name: str) -> None:
    found = distances(name, pictures())
    assert found == sorted(found)
    assert found[4] > 1.2 * found[0] > 0


@pytest.mark.parametrize("name", [name for name, (group, _, _) in CORRUPTIONS.items() if group == "blur"])
def test_blurs_keep_the_mean_and_smooth(name: str) -> None:
    x = pictures() * 0.6 + 0.2  # nothing to clip
    y = corrupted(x, name, 5)
    assert y.mean().item() == pytest.approx(x.mean().item(), abs=2e-3)
    if name in ("defocus blur", "glass blur"):  # symmetric, or swaps: exactly
        assert torch.allclose(y.mean((2, 3)), x.mean((2, 3)), atol=1e-6)
    flat = torch.full((2, 3, 16, 16), 0.4)
    assert torch.allclose(corrupted(flat, name, 5), flat, atol=1e-6)
    if name != "glass blur":  # swapped pixels are rough
        assert y.diff(dim=3).abs().mean() < x.diff(dim=3).abs().mean()


def test_a_point_is_blurred_as_its_definition_says() -> None:
    point = torch.zeros(1, 1, 33, 33)
    point[..., 16, 16] = 1
    disk = corrupted(point, "defocus blur", 5)[0, 0]  # radius 1.5: nine pixels, hardly softened
    assert torch.allclose(disk[15:18, 15:18], torch.full((3, 3), 1 / 9), atol=1e-4)
    streak = corrupted(point, "motion blur", 5)[0, 0]
    side = streak[:, :16].sum(), streak[:, 17:].sum()
    assert min(side) < 1e-6  # to one side
    lengths = [step for step in range(1, 17) if streak[:, 16 + step].sum() + streak[:, 16 - step].sum() > 1e-9]
    assert max(lengths) <= 10
    zoomed = corrupted(point, "zoom blur", 1)[0, 0]
    assert zoomed.argmax() == point.argmax()
    assert zoomed[16, 16].item() == pytest.approx(1)  # the centre stays where it is


def test_noise_has_its_size() -> None:
    grey = torch.full((16, 3, 32, 32), 0.5)
    normal = corrupted(grey, "gaussian noise", 1) - grey
    assert normal.std().item() == pytest.approx(0.04, rel=0.02)
    shot = corrupted(grey, "shot noise", 3) - grey
    assert shot.var().item() == pytest.approx(0.5 / 100, rel=0.03)
    impulse = corrupted(grey, "impulse noise", 5)
    for value in (0, 1):
        assert (impulse == value).double().mean().item() == pytest.approx(0.035, rel=0.1)
    assert set(impulse.unique().tolist()) == {0, 0.5, 1}


def test_brightness_is_that_of_colorsys() -> None:
    x = pictures(1, 3, (5, 5))
    x[0, :, 0, 0] = 0
    y = corrupted(x, "brightness", 4)
    for row in range(5):
        for column in range(5):
            h, s, v = colorsys.rgb_to_hsv(*x[0, :, row, column].tolist())
            wanted = colorsys.hsv_to_rgb(h, s, min(1, v + 0.2))
            assert y[0, :, row, column].tolist() == pytest.approx(wanted, abs=1e-5)


def test_contrast_pixelate_and_jpeg() -> None:
    x = pictures(2)
    mean = x.mean((2, 3), keepdim=True)
    assert torch.allclose(corrupted(x, "contrast", 5), mean + 0.15 * (x - mean), atol=1e-6)
    grid = (torch.arange(32) % 2).float().expand(1, 1, 32, 32)
    assert corrupted(grid, "pixelate", 5).std() < 0.8 * grid.std()
    file = io.BytesIO()
    pixels = np.round(255 * x[0].numpy()).astype(np.uint8).transpose(1, 2, 0)
    Image.fromarray(pixels).save(file, "JPEG", quality=40)
    ours = 255 * corrupted(x, "jpeg compression", 5)[0].numpy().transpose(1, 2, 0)
    assert np.allclose(ours, np.array(Image.open(file)))


def test_what_is_refused() -> None:
    x = pictures(1)
    for images, name, severity, said in (
        (x, "fogg", 1, "did you mean 'fog'"),
        (x, "fog", 6, "from 1 to 5, got 6"),
        (x[:, :2], "fog", 1, "1 or 3 channels, got 2"),
        (x + 1, "fog", 1, "lie in"),
    ):
        with pytest.raises(InputError, match=said):
            corrupted(images, name, severity)


class Brighter(nn.Module):
    """Whether an image is brighter than half, surely."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return 100 * torch.stack([-x_BCHW.mean((1, 2, 3)), x_BCHW.mean((1, 2, 3))], 1)


def test_robustness_of_a_net_that_sees_brightness() -> None:
    level = torch.tensor([0.15, 0.3, 0.6, 0.7])[:, None, None, None].expand(4, 1, 8, 8)
    images = Images(level.clone(), torch.tensor([0, 0, 1, 1]), torch.tensor([0.5]), torch.tensor([0.25]))
    found = robustness.analyse(AnalysisInput("bright", Brighter(), images))
    by = {(row["corruption"], row["severity"]): row for row in found.rows}
    assert by["clean", 0]["accuracy"] == by["gaussian noise", 1]["accuracy"] == 1
    assert by["brightness", 5]["accuracy"] == 0.75  # 0.3 becomes 0.6: logits 40 and -40 for the other class
    assert by["brightness", 5]["nll"] == pytest.approx(80 / 4, rel=1e-3)
    assert by["brightness", 5]["ece"] > 0.2
    by_name = {finding.name: finding for finding in found.findings}
    assert by_name["accuracy"].n == 4
    assert by_name["calibration error (ECE)"].value == by["clean", 0]["ece"]
    lost = [1 - row["accuracy"] for row in found.rows[1:]]
    assert by_name[robustness.LOSS].value == pytest.approx(sum(lost) / 75 / (1 - 0.5)), "of what is above chance"


def test_what_is_drawn_serves_every_net_of_the_same_images(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, int]] = []

    def counted(x_NCHW: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
        drawn.append((name, severity))
        return corrupted(x_NCHW, name, severity, seed)

    monkeypatch.setattr(robustness, "corrupted", counted)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))
    x_NCHW, y_N = pictures(4, size=(8, 8)), torch.zeros(4).long()
    images, others = (Images(scale * x_NCHW, y_N, torch.zeros(3), torch.ones(3)) for scale in (1, 0.5))
    first, again = (robustness.analyse(AnalysisInput(name, net, images)).rows for name in ("one", "two"))
    assert first == again
    once = len(CORRUPTIONS) * len(SEVERITIES)
    assert len(drawn) == len(set(drawn)) + 2 == once + 2, "and one brightness of each net, a check"
    assert robustness.analyse(AnalysisInput("one", net, others)).rows != first
    assert len(drawn) == 2 * once + 3
    monkeypatch.setattr(robustness, "KEPT_BYTES", 0)
    few = robustness.analyse(AnalysisInput("one", net, images)).rows
    assert few == first


VIT = Genotype(Stem("none"), (), Encoder(12, 2, 3, patch=2, position="none"), Head("avg"))
CONV = Genotype(Stem("cifar", 4), (Stage("basic", 1, 4, 1), Stage("basic", 1, 8, 2)))


def subject(net: Genotype, circular: bool = False) -> AnalysisInput:
    torch.manual_seed(0)
    made = lively(build(net, 5, 16, 2)).eval()
    for module in made.modules():
        if circular and isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1:
            module.padding_mode = "circular"
            module._reversed_padding_repeated_twice = [1, 1, 1, 1]
    images = Images(torch.rand(6, 2, 16, 16), torch.arange(6) % 5, torch.zeros(2), torch.ones(2))
    return AnalysisInput("net", made, images)


def test_correlation_is_numpys_over_channels_about_their_means() -> None:
    torch.manual_seed(0)
    a = torch.randn(7, 3, 4, 5)
    b = 2 * a + torch.randn(7, 3, 4, 5) + torch.tensor([0.0, 5.0, 9.0])[:, None, None]
    found = Correlation()
    for part in zip(a.split(3), b.split(3), strict=True):
        found.add(*part)
    centred = [(x - x.mean((0, 2, 3), keepdim=True)).flatten().double().numpy() for x in (a, b)]
    assert found.value == pytest.approx(np.corrcoef(*centred)[0, 1])  # pyright: ignore[reportCallIssue, reportArgumentType]
    constant = Correlation()
    constant.add(torch.ones(2, 1, 3, 3), torch.randn(2, 1, 3, 3))
    assert constant.value is None


@pytest.mark.parametrize(("net", "circular", "stride"), [(VIT, False, 2), (CONV, True, 2)])
def test_what_is_equivariant_moves_and_its_answer_stays(net: Genotype, circular: bool, stride: int) -> None:
    """Attention without positions, and convolutions around the edges, at each multiple of the stride."""
    rows = analyse(subject(net, circular)).rows
    assert {row["shift"] for row in rows} == {1, 2, 4}
    for row in rows:
        if row["place"] != LOGITS and row["moved"] is not None:
            assert row["moved"] == pytest.approx(1, abs=1e-5)
            assert row["still"] < 0.9
        if row["place"] == LOGITS and row["shift"] % stride == 0:
            assert (row["same"], row["still"]) == (1.0, pytest.approx(1, abs=1e-4))
    known = {(row["shift"], row["stage"]): row["moved"] is not None for row in rows}
    last = rows[-2]["stage"]
    assert (known[1, last], known[2, last], known[4, last]) == (False, True, True), "a map of half the pixels"


def test_positions_and_padded_edges_are_no_equivariance() -> None:
    assert VIT.encoder is not None
    placed = replace(VIT, encoder=replace(VIT.encoder, position="1d"))
    for net in (placed, CONV):
        result = analyse(subject(net))
        moved = [row["moved"] for row in result.rows if row["shift"] == 4 and row["place"] != LOGITS]
        assert all(value < 0.999 for value in moved)
        assert [f.name for f in result.findings][:2] == ["moved with the picture, 1 px", "same answer, 1 px"]
    small = subject(CONV)
    small = replace(small, images=small.images.with_pixels(torch.rand(6, 2, 3, 16)))
    with pytest.raises(InputError, match="at least 4 px"):
        analyse(small)


def test_shifts_reach_a_quarter_of_the_smaller_side() -> None:
    assert (shifts((224, 96)), shifts((8, 8)), shifts((3, 9))) == ([1, 2, 4, 8, 16], [1, 2], [])
