"""Optimizer, learning-rate schedule, gradients, averaged weights (EMA) and mixed precision of a recipe."""

import copy
import logging
import math
from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from ...archs import Genotype
from ...archs.timm_net import Net
from .group import group_errors
from .launches import HalfWeights, Number, counted_at_once
from .recipe import LEAST_PASS, Recipe

FUSED = ("adam", "adamw", "sgd", "momentum")  # torch has one kernel for a whole update
DROPS = (0.3, 0.6, 0.9)  # shares of a budget at which the schedule "steps" divides the rate by ten
# How memory that ran out is told: by torch in three ways, by cuBLAS and cuDNN,
MEMORY_WORDS = (
    "out of memory", "not enough memory", "can't allocate memory", "status_alloc_failed", "host_allocation_failed"
)  # fmt: skip
# and what these say for other reasons too.
FULL_CARD_WORDS = ("unable to find an engine", "unable to find a valid cudnn", "cublas_status_not_initialized")
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
log = logging.getLogger("alternas")


def optimizer_for(
    net: nn.Module, recipe: Recipe, rate: float, slow: Collection[nn.Parameter] = (), share: float = 1.0
) -> torch.optim.Optimizer:
    """timm's optimizer of that name; norms and biases are not decayed unless the recipe says so.

    The `slow` parameters have groups of their own, whose "lr_scale" is `share`.
    """
    from timm import optim  # importing timm takes seconds

    scaled = {id(p) for p in slow}

    def param_groups(module: nn.Module) -> list[dict[str, Any]]:
        """By rate and decay; vectors and scalars are not decayed, as in timm's grouping."""
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for p in module.parameters():
            if p.requires_grad:
                decay = recipe.weight_decay if recipe.decay_all or p.ndim > 1 else 0.0
                groups.setdefault((share if id(p) in scaled else 1.0, decay), []).append(p)
        return [{"params": p, "lr_scale": scale, "weight_decay": decay} for (scale, decay), p in groups.items()]

    create: Any = optim.create_optimizer_v2  # pyright: ignore[reportPrivateImportUsage]
    options: dict[str, Any] = {"momentum": recipe.momentum, "filter_bias_and_bn": not recipe.decay_all}
    if recipe.optimizer in FUSED:
        options["fused"] = True
    if slow and share != 1:
        options["param_group_fn"] = param_groups
    return create(net, opt=recipe.optimizer, lr=rate, weight_decay=recipe.weight_decay, **options)


def peak_rate(recipe: Recipe, net: Net) -> float:
    """The recipe's peak rate for this net: transformers read by averaging may have their own, timm's do not."""
    averaged = isinstance(net, Genotype) and net.encoder is not None and net.head.pool == "avg"
    return recipe.avg_pool_lr if averaged and recipe.avg_pool_lr else recipe.lr


def rate_at(recipe: Recipe, step: int, steps: int) -> float:
    """Learning rate of the step behind `step` finished ones, of `steps`, as a share of the peak.

    Linear warm-up from 1 / its length; then as `recipe.schedule` says.
    """
    warm = warmup_steps(recipe, steps)
    if step < warm:
        return (step + 1) / warm
    if recipe.schedule == "constant":
        cool = round(recipe.cooldown * steps)
        return min(1.0, (steps - step) / (cool + 1))
    if recipe.schedule == "steps":
        return 0.1 ** sum(step >= share * steps for share in DROPS)
    done = (step - warm) / max(1, steps - warm)
    return 1 - done if recipe.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def warmup_steps(recipe: Recipe, steps: int) -> int:
    """Length of the warm-up in optimizer steps, at least one."""
    return max(1, round(recipe.warmup * steps))


class Ema:
    """Exponential moving average of a network's weights, in `net`, a copy of it."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.net, self.decay = copy.deepcopy(net).requires_grad_(False).eval(), decay
        pairs = list(zip(self.net.state_dict().values(), net.state_dict().values(), strict=True))
        self.averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self.copied = [pair for pair in pairs if not pair[0].is_floating_point()]

    def weight_at(self, step: int) -> float:
        """Weight of the net as it stands after `step` steps; the decay ramps up from 0.1."""
        return 1 - min(self.decay, step / (step + 9))

    @torch.no_grad()
    def update(self, weight: Number) -> None:
        """Average in the net."""
        ours, theirs = zip(*self.averaged, strict=True)
        if isinstance(weight, float):
            torch._foreach_lerp_(ours, theirs, weight)  # pyright: ignore[reportPrivateImportUsage]
        else:  # which torch has no foreach for
            torch._foreach_add_(ours, torch._foreach_mul(torch._foreach_sub(theirs, ours), weight))  # pyright: ignore[reportPrivateImportUsage]
        if self.copied:
            mine, current = zip(*self.copied, strict=True)
            torch._foreach_copy_(mine, current)  # pyright: ignore[reportPrivateImportUsage]


def precision_of(recipe: Recipe, device: torch.device) -> str:
    """What "auto" comes to: bfloat16 where a GPU has it, else float16 on a GPU, float32 on a CPU."""
    if recipe.precision != "auto":
        return recipe.precision
    if device.type != "cuda":
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which a net computes at this precision."""
    return torch.autocast(device.type, DTYPES.get(precision, torch.bfloat16), enabled=precision in DTYPES)


def memory_format(net: Net, device: torch.device) -> torch.memory_format:
    """channels_last, which is faster on a CPU too, but for GroupNorm: a quarter slower with it (docs/log.md)."""
    unfit = device.type == "cpu" and isinstance(net, Genotype) and net.style.norm == "group"
    return torch.contiguous_format if unfit else torch.channels_last


def out_of_memory(error: BaseException) -> bool:
    """Whether this is how torch, Python or a library of CUDA's say that memory ran out."""
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(words in text for words in MEMORY_WORDS):
        return True
    return any(words in text for words in FULL_CARD_WORDS) and _card_is_full()


def _card_is_full() -> bool:
    free, total = torch.cuda.mem_get_info()
    share = total * torch.cuda.get_per_process_memory_fraction()
    return min(free, share - torch.cuda.memory_allocated()) < share / 10


Loss = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]  # of forward, x_BCHW and target


class Gradients:
    """Leaves the gradients of a batch's mean loss in a net's parameters.

    Where several workers share batches, each sees its own images, and all get the gradients of the whole batch.

    Attributes:
        passes: a step's batch goes through the net in so many parts; doubled when memory runs out, but for several
            workers: one that has run out of it leaves the others in the midst of an exchange.
    """

    def __init__(self, net: nn.Module, recipe: Recipe, loss: Loss, device: torch.device) -> None:
        self.net, self.recipe, self.loss, self.device = net, recipe, loss, device
        self._world, self._images = 1, 0  # workers that share a batch of so many images; 0 for as many as come
        self.forward: Any = torch.compile(net) if recipe.compile else net
        self.precision, self.passes = precision_of(recipe, device), recipe.grad_accum_steps
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")
        self._batch_norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
        self._half = HalfWeights(net, None if recipe.compile else DTYPES.get(self.precision))

    def __call__(self, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """The mean loss, or this worker's part of it; `target` holds labels (B), or shares of the classes (B, K)."""
        while True:
            try:
                return self._sam(x_BCHW, target) if self.recipe.sam_rho else self._backward(x_BCHW, target)
            except RuntimeError as error:
                small = len(x_BCHW) // self.passes < 2 * LEAST_PASS
                if not out_of_memory(error) or small or self._world > 1 or self._is_capturing():
                    raise
            self.net.zero_grad(set_to_none=True)
            self._half.forget_gradients()
            self.passes *= 2
            log.warning("out of memory: the batch now goes through in %d passes", self.passes)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def update(self, optimizer: torch.optim.Optimizer, rate: Number) -> None:
        """One update of the net from the gradients in it, clipped as the recipe says; they are gone then."""
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        if self.recipe.clip_grad:
            self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip_grad)
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad(set_to_none=True)

    def share_images(self, world: int, images: int) -> None:
        """From now on each batch is of so many images, and each call sees this worker's: see `Member.places`."""
        self._world, self._images = world, images
        if world > 1:
            self.forward = DistributedDataParallel(self.forward, find_unused_parameters=True)
            self._half = HalfWeights(self.net, None)  # the exchange waits for gradients of the net's own weights

    def _is_capturing(self) -> bool:
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def _backward(self, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """The gradients of all workers, and this worker's part of the mean loss."""
        images, passes = self._images or len(x_BCHW), min(self.passes, len(x_BCHW))
        losses = list[Tensor]()
        parts = zip(x_BCHW.tensor_split(passes), target.tensor_split(passes), strict=True)
        for number, (x, t) in enumerate(parts, 1):
            exchange = self._world == 1 or number == passes
            with group_errors(), nullcontext() if exchange else self.forward.no_sync():
                with autocast(self.precision, self.device), self._half.in_place(), counted_at_once(self._batch_norms):
                    loss = self.loss(self.forward, x, t)
                loss = loss if len(x) == images else loss * (len(x) / images)
                # of which the exchange takes the mean over workers
                self.scaler.scale(loss if self._world == 1 else loss * self._world).backward()
            self._half.give_gradients()
            losses.append(loss.detach())
        return reduce(torch.add, losses)

    def _sam(self, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """Gradients at the weights moved uphill by `sam_rho` (Foret et al., 2021); the loss is that of the weights."""
        weights: list[Any] = [p for p in self.net.parameters() if p.requires_grad]
        before, loss = [p.detach().clone() for p in weights], self._backward(x_BCHW, target)
        # BatchNorm's running statistics must not see the moved weights
        norms = self._batch_norms
        momenta = [norm.momentum for norm in norms]
        try:
            for norm in norms:
                norm.momentum = 0.0
            with torch.no_grad():
                moving = [p for p in weights if p.grad is not None]
                slopes = [p.grad for p in moving]
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(slopes)))  # pyright: ignore[reportPrivateImportUsage]
                torch._foreach_add_(moving, torch._foreach_mul(slopes, self.recipe.sam_rho / (norm + 1e-12)))  # pyright: ignore[reportPrivateImportUsage]
            self.net.zero_grad(set_to_none=True)
            self._backward(x_BCHW, target)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
            with torch.no_grad():  # copied, not subtracted: an overflow of float16 must not stay
                torch._foreach_copy_(weights, before)  # pyright: ignore[reportPrivateImportUsage]
        return loss
