"""`openvino`: model.xml and model.bin, the net of `onnx` as OpenVINO keeps it, for Intel's CPUs, GPUs and NPUs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from .export_net import ExportNet
from .formats import Format
from .onnx import float_file

FILE = "model.xml"
WEIGHTS_FILE = "model.bin"


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
        "openvino.md",
        {FILE: "the net for OpenVINO", WEIGHTS_FILE: "its weights"},
        requires=("openvino", "onnx", "onnxscript"),
        extra="openvino",
    )
}
