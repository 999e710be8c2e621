"""`litert`: model.tflite, for LiteRT (TensorFlow Lite) on phones and boards; it takes one image at a time."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from .export_net import ExportNet
from .formats import Format

FILE = "model.tflite"
USAGE = f"""\
`{FILE}` takes one image, (1, C, H, W), normalised, float32, and gives its logits. Needs ai-edge-litert.

```python
import json

import numpy as np
from ai_edge_litert.interpreter import Interpreter

config = json.load(open("config.json", encoding="utf-8"))
mean, std = (np.array(config[name], np.float32).reshape(1, -1, 1, 1) for name in ("mean", "std"))
net = Interpreter("{FILE}")
net.allocate_tensors()
net.set_tensor(net.get_input_details()[0]["index"], (np.asarray(images[:1], np.float32) - mean) / std)
net.invoke()
logits = net.get_tensor(net.get_output_details()[0]["index"])
```
"""


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write model.tflite."""
    litert_torch: Any = import_module("litert_torch")  # of an extra of its own
    litert_torch.convert(net.network, (net.normalised(net.images_NCHW[:1]),)).export(str(folder / FILE))
    return {"batch": 1}


FORMATS = {
    "litert": Format(
        "LiteRT",
        FILE,
        write,
        lambda facts: USAGE,
        {FILE: "the net for LiteRT, which was TensorFlow Lite"},
        requires=("litert_torch", "ai_edge_litert"),
        extra="litert",
    )
}
