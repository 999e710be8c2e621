"""`executorch`: model.pte, for ExecuTorch on phones and boards, through XNNPACK; it takes one image at a time."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from .export_net import ExportNet, Format

FILE = "model.pte"
USAGE = f"""\
`{FILE}` takes one image, (1, C, H, W), normalised, float32, and gives its logits. What XNNPACK has it computes; the \
rest needs ExecuTorch's portable operators.

```python
import json

import torch
from executorch.runtime import Runtime

config = json.load(open("config.json"))
mean, std = (torch.tensor(config[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
net = Runtime.get().load_program("{FILE}").load_method("forward")
(logits,) = net.execute([(torch.as_tensor(images[:1]).float() - mean) / std])
```
"""


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write model.pte."""
    lower: Any = import_module("executorch.exir").to_edge_transform_and_lower  # of an extra of its own
    xnnpack: Any = import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    with torch.no_grad():
        program = torch.export.export(net.deployed(), (net.normalised()[:1],))
    made = lower(program, partitioner=[xnnpack.XnnpackPartitioner()]).to_executorch()
    (folder / FILE).write_bytes(made.buffer)
    return {"batch": 1}


FORMAT = Format(
    "ExecuTorch",
    FILE,
    write,
    lambda facts: USAGE,
    {FILE: "the net for ExecuTorch"},
    requires=("executorch",),
    extra="executorch",
)
