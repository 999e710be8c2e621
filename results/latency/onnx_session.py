"""A net in onnxruntime, as `export --formats onnx` writes it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from ...archs import Network
from ...archs.errors import InputError
from ..export import onnx_format
from ..export.formats import chosen, subject_of


def session_of(network: nn.Module, x_BCHW: Tensor, threads: int) -> Callable[[], object]:
    """One run of the batch.

    Raises:
        InputError: if a package is missing, or the net is not one of ours.
        RuntimeError: if torch cannot express it in ONNX.
    """
    chosen("onnx")
    if not isinstance(network, Network):
        raise InputError("runtime onnx: takes nets of alternas alone, not timm's")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        onnx_format.write(subject_of(network, {}), Path(folder))
        file = str(Path(folder) / onnx_format.FILE)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    images = x_BCHW.numpy()
    return lambda: session.run(None, {"images": images})
