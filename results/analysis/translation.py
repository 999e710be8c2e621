"""Translation: whether features move with the picture (equivariance), and whether the answer stays (invariance).

The inductive bias that a CNN has and a ViT has not (Dosovitskiy et al., ICLR 2021, section 3.1): a convolution of a
shifted picture is the shifted map, up to its stride and the edges that it pads; pooling over places lets the answer
stay; attention with positions promises neither. Pictures are shifted by k pixels, down and to the right, what leaves at
one edge coming in at the other (as Zhang, "Making convolutional networks shift-invariant again", ICML 2019, for CIFAR).

Of a picture x and its shift Sx, over images and places, each channel about its mean:
moved: correlation of f(Sx) with the map f(x) shifted alike; where k is no whole number of the map's pixels, None.
still: correlation of f(Sx) with f(x), as it is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError
from ..analysis_tools.findings import Finding, averaged, measured
from ..analysis_tools.hooks import as_map, listening, residual_points, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import curves

MOVED, SAME = "moved with the picture", "same answer"
LOGITS = "logits"
DOWN, RIGHT = 2, 3  # dimensions of x_BCHW


@dataclass
class Correlation:
    """Pearson's correlation of two maps, each channel about its own mean, summed over channels and batches."""

    sums: list[Tensor] = field(default_factory=list)  # by channel: a, b, a squared, b squared, a b
    count: int = 0

    def add(self, a_BCHW: Tensor, b_BCHW: Tensor) -> None:
        a, b = a_BCHW.double(), b_BCHW.double()
        new = [part.sum((0, 2, 3)) for part in (a, b, a * a, b * b, a * b)]
        self.sums = [old + part for old, part in zip(self.sums, new, strict=True)] if self.sums else new
        self.count += a[:, 0].numel()

    @property
    def value(self) -> float | None:
        """The correlation; None where nothing was compared or one of the two does not vary."""
        if not self.sums:
            return None
        a, b, aa, bb, ab = self.sums
        both, ones, others = ((xy - x * y / self.count).sum() for xy, x, y in ((ab, a, b), (aa, a, a), (bb, b, b)))
        scale = (ones * others).sqrt()
        return (both / scale).item() if ones > 1e-9 * aa.sum() and others > 1e-9 * bb.sum() else None


Pair = tuple[Correlation, Correlation]  # moved, still


def shifts(image: tuple[int, int]) -> list[int]:
    """Shifts of 1, 2, 4 and so on pixels, up to a quarter of the smaller side."""
    return [2**i for i in range(min(image).bit_length()) if 2**i <= min(image) // 4]


@torch.no_grad()
def shift_rows(net: nn.Module, batches: Iterable[Tensor], image: tuple[int, int]) -> list[dict[str, Any]]:
    """A row for each shift and place of the residual stream, and one for the logits, over both directions."""
    sites = residual_points(net)
    table = {(shift, site.name): (Correlation(), Correlation()) for shift in shifts(image) for site in sites}
    logits = {shift: Correlation() for shift in shifts(image)}
    same: dict[int, list[Tensor]] = {shift: [] for shift in shifts(image)}
    with undisturbed(net), listening(net, sites) as heard:
        for x_BCHW in batches:
            answer_BK = net(x_BCHW)
            before = {site.name: as_map(site, heard[site.name]) for site in sites}
            for shift in shifts(image):
                agreed = torch.zeros(len(x_BCHW), dtype=torch.double)
                for side in (DOWN, RIGHT):
                    now_BK = net(x_BCHW.roll(shift, side))
                    agreed += (now_BK.argmax(1) == answer_BK.argmax(1)).double().cpu() / 2
                    logits[shift].add(now_BK[:, :, None, None], answer_BK[:, :, None, None])
                    for site in sites:
                        now = as_map(site, heard[site.name])
                        _compare(table[shift, site.name], before[site.name], now, shift, side, image)
                same[shift].append(agreed)
    rows = []
    for shift in shifts(image):
        for site in sites:
            moved, still = table[shift, site.name]
            rows.append(_row(shift, site.name, site.op, site.stage, moved.value, still.value))
        agreed = measured(SAME, torch.cat(same[shift]).tolist(), "images", within=(0.0, 1.0))
        row = _row(shift, LOGITS, LOGITS, "head", None, logits[shift].value)
        rows.append(row | {"same": agreed.value, "low": agreed.low, "high": agreed.high})
    return rows


def _compare(pair: Pair, a_BCHW: Tensor, b_BCHW: Tensor, shift: int, side: int, image: tuple[int, int]) -> None:
    moved, still = pair
    still.add(a_BCHW, b_BCHW)
    cells, rest = divmod(shift * a_BCHW.shape[side], image[side - DOWN])
    if not rest:
        moved.add(a_BCHW.roll(cells, side), b_BCHW)


def _row(shift: int, place: str, op: str, stage: str, moved: float | None, still: float | None) -> dict[str, Any]:
    row = {"shift": shift, "place": place, "op": op, "stage": stage, "moved": moved, "still": still}
    return row | {"same": None, "low": None, "high": None}


def analyse(subject: AnalysisInput, batch: int = 64) -> AnalysisResult:
    """Equivariance of each place of the residual stream, and invariance of the answer, by the shift in pixels."""
    images = subject.images
    image = (images.x_NCHW.shape[2], images.x_NCHW.shape[3])
    if not shifts(image):
        raise InputError(f"translation: needs images of at least 4 px a side, got {image[0]}x{image[1]}")
    rows = shift_rows(subject.net, images.inputs(batch), image)
    title = f"{subject.name}: what a shift of the picture does to features and answers"
    return AnalysisResult(title, rows, findings(rows, len(images)), lambda figure: _draw(figure, rows))


def findings(rows: Rows, images: int) -> list[Finding]:
    """Mean equivariance over the places that can have it, and how often the answer stays, by shift."""
    found = []
    for shift in dict.fromkeys(row["shift"] for row in rows):
        of = of_shift(rows, shift)
        found.append(averaged(f"{MOVED}, {shift} px", [row["moved"] for row in of], unit="correlation"))
        last = of[-1]
        name, interval = f"{SAME}, {shift} px", (last["same"], last["low"], last["high"])
        found.append(Finding(name, *interval, over="images", n=images, resolution=0.5 / images))
    return found


def of_shift(rows: Rows, shift: int) -> Rows:
    """The rows of a shift in pixels: its places, then the logits."""
    return [row for row in rows if row["shift"] == shift]


def _draw(figure: Figure, rows: Rows) -> None:
    upper, lower = figure.subplots(2)
    every = list(dict.fromkeys(row["shift"] for row in rows))
    places = [row["place"] for row in of_shift(rows, every[0])[:-1]]
    curves(upper, places, {f"{shift} px": _column(rows, shift) for shift in every}, "correlation with the moved map")
    last = [row for row in rows if row["place"] == LOGITS]
    curves(lower, [f"{row['shift']} px" for row in last], {SAME: [row["same"] for row in last]}, "share of images")


def _column(rows: Rows, shift: int) -> Sequence[float]:
    return [math.nan if row["moved"] is None else row["moved"] for row in of_shift(rows, shift)[:-1]]
