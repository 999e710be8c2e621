"""A polish for int8: it simulates what onnxruntime computes, lowers the loss; the command and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from alternas.archs import InputError, build
from alternas.results.export.card import polish_text
from alternas.results.export.export_net import ExportNet, Polish, ScoringImages, export_net_of
from alternas.results.export.formats import check_polish
from alternas.results.export.onnx import float_file
from alternas.results.export.onnx_torch import read_onnx, write_weights
from alternas.results.export.polish import polish_int8, polished_weights
from alternas.results.export.quantize import prepare, quantize
from nets import MIXED, lively

SHAPE = (2, 8, 8)


def images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, *SHAPE)).astype(np.float32)


def saved(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], x: np.ndarray) -> Path:
    """A file of ONNX with the input `images` and the output `logits`."""
    given = helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, ["batch", *x.shape[1:]])
    answer = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "net", [given], [answer], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "constants", "attributes"),
    [
        ("Conv", [floats(4, 1, 3, 3), floats(4)], {"group": 2, "strides": [2, 1], "pads": [0, 1, 2, 1]}),
        ("MaxPool", [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0]}),
        ("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
        ("BatchNormalization", [floats(2), floats(2), floats(2), floats(2) ** 2], {"epsilon": 1e-3}),
        ("InstanceNormalization", [floats(2), floats(2)], {"epsilon": 1e-3}),
        ("LayerNormalization", [floats(8), floats(8)], {"axis": -1, "epsilon": 1e-3}),
        ("HardSigmoid", [], {"alpha": 0.3, "beta": 0.4}),
        ("Slice", [ints(1, -3), ints(100, -1), ints(-1, 2), ints(3, 1)], {}),
        ("Reshape", [ints(0, -1, 4)], {}),
        ("Expand", [ints(3, 1, 2, 8, 1)], {}),
        ("Unsqueeze", [ints(-1, 0)], {}),
        ("Gather", [ints(3, 1)], {"axis": 2}),
        ("ReduceMean", [ints(-1, 1)], {"keepdims": 0}),
        ("Softmax", [], {"axis": 1}),
        ("Clip", [np.float32(-0.5), np.float32(0.3)], {}),
        ("Transpose", [], {"perm": [0, 3, 1, 2]}),
        ("Erf", [], {}),
        ("HardSwish", [], {}),
    ],
)
def test_an_operator_is_as_onnx_defines_it(
    kind: str, constants: list[np.ndarray], attributes: dict[str, Any], tmp_path: Path
) -> None:
    x, names = images(3, 0), [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(kind, ["images", *names], ["logits"], **attributes)
    file = saved(tmp_path / "one.onnx", [node], dict(zip(names, constants, strict=True)), x)
    wanted = np.asarray(ReferenceEvaluator(str(file)).run(None, {"images": x})[0])
    found = read_onnx(file)(torch.from_numpy(x)).numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    file = saved(tmp_path / "one.onnx", [helper.make_node("Sinh", ["images"], ["logits"])], {}, images(2, 0))
    with pytest.raises(RuntimeError, match="Sinh: no operator that a net is polished through"):
        read_onnx(file)


def subject(report: Callable[[str], None] = lambda line: None) -> ExportNet:
    """A net with images to calibrate, polish and measure on."""
    torch.manual_seed(0)
    network = lively(build(MIXED, 5, 8, 2)).eval()
    val = images(200, 1)
    with torch.no_grad():
        y_N = network((torch.from_numpy(val) - 0.5) / 2).argmax(1).numpy()
    scoring = ScoringImages(images(64, 2), val, y_N, Polish(images(256, 3), 3, report))
    return export_net_of(network, {"mean": [0.5, 0.5], "std": [2.0, 2.0]}, images(4, 4), scoring)


@pytest.mark.slow
def test_the_simulation_and_its_training(tmp_path: Path) -> None:
    """In torch as onnxruntime runs the int8 net, node by node; trained, it is nearer to the net in float32."""
    lines = list[str]()
    net = subject(lines.append)
    prepared, int8 = tmp_path / "prepared.onnx", tmp_path / "int8.onnx"
    with float_file(net, tmp_path) as source:
        quantize(source, int8, net.calibration())
        prepare(source, prepared)
        x_BCHW = net.normalised(torch.from_numpy(images(256, 3)))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        run = {file: onnxruntime.InferenceSession(file, options) for file in (prepared, int8)}
        wanted, quantized = (np.asarray(of.run(None, {"images": x_BCHW.numpy()})[0]) for of in run.values())
        with torch.no_grad():
            assert np.abs(read_onnx(prepared)(x_BCHW).numpy() - wanted).max() < 1e-5
            simulated = read_onnx(prepared, int8)(x_BCHW).numpy()
        off, cost = (np.sqrt(np.square(other - quantized).mean()) for other in (simulated, wanted))
        assert off < cost / 10, "a value between two levels may be rounded to either"

        assert net.scoring
        assert net.scoring.polish
        before = read_onnx(prepared, int8)
        tuned = polished_weights(net, net.scoring.polish, prepared, int8)
        assert len(lines) == 3
        assert lines[0].startswith("polish: epoch 1 of 3, logits off by ")
        after = read_onnx(prepared, int8)
        after.weights.update(tuned)
        with torch.no_grad():
            losses = [np.square(student(x_BCHW).numpy() - wanted).mean() for student in (before, after)]
        assert losses[1] < 0.9 * losses[0], losses
        write_weights(prepared, tuned)
        assert all(torch.equal(read_onnx(prepared).weights[name], value) for name, value in tuned.items())

        plain = int8.read_bytes()
        found = polish_int8(net, source, int8)
        assert (int8.read_bytes() != plain) == found["kept"] == (found["after"] >= found["before"])
        assert (found["epochs"], found["images"], found["metric"]) == (3, 256, "accuracy")


def test_what_is_said_of_it() -> None:
    found = {"epochs": 2, "images": 1078, "metric": "accuracy", "before": 0.5, "after": 0.75, "kept": True}
    said = "polish kept: accuracy in int8 0.5000 before 2 epochs on 1,078 images, 0.7500 after"
    assert polish_text(found) == said
    assert polish_text(found | {"kept": False}).startswith("polish did not pay: accuracy in int8 0.5000")


def test_what_it_does_not_go_with() -> None:
    check_polish(0, "package")
    check_polish(2, "package, onnx-int8")
    with pytest.raises(InputError, match="polish-epochs: must be 0 or more, got -1"):
        check_polish(-1, "onnx-int8")
    with pytest.raises(InputError, match="polish-epochs: trains for onnx-int8, which is not among the formats 'onnx'"):
        check_polish(1, "onnx")


@pytest.mark.slow
def test_the_command(tmp_path: Path, served: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    y_N = np.arange(200) % 3
    x_NHWC = (random.random((200, 8, 8, 1)) * 60 + 90 * y_N.reshape(-1, 1, 1, 1)).astype(np.uint8)
    np.savez(tmp_path / "own.npz", x=x_NHWC, y=y_N)
    words = "search bench --data own.npz --trials 1 --epochs 1 --strategy random --name run --max-train-steps 8 --json"
    code, _, error = served(tmp_path, *words.split())
    assert code == 0, error
    export = ["export", "run", "--formats", "onnx-int8", "--polish-epochs", "1"]
    code, out, error = served(tmp_path, *export, "--out", "best", "--json")
    assert code == 0, error
    of = json.loads(out)["formats"]["onnx-int8"]
    assert "polish: epoch 1 of 1, logits off by" in error
    assert of["accuracy"] == of["polish"]["after" if of["polish"]["kept"] else "before"]
    assert polish_text(of["polish"]) in (tmp_path / "best" / "README.md").read_text()
    (tmp_path / "own.npz").unlink()
    code, _, error = served(tmp_path, *export, "--out", "other")
    assert code == 2
    assert "export: int8 and half precision need the images of run run" in error
    assert not (tmp_path / "other").exists()
