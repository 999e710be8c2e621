"""The net as a program of another runtime, a graph and its weights without any Python code.

`pt2` and `pt2-bf16` are as torch.export traces it; no ONNX in bfloat16: onnxruntime's CPU has next to no operators for
it. `openvino` is the net of `onnx` as OpenVINO keeps it, for Intel's CPUs, GPUs and NPUs. `litert`, TensorFlow Lite's
new name, is for phones and boards; it takes one image at a time.
"""

import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .export_net import ExportNet
from .onnx import float_file


class InBfloat16(nn.Module):
    """A net in bfloat16, between float32 images and logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).bfloat16()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.network(x_BCHW.bfloat16()).float()


def write_pt2(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.pt2."""
    torch.export.save(net.traced(net.network), file)
    return {"torch": torch.__version__}


def write_bf16(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.bf16.pt2."""
    torch.export.save(net.traced(InBfloat16(net.network)), file)
    return {"torch": torch.__version__}


def write_openvino(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.xml and model.bin; RuntimeError if the net is none for ONNX, or OpenVINO cannot read that."""
    openvino: Any = import_module("openvino")  # of an extra of its own
    with float_file(net, file.parent) as source:
        openvino.save_model(openvino.Core().read_model(source), file, compress_to_fp16=False)
    return {"weights": file.with_suffix(".bin").name, "openvino": openvino.__version__.split("-")[0]}


def write_litert(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.tflite."""
    litert_torch: Any = import_module("litert_torch")  # of an extra of its own
    litert_torch.convert(net.network, (net.normalised(net.images_NCHW[:1]),)).export(str(file))
    return {"batch": 1}
