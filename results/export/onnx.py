"""`onnx` and `onnx-fp16`: the net for onnxruntime and other runtimes; quantize.py has `onnx-int8`.

Input `images`, output `logits`, both float32, any batch. Lower precisions are made from the float32 file.
"""

import json
import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .export_net import ExportNet

FILE = "model.onnx"
OPSET = 18  # the lowest that torch's exporter writes without a conversion
MAX_BYTES = 1_900_000_000  # a file of protobuf holds 2 GiB; a larger net's weights go to model.onnx.data
# In the file's own metadata, as JSON.
METADATA = ("name", "classes", "mean", "std", "image_size", "in_chans", "levels")


def write(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.onnx; RuntimeError if torch cannot express the net in ONNX, or the file breaks a rule of it."""
    import onnx

    model = _converted(net)
    _name_the_batch(model.model)
    model.model.metadata_props.update({name: json.dumps(net.facts[name]) for name in METADATA})
    large = _is_large(net)
    model.save(file, external_data=large)
    try:
        onnx.checker.check_model(file)
    except onnx.checker.ValidationError as error:
        raise RuntimeError(f"the file breaks a rule of ONNX: {error}") from None
    return {"opset": OPSET, "ir_version": model.model.ir_version} | ({"weights": f"{file.name}.data"} if large else {})


def write_fp16(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.fp16.onnx; RuntimeError if torch cannot express the net in ONNX."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with float_file(net, file.parent) as source:
        onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), file)
    return {}


@contextmanager
def float_file(net: ExportNet, folder: Path) -> Iterator[Path]:
    """The float32 ONNX file of the net, the folder's own or a temporary one; RuntimeError if that cannot be written."""
    if _is_large(net):
        raise RuntimeError(f"its weights are more than {MAX_BYTES:,} bytes, which one file of ONNX does not hold")
    if (folder / FILE).exists():
        yield folder / FILE
        return
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / FILE
        write(net, file)
        yield file


def _is_large(net: ExportNet) -> bool:
    return sum(tensor.nbytes for tensor in net.network.state_dict().values()) > MAX_BYTES


def _converted(net: ExportNet) -> Any:
    with _PlainOperators():
        program = net.traced(net.network)
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        return torch.onnx.export(
            program, opset_version=OPSET, dynamo=True, input_names=["images"], output_names=["logits"], verbose=False,
            custom_translation_table={torch.ops.aten.gelu.default: _gelu},
        )  # fmt: skip
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class _PlainOperators(TorchFunctionMode):
    """Traces padding and attention as other operators: decomposing them afterwards takes a second or two a net."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        plain = {functional.scaled_dot_product_attention: _attention, functional.pad: _pad}
        return plain.get(func, func)(*args, **(kwargs or {}))


def _gelu(x: Any, approximate: str = "none") -> Any:
    """GELU, x (1 + erf(x / sqrt 2)) / 2, in an order that onnxruntime runs as one operator; torch's it does not."""
    import onnxscript

    op: Any = onnxscript.opset18
    if approximate == "tanh":
        inner = op.Mul(op.Add(x, op.Mul(op.Mul(x, op.Mul(x, x)), 0.044715)), math.sqrt(2 / math.pi))
        return op.Mul(op.Mul(x, 0.5), op.Add(op.Tanh(inner), 1.0))
    return op.Mul(op.Mul(x, op.Add(op.Erf(op.Div(x, math.sqrt(2))), 1.0)), 0.5)


def _pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Padding by concatenation.

    onnxruntime folds a Pad of zeros into the MaxPool after it, which ignores what it pads with: BiT's root, whose
    maps may be negative, would be off by percents at the borders.
    """
    assert mode == "constant", "our nets pad with constants"
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.dim() - 1 - i
        shapes = [[*x.shape[:axis], side, *x.shape[axis + 1 :]] for side in (before, after)]
        first, last = (x.new_full(shape, value or 0) for shape in shapes)
        x = torch.cat([first, x, last], dim=axis)
    return x


def _attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention in plain operators, for operator sets below 23, which have none.

    torch's own decomposition does not pass: the program was traced with the strides of the fused kernel, and the
    views after it cannot be made of others.
    """
    assert not any((dropout_p, is_causal, enable_gqa)), "our nets do not ask for them"
    logits = (queries * (scale or queries.shape[-1] ** -0.5)) @ keys.transpose(-2, -1)
    if attn_mask is not None:
        seen = attn_mask.dtype == torch.bool
        logits = logits.masked_fill(~attn_mask, float("-inf")) if seen else logits + attn_mask
    return logits.softmax(-1) @ values


def _name_the_batch(model: Any) -> None:
    """Call the batch's dimension `batch`, in sums and products too, where torch has a number for a name."""
    from onnx_ir import SymbolicDim

    invented = str(model.graph.inputs[0].shape[0])
    for value in chain(model.graph.inputs, *(node.outputs for node in model.graph)):
        for axis, side in enumerate(value.shape or ()):
            if isinstance(side, SymbolicDim) and side.value:
                value.shape[axis] = SymbolicDim(str(side.value).replace(invented, "batch"))
