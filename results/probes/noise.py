"""Robustness to noise of one frequency: MSAs should bear high frequencies, convs low ones.

Park & Kim, ICLR 2022, section 3 and figure 2b; their FourierAttack class and the recipe in issue 44 of their
repository. Their ring is cut for square images of three channels; this one takes any. Frequencies are in units of
pi: 1 is the highest that pixels can hold. B batch, C channels, H x W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..plot import COLOURS
from .listen import undisturbed
from .subject import Finding, Images, Subject, accuracy

EPSILON = 0.7  # of the recipe, in units of the images: black 0, white 1
REACH = 0.2  # half the width of a ring in radians, the class's default
MOST = 11  # frequencies asked for


def ring(height: int, width: int, frequency_pi: float) -> Tensor:
    """(H, W) of 0 and 1, in the order of `torch.fft.fft2`: the square ring around one frequency.

    Its members have max(|row frequency|, |column frequency|) in (f - s, f + s], s = 0.2 radians: between boxes of
    half-sizes floor((f ± s) side / 2 pi), as the authors'. On sides below 16 px it is empty at frequencies that the
    image does not have; `asked` names those that it has.
    """
    rows, columns = (2 * math.pi * torch.fft.fftfreq(side, dtype=torch.float64).abs() for side in (height, width))
    largest_HW = torch.maximum(rows[:, None], columns[None, :])
    f = math.pi * frequency_pi
    return ((largest_HW > f - REACH) & (largest_HW <= f + REACH)).double()


def ring_noise(shape: Sequence[int], frequency_pi: float, epsilon: float, generator: torch.Generator) -> Tensor:
    """Noise of `shape` (B, C, H, W) whose energy lies in the ring alone.

    The sign of normal noise times epsilon, of which only the ring's frequencies are kept. Nothing is scaled up again:
    the root mean square is epsilon times the root of the ring's share of all frequencies, so low ones get less.
    """
    signs_BCHW = epsilon * torch.randn(tuple(shape), generator=generator).sign()
    kept_HW = ring(shape[-2], shape[-1], frequency_pi)
    return torch.fft.ifft2(torch.fft.fft2(signs_BCHW) * kept_HW).real.float()


def noisy(images: Images, frequency_pi: float, epsilon: float, seed: int) -> Images:
    """`images` with noise added; not clipped, which would put energy outside the ring."""
    generator = torch.Generator().manual_seed(seed)
    x_NCHW = images.x_NCHW
    noise = [ring_noise(part.shape, frequency_pi, epsilon, generator) for part in x_NCHW.split(256)]
    return images.with_pixels(x_NCHW + torch.cat(noise).to(x_NCHW))


def asked(height: int, width: int) -> list[float]:
    """Frequencies from 0 to the highest in equal steps: at most 11, and no more than the shorter side tells apart."""
    side = min(height, width)
    count, highest = min(MOST, side // 2 + 1), 2 * (side // 2) / side  # pi only where the side is even
    return [highest * k / max(1, count - 1) for k in range(count)]


def analyse(subject: Subject, epsilon: float = EPSILON, seeds: int = 2) -> Finding:
    """Accuracy on images with noise of one frequency, by frequency; mean over seeds of the noise."""
    images, rows = subject.images, []
    height, width = images.x_NCHW.shape[2:]
    with undisturbed(subject.net):
        clean = accuracy(subject.net, images)
        for frequency in asked(height, width):
            found = [accuracy(subject.net, noisy(images, frequency, epsilon, seed)) for seed in range(seeds)]
            rows.append(
                {
                    "frequency_pi": frequency,
                    "rms": epsilon * ring(height, width, frequency).mean().sqrt().item(),
                    "accuracy": mean(found),
                    "lowest": min(found),
                    "highest": max(found),
                    "change": mean(found) - clean,
                }
            )

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        xs = [row["frequency_pi"] for row in rows]
        low, high = ([row[side] for row in rows] for side in ("lowest", "highest"))
        axes.fill_between(xs, low, high, alpha=0.15)
        axes.plot(xs, [row["accuracy"] for row in rows], "o-", color=COLOURS[0], label="with noise")
        axes.axhline(clean, color="#000000", linewidth=0.8, linestyle="--", label="clean")
        axes.set_xlabel(f"frequency of the noise (units of pi); epsilon {epsilon:g}; band: {seeds} seeds")
        axes.set_ylabel("accuracy")
        axes.legend(frameon=False)

    title = f"{subject.name}: accuracy under noise of one frequency"
    return Finding("noise", title, rows, _reading(clean, rows, len(images), epsilon), draw)


def _reading(clean: float, rows: Sequence[dict[str, Any]], images: int, epsilon: float) -> str:
    worst = min(rows, key=lambda row: row["change"])
    said = [f"Accuracy is {clean:.3f} on {images} clean images; noise has epsilon {epsilon:g}."]
    if worst["change"] >= 0:
        return said[0] + " No frequency lowers it."
    said.append(
        f"Noise at {worst['frequency_pi']:.2g} pi costs most: {100 * worst['change']:+.1f} points at a root mean "
        f"square of {worst['rms']:.2g}."
    )
    halves = [[row for row in rows if (row["frequency_pi"] <= 0.5) == low] for low in (True, False)]
    if all(halves):
        low, high = (mean(row["change"] for row in half) for half in halves)
        harder = "low" if low < high else "high" if high < low else "neither"
        said.append(
            f"Up to half of the highest frequency it costs {100 * low:+.1f} points on average, above it "
            f"{100 * high:+.1f}; {harder} frequencies hurt more."
        )
    said.append(
        "A ring of higher frequency holds more energy (rms), so compare nets at one frequency, not frequencies of one "
        "net. Park & Kim's ResNets suffer more from high frequencies than their ViTs."
    )
    return " ".join(said)
