"""`onnx-int8`: model.int8.onnx, the net of `onnx` in int8, quantized on training images; see quantize.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .export_net import ExportNet, Format
from .onnx import FORMAT as ONNX
from .onnx import float_file, session_usage
from .quantize import quantize

FILE = "model.int8.onnx"
ABOUT = f"""\
`{FILE}` is the net with int8 weights (a scale for each channel) and activations of 8 bits, which take their ranges \
from training images. Attention's products, normalisation and softmax are in float32. Input and output are float32, \
as of `model.onnx`. It is faster where the CPU multiplies int8 (AVX-512 VNNI, AVX-VNNI, Arm's dot product) and the net \
is not tiny; on x86 without them products may saturate, and its accuracy is to be measured there.
"""


def usage(facts: Mapping[str, Any]) -> str:
    """How to load it."""
    return ABOUT + session_usage(FILE, facts)


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write model.int8.onnx.

    Raises:
        RuntimeError: if torch cannot express the net in ONNX, or onnxruntime cannot quantize it.
    """
    with float_file(net, folder) as source:
        images = quantize(source, folder / FILE, net.calibration())
    return {"calibrated_on": f"{images} {'training' if net.scoring else 'random'} images"}


FORMAT = Format(
    "onnxruntime, int8",
    FILE,
    write,
    usage,
    {FILE: "the net in int8 for onnxruntime"},
    requires=ONNX.requires,
    exact=False,
)
