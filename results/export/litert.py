"""`litert`: model.tflite, for LiteRT (TensorFlow Lite) on phones and boards; it takes one image at a time."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from .export_net import ExportNet
from .formats import Format

FILE = "model.tflite"


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
        "litert.md",
        {FILE: "the net for LiteRT, which was TensorFlow Lite"},
        requires=("litert_torch", "ai_edge_litert"),
        extra="litert",
    )
}
