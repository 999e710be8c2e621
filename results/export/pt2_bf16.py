"""`pt2-bf16`: model.bf16.pt2, the net of `pt2` in bfloat16; input and output are float32.

No ONNX in bfloat16: onnxruntime's CPU has next to no operators for it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .export_net import ExportNet, Format

FILE = "model.bf16.pt2"
USAGE = f"""\
`{FILE}` is the program of `model.pt2` in bfloat16, half as large, for CPUs and GPUs that multiply it; input and \
output are float32.

```python
import json

import torch

config = json.load(open("config.json", encoding="utf-8"))
mean, std = (torch.tensor(config[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
net = torch.export.load("{FILE}").module()
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
    """Write model.bf16.pt2."""
    torch.export.save(net.traced(InBfloat16(net.deployed())), folder / FILE)
    return {"torch": torch.__version__}


FORMAT = Format(
    "torch.export, bfloat16",
    FILE,
    write,
    lambda facts: USAGE,
    {FILE: "the net in bfloat16 as a program of torch.export"},
    exact=False,
)
