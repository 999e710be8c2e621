"""Frequencies of the residual stream and of noise, against numpy, closed forms and counting."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from analysed import subject
from torch import Tensor, nn

from alternas.archs import Encoder, Genotype, Head, InputError, Stem, build
from alternas.results.analysis import fourier, variance
from alternas.results.analysis import frequency_noise as noise
from alternas.results.analysis.fourier import frequencies, highest, log_amplitudes
from alternas.results.analysis.frequency_noise import noisy, ring, ring_frequencies, ring_noise
from alternas.results.analysis.variance import map_variance
from alternas.results.analysis_tools.findings import Finding
from alternas.results.analysis_tools.hooks import mean_over_images, residual_points
from alternas.results.analysis_tools.inputs import ACCURACY, AnalysisInput, Clean, Images, block_changes


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 7), (14, 14), (6, 10)])
def test_log_amplitudes_are_numpys(height: int, width: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 3, height, width)
    spectrum = np.log(np.abs(np.fft.fft2(x.double().numpy())) + 1e-6)
    rolled = np.roll(spectrum, (height // 2, width // 2), (2, 3)).mean((0, 1))
    short = min(height, width)
    outwards = [rolled[height // 2 + k, width // 2 + k] for k in range(short - short // 2)]
    wanted = np.array(outwards) - rolled[height // 2, width // 2]
    assert log_amplitudes(x).numpy() == pytest.approx(wanted, abs=1e-4)
    assert len(frequencies(height, width)) == len(wanted)


def test_an_impulse_and_white_noise_are_flat() -> None:
    impulse = torch.zeros(1, 1, 8, 8)
    impulse[..., 2, 5] = 3
    assert log_amplitudes(impulse).abs().max() < 1e-5
    torch.manual_seed(2)
    noise = log_amplitudes(torch.randn(256, 32, 16, 16))[1:]
    assert (noise - math.log(2) / 2).abs().max() < 0.06  # of a complex normal number less that of a real one
    assert noise.max() - noise.min() < 0.05


def test_a_box_blur_lowers_the_last_and_a_wave_has_its_place() -> None:
    torch.manual_seed(3)
    x = torch.randn(8, 4, 14, 14)
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), "circular"), 3, 1)
    assert log_amplitudes(blurred)[-1] < log_amplitudes(x)[-1] - 1
    t = torch.arange(16)
    wave = 1 + torch.cos(2 * math.pi * 5 / 16 * (t[:, None] + t[None, :]))
    assert log_amplitudes(wave[None, None]).argsort(descending=True)[:2].tolist() == [0, 5]
    assert log_amplitudes(wave[None, None])[5].item() == pytest.approx(-math.log(2), abs=1e-4)


def test_changes_are_told_where_the_map_keeps_its_shape() -> None:
    basic = subject("basic")
    found = fourier.analyse(basic)
    last = {row["site"]: row for row in highest(found.rows)}
    assert last["stem"]["change"] is None
    assert last["stage 2 block 1"]["change"] is None
    one, two = last["stage 1 block 1"], last["stage 1 block 2"]
    assert two["change"] == pytest.approx(two["log_amplitude"] - one["log_amplitude"])
    assert one["frequency_pi"] == 7 / 8
    kept = [last[site]["change"] for site in ("stage 1 block 1", "stage 1 block 2", "stage 2 block 2")]
    (conv,) = found.findings
    assert (conv.name, conv.value) == (f"{fourier.CHANGE}, conv", pytest.approx(sum(kept) / 3))
    again = variance.analyse(basic)
    assert [row["site"] for row in again.rows if row["stage_end"]] == ["stem", "stage 1 block 2", "stage 2 block 2"]
    assert [row["change"] is None for row in again.rows] == [True, False, False, True, False]


def test_verdicts_follow_the_blocks() -> None:
    """Intervals over blocks, whatever the size of their maps; the log factor of a variance has no size."""

    def verdicts(*changes: tuple[str, float | None]) -> dict[str, str]:
        rows = [{"place": i, "op": op, "change": change} for i, (op, change) in enumerate(changes)]
        return {f.name[-4:].strip(): f.verdict for f in block_changes(rows, "it", lambda row: row["change"])}

    stem = ("stem", None)
    assert verdicts(stem, ("conv", 0.5), ("conv", 0.48), ("msa", -1.0), ("msa", -1.1)) == {
        "conv": "raise",
        "msa": "lower",
    }
    assert verdicts(stem, ("conv", 0.5), ("conv", -0.4)) == {"conv": "undecided"}
    assert verdicts(stem, ("conv", None)) == {"conv": "not measured"}
    assert verdicts(("conv", 0.5)) == {"conv": ""}, "one block has no interval"
    rows = [{"op": "conv", "stage": "1", "variance": v, "change": c} for v, c in ((2.0, 1.0), (8.0, 6.0), (9.0, None))]
    factor, ends = variance.findings(rows)
    assert factor.value == pytest.approx(math.log(2 * 4) / 2)
    assert ends.value == pytest.approx(math.log(9) - math.log(2 * 8) / 2)


def test_small_maps_are_left_out() -> None:
    found = fourier.analyse(subject("bit"))  # 4 px behind the stem, 2 px behind the second stage
    assert {row["height"] for row in found.rows} == {4}
    tiny = Genotype(Stem("none"), (), Encoder(16, 1, 2, patch=8), Head("token"))
    one = AnalysisInput("tiny", build(tiny, 5, 16, 2), subject("basic").images)
    with pytest.raises(InputError, match="at least 4 px"):
        fourier.analyse(one)
    assert len(variance.analyse(one).rows) == 3


def test_variance_is_numpys_and_pooling_lowers_it() -> None:
    torch.manual_seed(4)
    x = torch.randn(3, 5, 6, 8)
    assert map_variance(x).item() == pytest.approx(x.double().numpy().var((2, 3), ddof=1).mean())
    assert map_variance(F.avg_pool2d(x, 2)) < 0.5 * map_variance(x)
    assert map_variance(x + torch.randn(3, 5, 1, 1)).item() == pytest.approx(map_variance(x).item())


def test_uneven_batches_give_the_mean_over_images() -> None:
    one = subject("msa", 6)
    sites = residual_points(one.net)
    parts, whole = (mean_over_images(one.net, sites, one.images, map_variance, batch) for batch in (4, 6))
    assert [v.item() for v in parts] == pytest.approx([v.item() for v in whole], rel=1e-5)


@pytest.mark.parametrize("side", [32, 33, 48])
@pytest.mark.parametrize("frequency", [0.0, 0.1, 0.33, 0.5, 0.9, 1.0])
def test_the_ring_is_cut_at_the_half_sizes(side: int, frequency: float) -> None:
    """Square boxes of half-sizes floor((f ± s) side / 2 pi), the inner one taken out."""
    inner, outer = (math.floor((math.pi * frequency + s) * side / (2 * math.pi)) for s in (-0.2, 0.2))
    found = ring(side, side, frequency)
    for row in range(side):
        for column in range(side):
            largest = max(min(row, side - row), min(column, side - column))
            assert found[row, column] == (inner < largest <= outer)


@pytest.mark.parametrize("size", [(8, 8), (12, 12), (7, 7)])
def test_each_frequency_of_a_small_image_is_asked_for_once(size: tuple[int, int]) -> None:
    frequencies = [2 * k / size[0] for k in range(size[0] // 2 + 1)]
    assert torch.equal(sum(ring(*size, f) for f in frequencies), torch.ones(size, dtype=torch.float64))
    assert ring_frequencies(*size) == pytest.approx(frequencies)


@pytest.mark.parametrize("shape", [(4, 1, 32, 32), (4, 3, 32, 24), (4, 2, 7, 7)])
def test_energy_lies_in_the_ring_alone(shape: tuple[int, ...]) -> None:
    for frequency in ring_frequencies(*shape[2:])[::2]:
        x = ring_noise(shape, frequency, 0.7, torch.Generator().manual_seed(0))
        energy, inside = torch.fft.fft2(x.double()).abs().square(), ring(shape[2], shape[3], frequency).bool()
        assert energy[..., ~inside].sum() < 1e-10 * energy.sum()
        assert (energy.mean((0, 1))[inside] > 0).all()
        assert x.shape == shape


def test_every_ring_has_the_same_energy() -> None:
    """As the net gets it: normalised."""
    for frequency in ring_frequencies(32, 32):
        x = ring_noise((64, 3, 32, 32), frequency, 0.7, torch.Generator().manual_seed(1))
        assert x.square().mean().sqrt().item() == pytest.approx(0.7, rel=0.08)
    images = Images(torch.rand(256, 2, 8, 8), torch.arange(256), torch.tensor([0.4, 0.5]), torch.tensor([0.1, 0.3]))
    shown = images.seen(noisy(images, 0.75, 0.7, 0).x_NCHW) - images.seen(images.x_NCHW)
    assert shown.square().mean((0, 2, 3)).sqrt().tolist() == pytest.approx([0.7, 0.7], rel=0.02)


def images_of(count: int = 60) -> Images:
    torch.manual_seed(2)
    level = torch.rand(count, 1, 1, 1)
    x = (level + 0.05 * torch.randn(count, 1, 16, 16)).clamp(0, 1)
    return Images(x, (level.flatten() > 0.5).long(), torch.zeros(1), torch.ones(1))


class Mean(nn.Module):
    """Sees nothing but the mean of an image."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        mean_B = x_BCHW.mean((1, 2, 3)) - 0.5
        return torch.stack([-mean_B, mean_B], 1)


def test_a_net_that_sees_the_mean_alone() -> None:
    images, net = images_of(), Mean()
    assert torch.equal(noisy(images, 0.5, 1, 3).x_NCHW, noisy(images, 0.5, 1, 3).x_NCHW)
    assert not torch.equal(noisy(images, 0.5, 1, 3).x_NCHW, noisy(images, 0.5, 1, 4).x_NCHW)
    found = noise.analyse(AnalysisInput("mean", net, images), rms=1)
    rows: list[dict[str, Any]] = found.rows
    assert [row["frequency_pi"] for row in rows] == pytest.approx([k / 8 for k in range(9)])
    assert rows[0]["change"] < -0.05
    assert all(row["change"] == 0 for row in rows[1:])
    assert rows[0]["low"] < rows[0]["change"] < rows[0]["high"] < 0
    assert verdicts(found.findings) == ["costs", "undecided", "low ones cost more"]
    assert verdicts(noise.analyse(AnalysisInput("mean", net, images), rms=0).findings) == ["undecided"] * 3


def verdicts(found: Sequence[Finding]) -> list[str]:
    """Of the lowest frequency, the highest, and low ones against high ones."""
    return [finding.verdict for finding in found if finding.name != ACCURACY]


class Finest(nn.Module):
    """Sees nothing but the energy of the highest frequency."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        board = torch.tensor([1.0, -1.0]).repeat(8)
        strength_B = (x_BCHW * (board[:, None] * board)).mean((1, 2, 3)).abs()
        return torch.stack([torch.full_like(strength_B, 0.02), strength_B], 1)


def test_a_net_that_sees_the_highest_frequency_alone() -> None:
    images = Images(torch.zeros(80, 1, 16, 16), torch.zeros(80).long(), torch.zeros(1), torch.ones(1))
    found = noise.analyse(AnalysisInput("finest", Finest(), images), rms=1).findings
    assert found[-1].verdict == "high ones cost more"
    assert {finding.verdict for finding in found[1:3]} == {"at chance"}, "all images are of one class"


def test_halves_that_cost_alike_are_not_told_apart() -> None:
    rows = [{"frequency_pi": f, "change": -0.1, "low": -0.2, "high": -0.01} for f in (0.25, 0.75)]
    costs = [-(torch.arange(40) % 10 == k).double() for k in (0, 1)]
    clean = Clean(0.9, 40, 0.1)
    assert noise.findings(rows, costs, clean)[-1].verdict == "undecided"
    assert noise.findings(rows, [costs[0] - 0.5, costs[1]], clean)[-1].verdict == "low ones cost more"
