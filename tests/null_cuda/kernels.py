"""Python side of the null device: cuDNN's operators, which compute nothing either, and the counts."""

import ctypes
from typing import Any

import torch
from torch import Tensor

COUNTS = ("launches", "graph_kernels", "waits", "to_device", "to_host", "on_device", "allocations")
_process = ctypes.CDLL(None)  # the null device is loaded before all else
_operators = torch.library.Library("aten", "IMPL")


def counts() -> dict[str, int]:
    """What the device was asked for so far."""
    numbers = (ctypes.c_long * len(COUNTS)).in_dll(_process, "null_cuda_counts")
    return dict(zip(COUNTS, numbers, strict=True))


def counted(what: Any) -> dict[str, int]:
    """What the device is asked for by `what()`."""
    before = counts()
    what()
    return {name: number - before[name] for name, number in counts().items()}


def replace_cudnn() -> None:
    """Put operators that launch a kernel each in the place of cuDNN's, whose library cannot be without a card."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    for name, operator in (
        ("cudnn_convolution", _convolution),
        ("convolution_backward", _convolution_backward),
        ("cudnn_batch_norm", _batch_norm),
        ("cudnn_batch_norm_backward", _batch_norm_backward),
    ):
        _operators.impl(name, operator, "CUDA")


def _launch() -> None:
    if _process.null_cuda_launch():
        torch.cuda.synchronize()  # which raises the device's error


def _format(x: Tensor, weight: Tensor) -> torch.memory_format:
    """Of the output of a convolution: channels_last where one of its inputs is."""
    last = torch.channels_last
    is_last = x.is_contiguous(memory_format=last) or weight.is_contiguous(memory_format=last)
    return last if x.dim() == 4 and is_last else torch.contiguous_format


def _convolution(
    x: Tensor, weight: Tensor, padding: Any, stride: Any, dilation: Any, groups: int, *switches: bool
) -> Tensor:
    _launch()
    settings = zip(x.shape[2:], weight.shape[2:], padding, stride, dilation, strict=True)
    sides = [(size + 2 * pad - step * (kernel - 1) - 1) // by + 1 for size, kernel, pad, by, step in settings]
    shape = (len(x), len(weight), *sides)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=_format(x, weight))


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, wanted: Any,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    for is_wanted in wanted[:2]:
        if is_wanted:
            _launch()
    grad_x, grad_weight = (
        torch.empty_like(tensor, memory_format=_format(x, weight)) if is_wanted else None
        for tensor, is_wanted in zip((x, weight), wanted[:2], strict=True)
    )
    return grad_x, grad_weight, grad.sum((0, *range(2, grad.dim()))) if wanted[2] else None


def _batch_norm(
    x: Tensor, weight: Tensor, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _launch()
    saved = torch.empty_like(weight)
    return torch.empty_like(x), saved, torch.empty_like(saved), x.new_empty(0, dtype=torch.uint8)


def _batch_norm_backward(
    x: Tensor, grad: Tensor, weight: Tensor, mean: Any, variance: Any, saved_mean: Any, saved_variance: Any,
    epsilon: float, reserve: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    _launch()
    return torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
