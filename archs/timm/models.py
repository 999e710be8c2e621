"""Params and MACs of any torch module, counted by running it: the yardstick beside `static_cost`.

`FlopCounterMode` / 2, the convention of cost.py, so that nets of timm stand beside ours.
"""

from __future__ import annotations

import difflib
import logging
from typing import Any

import timm
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count

from ..errors import InputError
from ..layout import Map

KINDS = {
    "convolution": "conv",
    "mm": "linear",
    "addmm": "linear",
    "bmm": "attention",
    "baddbmm": "attention",
}


def flop_counter() -> FlopCounterMode:
    """torch's FLOP counter, which before torch 2.15 leaves out attention on a CPU."""
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    formula = {on_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)}
    return FlopCounterMode(display=False, custom_mapping={} if on_cpu in flop_registry else formula)


def count(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, Any]:
    """`params`, `macs`, and `by_place` (the model's children) and `by_kind` (conv, linear, attention).

    Args:
        model: on any device, the meta device too; left in eval mode, without gradients.
        shape: (channels, height, width) of one image.
    """
    first = next(model.parameters())
    model.eval().requires_grad_(False)
    with flop_counter() as counter:
        model(torch.zeros(1, *shape, device=first.device, dtype=first.dtype))
    counts = counter.get_flop_counts()
    by_kind: dict[str, int] = {}
    for operator, flops in counts.get("Global", {}).items():
        name = str(operator).rsplit(".", 1)[-1]
        kind = "attention" if "attention" in name else KINDS.get(name, name)
        by_kind[kind] = by_kind.get(kind, 0) + flops // 2
    return {
        "params": sum(p.numel() for p in model.parameters()),
        "macs": counter.get_total_flops() // 2,
        "by_place": {name: _place(name, child, counts, type(model).__name__) for name, child in model.named_children()},
        "by_kind": {kind: {"macs": macs} for kind, macs in by_kind.items()},
    }


def _place(name: str, child: nn.Module, counts: dict[str, Any], root: str) -> dict[str, int]:
    flops = sum(counts.get(f"{root}.{name}", {}).values())
    return {"params": sum(p.numel() for p in child.parameters()), "macs": flops // 2}


log = logging.getLogger(__name__)


def create(
    name: str,
    pretrained: bool = False,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: Map | None = None,
) -> nn.Module:
    """timm's model `name`; what is None is left to timm, and `image_size` where the net takes any.

    Raises:
        InputError: if timm does not know the name or refuses the numbers.
    """
    known = timm.list_models()
    if name not in known and name not in timm.list_pretrained():
        base = name.split(".")[0]
        near = (
            [tagged for tagged in timm.list_pretrained() if tagged.startswith(f"{base}.")] if base in known else known
        )
        found = difflib.get_close_matches(name, near, n=1)
        raise InputError(f"timm has no model {name!r}" + (f" (did you mean {found[0]!r}?)" if found else ""))
    given: dict[str, Any] = {"num_classes": num_classes, "in_chans": in_chans}
    if _takes_size(name):
        given["img_size"] = image_size
    try:
        return timm.create_model(name, pretrained=pretrained, **{k: v for k, v in given.items() if v is not None})
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        raise InputError(f"timm: {name}: {_line(error)}") from None


def count_timm(
    name: str, image_size: Map | None, num_classes: int | None, in_chans: int | None
) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """`count` of timm's model `name`, and the shape of the image it was counted with.

    Raises:
        InputError: if timm does not know the name, or the net takes no image of that size.
    """
    try:
        with torch.device("meta"):
            return _count(name, image_size, num_classes, in_chans)
    except (NotImplementedError, RuntimeError, TypeError, AssertionError) as error:
        reason = _line(error)
    try:
        found = _count(name, image_size, num_classes, in_chans)
    except InputError:
        raise
    except (AssertionError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"timm: {name} takes no such image ({_line(error)})") from None
    log.warning("timm: %s was not counted on the meta device but on the CPU (%s)", name, reason)
    return found


def _count(
    name: str, image_size: Map | None, num_classes: int | None, in_chans: int | None
) -> tuple[dict[str, Any], tuple[int, int, int]]:
    model: Any = create(name, False, num_classes, in_chans, image_size)
    channels, *sides = model.pretrained_cfg["input_size"]
    height, width = image_size or sides
    shape = (in_chans or channels, height, width)
    return count(model, shape), shape


def _takes_size(name: str) -> bool:
    """Whether the model is built for one image size."""
    config = timm.get_pretrained_cfg(name)
    return bool(config and config.fixed_input_size)


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
