"""A function of tensors on a card as one CUDA graph: the host launches all of its kernels at once.

Launched one by one, those of a small net take the host longer than the card.

A graph reads and writes the memory that it was captured with. What changes from call to call is copied there before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

EAGER_CALLS = 3  # before the capture: optimisers make their state, cuDNN chooses its kernels, memory may run out
Number = float | Tensor
log = logging.getLogger("alternas")


class GraphedFunction:
    """Calls a function of tensors and numbers: eagerly at first, then as a graph.

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
