"""A training step as one CUDA graph: the host launches all of its kernels at once, where one by one takes it longer
than a small net takes a card.

The graph reads and writes the memory that it was captured with. What changes from step to step is copied there before:
images, targets, the learning rate and the weight of the averages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

EAGER_STEPS = 3  # before the capture: optimisers make their state, cuDNN chooses its kernels, memory may run out
Number = float | Tensor
Step = Callable[[Tensor, Tensor, Number, Number], Tensor]  # images, targets, rate, weight of the averages -> loss
log = logging.getLogger("alternas")


class StepGraph:
    """Runs a step: the first ones eagerly, later ones as a graph.

    Attributes:
        wanted: whether a graph is tried at all.
        graph: once captured.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, wanted: bool) -> None:
        self.optimizer, self.wanted = optimizer, wanted
        self.graph: torch.cuda.CUDAGraph | None = None
        self._eager = 0

    def __call__(self, step: Step, x_BCHW: Tensor, target: Tensor, rate: float, weight: float) -> Tensor:
        """Do a step, the same function each time. Returns its loss."""
        if self.wanted and self.graph is None and self._eager >= EAGER_STEPS:
            self._capture(step, x_BCHW, target)
        if self.graph is None:
            self._eager += 1
            return step(x_BCHW, target, rate, weight)
        self._x_BCHW.copy_(x_BCHW)
        self._target.copy_(target)
        self._numbers.copy_(torch.tensor([rate, weight]), non_blocking=True)
        self.graph.replay()
        return self._loss.clone()

    def _capture(self, step: Step, x_BCHW: Tensor, target: Tensor) -> None:
        """Capture the step on copies of a batch; nothing is computed. Where CUDA refuses, steps stay eager."""
        self._x_BCHW, self._target = x_BCHW.clone(), target.clone()
        self._numbers = torch.zeros(2, device=x_BCHW.device)
        graph = torch.cuda.CUDAGraph()
        groups = [group for group in self.optimizer.param_groups if "capturable" in group]
        try:
            for group in groups:
                group["capturable"] = True
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads pin memory meanwhile
                self._loss = step(self._x_BCHW, self._target, *self._numbers)
        except RuntimeError as error:
            self.wanted = False
            self.optimizer.zero_grad(set_to_none=True)
            log.warning("training steps run without a CUDA graph: %s", str(error).partition("\n")[0])
        else:
            self.graph = graph
        finally:
            for group in groups:
                group["capturable"] = False
