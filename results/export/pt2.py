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
ABOUT = """\
`model.pt2` is a program of torch.export: the net's graph and its weights, without Python code. It takes normalised \
images of the one size, in a batch of any number, and cannot be trained on. Load it with the torch that wrote it \
or a later one.
"""
ABOUT_BF16 = f"""\
`{BF16_FILE}` is the program of `model.pt2` in bfloat16, half as large, for CPUs and GPUs that multiply it; input and \
output are float32.
"""
USAGE = """
```python
import json

import torch

config = json.load(open("config.json", encoding="utf-8"))
mean, std = (torch.tensor(config[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
net = torch.export.load("FILE").module()
logits = net((torch.as_tensor(images).float() - mean) / std)
```
"""


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
        lambda facts: ABOUT + USAGE.replace("FILE", FILE),
        {FILE: "the net as a program of torch.export"},
    ),
    "pt2-bf16": Format(
        "torch.export, bfloat16",
        BF16_FILE,
        write_bf16,
        lambda facts: ABOUT_BF16 + USAGE.replace("FILE", BF16_FILE),
        {BF16_FILE: "the net in bfloat16 as a program of torch.export"},
        exact=False,
    ),
}
