"""Noise of one frequency: where its energy lies and how much it is, against counting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alternas.results.analysis import frequency_noise as noise
from alternas.results.analysis.frequency_noise import noisy, ring, ring_frequencies, ring_noise
from alternas.results.analysis_tools.findings import Finding
from alternas.results.analysis_tools.inputs import ACCURACY, AnalysisInput, Clean, Images


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
