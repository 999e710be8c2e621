"""Params and MACs of any torch module, counted by running it: the yardstick beside `static_cost`.

`FlopCounterMode` / 2, the convention of cost.py, so that nets of timm stand beside ours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

KINDS = {
    "convolution": "conv",
    "mm": "linear",
    "addmm": "linear",
    "bmm": "attention",
    "baddbmm": "attention",
}


def count(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, Any]:
    """`params`, `macs`, and `by_place` (the model's children) and `by_kind` (conv, linear, attention).

    Args:
        model: on any device, the meta device too; left in eval mode, without gradients.
        shape: (channels, height, width) of one image.
    """
    first = next(model.parameters())
    model.eval().requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
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
