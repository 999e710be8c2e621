"""A trained net in int8, as `alternas export --formats onnx-int8` hands it out, run on validation or test images."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from ...archs import Network
from ...archs.timm_network import TimmNetwork
from ...results.export.export_net import export_net_of
from ...results.export.onnx import float_file
from ...results.export.quantize import MOST_IMAGES, quantize
from .loaders import Batch, DeviceLoader

BATCH = 64


def int8_answers(network: Network | TimmNetwork, loader: DeviceLoader, split: str) -> Iterator[Batch]:
    """(logits, answers) of the split's images, on the CPU, of the net calibrated on training images as they are.

    Raises:
        RuntimeError: if torch cannot express the net in ONNX, or onnxruntime cannot quantize or run it.
    """
    import onnxruntime

    calibration = torch.cat([x_BCHW.cpu() for x_BCHW, _ in loader.images("train", BATCH, MOST_IMAGES)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "int8.onnx"
        with float_file(export_net_of(network), Path(scratch)) as source:
            quantize(source, file, calibration.numpy())
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    for x_BCHW, y_B in loader.images(split, BATCH):
        yield torch.from_numpy(session.run(["logits"], {"images": x_BCHW.cpu().numpy()})[0]), y_B.cpu()
