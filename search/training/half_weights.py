"""Weights of convolutions and linear layers in half precision, cast all at once.

Autocast casts each weight where it is used and each gradient back, two kernels a weight, which the host of a small net
launches more slowly than the card runs them. Here they are a few for all weights, and the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...archs.blocks.layers import Projection

# These very classes: a subclass may do more with its weights than autocast knows.
CAST = (nn.Conv2d, nn.Linear, Projection)


class HalfWeights:
    """Copies of a net's weights in half precision, which its forward pass sees, and whose gradients the net gets."""

    def __init__(self, net: nn.Module, dtype: torch.dtype | None) -> None:
        """`dtype`: that autocast computes in; None leaves the net as it is."""
        own = [module._parameters for module in net.modules() if dtype and type(module) in CAST]
        self._places = [(parameters, name) for parameters in own for name in parameters if parameters[name] is not None]
        whole = dict.fromkeys(parameters[name] for parameters, name in self._places)  # tied ones once
        self._whole: list[Any] = [weight for weight in whole if weight is not None]
        self._half = {
            weight: torch.empty_like(weight, dtype=dtype).requires_grad_(weight.requires_grad) for weight in self._whole
        }

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The forward passes within see the weights as they are now, in half precision."""
        if not self._whole:
            yield
            return
        with torch.no_grad():
            torch._foreach_copy_(list(self._half.values()), self._whole)  # pyright: ignore[reportPrivateImportUsage]
        before = [parameters[name] for parameters, name in self._places]
        try:
            for (parameters, name), weight in zip(self._places, before, strict=True):
                parameters[name] = self._half[weight]  # pyright: ignore[reportArgumentType]
            yield
        finally:
            for (parameters, name), weight in zip(self._places, before, strict=True):
                parameters[name] = weight

    def give_gradients(self) -> None:
        """Add the gradients of a backward pass to those of the net, in its own precision."""
        trained = [weight for weight in self._whole if self._half[weight].grad is not None]
        if not trained:
            return
        halves = [self._half[weight].grad for weight in trained]
        wholes: list[Tensor] = [torch.empty_like(weight) for weight in trained]
        torch._foreach_copy_(wholes, halves)  # pyright: ignore[reportPrivateImportUsage,reportArgumentType]
        self.forget_gradients()
        later = [(weight.grad, whole) for weight, whole in zip(trained, wholes, strict=True) if weight.grad is not None]
        if later:
            torch._foreach_add_(*zip(*later, strict=True))  # pyright: ignore[reportPrivateImportUsage,reportArgumentType]
        for weight, whole in zip(trained, wholes, strict=True):
            weight.grad = whole if weight.grad is None else weight.grad

    def forget_gradients(self) -> None:
        """Drop those of a pass that failed."""
        for half in self._half.values():
            half.grad = None
