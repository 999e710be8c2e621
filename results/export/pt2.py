"""`pt2` and `pt2-bf16`: the net as torch.export traces it, a graph and its weights without any Python code.

No ONNX in bfloat16: onnxruntime's CPU has next to no operators for it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .export_net import ExportNet
from .formats import Format

FILE, BF16_FILE = "model.pt2", "model.bf16.pt2"


class InBfloat16(nn.Module):
    """A net in bfloat16, between float32 images and logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).bfloat16()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.network(x_BCHW.bfloat16()).float()


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write model.pt2."""
    torch.export.save(net.traced(net.network), folder / FILE)
    return {"torch": torch.__version__}


def write_bf16(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write model.bf16.pt2."""
    torch.export.save(net.traced(InBfloat16(net.network)), folder / BF16_FILE)
    return {"torch": torch.__version__}


FORMATS = {
    "pt2": Format(
        "torch.export",
        FILE,
        write,
        "pt2.md",
        {FILE: "the net as a program of torch.export"},
    ),
    "pt2-bf16": Format(
        "torch.export, bfloat16",
        BF16_FILE,
        write_bf16,
        "pt2.md",
        {BF16_FILE: "the net in bfloat16 as a program of torch.export"},
        exact=False,
    ),
}
