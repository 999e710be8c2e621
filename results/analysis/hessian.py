"""The curvature of the loss: eigenvalues of its Hessian, large and negative.

Park & Kim, ICLR 2022, section 3 and figure 4 (their code for it was not published): a ViT's loss is flatter than a
ResNet's, but not convex. Eigenvalues come from Lanczos, not from power iteration: that tracks the magnitude, and
stops early where a positive and a negative eigenvalue are about as large. In float64 with full
reorthogonalisation: without it eigenvalues appear several times. Products are of a
float64 copy of the net: those of float32 are off by some 1e-7 of the largest eigenvalue, far more than Lanczos's own
error. BatchNorm is in eval mode, so that the loss is a sum over images. B batch, P parameters.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...archs.errors import InputError
from ..analysis_tools.findings import UNDECIDED, Finding, measured
from ..analysis_tools.hooks import undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Objective, Rows
from ..ranking.stats import SHARE
from ..render.plots import COLOURS

Product = Callable[[Tensor], Tensor]  # v_P float64 -> (Hessian v)_P float64
Batch = tuple[Tensor, Tensor]  # x_BCHW, labels y_B or soft targets y_BK
NEP, APE = "share of eigenvalues below 0 (NEP)", "mean eigenvalue above 0 (APE)"
LOG_APE, LARGEST = "log of APE", "largest eigenvalue"
TOP, MINIBATCH, MINIBATCHES = 5, 16, 16  # the paper's k and batch
ROUNDING = 1e-10  # of the largest eigenvalue: nearer to 0 a sign says nothing


@dataclass(frozen=True, eq=False)
class Ritz:
    """Ritz values of a Lanczos run, ascending."""

    # eigenvalues of the tridiagonal matrix. The smallest is never below the matrix's smallest eigenvalue.
    values: Tensor
    # residual norms: some eigenvalue of the matrix, nobody says which, is at most this far from each value
    errors: Tensor


def lanczos(product: Product, start_P: Tensor, steps: int) -> Ritz:
    """Ritz values of a symmetric matrix. Takes steps x P x 8 bytes; ends early when the Krylov space is exhausted."""
    basis, diagonal, beside = [start_P.double() / start_P.double().norm()], [], []
    columns: list[Tensor] = []  # of the matrix in the basis, as its products had it
    for step in range(min(steps, len(start_P))):
        w_P = product(basis[-1])
        diagonal.append(torch.dot(w_P, basis[-1]).item())
        vectors, column = torch.stack(basis), torch.zeros(len(basis)).to(w_P)
        for _ in range(2):  # twice is enough (Parlett, The Symmetric Eigenvalue Problem, 1980)
            overlap = vectors @ w_P
            w_P, column = w_P - vectors.T @ overlap, column + overlap
        columns.append(column)
        beside.append(w_P.norm().item())
        if beside[-1] <= 1e-10 * max(map(abs, diagonal + beside)) or step + 1 == min(steps, len(start_P)):
            break
        basis.append(w_P / beside[-1])
    off = torch.tensor(beside[:-1], dtype=torch.float64)
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    products = torch.diag(off, -1)
    for step, column in enumerate(columns):
        products[: step + 1, step] = column.cpu()
    inside = (products @ vectors - values * vectors).norm(dim=0)  # not 0: products are rounded
    return Ritz(values, torch.hypot(inside, beside[-1] * vectors[-1].abs()))


def largest(ritz: Ritz, count: int) -> list[tuple[float, float]]:
    """(eigenvalue, error) of the `count` largest by magnitude, with their signs, the largest first."""
    order = ritz.values.abs().argsort(descending=True)[:count].tolist()
    return [(ritz.values[i].item(), ritz.errors[i].item()) for i in order]


def loss_of(net: nn.Module, batch: Batch, objective: Objective) -> Tensor:
    """Mean loss of a batch in nats, plus L2."""
    x_BCHW, y = batch
    return objective.loss(net(x_BCHW), y) + objective.l2(dict(net.named_parameters()))


@contextmanager
def differentiable_twice(net: nn.Module) -> Iterator[list[Tensor]]:
    """All parameters of `net` as variables, in eval mode, attention in plain operations (the fused ones lack it)."""
    with undisturbed(net), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        yield [*(p.requires_grad_() for p in net.parameters())]


def hessian_product(loss: Tensor, parameters: Sequence[Tensor]) -> Product:
    """v_P -> Hessian of `loss` times v_P by double backward; the graph of `loss` is kept as long as the product."""
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    curved = [i for i, gradient in enumerate(gradients) if gradient.requires_grad]
    sizes = [p.numel() for p in parameters]

    def product(v_P: Tensor) -> Tensor:
        parts = [part.view_as(p).to(p) for part, p in zip(v_P.split(sizes), parameters, strict=True)]
        outputs, along = [gradients[i] for i in curved], [parts[i] for i in curved]
        products = torch.autograd.grad(outputs, parameters, along, retain_graph=True, materialize_grads=True)
        return torch.cat([part.flatten() for part in products]).double()

    return product


def batch_ritz(net: nn.Module, batch: Batch, steps: int, seed: int, objective: Objective) -> Ritz:
    """Ritz values of the Hessian of one batch's loss, from a random start of signs, all of it in float64."""
    x_BCHW, y = batch
    exact = (x_BCHW.double(), y.double() if y.is_floating_point() else y)
    twin = copy.deepcopy(net).double()
    with differentiable_twice(twin) as parameters:
        product = hessian_product(loss_of(twin, exact, objective), parameters)
        size, device = sum(p.numel() for p in parameters), x_BCHW.device
        signs = torch.randint(2, (size,), generator=torch.Generator().manual_seed(seed)).double() * 2 - 1
        return lanczos(product, signs.to(device), steps)


def negative_share(values: Tensor) -> float:
    """NEP, negative eigenvalue proportion."""
    return (values < 0).double().mean().item()


def positive_mean(values: Tensor) -> float:
    """APE, average positive eigenvalue; NaN where there is none."""
    return values[values > 0].mean().item()


def analyse(subject: AnalysisInput, steps: int = 20) -> AnalysisResult:
    """Hessian max-eigenvalue spectrum: the five largest by magnitude of each minibatch, and its smallest Ritz value.

    The loss is the subject's objective. Minibatches are those of its training, the paper's choice; of a subject without
    them, the first 16 of 16 of its images. Each takes `steps` Hessian products.
    """
    rows = []
    for b, batch in enumerate(subject.training or islice(subject.images.batches(MINIBATCH), MINIBATCHES)):
        ritz = batch_ritz(subject.net, batch, steps, b, subject.objective)
        least = {"smallest_ritz": ritz.values[0].item(), "smallest_error": ritz.errors[0].item(), "steps": steps}
        for rank, (value, error) in enumerate(largest(ritz, TOP), 1):
            row = {"minibatch": b, "images": len(batch[0]), "rank": rank, "eigenvalue": value, "error": error}
            rows.append(row | least)
    if not rows:
        raise InputError("hessian: needs at least one minibatch, got none")

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.ecdf([row["eigenvalue"] for row in rows], color=COLOURS[0])
        axes.axvline(0, color="#000000", linewidth=0.8)
        axes.set_xlabel(f"eigenvalue of the Hessian ({TOP} largest by magnitude of each minibatch)")
        axes.set_ylabel("share up to it (at 0: NEP)")

    images = "augmented training images" if subject.training else "images as they are, not augmented"
    title = f"{subject.name}: Hessian max-eigenvalue spectrum ({images}; {subject.objective.words})"
    return AnalysisResult(title, rows, findings(rows), draw)


def findings(rows: Rows) -> list[Finding]:
    """Means over minibatches, each with a spectrum of its own, and whether the loss is convex.

    An eigenvalue is at or below each smallest Ritz value: one below 0 proves that the loss is not convex.
    """
    spectra = [
        torch.tensor([row["eigenvalue"] for row in rows if row["minibatch"] == b], dtype=torch.float64)
        for b in range(rows[-1]["minibatch"] + 1)
    ]
    steep = [positive_mean(spectrum) for spectrum in spectra]
    firsts = [row for row in rows if row["rank"] == 1]
    below = sum(row["smallest_ritz"] < -ROUNDING * abs(row["eigenvalue"]) for row in firsts)
    convex = "loss is not convex" if below else UNDECIDED  # none met does not prove that there is none
    return [
        measured(NEP, map(negative_share, spectra), "minibatches", within=SHARE, resolution=1 / TOP),
        measured(APE, steep, "minibatches"),
        measured(LOG_APE, [math.log(value) for value in steep if value > 0], "minibatches"),
        measured(LARGEST, [row["eigenvalue"] for row in firsts], "minibatches"),
        Finding("minibatches with an eigenvalue below 0", below / len(firsts), verdict=convex, n=len(firsts)),
        Finding("largest error of an eigenvalue (residual norm)", max(row["error"] for row in rows)),
    ]
