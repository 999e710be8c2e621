"""Loss landscape: the loss around trained weights, on a plane through them.

Li et al., NeurIPS 2018: two random directions, each filter's with the norm of that filter. Park & Kim, ICLR 2022,
section 3 and figure 1, draw 21 x 21 points on [-1, 1] squared with the loss of the augmented training set; their
code takes norms over dimension 0 only and adds the sum of unsquared norms as L2, here the loss is the recipe's.
The net's own tensors are never written: each point calls the net with other tensors.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import functional_call

from ...archs.errors import InputError
from ..analysis_tools.findings import Finding, averaged
from ..analysis_tools.hooks import undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Objective, Rows

POSITIONS = ("table", "rows", "columns", "pos_embed", "relative_position_bias_table")  # last parts of names
BATCH = 256

Batch = tuple[Tensor, Tensor]  # x_BCHW as the net sees it, labels y_B or soft targets y_BK
Tensors = dict[str, Tensor]


def direction(net: nn.Module, generator: torch.Generator) -> Tensors:
    """A random direction, each slice [i] with the norm of the weights' (Li et al.); zero for 1-D and positions."""
    tensors = {}
    for name, p in net.named_parameters():
        noise = torch.randn(p.shape, generator=generator).to(p)
        if p.ndim <= 1 or name.rsplit(".", 1)[-1] in POSITIONS:
            tensors[name] = torch.zeros_like(noise)
            continue
        dims = tuple(range(1, p.ndim))
        weight_norm, noise_norm = (torch.linalg.vector_norm(x, dim=dims, keepdim=True) for x in (p.detach(), noise))
        tensors[name] = noise * (weight_norm / noise_norm.clamp_min(1e-12))
    return tensors


@torch.no_grad()
def losses_at(net: nn.Module, weights: Tensors, batches: Sequence[Batch], objective: Objective) -> tuple[float, float]:
    """Mean NLL and mean loss of an objective, in nats with other parameters over all images; the mode as it is."""
    totals = torch.zeros(2, dtype=torch.double)
    for x, y in batches:
        logits = functional_call(net, weights, (x,))
        totals += len(x) * torch.stack([F.cross_entropy(logits, y), objective.loss(logits, y)]).double().cpu()
    nll, loss = (totals / sum(len(x) for x, _ in batches)).tolist()
    return nll, loss


def plane(
    net: nn.Module, batches: Sequence[Batch], directions: tuple[Tensors, Tensors], side: int, objective: Objective
) -> list[dict[str, Any]]:
    """Rows of a, b in [-1, 1] for weights + a direction 1 + b direction 2, with `side` values of each, an odd number.

    Their mean NLL, the objective's mean loss of the images, its L2 term, and the sum of the last two.
    """
    if side < 3 or side % 2 == 0:
        raise InputError(f"landscape: side must be odd and at least 3, got {side}")  # the middle is the trained net
    steps, rows = [2 * i / (side - 1) - 1 for i in range(side)], []
    first, second = directions
    with undisturbed(net), torch.no_grad():
        for a, b in product(steps, steps):
            moved = {name: p + a * first[name] + b * second[name] for name, p in net.named_parameters()}
            nll, data_loss = losses_at(net, moved, batches, objective)
            l2 = objective.l2(moved).item()
            rows.append({"a": a, "b": b, "nll": nll, "data_loss": data_loss, "l2": l2, "loss": data_loss + l2})
    return rows


def analyse(subject: AnalysisInput, side: int = 11) -> AnalysisResult:
    """The loss on a plane of two random directions (seed 0) through the trained weights, `side` points a side.

    The loss is the subject's objective, of its training's minibatches, the paper's choice, or of its images.
    """
    generator = torch.Generator().manual_seed(0)
    directions = (direction(subject.net, generator), direction(subject.net, generator))
    batches = subject.training or list(subject.images.batches(BATCH))
    rows = plane(subject.net, batches, directions, side, subject.objective)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        steps = [row["b"] for row in rows[:side]]
        grid = [[row["loss"] for row in rows[i * side : (i + 1) * side]] for i in range(side)]
        figure.colorbar(axes.contourf(steps, steps, grid, levels=20, cmap="viridis"), ax=axes, label="loss (nats)")
        axes.plot(0, 0, "o", color="white", markeredgecolor="black")
        axes.set(xlabel="second direction", ylabel="first direction (filter-normalised)", aspect="equal")

    images = "augmented training images" if subject.training else "images as they are"
    shown = f"{sum(len(x) for x, _ in batches)} {images}; {subject.objective.words}"
    title = f"{subject.name}: loss around its weights ({shown})"
    return AnalysisResult(title, rows, findings(rows, side), draw)


def minima(rows: Rows, side: int) -> list[Any]:
    """Rows inside the border whose loss is below that of all eight neighbours."""
    lowest = []
    for i, j in product(range(1, side - 1), repeat=2):
        around = [rows[(i + di) * side + j + dj]["loss"] for di, dj in product((-1, 0, 1), repeat=2) if di or dj]
        if rows[i * side + j]["loss"] < min(around):
            lowest.append(rows[i * side + j])
    return lowest


def findings(rows: Rows, side: int) -> list[Finding]:
    """The loss at the trained weights, how it rises to the border of the plane, and whether the surface is one bowl."""
    middle, lowest = rows[len(rows) // 2], min(rows, key=lambda row: row["loss"])
    border = [row["loss"] - middle["loss"] for row in rows if max(abs(row["a"]), abs(row["b"])) == 1]
    depth, count = middle["loss"] - lowest["loss"], len(minima(rows, side))
    return [
        Finding("loss at the weights", middle["loss"], unit="nats"),
        Finding("of which L2", middle["l2"], unit="nats"),
        Finding("NLL at the weights", middle["nll"], unit="nats"),
        averaged("rise of the loss to the border", border, unit="nats"),
        Finding("lowest point below the weights", depth, verdict="lower elsewhere" if depth > 0 else "", unit="nats"),
        Finding("local minima inside the border", count, verdict={0: "none", 1: "one bowl"}.get(count, "several")),
    ]
