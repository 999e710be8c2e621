"""`onnx-int8`: the file of `onnx` quantized by onnxruntime: int8 weights by channel, uint8 activations, as QDQ.

Quantized are the operators that have nearly all MACs: Conv, Gemm, and MatMul with weights. The first and the last of a
net stay in float32, unless nothing else is left: they cost accuracy and hardly any time. So do products of two
activations (attention), normalisation, softmax, activation functions, sums and gates of squeeze-and-excitation: in int8
they cost accuracy and saved no time where it was measured.

`alternas export --formats onnx-int8` comes here from write.py (the folder); onnx.py writes the float32 file first. The
images are training images of the run's data, chosen by search/experiments/trained_nets.py; check.py compares answers
and accuracy with the net's on validation images.
"""

import io
import tempfile
from contextlib import redirect_stdout
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...archs.cost import FLOAT_BYTES
from .export_net import ExportNet
from .onnx import float_file

QUANTIZED = ("Conv", "Gemm", "MatMul")
PERCENTILE = 99.99  # of a map's values that its range holds: what lies outside is clipped
MAX_IMAGES = 512  # that ranges are taken from
MAPS_BYTES = 2**30  # of the maps that calibration keeps at once
BATCH = 32


def write(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.int8.onnx; RuntimeError if torch cannot express the net in ONNX, or onnxruntime not quantize it."""
    images_NCHW = net.scoring.train_NCHW if net.scoring else net.images_NCHW
    with float_file(net, file.parent) as source:
        count = quantize(source, file, net.normalised(images_NCHW).numpy())
    return {"calibrated_on": f"{count} {'training' if net.scoring else 'random'} images"}


def quantize(source: Path, target: Path, x_NCHW: np.ndarray) -> int:
    """Write the int8 net of the float32 net in `source` to `target`; return how many images it is calibrated on.

    The source is one file with an input `images`. Of the normalised images fewer are used where their maps would not
    fit into memory. RuntimeError if onnxruntime cannot.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as scratch, redirect_stdout(io.StringIO()):  # it prints how it calibrates
        prepared = Path(scratch) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)  # shapes; norms folded into convs
        most = min(len(x_NCHW), MAX_IMAGES, max(BATCH // 2, MAPS_BYTES // _maps_bytes(prepared)))
        count = most - most % min(BATCH, most)  # onnxruntime takes batches of one size alone
        x_NCHW = x_NCHW[np.linspace(0, len(x_NCHW) - 1, count).round().astype(int)]  # all classes, if they lie in order
        quantize_static(
            str(prepared),
            str(target),
            _reader(x_NCHW),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(QUANTIZED),
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.Percentile,
            nodes_to_exclude=_in_float(prepared),
            extra_options={"CalibPercentile": PERCENTILE},
        )
    _clean(target)
    return len(x_NCHW)


def _in_float(path: Path) -> list[str]:
    """Names of nodes kept in float32: products of activations, and the first and last layers if others are between."""
    import onnx

    graph = onnx.load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    products = {node.name for node in graph.node if node.op_type == "MatMul" and not weights.intersection(node.input)}
    layers = {node.name for node in graph.node if node.op_type in QUANTIZED} - products
    ends = _ends(graph, layers)
    return sorted(products | ends if ends < layers else products)


def _ends(graph: Any, layers: set[str]) -> set[str]:
    """The layers with no other layer between them and the image, or between them and the logits."""
    forward = [(node.name, node.input, node.output) for node in graph.node]
    backward = [(node.name, node.output, node.input) for node in reversed(graph.node)]
    return _met(graph.input[0].name, forward, layers) | _met(graph.output[0].name, backward, layers)


def _met(start: str, steps: list[tuple[str, Any, Any]], layers: set[str]) -> set[str]:
    """The first layers on all paths from a map; each step is a node's name and the maps before and after it."""
    maps, met = {start}, set[str]()
    for name, before, after in steps:
        if not maps.intersection(before):
            continue
        if name in layers:
            met.add(name)
        else:
            maps.update(after)
    return met


def _maps_bytes(path: Path) -> int:
    import onnx

    maps = onnx.load(path).graph.value_info
    shapes = [[side.dim_value or 1 for side in of.type.tensor_type.shape.dim] for of in maps]  # 0: the batch
    return FLOAT_BYTES * max(1, sum(prod(shape) for shape in shapes))


def _reader(x_NCHW: np.ndarray) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter(np.split(x_NCHW, range(BATCH, len(x_NCHW), BATCH)))

        def get_next(self) -> dict[str, np.ndarray] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            batch = next(self.batches, None)
            return None if batch is None else {"images": batch}

    return Reader()


def _clean(path: Path) -> None:
    import onnx

    model = onnx.load(path)
    ours = [note for note in model.metadata_props if not note.key.startswith("onnx.")]
    used = {node.domain for node in model.graph.node}
    sets = [of for of in model.opset_import if of.domain in used]
    del model.metadata_props[:], model.opset_import[:]
    model.metadata_props.extend(ours)
    model.opset_import.extend(sets)
    onnx.save(model, path)
