"""Batch norm over the images of several workers, so that a pass has the statistics that it has on one device.

torch's SyncBatchNorm needs a GPU, and modules in place of those of the net. Here the call itself is another one. The
kernels are torch's for its own batch norm: of a shard's statistics, and of the sums that a gradient needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from .group import Group


class SharedNorms(TorchFunctionMode):
    """In here, batch norm in training normalises by the statistics of all workers' images.

    All exchanges are of one length and say whether their sender still computes: a worker that ran out of memory goes
    on answering those that do, and all leave together.
    """

    def __init__(self, group: Group, channels: int, device: torch.device) -> None:
        """`channels`: the most of any batch norm."""
        super().__init__()
        self._group = group
        self._message_V = torch.zeros(2 + 2 * channels, device=device)  # whether it has ended, then values

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.batch_norm or not kwargs["training"]:
            return func(*args, **kwargs)
        x, mean_C, var_C = args
        own = x, kwargs["weight"], kwargs["bias"], mean_C, var_C
        return _SharedNorm.apply(*own, kwargs["momentum"], kwargs["eps"], self.exchange)

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        while not self._sent(1.0)[:, 0].all():
            pass

    def exchange(self, *values: Tensor) -> Tensor:
        """(W, V): each worker's values, one behind the other."""
        return self._sent(0.0, *values)[:, 1 : 1 + sum(part.numel() for part in values)]

    def _sent(self, ended: float, *values: Tensor) -> Tensor:
        message_V = self._message_V.zero_()
        message_V[0] = ended
        if values:
            flat_V = torch.cat(values)
            message_V[1 : 1 + len(flat_V)] = flat_V
        return self._group.rows(message_V)


class _SharedNorm(torch.autograd.Function):
    """Batch norm by the statistics of all workers' images; gradients of weight and bias are of the worker's own."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_C: Tensor | None,
        bias_C: Tensor | None,
        running_mean_C: Tensor | None,
        running_var_C: Tensor | None,
        momentum: float,
        eps: float,
        exchange: Callable[..., Tensor],
    ) -> Tensor:
        mean_C, var_C, total = _statistics(x, exchange)
        if running_mean_C is not None and running_var_C is not None:
            running_mean_C.lerp_(mean_C, momentum)
            running_var_C.lerp_(var_C * (total / (total - 1).clamp(min=1)), momentum)
        ctx.save_for_backward(x, weight_C, mean_C, (var_C + eps).rsqrt(), total)
        ctx.eps, ctx.exchange = eps, exchange
        return torch.batch_norm(x, weight_C, bias_C, mean_C, var_C, False, 0.0, eps, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Each image's share in mean and variance goes back to all images, as in torch's SyncBatchNorm."""
        x, weight_C, mean_C, inverse_C, total = ctx.saved_tensors
        sums: Any = torch.ops.aten.native_batch_norm_backward
        given = slope, x, weight_C, None, None, mean_C, inverse_C, True, ctx.eps, [False, True, True]
        _, of_weight_C, of_bias_C = sums(*given)
        tilt_C, level_C = (ctx.exchange(of_weight_C, of_bias_C).sum(0) / total).chunk(2)
        scale_C = inverse_C if weight_C is None else inverse_C * weight_C
        shape = -1, *(1,) * (x.ndim - 2)  # beside x
        by_x = (-scale_C * inverse_C * tilt_C).view(shape)
        by_one = (scale_C * (mean_C * inverse_C * tilt_C - level_C)).view(shape)
        of_x = torch.empty_like(x, dtype=scale_C.dtype)  # in the layout of x, which convs want back
        torch.mul(slope, scale_C.view(shape), out=of_x).addcmul_(x.to(of_x.dtype), by_x).add_(by_one)
        learnt = (None, None) if weight_C is None else (of_weight_C, of_bias_C)
        return of_x.to(x.dtype), *learnt, None, None, None, None, None


def _statistics(x: Tensor, exchange: Callable[..., Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel, and the number of values, over the workers (Chan et al., 1979)."""
    zeros_C = torch.zeros(x.shape[1], device=x.device)
    mean_C, var_C = torch.batch_norm_update_stats(x, zeros_C, torch.ones_like(zeros_C), 0.0)
    count = zeros_C.new_tensor([x.numel() // x.shape[1]])
    found = exchange(count, mean_C, var_C * count)
    count_W1, mean_WC, spread_WC = found.split([1, len(mean_C), len(mean_C)], 1)
    total = count_W1.sum()
    mean_C = (count_W1 * mean_WC).sum(0) / total
    return mean_C, (spread_WC + count_W1 * (mean_WC - mean_C) ** 2).sum(0) / total, total
