"""A net of ONNX run by torch, with gradients: each operator that our nets are exported to, as ONNX defines it.

Quantization is simulated: QuantizeLinear rounds and clips to its levels but stays in float32, and passes gradients on
where nothing was clipped, as do the int8 weights, whose float32 values and scales come from the net in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 127  # of int8 weights, on each side of zero
INT8 = "_quantized"  # behind a weight's name: how onnxruntime calls what it makes of it
Attributes = dict[str, Any]
Operator = Callable[..., "Tensor | Sequence[Tensor]"]


@dataclass(frozen=True)
class OnnxNet:
    """A net of ONNX, whose `weights` may be trained.

    Attributes:
        nodes: operator, names of inputs and outputs ("" where one is left out), attributes; in the order of running.
        weights: by name, in float32; of a quantized net those that it was quantized from.
        constants: what else the nodes take, by name.
        given: name of the input.
        answer: name of the output.
    """

    nodes: tuple[tuple[str, list[str], list[str], Attributes], ...]
    weights: dict[str, Tensor]
    constants: dict[str, Tensor]
    given: str
    answer: str

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        """The logits."""
        values: dict[str, Any] = {**self.constants, **self.weights, "": None, self.given: x_BCHW}
        for kind, inputs, outputs, attributes in self.nodes:
            if kind == "DequantizeLinear" and inputs[0].endswith(INT8):
                weight = self.weights[inputs[0].removesuffix(INT8)]
                found = _rounded(weight, attributes["axis"], *(values[name] for name in inputs[:2]))
            else:
                found = OPERATORS[kind](*(values[name] for name in inputs), **attributes)
            several = found if isinstance(found, list | tuple) else (found,)
            values.update(zip(outputs, several, strict=True))
        return values[self.answer]


def read_onnx(file: Path, quantized: Path | None = None) -> OnnxNet:
    """The net of `file`, in float32, or as `quantized`, which onnxruntime made of it, rounds and clips.

    Raises:
        RuntimeError: if it has an operator that is not one of `OPERATORS`.
    """
    import onnx
    from onnx import numpy_helper

    def tensor(of: Any) -> Tensor:
        return torch.from_numpy(numpy_helper.to_array(of).copy())

    weights = {of.name: tensor(of) for of in onnx.load(file).graph.initializer if of.data_type == of.FLOAT}
    graph = onnx.load(quantized or file).graph
    unknown = sorted({node.op_type for node in graph.node} - OPERATORS.keys())
    if unknown:
        raise RuntimeError(f"{', '.join(unknown)}: no operator that a net is polished through")
    constants = {of.name: tensor(of) for of in graph.initializer if of.name not in weights}
    nodes = [
        (of.op_type, [*of.input], [*of.output], {a.name: onnx.helper.get_attribute_value(a) for a in of.attribute})
        for of in graph.node
    ]
    return OnnxNet(tuple(nodes), weights, constants, graph.input[0].name, graph.output[0].name)


def write_weights(file: Path, weights: dict[str, Tensor]) -> None:
    """Give a net of ONNX other weights, by name."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(file)
    for of in model.graph.initializer:
        if of.name in weights:
            of.CopyFrom(numpy_helper.from_array(weights[of.name].detach().numpy(), of.name))
    onnx.save(model, file)


def _rounded(weight: Tensor, axis: int, levels: Tensor, scales: Tensor) -> Tensor:
    """A weight as its int8 levels, a scale for each channel of `axis`; a bias, of int32, by the scales that it had."""
    if levels.dtype == torch.int32:
        return weight + ((weight / scales).round() * scales - weight).detach()
    others = [i for i in range(weight.dim()) if i != axis]
    scales = (weight.detach().abs().amax(others) / LEVELS).clamp_min(torch.finfo(torch.float32).tiny)
    zeros = torch.zeros_like(scales, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weight, scales, zeros, axis, -LEVELS, LEVELS)


def _quantized(x: Tensor, scale: Tensor, zero: Tensor, **_: Any) -> Tensor:
    least, most = (0, 255) if zero.dtype == torch.uint8 else (-128, 127)
    return torch.fake_quantize_per_tensor_affine(x, scale, zero.int(), least, most)


def _padded(x: Tensor, pads: Sequence[int], value: float = 0.0) -> Tensor:
    """`pads`: those before each spatial axis, then those behind."""
    count = len(pads) // 2
    pairs = [side for i in reversed(range(count)) for side in (pads[i], pads[count + i])]
    return F.pad(x, pairs, value=value) if any(pairs) else x


def _conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, strides=1, pads=(), group=1, dilations=1, **_: Any):
    convs = {3: F.conv1d, 4: F.conv2d}
    return convs[x.dim()](_padded(x, pads), weight, bias, strides, 0, dilations, group)


def _gemm(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, alpha=1.0, beta=1.0, transA=0, transB=0) -> Tensor:
    product = alpha * ((x.T if transA else x) @ (weight.T if transB else weight))
    return product if bias is None else product + beta * bias


def _max_pool(x: Tensor, *, kernel_shape, strides=1, pads=(), dilations=1, ceil_mode=0, **_: Any) -> Tensor:
    return F.max_pool2d(_padded(x, pads, float("-inf")), kernel_shape, strides, 0, dilations, bool(ceil_mode))


def _average_pool(x: Tensor, *, kernel_shape, strides=1, pads=(0,) * 4, ceil_mode=0, count_include_pad=0, **_: Any):
    return F.avg_pool2d(x, kernel_shape, strides, list(pads[:2]), bool(ceil_mode), bool(count_include_pad))


def _reshape(x: Tensor, shape: Tensor, *, allowzero=0) -> Tensor:
    sides = shape.tolist()
    return x.reshape(sides if allowzero else [side or x.shape[i] for i, side in enumerate(sides)])


def _slice(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None) -> Tensor:
    count = len(starts)
    along = range(count) if axes is None else axes.tolist()
    by = [1] * count if steps is None else steps.tolist()
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), along, by, strict=True):
        x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
    return x


def _unsqueeze(x: Tensor, axes: Tensor) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes.tolist()):
        x = x.unsqueeze(axis)
    return x


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, axis=-1, epsilon=1e-5, **_: Any) -> Tensor:
    return F.layer_norm(x, x.shape[axis:], weight, bias, epsilon)


def _resize(x: Tensor, roi: Tensor | None, scales: Tensor | None, sizes: Tensor | None = None, **how: Any) -> Tensor:
    kinds = (how["mode"], how["coordinate_transformation_mode"], how.get("antialias", 0))
    if kinds != (b"linear", b"half_pixel", 0) or sizes is None:
        raise RuntimeError(f"Resize: as bilinear interpolation to a size alone, got {kinds}")
    return F.interpolate(x, sizes.tolist()[2:], mode="bilinear", align_corners=False)


OPERATORS: dict[str, Operator] = {
    "Add": lambda x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": lambda x, weight, bias, mean, variance, *, epsilon=1e-5, **_: F.batch_norm(
        x, mean, variance, weight, bias, eps=epsilon
    ),
    "Clip": lambda x, least=None, most=None: x.clamp(least, most),
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Conv": _conv,
    "DequantizeLinear": lambda x, *_, **__: x,
    "Div": lambda x, y: x / y,
    "Erf": torch.erf,
    "Expand": lambda x, shape: x.expand(torch.broadcast_shapes(x.shape, shape.tolist())),
    "Gather": lambda x, places, *, axis=0: x.index_select(axis, places.flatten()).reshape(
        *x.shape[:axis], *places.shape, *x.shape[axis + 1 :]
    ),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: (alpha * x + beta).clamp(0, 1),
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "InstanceNormalization": lambda x, weight, bias, *, epsilon=1e-5: F.instance_norm(
        x, weight=weight, bias=bias, eps=epsilon
    ),
    "LayerNormalization": _layer_norm,
    "MatMul": torch.matmul,
    "MaxPool": _max_pool,
    "Mul": lambda x, y: x * y,
    "Pow": lambda x, power: x**power,
    "QuantizeLinear": _quantized,
    "ReduceMean": lambda x, axes, *, keepdims=1, **_: x.mean(axes.tolist(), bool(keepdims)),
    "Relu": F.relu,
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": lambda x, *, start=0, end=None: torch.tensor(x.shape)[start:end],
    "Sigmoid": torch.sigmoid,
    "Slice": _slice,
    "Softmax": lambda x, *, axis=-1: x.softmax(axis),
    "Split": lambda x, sizes, *, axis=0: x.split(sizes.tolist(), axis),
    "Sqrt": torch.sqrt,
    "Squeeze": lambda x, axes: x.squeeze(axes.tolist()),
    "Sub": lambda x, y: x - y,
    "Tanh": torch.tanh,
    "Transpose": lambda x, *, perm: x.permute(perm),
    "Unsqueeze": _unsqueeze,
    "Where": torch.where,
}  # fmt: skip
