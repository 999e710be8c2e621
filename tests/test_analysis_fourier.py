"""Frequencies and variances of the residual stream, against numpy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from analysed import subject

from alternas.archs import Encoder, Genotype, Head, InputError, Stem, build
from alternas.results.analysis import fourier, variance
from alternas.results.analysis.fourier import frequencies, highest, log_amplitudes
from alternas.results.analysis.variance import map_variance
from alternas.results.analysis_tools.hooks import mean_over_images, residual_points
from alternas.results.analysis_tools.inputs import AnalysisInput, block_changes


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
