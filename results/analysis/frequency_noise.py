"""Robustness to noise of one frequency: MSAs should bear high frequencies, convs low ones.

Park & Kim, ICLR 2022, section 3 and figure 2b; their FourierAttack class and the recipe in issue 44 of their
repository. Their ring is cut for square images of three channels; this one takes any. Their noise is added to
normalised images, as here, but has less energy in low rings; here all rings have one root mean square, so that
frequencies can be compared. Frequencies are in units of pi: 1 is the highest that pixels can hold.
B batch, C channels, H x W pixels, N images, S seeds.
"""

import math
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..analysis_tools.findings import Finding, judged
from ..analysis_tools.hooks import undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Clean, Images, Rows, change_columns, hits
from ..ranking.stats import MeanCI
from ..render.plots import COLOURS

RMS = 0.7  # of normalised images: what the recipe's noise has before its ring is cut out
REACH = 0.2  # half the width of a ring in radians, the class's default
MAX_FREQUENCIES = 11  # frequencies looked at
LOWEST, HIGHEST = "loss by noise of the lowest frequency", "loss by noise of the highest frequency"
LOW_OVER_HIGH = "points lost below 0.5 pi, less those lost above"


def ring(height: int, width: int, frequency_pi: float) -> Tensor:
    """(H, W) of 0 and 1, in the order of `torch.fft.fft2`: the square ring around one frequency.

    Its members have max(|row frequency|, |column frequency|) in (f - s, f + s], s = 0.2 radians: between boxes of
    half-sizes floor((f ± s) side / 2 pi), as the authors'. On sides below 16 px it is empty at frequencies that the
    image does not have; `ring_frequencies` names those that it has.
    """
    rows, columns = (2 * math.pi * torch.fft.fftfreq(side, dtype=torch.float64).abs() for side in (height, width))
    largest_HW = torch.maximum(rows[:, None], columns[None, :])
    f = math.pi * frequency_pi
    return ((largest_HW > f - REACH) & (largest_HW <= f + REACH)).double()


def ring_noise(shape: Sequence[int], frequency_pi: float, rms: float, generator: torch.Generator) -> Tensor:
    """Noise of `shape` (B, C, H, W) whose energy lies in the ring alone, of one root mean square for every ring.

    Signs of normal noise, of which only the ring's frequencies are kept, divided by the root of the ring's share of all
    frequencies. The authors' noise is not: theirs has less energy in low rings, which have fewer members.
    """
    signs_BCHW = torch.randn(tuple(shape), generator=generator).sign()
    ring_HW = ring(shape[-2], shape[-1], frequency_pi)
    scale = rms / ring_HW.mean().sqrt()
    return (scale * torch.fft.ifft2(torch.fft.fft2(signs_BCHW) * ring_HW).real).float()


def noisy(images: Images, frequency_pi: float, rms: float, seed: int) -> Images:
    """`images` with noise that has this rms once they are normalised; not clipped, which would leave the ring."""
    generator = torch.Generator().manual_seed(seed)
    x_NCHW = images.x_NCHW
    noise = [ring_noise(part.shape, frequency_pi, rms, generator) for part in x_NCHW.split(256)]
    return images.with_pixels(x_NCHW + images.std_C[:, None, None] * torch.cat(noise).to(x_NCHW))


def ring_frequencies(height: int, width: int) -> list[float]:
    """Frequencies from 0 to the highest in equal steps: at most 11, and no more than the shorter side resolves."""
    side = min(height, width)
    count, highest = min(MAX_FREQUENCIES, side // 2 + 1), 2 * (side // 2) / side  # pi only where the side is even
    return [highest * k / max(1, count - 1) for k in range(count)]


def analyse(subject: AnalysisInput, rms: float = RMS, seeds: int = 2) -> AnalysisResult:
    """Accuracy on images with noise of one frequency, by frequency, at one rms; mean over seeds of the noise."""
    images, rows = subject.images, []
    changes: list[Tensor] = []  # of each frequency and image: accuracy over the seeds minus that without noise
    with undisturbed(subject.net):
        clean_N = hits(subject.net, images)
        for frequency in ring_frequencies(*images.x_NCHW.shape[2:]):
            shown = [noisy(images, frequency, rms, seed) for seed in range(seeds)]
            hits_SN = torch.stack([hits(subject.net, each) for each in shown])
            changes.append(hits_SN.mean(0) - clean_N)
            noise = torch.stack([images.seen(each.x_NCHW) - images.seen(images.x_NCHW) for each in shown])
            by_seed = hits_SN.mean(1)
            row = {"frequency_pi": frequency, "rms": noise.double().square().mean().sqrt().item()}
            row |= {"accuracy": hits_SN.mean().item(), "lowest": by_seed.min().item(), "highest": by_seed.max().item()}
            rows.append(row | change_columns(changes[-1]))
    clean = clean_N.mean().item()

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        xs = [row["frequency_pi"] for row in rows]
        low, high = ([clean + row[side] for row in rows] for side in ("low", "high"))
        axes.fill_between(xs, low, high, alpha=0.15)
        axes.plot(xs, [row["accuracy"] for row in rows], "o-", color=COLOURS[0], label="with noise")
        axes.axhline(clean, color="#000000", linewidth=0.8, linestyle="--", label="clean")
        axes.set_xlabel(f"frequency of the noise (units of pi), all of rms {rms:g}; band: 95 % over images")
        axes.set_ylabel("accuracy")
        axes.legend(frameon=False)

    title = f"{subject.name}: accuracy under noise of one frequency"
    return AnalysisResult(title, rows, findings(rows, changes, Clean.of(clean, images)), draw)


def findings(rows: Rows, changes: Sequence[Tensor], clean: Clean) -> list[Finding]:
    """Losses at the ends of the frequencies; low frequencies against high ones, image by image."""
    found = [clean.finding, clean.loss_over_images(LOWEST, rows[0]), clean.loss_over_images(HIGHEST, rows[-1])]
    pairs = list(zip(rows, changes, strict=True))
    low = [change_N for row, change_N in pairs if row["frequency_pi"] <= 0.5]
    high = [change_N for row, change_N in pairs if row["frequency_pi"] > 0.5]
    if low and high:
        low_N, high_N = (torch.stack(half).mean(0) for half in (low, high))
        gap, below, above = (100 * value for value in change_columns(high_N - low_N).values())
        ci = MeanCI(gap, None, len(low_N), below, above)
        words = ("low ones cost more", "high ones cost more")
        found.append(judged(LOW_OVER_HIGH, ci, words, unit="points", over="images"))
    return found
