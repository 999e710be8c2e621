"""`pt2`: model.pt2, the net as torch.export traces it: a graph and its weights, without any Python code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .export_net import ExportNet, Format

FILE = "model.pt2"
USAGE = """\
`model.pt2` is a program of torch.export: the net's graph and its weights, without Python code. It takes normalised \
images of the one size, in a batch of any number, and cannot be trained on. Load it with the torch that wrote it \
or a later one.

```python
import json

import torch

config = json.load(open("config.json", encoding="utf-8"))
mean, std = (torch.tensor(config[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
net = torch.export.load("model.pt2").module()
logits = net((torch.as_tensor(images).float() - mean) / std)
```
"""


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    torch.export.save(net.program, folder / FILE)
    return {"torch": torch.__version__}


FORMAT = Format("torch.export", FILE, write, lambda facts: USAGE, {FILE: "the net as a program of torch.export"})
