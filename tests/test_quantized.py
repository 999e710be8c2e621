"""`search --quantized`: int8 accuracy ranks, float's stands beside it; what it does not go with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

from alternas.archs import Genotype, InputError, Stage, Stem
from alternas.archs.weights import read
from alternas.results.export.export_net import ScoringImages, export_net_of
from alternas.results.export.onnx_int8 import write as write_int8
from alternas.search.config import Settings, latency_of
from alternas.search.data.dataset import DataConfig, Split
from alternas.search.data.load import load
from alternas.search.known_nets import SAME
from alternas.search.training import recipes, trainer
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import open_loader

NET = Genotype(Stem("cifar", 4), (Stage("mbconv", 1, 8, 2),))
IMAGES = 128  # of each split: calibration takes all of them


def few(split: Split) -> Split:
    return replace(split, images=split.images[:IMAGES], y_N=split.y_N[:IMAGES])


@pytest.mark.slow
def test_the_accuracy_is_that_of_the_exported_int8_net(tmp_path: Path) -> None:
    """Exported from the weights that the training left, and run by onnxruntime on the validation images."""
    import onnxruntime

    data = load(DataConfig("digits"))
    data = replace(data, train=few(data.train), val=few(data.val))
    loader = open_loader(data, torch.device("cpu"), 0)
    job = TrainJob(0, NET, recipes.get("smoke"), 0, 30, 30, str(tmp_path / "c.pt"), str(tmp_path / "w.safetensors"))
    *_, plain = trainer.train(job, loader)
    *_, found = trainer.train(replace(job, quantized=True), loader)  # from the checkpoint at the end
    assert isinstance(plain, JobResult)
    assert isinstance(found, JobResult)
    assert found.metrics["float_accuracy"] == plain.accuracy
    assert found.curve == plain.curve, "which is in float32"
    assert isinstance(data.train.images, np.ndarray)
    assert isinstance(data.val.images, np.ndarray)
    images = ScoringImages(data.train.images, data.val.images, data.val.y_N)
    net = export_net_of(
        read(tmp_path / "w.safetensors", NET, (8, 8)), {"mean": data.mean, "std": data.std}, None, images
    )
    write_int8(net, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "model.int8.onnx")
    x_NCHW = net.normalised(torch.from_numpy(data.val.images)).numpy()
    logits = np.asarray(session.run(None, {"images": x_NCHW})[0])
    exported = accuracy_score(data.val.y_N, logits.argmax(1))
    assert found.accuracy == pytest.approx(exported, abs=1.1 / IMAGES), "batches are added in another order"
    assert found.metrics["nll"] != plain.metrics["nll"]
    confusion = np.load(job.confusion)["val"]
    assert confusion.trace() / confusion.sum() == found.accuracy


def settings(**changes: Any) -> Settings:
    return Settings("all", "digits", "random", "none", "macs", recipes.get("smoke"), quantized=True, **changes)


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"supernet": 8.0}, "quantized: a bank's slices are not quantized"),
        ({"trainer": "mine"}, "quantized: a trainer measures nets itself"),
    ],
)
def test_what_it_does_not_go_with(changes: dict[str, Any], about: str) -> None:
    with pytest.raises(InputError, match=about):
        settings(**changes)


def test_latency_is_that_of_int8() -> None:
    assert latency_of("latency_ms", "", quantized=True) == "cpu/1/int8/onnx/1"
    assert latency_of("latency_ms", "cpu/32/int8/onnx/2", quantized=True) == "cpu/32/int8/onnx/2"
    assert latency_of("macs", "", quantized=True) == ""
    rule = "latency: with --quantized it is that of the int8 net, cpu/1/int8/onnx/1, got cpu/1/float32/eager/1"
    with pytest.raises(InputError, match=rule):
        replace(settings(), objective="latency_ms", latency="cpu/1/float32/eager/1")


def test_nets_of_float_do_not_count_as_trained() -> None:
    assert "quantized" in SAME, "float32's nets do not count as trained in a search of int8's"


@pytest.mark.slow
def test_a_search_ranks_by_int8(tmp_path: Path, served: Callable[..., Any]) -> None:
    words = [
        "search",
        "bench",
        "--data",
        "digits",
        "--quantized",
        "--trials",
        "1",
        "--epochs",
        "1",
        "--strategy",
        "random",
        "--name",
        "q",
    ]
    code, out, error = served(tmp_path, *words, "--max-train-steps", "24", "--json")
    assert code == 0, error
    rows = json.loads(out)
    lines = (tmp_path / "runs" / "q" / "records.jsonl").read_text().splitlines()
    records = {record["trial"]: record for record in map(json.loads, lines)}
    assert json.loads((tmp_path / "runs" / "q" / "run.json").read_text())["settings"]["quantized"] is True
    assert rows
    for row in rows:
        record = records[row["trial"]]
        assert row["accuracy"] == pytest.approx(record["accuracy"])
        assert math.isfinite(record["metrics"]["float_accuracy"])
        assert abs(record["metrics"]["float_accuracy"] - record["curve"][-1]["accuracy"]) < 1e-9
