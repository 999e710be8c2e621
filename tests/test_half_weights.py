"""Weights that are cast at once: the numbers of autocast, which casts each where it is used."""

import pytest
import torch
from torch import nn

from alternas.search.training.launches import HalfWeights


def gradients(net: nn.Module, half: HalfWeights, passes: int) -> list[torch.Tensor]:
    """Gradients of some passes, added up."""
    net.zero_grad(set_to_none=True)
    for seed in range(passes):
        x_BCHW = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
        with torch.autocast("cpu", torch.bfloat16), half.in_place():
            loss = net(x_BCHW).float().square().mean()
        loss.backward()
        half.give_gradients()
    return [weight.grad.clone() for weight in net.parameters() if weight.grad is not None]


@pytest.mark.parametrize("passes", [1, 3])
def test_the_gradients_are_those_of_autocast(passes: int) -> None:
    torch.manual_seed(0)
    conv, tied = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1, bias=False)
    tied.weight = conv.weight
    net = nn.Sequential(conv, nn.BatchNorm2d(3), tied, nn.Flatten(), nn.LayerNorm(108), nn.Linear(108, 5))
    net[4].requires_grad_(False)
    wanted, got = (gradients(net, HalfWeights(net, dtype), passes) for dtype in (None, torch.bfloat16))
    assert len(wanted) == 6
    for one, other in zip(wanted, got, strict=True):
        assert one.dtype == other.dtype == torch.float32
        torch.testing.assert_close(other, one, rtol=0, atol=0)


def test_weights_are_back_after_an_error() -> None:
    net = nn.Linear(2, 2)
    weight, half = net.weight, HalfWeights(net, torch.bfloat16)

    def failing() -> None:
        with half.in_place():
            assert net.weight.dtype == torch.bfloat16
            net(torch.zeros(1, 3, dtype=torch.bfloat16))

    with pytest.raises(RuntimeError, match="shapes"):
        failing()
    assert net.weight is weight
