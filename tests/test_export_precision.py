"""Exports of lower precision: what is quantized, how it is measured, and what the card says of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from sklearn.metrics import accuracy_score, average_precision_score

from alternas.archs import Genotype, InputError, OperationError, build
from alternas.results.export import isolated
from alternas.results.export import quantize as quantizing
from alternas.results.export.check import compared, warnings
from alternas.results.export.export_net import ScoringImages, export_net_of
from alternas.results.export.quantize import QUANTIZED, quantize
from alternas.results.export.write import export_network, summary_lines, write_formats
from nets import MIXED, NETS, lively

SHAPE = (2, 16, 16)


def images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, *SHAPE)).astype(np.float32)


def network_of(net: Genotype) -> Any:
    torch.manual_seed(0)
    return lively(build(net, 5, 16, 2)).eval()


def scoring(network: Any, count: int = 100) -> ScoringImages:
    """Images whose label is the net's own answer: it is right in all of them."""
    val = images(count, 1)
    with torch.no_grad():
        return ScoringImages(images(64, 0), val, network(torch.from_numpy(val)).argmax(1).numpy())


def int8_file(net: Genotype, folder: Path) -> onnx.ModelProto:
    network = network_of(net)
    write_formats(export_net_of(network, {}, images(8, 1), scoring(network)), folder / "draft", ("onnx-int8",))
    return onnx.load(folder / "draft" / "model.int8.onnx")


@pytest.mark.slow
def test_weights_are_int8_by_channel(tmp_path: Path) -> None:
    """By the definition of QDQ: every quantized operator takes what a DequantizeLinear gives, of a constant weight.

    Of Conv and Gemm, which have constant weights all, two are not: the stem and the classifier.
    """
    model = int8_file(MIXED, tmp_path)
    made = {name: node for node in model.graph.node for name in node.output}
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    seen, in_float = 0, list[str]()
    for node in model.graph.node:
        weight = made.get(node.input[1]) if node.op_type in QUANTIZED else None
        if weight is None or weight.op_type != "DequantizeLinear" or weight.input[0] not in values:
            in_float += [node.op_type] if node.op_type in ("Conv", "Gemm") else []
            continue
        seen += 1
        levels, scales = values[weight.input[0]], values[weight.input[1]]
        assert levels.dtype == np.int8
        axis = next(a.i for a in weight.attribute if a.name == "axis")
        assert scales.shape == (levels.shape[axis],), "a scale for each channel"
        others = tuple(i for i in range(levels.ndim) if i != axis)
        assert (np.abs(levels.astype(int)).max(others) >= 126).all(), "each channel uses its whole range"
        given = made[node.input[0]]
        assert given.op_type == "DequantizeLinear"
        assert values[given.input[2]].dtype == np.uint8
    assert seen >= 4
    assert in_float == ["Conv", "Gemm"]


def saved(file: Path, nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], classes: int) -> Path:
    """A net of (4, 5) images as a file of ONNX."""
    given, answer = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, side])
        for name, side in (("images", 5), (nodes[-1].output[0], classes))
    )
    graph = onnx.helper.make_graph(nodes, "toy", [given], [answer], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    model.metadata_props.add(key="name", value="toy")
    onnx.save(model, file)
    return file


def toy_net(folder: Path) -> tuple[Path, np.ndarray]:
    """relu(x x') W as a file of ONNX, and W: (4, 3)."""
    weight = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("Transpose", ["images"], ["turned"], perm=[1, 0]),
        onnx.helper.make_node("MatMul", ["images", "turned"], ["products"], name="product"),
        onnx.helper.make_node("Relu", ["products"], ["positive"]),
        onnx.helper.make_node("MatMul", ["positive", "W"], ["logits"], name="linear"),
    ]
    return saved(folder / "toy.onnx", nodes, [numpy_helper.from_array(weight, "W")], 3), weight


def test_a_product_of_activations_stays_in_float(tmp_path: Path) -> None:
    file, weight = toy_net(tmp_path)
    x = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    assert quantize(file, tmp_path / "int8.onnx", x) == 4
    model = onnx.load(tmp_path / "int8.onnx")
    made = {name: node.op_type for node in model.graph.node for name in node.output}
    first, second = (node for node in model.graph.node if node.op_type == "MatMul")
    assert [made.get(name) for name in first.input] == [None, "Transpose"]
    assert [made.get(name) for name in second.input] == ["DequantizeLinear"] * 2
    assert [(p.key, p.value) for p in model.metadata_props] == [("name", "toy")]
    found = np.asarray(onnxruntime.InferenceSession(tmp_path / "int8.onnx").run(None, {"images": x})[0])
    wanted = np.maximum(x @ x.T, 0) @ weight
    np.testing.assert_allclose(found, wanted, atol=0.03 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("layers", "quantized"), [("a", "a"), ("a b", "a b"), ("a b c", "b"), ("a b c d+e", "b c"), ("a+b c", "a b c")]
)
def test_ends_stay_in_float_if_others_stand_between(layers: str, quantized: str, tmp_path: Path) -> None:
    """Layers in a row, each with a ReLU behind it; those with + between them are beside each other and added up."""
    nodes, weights, at = list[onnx.NodeProto](), list[onnx.TensorProto](), "images"
    for row in layers.split():
        names = row.split("+")
        weights += [numpy_helper.from_array(np.eye(5, dtype=np.float32), f"W{name}") for name in names]
        nodes += [onnx.helper.make_node("MatMul", [at, f"W{name}"], [f"y{name}"], name=name) for name in names]
        nodes.append(onnx.helper.make_node("Sum", [f"y{name}" for name in names], [f"sum{row}"], name=f"sum {row}"))
        nodes.append(onnx.helper.make_node("Relu", [f"sum{row}"], [f"relu{row}"], name=f"relu {row}"))
        at = f"relu{row}"
    x = np.random.default_rng(1).random((4, 5), np.float32)
    quantize(saved(tmp_path / "rows.onnx", nodes, weights, 5), tmp_path / "int8.onnx", x)
    nodes = list(onnx.load(tmp_path / "int8.onnx").graph.node)
    made = {name: node.op_type for node in nodes for name in node.output}
    found = [n.name for n in nodes if n.op_type == "MatMul" and made.get(n.input[1]) == "DequantizeLinear"]
    assert sorted(found) == quantized.split()


def test_ranges_are_of_the_calibration_images(tmp_path: Path) -> None:
    """Calibrated on images ten times too faint, what is a hundred times larger is clipped."""
    file, weight = toy_net(tmp_path)
    x = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    quantize(file, tmp_path / "faint.onnx", x / 10)
    found = np.asarray(onnxruntime.InferenceSession(tmp_path / "faint.onnx").run(None, {"images": x})[0])
    assert np.abs(found).max() < 0.05 * np.abs(np.maximum(x @ x.T, 0) @ weight).max()


def test_calibration_keeps_to_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps of the toy net: 20 + 16 + 16 numbers of four bytes."""
    file, _ = toy_net(tmp_path)
    assert quantizing._maps_bytes(file) in (4, 4 * (20 + 16 + 16)), "without shapes none is known"
    monkeypatch.setattr(quantizing, "MAPS_BYTES", 20 * 4 * (20 + 16 + 16))
    x = np.arange(1, 401, dtype=np.float32)[:, None] * np.ones(5, np.float32)
    monkeypatch.setattr(quantizing, "BATCH", 4)
    given, reader = list[np.ndarray](), quantizing._reader
    monkeypatch.setattr(quantizing, "_reader", lambda x: given.append(x[:, 0]) or reader(x))
    assert quantize(file, tmp_path / "int8.onnx", x) == 20
    assert (given[0].min(), given[0].max(), np.unique(np.diff(given[0])).tolist()) == (1, 400, [21]), "from all of them"
    assert quantize(file, tmp_path / "int8.onnx", x[:10]) == 8, "whole batches alone"


@pytest.mark.slow
def test_accuracies_are_those_of_the_file_on_the_validation_images(tmp_path: Path) -> None:
    network = network_of(MIXED)
    given = scoring(network)
    facts = export_network(network, tmp_path / "out", ("onnx-int8", "onnx-fp16", "pt2-bf16"), None, None, None, given)
    assert facts == json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert facts["max_abs_difference"] is None, "there is no exact format"
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for name, least in (("onnx-int8", 0.8), ("onnx-fp16", 0.98), ("pt2-bf16", 0.8)):
        of = facts["formats"][name]
        logits = isolated.logits(tmp_path / "out" / of["file"], given.val_NCHW)[1:]
        assert of["accuracy"] == accuracy_score(given.y_N, logits.argmax(1)) >= least
        assert (of["images"], of["float_accuracy"]) == (100, 1.0)
        assert of["agreement"] == of["accuracy"], "the labels are the net's own answers"
        assert f"| {name} | accuracy {of['accuracy']:.4f}, in float32 1.0000;" in card
    assert facts["formats"]["onnx-int8"]["calibrated_on"] == "64 training images"
    known = {p.key for p in onnx.load(tmp_path / "out" / "model.int8.onnx").metadata_props}
    assert known == {"name", "classes", "mean", "std", "image_size", "in_chans"}
    weights = {name: (tmp_path / "out" / facts["formats"][name]["file"]).stat().st_size for name in facts["formats"]}
    assert min(weights.values()) > 0


def test_what_is_compared() -> None:
    ours, y = np.eye(4, dtype=np.float32), np.arange(4)
    theirs = ours.copy()
    theirs[0] = [0, 2, 0, 0]
    found = compared("onnx-int8", theirs, ours, y)
    assert (found["agreement"], found["accuracy"], found["float_accuracy"]) == (0.75, 0.75, 1.0)
    assert (found["accuracy_loss"], found["max_abs_difference"], found["images"]) == (0.25, 2.0, 4)
    assert warnings({"onnx-int8": found, "pt2": {}}) == [
        "onnx-int8 is more than 1 points less than in float32 on validation: 25.00"
    ]
    lines = summary_lines({"trial": 0, "accuracy": 1.0, "formats": {"onnx-int8": found | {"file": "m"}}}, Path("o"))
    said = "accuracy 0.7500, in float32 1.0000; agrees with float32 on 75.00% of 4 images"
    assert lines[1].split() == ["onnx-int8", "m", *said.split()]
    assert lines[2].startswith("warning: onnx-int8 is more than 1 points less")
    assert "accuracy" not in compared("onnx-int8", theirs, ours, None)
    several = (np.random.default_rng(0).random((50, 3)) > 0.5).astype(np.uint8)
    logits = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    found = compared("onnx-int8", logits, -logits, several)
    assert found["map"] == pytest.approx(average_precision_score(several, logits, average="macro"))
    assert found["agreement"] == 0
    with pytest.raises(OperationError, match="not finite"):
        compared("onnx-fp16", theirs * np.nan, ours, y)
    with pytest.raises(OperationError, match="shape"):
        compared("onnx-fp16", theirs[:2], ours, y)


def test_a_net_too_large_for_one_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alternas.results.export.onnx.MAX_BYTES", 1000)
    with pytest.raises(OperationError, match=r"onnx-int8: RuntimeError: its weights are more than 1,000 bytes"):
        export_network(network_of(NETS["basic"]), tmp_path / "out", ("onnx-int8",))
    assert list(tmp_path.iterdir()) == []


def test_without_data_it_is_refused(tmp_path: Path) -> None:
    from alternas.results.export.write import _scoring

    facts: dict[str, Any] = {"backbone": False}
    assert _scoring(("package", "onnx"), facts, None, tmp_path, None) is None  # type: ignore[arg-type]
    with pytest.raises(InputError, match="onnx-int8 is measured on the images of the run's data"):
        _scoring(("onnx-int8",), facts, None, tmp_path, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a backbone does not tell"):
        _scoring(("onnx-int8",), {"backbone": True}, None, tmp_path, None)  # type: ignore[arg-type]
