"""Eigenvalues of the Hessian and the loss on a plane: known spectra, numpy, finite differences, closed forms."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from analysed import net_of, pixels
from torch import Tensor, nn
from torch.func import functional_call

from alternas.archs import InputError, build
from alternas.results.analysis import hessian, landscape
from alternas.results.analysis.hessian import (
    batch_ritz,
    differentiable_twice,
    hessian_product,
    lanczos,
    largest,
    loss_of,
    negative_share,
    positive_mean,
)
from alternas.results.analysis.landscape import direction, minima, plane
from alternas.results.analysis_tools.inputs import AnalysisInput, Images, Objective
from nets import NETS, lively

SPECTRUM = torch.tensor([5.0, -5.0001, 3.0, -2.0, 1.0, 0.5, -0.25, 0.1, *torch.linspace(-0.05, 0.05, 52)]).double()


def quadratic() -> tuple[Tensor, Tensor]:
    """w'Aw / 2 with A of that spectrum at a random point."""
    generator = torch.Generator().manual_seed(0)
    turn, _ = torch.linalg.qr(torch.randn(60, 60, generator=generator, dtype=torch.float64))
    w = torch.randn(60, generator=generator, dtype=torch.float64).requires_grad_()
    return w, 0.5 * w @ (turn @ torch.diag(SPECTRUM) @ turn.T) @ w


@pytest.mark.parametrize("steps", [30, 60, 200])
def test_a_quadratic_loss_of_known_spectrum(steps: int) -> None:
    """Negative ones too, and a pair of nearly the same magnitude."""
    w, loss = quadratic()
    start = torch.randn(60, generator=torch.Generator().manual_seed(1))
    ritz = lanczos(hessian_product(loss, [w]), start, steps)
    found = [value for value, _ in largest(ritz, 8)]
    wanted = sorted(SPECTRUM.tolist(), key=abs, reverse=True)[:8]
    assert found == pytest.approx(wanted, abs=1e-4)
    assert all(error < 1e-4 for _, error in largest(ritz, 8))
    if steps >= 60:
        assert ritz.values.numpy() == pytest.approx(np.sort(SPECTRUM.numpy()), abs=1e-6)


def test_lanczos_ends_when_the_space_is_exhausted() -> None:
    scale = torch.tensor([2.0, 2.0, -1.0, -1.0], dtype=torch.float64)
    ritz = lanczos(lambda v: scale * v, torch.ones(4), 4)
    assert ritz.values.tolist() == pytest.approx([-1, 2])


def tiny() -> nn.Module:
    torch.manual_seed(0)
    parts = [
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Flatten(), nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 3),
    ]  # fmt: skip
    return lively(nn.Sequential(*parts)).double()


def eigenvalues(net: nn.Module, x: Tensor, y: Tensor, decay: float = 0.0) -> Tensor:
    """All of them, ascending: of the whole matrix that torch makes."""
    names, sizes = zip(*((name, p.shape) for name, p in net.named_parameters()), strict=True)

    def loss(w_P: Tensor) -> Tensor:
        parts = w_P.split([size.numel() for size in sizes])
        tensors = {name: part.view(size) for name, part, size in zip(names, parts, sizes, strict=True)}
        return F.cross_entropy(functional_call(net, tensors, (x,)), y) + decay / 2 * w_P.square().sum()

    matrix: Any = torch.autograd.functional.hessian(loss, torch.cat([p.detach().flatten() for p in net.parameters()]))
    return torch.linalg.eigvalsh(matrix)


@pytest.mark.parametrize("soft", [False, True])
def test_a_tiny_net_has_the_eigenvalues_of_its_whole_matrix(soft: bool) -> None:
    net, x = tiny().eval(), torch.randn(6, 1, 4, 4, dtype=torch.float64)
    y = torch.rand(6, 3, dtype=torch.float64).softmax(1) if soft else torch.randint(3, (6,))
    wanted = eigenvalues(net, x, y, 0.01).tolist()
    every = Objective(decay={name: 0.01 for name, _ in net.named_parameters()})
    found = batch_ritz(net.train(), (x, y), len(wanted), 0, every).values.tolist()
    assert (found[-1], found[0]) == pytest.approx((wanted[-1], wanted[0]), abs=1e-4)
    assert wanted[0] < -1e-3


@pytest.mark.parametrize("name", ["vit", "msa", "transformer", "bit"])
def test_products_are_differences_of_gradients(name: str) -> None:
    """Attention too: the fused kernels have no second derivative."""
    torch.manual_seed(1)
    net = lively(build(NETS[name], 3, 16, 2)).double().eval()
    batch = (torch.randn(3, 2, 16, 16, dtype=torch.float64), torch.arange(3))
    v_P = torch.randn(sum(p.numel() for p in net.parameters()), dtype=torch.float64)
    v_P /= v_P.norm()
    every = Objective(decay={name: 0.1 for name, _ in net.named_parameters()})
    with differentiable_twice(net) as parameters:
        found = hessian_product(loss_of(net, batch, every), parameters)(v_P)
        sides = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                for p, part in zip(parameters, v_P.split([p.numel() for p in parameters]), strict=True):
                    p += step * part.view_as(p)
            gradients = torch.autograd.grad(loss_of(net, batch, every), parameters)
            sides.append(torch.cat([g.flatten() for g in gradients]))
    wanted = (sides[0] - sides[1]) / 2e-5
    assert (found - wanted).norm() < 1e-4 * wanted.norm()


def test_shares_and_means_of_a_spectrum() -> None:
    values = torch.tensor([-2.0, -1.0, 1.0, 4.0])
    assert negative_share(values) == 0.5
    assert positive_mean(values) == 2.5
    assert np.isnan(positive_mean(-values.abs()))


def test_finding() -> None:
    net = tiny().float()
    images = Images(torch.randn(20, 1, 4, 4), torch.randint(3, (20,)), torch.zeros(1), torch.ones(1))
    found = hessian.analyse(AnalysisInput("tiny", net, images), steps=12)
    assert [row["images"] for row in found.rows] == [16] * 5 + [4] * 5
    shares = sum(row["eigenvalue"] < 0 for row in found.rows) / 10
    assert found.findings[0].value == pytest.approx(shares)
    assert "cross-entropy without L2" in found.title
    least = [batch_ritz(net, batch, 12, b, Objective()).values[0].item() for b, batch in enumerate(images.batches(16))]
    assert [row["smallest_ritz"] for row in found.rows] == [least[0]] * 5 + [least[1]] * 5
    soft = [(images.x_NCHW[:4], torch.full((4, 3), 1 / 3))]
    augmented = hessian.analyse(AnalysisInput("tiny", net, images, tuple(soft)), steps=4)
    assert "augmented training images" in augmented.title
    with pytest.raises(InputError, match="at least one"):
        hessian.analyse(AnalysisInput("tiny", net, replace(images, x_NCHW=images.x_NCHW[:0], y_N=images.y_N[:0])))


def test_residuals_hold_for_a_float32_net() -> None:
    """Products of float32 were off by 1e-5 of eigenvalues that were said to be known to 1e-15."""
    net, x, y = tiny().float().eval(), torch.randn(6, 1, 4, 4), torch.randint(3, (6,))
    every = eigenvalues(copy.deepcopy(net).double(), x.double(), y)
    for steps in (4, 12, 20):
        ritz = batch_ritz(net, (x, y), steps, 0, Objective())
        for value, error in zip(ritz.values, ritz.errors, strict=True):
            assert (every - value).abs().min() <= error + 1e-12 * every.abs().max()
        assert ritz.values[0] >= every[0] - 1e-12 * every.abs().max(), "a Ritz value is never below the smallest"
    assert ritz.errors.min() < 1e-9


def spectra(*least: float) -> list[dict[str, Any]]:
    """Minibatches whose five largest eigenvalues are above 0, and their smallest Ritz values."""
    return [
        {"minibatch": b, "images": 16, "rank": rank, "eigenvalue": 100.0 / rank, "error": 1e-3}
        | {"smallest_ritz": value, "smallest_error": 1e-2, "steps": 20}
        for b, value in enumerate(least)
        for rank in range(1, 6)
    ]


def test_convexity_is_told_by_the_smallest_ritz_values() -> None:
    """The largest five say nothing of it, and none met does not prove that there is none."""
    for least, share, verdict in (
        ((*[-1.2] * 15, -6.1), 1, "loss is not convex"),
        ((0.1, -2.0, 0.0), 1 / 3, "loss is not convex"),
        ((0.1, 0.2, -1e-12), 0, "undecided"),
    ):
        by_name = {finding.name: finding for finding in hessian.findings(spectra(*least))}
        found = by_name["minibatches with an eigenvalue below 0"]
        assert (found.value, found.verdict) == (pytest.approx(share), verdict)
        assert by_name[hessian.NEP].value == 0
        assert by_name[hessian.NEP].high > 0, "of five eigenvalues each, a share is known to a fifth"


def test_each_filters_direction_has_its_norm() -> None:
    net = net_of("hybrid")
    found = direction(net, torch.Generator().manual_seed(1))
    for name, p in net.named_parameters():
        if p.ndim == 1 or "positions" in name:
            assert not found[name].any()
        else:
            assert torch.allclose(found[name].flatten(1).norm(dim=1), p.flatten(1).norm(dim=1), rtol=1e-4)
            assert found[name].any()


@pytest.mark.parametrize("name", ["msa", "vit 2-D", "vit relative", "per head"])
def test_position_tables_stay(name: str) -> None:
    net = net_of(name)
    found = direction(net, torch.Generator().manual_seed(1))
    tables = [key for key in found if key.endswith((".table", ".rows", ".columns"))]
    assert tables
    assert not any(found[key].any() for key in tables)


def test_a_plane_is_that_of_weights_set_by_hand() -> None:
    net, x, y = net_of("basic"), pixels(6), torch.randint(5, (6,))
    before = {key: value.clone() for key, value in net.state_dict().items()}
    generator = torch.Generator().manual_seed(2)
    first, second = direction(net, generator), direction(net, generator)
    assert not torch.equal(first["head.weight"], second["head.weight"])
    smooth = partial(F.cross_entropy, label_smoothing=0.3)
    matrices = {name: 0.2 for name, p in net.named_parameters() if p.ndim > 1}
    rows = plane(net, [(x[:4], y[:4]), (x[4:], y[4:])], (first, second), 3, Objective(smooth, matrices))
    assert [(row["a"], row["b"]) for row in rows] == [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    for row in rows:
        other = copy.deepcopy(net)
        with torch.no_grad():
            for name, p in other.named_parameters():
                p.add_(row["a"] * first[name] + row["b"] * second[name])
            assert row["nll"] == pytest.approx(F.cross_entropy(other(x), y).item(), rel=1e-4)
            assert row["data_loss"] == pytest.approx(smooth(other(x), y).item(), rel=1e-4)
        squares = sum(p.square().sum().item() for p in other.parameters() if p.ndim > 1)
        assert row["l2"] == pytest.approx(0.1 * squares, rel=1e-4)
        assert row["loss"] == row["data_loss"] + row["l2"] != row["nll"] + row["l2"]
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_soft_targets() -> None:
    net, x = net_of("basic"), pixels(4)
    y = torch.rand(4, 5).softmax(1)
    found, _ = landscape.losses_at(net, dict(net.named_parameters()), [(x, y)], Objective())
    with torch.no_grad():
        assert found == pytest.approx(-(y * net(x).log_softmax(1)).sum(1).mean().item(), rel=1e-5)


def test_minima_of_a_drawn_surface() -> None:
    """Two wells: (a² - 1/4)² + b²."""
    side = 9
    steps = [2 * i / (side - 1) - 1 for i in range(side)]
    rows = [{"a": a, "b": b, "loss": (a * a - 0.25) ** 2 + b * b} for a in steps for b in steps]
    assert [(row["a"], row["b"]) for row in minima(rows, side)] == [(-0.5, 0), (0.5, 0)]


def test_a_plane_of_losses_is_a_finding() -> None:
    net, x = net_of("basic"), pixels(8)
    subject = AnalysisInput("basic", net, Images(x, net(x).argmax(1), torch.zeros(2), torch.ones(2)))
    found = landscape.analyse(subject, side=3)
    middle = found.rows[4]
    by_name = {finding.name: finding for finding in found.findings}
    assert by_name["loss at the weights"].value == middle["loss"]
    rise = [row["loss"] - middle["loss"] for row in found.rows if row is not middle]
    assert by_name["rise of the loss to the border"].value == pytest.approx(sum(rise) / 8)
    assert by_name["lowest point below the weights"].value == -min(0, *rise)
    assert landscape.analyse(subject, side=3).rows == found.rows
    with pytest.raises(InputError, match="odd and at least 3, got 4"):
        landscape.analyse(subject, side=4)
