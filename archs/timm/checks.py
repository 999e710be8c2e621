"""Checks of a conversion from timm: nothing is guessed, and outputs are compared."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import InputError
from ..network import Network

TOLERANCE = 1e-3  # of outputs whose largest is 1


def need(condition: bool, what: str) -> None:
    if not condition:
        raise InputError(f"timm: this net has {what}: no genotype says that")


@torch.no_grad()
def check_outputs(ours: Network, theirs: nn.Module, shape: tuple[int, ...]) -> None:
    """Equal outputs for one image of noise: parameters alone do not show padding, pooling, activations."""
    training = theirs.training
    noise, first = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)), next(theirs.parameters())
    x_BCHW = noise.to(first.device, first.dtype)
    try:
        expected, got = theirs.eval()(x_BCHW), ours.eval()(x_BCHW)
    except RuntimeError as error:
        raise InputError(f"timm: this net does not run on {tuple(shape)}: {str(error).splitlines()[0]}") from None
    finally:
        theirs.train(training)
    need(expected.shape == got.shape, f"outputs of shape {tuple(expected.shape)}")
    apart = ((expected - got).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
    need(apart < TOLERANCE, f"outputs that differ from its genotype's by {apart:.1e} of the largest")
