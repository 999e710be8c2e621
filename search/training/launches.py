"""Fewer launches a step: weights cast all at once, norms that count their batches at once, a step as one CUDA graph.

Launched one by one, the kernels of a small net take the host longer than the card.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...archs.blocks.layers import Projection

EAGER_CALLS = 3  # before the capture: optimisers make their state, cuDNN chooses its kernels, memory may run out
Number = float | Tensor
log = logging.getLogger("alternas")
# These very classes: a subclass may do more with its weights than autocast knows.
CAST = (nn.Conv2d, nn.Linear, Projection)


class HalfWeights:
    """Copies of a net's weights in half precision, which its forward pass sees, and whose gradients the net gets.

    Autocast casts each weight where it is used and each gradient back, two kernels a weight. Here they are a few for
    all weights of convolutions and linear layers, and the numbers are the same.
    """

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


@contextmanager
def counted_at_once(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """The batches that norms see within are counted by one kernel for all norms."""
    counted = [norm for norm in norms if norm.training and norm.track_running_stats]
    counting: list[tuple[_BatchNorm, Any]] = [(norm, norm.num_batches_tracked) for norm in counted]
    for norm, _ in counting:
        norm.num_batches_tracked = None
    try:
        yield
    finally:
        for norm, count in counting:
            norm.num_batches_tracked = count
    if counting:
        torch._foreach_add_([count for _, count in counting], 1)  # pyright: ignore[reportPrivateImportUsage]


class GraphedFunction:
    """Calls a function of tensors and numbers: eagerly at first, then as a CUDA graph.

    A graph reads and writes the memory that it was captured with: what changes from call to call is copied there first.

    Attributes:
        wanted: whether a graph is tried at all.
        graph: once captured.
    """

    def __init__(
        self, device: torch.device, wanted: bool = True, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """`optimizer`: that the function calls, if it does."""
        self.device, self.wanted = device, wanted and device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None
        self._optimizer, self._eager = optimizer, 0

    def __call__(self, function: Callable[..., Tensor], tensors: Sequence[Tensor], *numbers: float) -> Tensor:
        """Call a function, the same and with tensors of the same shapes each time, which are brought to the device."""
        if self.wanted and self.graph is None and self._eager >= EAGER_CALLS:
            self._capture(function, tensors, numbers)
        if self.graph is None:
            self._eager += 1
            return function(*(tensor.to(self.device, non_blocking=True) for tensor in tensors), *numbers)
        for own, tensor in zip(self._tensors, tensors, strict=True):
            own.copy_(tensor, non_blocking=True)
        if numbers:
            self._numbers.copy_(torch.tensor(numbers), non_blocking=True)
        self.graph.replay()
        return self._result.clone()

    def _capture(self, function: Callable[..., Tensor], tensors: Sequence[Tensor], numbers: Sequence[float]) -> None:
        """Capture a call on copies; nothing is computed. Where CUDA refuses, calls stay eager."""
        self._tensors = [tensor.to(self.device, non_blocking=True, copy=True) for tensor in tensors]
        self._numbers = torch.zeros(len(numbers), device=self.device)
        graph = torch.cuda.CUDAGraph()
        try:
            self._set_capturable(True)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads pin memory meanwhile
                self._result = function(*self._tensors, *self._numbers)
        except RuntimeError as error:
            self.wanted = False
            if self._optimizer:
                self._optimizer.zero_grad(set_to_none=True)  # gradients that were never computed
            log.warning("without a CUDA graph: %s", str(error).partition("\n")[0])
        else:
            self.graph = graph
        finally:
            self._set_capturable(False)

    def _set_capturable(self, capturable: bool) -> None:
        """Tell the optimizer, of which Adam's kinds ask, whether it is captured."""
        for group in self._optimizer.param_groups if self._optimizer else ():
            if "capturable" in group:
                group["capturable"] = capturable
