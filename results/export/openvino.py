"""`openvino`: model.xml and model.bin, the net of `onnx` as OpenVINO keeps it, for Intel's CPUs, GPUs and NPUs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from .export_net import ExportNet
from .formats import Format
from .onnx import float_file, labelled

FILE = "model.xml"
WEIGHTS_FILE = "model.bin"
USAGE = f"""\
`{FILE}` and `{WEIGHTS_FILE}` take `images`, normalised, float32, of the one size and in a batch of any number, and \
give `logits`. OpenVINO computes in bfloat16 where a CPU has it, unless it is told otherwise, as here.

```python
import json

import numpy as np
import openvino

known = json.load(open("config.json", encoding="utf-8"))
net = openvino.Core().compile_model("{FILE}", "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})
mean, std = (np.array(known[name], np.float32).reshape(1, -1, 1, 1) for name in ("mean", "std"))
logits = net((np.asarray(images, np.float32) - mean) / std)["logits"]
LABELS
```
"""


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write model.xml and model.bin; RuntimeError if the net is none for ONNX, or OpenVINO cannot read that."""
    openvino: Any = import_module("openvino")  # of an extra of its own
    with float_file(net, folder) as source:
        openvino.save_model(openvino.Core().read_model(source), folder / FILE, compress_to_fp16=False)
    return {"weights": WEIGHTS_FILE, "openvino": openvino.__version__.split("-")[0]}


FORMATS = {
    "openvino": Format(
        "OpenVINO",
        FILE,
        write,
        lambda facts: labelled(USAGE, facts),
        {FILE: "the net for OpenVINO", WEIGHTS_FILE: "its weights"},
        requires=("openvino", "onnx", "onnxscript"),
        extra="openvino",
    )
}
