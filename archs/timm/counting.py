"""Parameters and MACs of any module, by `FlopCounterMode` / 2: the convention of cost.py, so that nets compare."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count

from ..errors import InputError
from ..layout import Map
from .models import create, first_line

OPERATOR_KINDS = {"convolution": "conv", "mm": "linear", "addmm": "linear", "bmm": "attention", "baddbmm": "attention"}
T = TypeVar("T")
log = logging.getLogger(__name__)


def flop_counter() -> FlopCounterMode:
    """torch's FLOP counter, which before torch 2.15 leaves out attention on a CPU."""
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    formula = {on_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)}
    return FlopCounterMode(display=False, custom_mapping={} if on_cpu in flop_registry else formula)


def count(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, Any]:
    """`params`, `macs`, and `by_place` (the model's children) and `by_kind` (conv, linear, attention).

    Of any model on any device, meta too, and one image (channels, height, width); left in eval mode, without gradients.
    """
    first = next(model.parameters())
    model.eval().requires_grad_(False)
    with flop_counter() as counter:
        model(torch.zeros(1, *shape, device=first.device, dtype=first.dtype))
    counts = counter.get_flop_counts()
    by_kind: dict[str, int] = {}
    for operator, flops in counts.get("Global", {}).items():
        name = str(operator).rsplit(".", 1)[-1]
        kind = "attention" if "attention" in name else OPERATOR_KINDS.get(name, name)
        by_kind[kind] = by_kind.get(kind, 0) + flops // 2
    by_place = {}
    for name, child in model.named_children():
        flops = sum(counts.get(f"{type(model).__name__}.{name}", {}).values())
        by_place[name] = {"params": sum(p.numel() for p in child.parameters()), "macs": flops // 2}
    return {
        "params": sum(p.numel() for p in model.parameters()),
        "macs": counter.get_total_flops() // 2,
        "by_place": by_place,
        "by_kind": {kind: {"macs": macs} for kind, macs in by_kind.items()},
    }


def count_timm(
    name: str, image_size: Map | None, num_classes: int | None, in_chans: int | None
) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """`count` of timm's model `name`, and the shape of the image; InputError if there is no such net or size."""

    def counted() -> tuple[dict[str, Any], tuple[int, int, int]]:
        model: Any = create(name, False, num_classes, in_chans, image_size)
        channels, *sides = model.pretrained_cfg["input_size"]
        height, width = image_size or sides
        shape = (in_chans or channels, height, width)
        return count(model, shape), shape

    return on_meta(name, counted)


def on_meta(name: str, measure: Callable[[], T]) -> T:
    """What `measure` finds of timm's model on the meta device, else on the CPU; InputError if neither can run it."""
    try:
        with torch.device("meta"):
            return measure()
    except (NotImplementedError, RuntimeError, TypeError, AssertionError) as error:
        reason = first_line(error)
    try:
        found = measure()
    except InputError:
        raise
    except (AssertionError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"timm: {name} takes no such image ({first_line(error)})") from None
    log.warning("timm: %s was not counted on the meta device but on the CPU (%s)", name, reason)
    return found
