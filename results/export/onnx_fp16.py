"""`onnx-fp16`: model.fp16.onnx, the net of `onnx` with weights and maps in float16; input and output are float32."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .export_net import ExportNet, Format
from .onnx import FORMAT as ONNX
from .onnx import float_file, session_usage

FILE = "model.fp16.onnx"
ABOUT = f"""\
`{FILE}` is the net in float16, half as large, for GPUs and NPUs; input and output are float32, as of `model.onnx`. \
onnxruntime's CPU runs it in float32, with conversions between: correct, and slower.
"""


def usage(facts: Mapping[str, Any]) -> str:
    """How to load it."""
    return ABOUT + session_usage(FILE, facts)


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write model.fp16.onnx.

    Raises:
        RuntimeError: if torch cannot express the net in ONNX.
    """
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with float_file(net, folder) as source:
        onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), folder / FILE)
    return {}


FORMAT = Format(
    "onnxruntime, float16",
    FILE,
    write,
    usage,
    {FILE: "the net in float16 for onnxruntime"},
    requires=ONNX.requires,
    exact=False,
)
