"""Reparametrised convs: equal outputs as one conv, and the costs of both forms."""

from __future__ import annotations

import pytest
import torch
from timm.models.byobnet import RepVggBlock
from torch import nn

from alternas.archs import Genotype, Stage, Stem, build, deployed_cost, fused, static_cost
from alternas.archs.timm import flop_counter
from nets import NETS, lively

REPARAMETRISED = [name for name, net in NETS.items() if net.kinds & {"repvit", "repvgg"}]


@pytest.fixture(params=REPARAMETRISED)
def net(request: pytest.FixtureRequest) -> Genotype:
    return NETS[request.param]


def test_outputs_are_those_of_the_trained_net(net: Genotype) -> None:
    torch.manual_seed(0)
    trained, x = lively(build(net, 5, 16, 2)).eval(), torch.randn(4, 2, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(fused(trained)(x), trained(x), atol=1e-5, rtol=1e-5)


def test_convs_of_the_blocks_have_no_branches_and_no_norms(net: Genotype) -> None:
    shipped = fused(build(net, 5, 16, 2))
    assert not [
        m for m in shipped.get_submodule("stages").modules() if isinstance(m, nn.BatchNorm2d) or hasattr(m, "fuse")
    ]
    assert not shipped.training


def test_the_net_itself_stays_as_it_is(net: Genotype) -> None:
    trained = build(net, 5, 16, 2)
    before = str(trained)
    fused(trained)
    assert str(trained) == before
    assert trained.training


def test_costs_are_of_the_shipped_net_and_say_what_training_takes(net: Genotype) -> None:
    shipped = fused(build(net, 5, 16, 2)).requires_grad_(False)
    with flop_counter() as counter:
        shipped(torch.randn(1, 2, 16, 16))
    cost, trained = deployed_cost(net, 5, 16, 2), static_cost(net, 5, 16, 2)
    assert cost.params == sum(p.numel() for p in shipped.parameters())
    assert cost.macs == counter.get_total_flops() // 2
    assert (cost.training_params, cost.training_macs) == (trained.params, trained.macs)
    assert cost.params < trained.params
    assert cost.macs < trained.macs
    assert cost.training_bytes(8) == trained.training_bytes(8)
    assert cost.training_flops(8) == trained.training_flops(8)
    assert cost.totals()["training_macs"] == trained.macs


def test_other_nets_cost_the_same_when_shipped() -> None:
    net = Genotype(Stem("cifar", 8), (Stage("basic", 2, 8),))
    assert deployed_cost(net, 5, 16) == static_cost(net, 5, 16)
    assert "training_macs" not in deployed_cost(net, 5, 16).totals()


@pytest.mark.parametrize("kernel", [1, 5])
def test_kernels_of_any_side_are_fused(kernel: int) -> None:
    net = Genotype(Stem("cifar", 8), (Stage("repvit", 2, 8, 2, kernel=kernel),))
    trained, x = lively(build(net, 5, 16)).eval(), torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(fused(trained)(x), trained(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_repvgg_blocks_are_timms(stride: int) -> None:
    torch.manual_seed(0)
    theirs = lively(RepVggBlock(8, 8, stride=stride)).eval()
    ours = build(Genotype(Stem("cifar", 8), (Stage("repvgg", 1, 8, stride),)), 5, 16).stages[0].eval()
    tensors = zip(ours.state_dict(), theirs.state_dict().values(), strict=True)
    ours.load_state_dict(dict(tensors))
    x = torch.randn(2, 8, 16, 16)
    with torch.no_grad():
        wanted = theirs(x.clone())
        torch.testing.assert_close(ours(x), wanted, atol=1e-5, rtol=1e-5)
        theirs.reparameterize()
        torch.testing.assert_close(fused(ours)(x), theirs(x), atol=1e-5, rtol=1e-5)
