"""The gradients of one step: autocast, accumulation, sharpness-aware steps, and less at a time when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .recipe import Recipe

LEAST_PASS = 2  # images: BatchNorm cannot train on one
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")  # torch says it in three ways
_KINDS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
log = logging.getLogger("alternas")


def precision_of(recipe: Recipe, device: torch.device) -> str:
    """What "auto" comes to: bfloat16 where a GPU has it, else float16 on a GPU, float32 on a CPU."""
    if recipe.precision != "auto":
        return recipe.precision
    if device.type != "cuda":
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which a net computes at this precision."""
    return torch.autocast(device.type, _KINDS.get(precision, torch.bfloat16), enabled=precision in _KINDS)


def out_of_memory(error: BaseException) -> bool:
    """Whether this is how torch or Python say that memory ran out."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


Loss = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]  # of forward, x_BCHW and target


class Gradients:
    """Leaves the gradients of a batch's mean loss in a net's parameters.

    Attributes:
        passes: a step's batch goes through the net in so many parts; doubled when memory runs out.
    """

    def __init__(self, net: nn.Module, recipe: Recipe, loss: Loss, device: torch.device) -> None:
        self.net, self.recipe, self.loss, self.device = net, recipe, loss, device
        self.forward = torch.compile(net) if recipe.compile else net
        self.precision, self.passes = precision_of(recipe, device), recipe.accumulate
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")

    def __call__(self, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """The mean loss, detached. `target` holds labels (B), or shares of the classes (B, K)."""
        while True:
            try:
                return self._sharp(x_BCHW, target) if self.recipe.sam else self._plain(x_BCHW, target)
            except RuntimeError as error:
                if not out_of_memory(error) or len(x_BCHW) // self.passes < 2 * LEAST_PASS:
                    raise
            self._take_less()

    def _plain(self, x_BCHW: Tensor, target: Tensor) -> Tensor:
        passes, total = min(self.passes, len(x_BCHW)), torch.zeros((), device=self.device)
        for x, t in zip(x_BCHW.tensor_split(passes), target.tensor_split(passes), strict=True):
            with autocast(self.precision, self.device):
                loss = self.loss(self.forward, x, t)
            loss = loss * (len(x) / len(x_BCHW))
            self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _sharp(self, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """Gradients at the weights moved uphill by `sam` (Foret et al., 2021); the loss is that of the weights."""
        weights: list[Tensor] = [p for p in self.net.parameters() if p.requires_grad]
        kept, loss = [p.detach().clone() for p in weights], self._plain(x_BCHW, target)
        try:
            with torch.no_grad(), _still(self.net):
                _climb(weights, self.recipe.sam)
                self.net.zero_grad(set_to_none=True)
                with torch.enable_grad():
                    self._plain(x_BCHW, target)
        finally:
            with torch.no_grad():  # copied, not subtracted: an overflow of float16 must not stay
                torch._foreach_copy_(weights, kept)  # pyright: ignore[reportPrivateImportUsage]
        return loss

    def _take_less(self) -> None:
        self.net.zero_grad(set_to_none=True)
        self.passes *= 2
        log.warning("out of memory: the batch now goes through in %d passes", self.passes)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def loss_of(recipe: Recipe, logits_BK: Tensor, target: Tensor) -> Tensor:
    """Mean loss; `target` as labels (B) or shares of the classes (B, K)."""
    if recipe.loss == "cross_entropy":
        return F.cross_entropy(logits_BK, target, label_smoothing=recipe.label_smoothing)
    exact = torch.promote_types(logits_BK.dtype, torch.float32)  # float64 in analyses, which a float32 would spoil
    t_BK = target if target.ndim == 2 else F.one_hot(target, logits_BK.shape[1]).to(exact)
    t_BK = t_BK * (1 - recipe.label_smoothing) + recipe.label_smoothing / logits_BK.shape[1]
    return F.binary_cross_entropy_with_logits(logits_BK, t_BK)


def _climb(weights: list[Tensor], rho: float) -> None:
    """Move the weights by `rho` in the direction of their gradients."""
    moving = [p for p in weights if p.grad is not None]
    slopes = [p.grad for p in moving if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(slopes)))  # pyright: ignore[reportPrivateImportUsage]
    steps = torch._foreach_mul(slopes, rho / (norm + 1e-12))  # pyright: ignore[reportPrivateImportUsage]
    torch._foreach_add_(moving, steps)  # pyright: ignore[reportPrivateImportUsage]


@contextmanager
def _still(net: nn.Module) -> Iterator[None]:
    """BatchNorm's running statistics do not see the moved weights."""
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
