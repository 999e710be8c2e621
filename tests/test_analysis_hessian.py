"""Eigenvalues of the Hessian, against known spectra, numpy on the whole matrix, and finite differences."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from alternas.archs import InputError, build
from alternas.results.analysis import hessian
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
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(8, 3),
        nn.Tanh(),
        nn.Linear(3, 3),
    ]
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
