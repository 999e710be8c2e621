"""int8 beside float32 in onnxruntime: accuracy of small trained nets of each family, speed of these and of the zoo's.

    python benchmarks/quantization.py [--epochs 10] [--tiny]

Each net is exported as `alternas export --formats onnx,onnx-int8` does; `polish` is what `--polish-epochs 2` makes of
the accuracy in int8 of the trained ones. Times are CPU seconds of one thread, so that
other work on the machine counts little; speed-ups are ratios of medians. Rank correlations are Spearman's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import machine
import numpy as np
import onnxruntime
import torch
from scipy.stats import spearmanr

from alternas.archs import Genotype, Network, Stage, Stem, build, deployed_cost, zoo
from alternas.archs.weights import read
from alternas.results.export.check import compared
from alternas.results.export.export_net import Polish, ScoringImages, export_net_of
from alternas.results.export.formats import format_of
from alternas.results.export.polish import polish_int8
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training.job import TrainJob
from alternas.search.training.loaders import open_loader
from alternas.search.training.trainer import train

BATCHES = (1, 32)
SECONDS = machine.sized(0.3, 0.02)  # of CPU, for each time
POLISH_EPOCHS = 2
SIDE = 32  # of the zoo's nets
ZOO = machine.sized(("resnet18", "mobilenetv3_large_100", "convnext_atto", "vit_tiny_patch16"), ("resnet18",))


def small(kind: str, **more: Any) -> Genotype:
    """A net of two stages of one kind of block."""
    return Genotype(Stem("cifar", 8), (Stage(kind, 2, 8, **more), Stage(kind, 2, 16, 2, **more)))


ATTENTION = {"msa": 1, "heads": 2, "head_dim": 8, "window": 4}
FAMILIES = {
    "resnet": small("basic"),
    "mbconv, SE": small("mbconv", se=0.25),
    "convnext": small("convnext"),
    "alternet": small("basic", **ATTENTION),
    "linear attention": small("uib", msa=1, head_dim=8, attention="linear", act="hard_swish"),
}
FAMILIES = machine.sized(FAMILIES, dict(list(FAMILIES.items())[:2]))


def main() -> None:
    parser = machine.options(__doc__)
    parser.add_argument("--epochs", type=int, default=machine.sized(10, 1), help="of each training on digits")
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    rows = list[dict[str, Any]]()
    for row in chain(trained(epochs), of_zoo()):
        print(row, flush=True)
        rows.append(row)
    keep(rows, epochs)


def keep(rows: list[dict[str, Any]], epochs: int) -> None:
    machine.keep(
        "quantization",
        {"rows": rows, "epochs": epochs, "image_size_of_zoo": SIDE, "rank_correlations": rank_correlations(rows)},
    )


def rank_correlations(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Of MACs with latency, in float32 and int8, and of the two latencies, at batch 1."""
    named = {"macs_float": ("macs", "float_ms_1"), "macs_int8": ("macs", "int8_ms_1")}
    named |= {"float_int8": ("float_ms_1", "int8_ms_1")}
    if len(rows) < 3:
        return dict.fromkeys(named)
    found = dict[str, float | None]()
    for name, (one, other) in named.items():
        result: Any = spearmanr([row[one] for row in rows], [row[other] for row in rows])
        found[name] = float(result.statistic)
    return found


def trained(epochs: int) -> Iterator[dict[str, Any]]:
    """A row of each family's small net, trained on digits."""
    data = load(DataConfig("digits"))
    assert isinstance(data.train.images, np.ndarray)
    assert isinstance(data.val.images, np.ndarray)
    polish = Polish(data.train.images, POLISH_EPOCHS, lambda line: None)
    scoring = ScoringImages(data.train.images, data.val.images, data.val.y_N, polish)
    about = {"mean": data.mean, "std": data.std}
    for name, net in FAMILIES.items():
        yield {"family": name, "macs": deployed_cost(net, 10, (8, 8), 1).macs} | measured(
            network_of(net, data, epochs), about, scoring
        )


def network_of(net: Genotype, data: DataSet, epochs: int) -> Network:
    recipe = recipes.get("smoke").with_epochs(epochs)
    steps = recipe.steps(len(data.train))
    with tempfile.TemporaryDirectory() as folder:
        weights = f"{folder}/weights.safetensors"
        job = TrainJob(0, net, recipe, 0, steps, steps, f"{folder}/checkpoint.pt", weights)
        for _ in train(job, open_loader(data, torch.device("cpu"), 0)):
            pass
        return read(Path(weights), net, data.image_size)


def of_zoo() -> Iterator[dict[str, Any]]:
    """A row of each net of the zoo with fresh weights, whose statistics are those of random images."""
    for name in ZOO:
        torch.manual_seed(0)
        net = zoo.get(name, SIDE)
        network, x_BCHW = build(net, 10, SIDE), torch.randn(16, 3, SIDE, SIDE)
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 1.0
        with torch.no_grad():
            network(x_BCHW)
        cost = deployed_cost(net, 10, (SIDE, SIDE), 3)
        yield {"family": name, "macs": cost.macs} | measured(network.eval(), {}, None)


def measured(network: Network, about: dict[str, Any], scoring: ScoringImages | None) -> dict[str, Any]:
    """Milliseconds in float32 and int8, and how the latter compares."""
    images = None if scoring else np.random.default_rng(0).normal(size=(64, 3, SIDE, SIDE)).astype(np.float32)
    net = export_net_of(network, about, images, replace(scoring, polish=None) if scoring else None)
    raw = scoring.val_NCHW if scoring else net.images_BCHW.numpy()
    x_NCHW = net.normalised(torch.from_numpy(raw)).numpy()
    found, answers = dict[str, Any](), dict[str, np.ndarray]()
    with tempfile.TemporaryDirectory() as folder:
        for name, form in (("float", format_of("onnx")), ("int8", format_of("onnx-int8"))):
            form.write(net, Path(folder))
            run = session(Path(folder) / form.file)
            answers[name] = np.concatenate([run(x_NCHW[i : i + 32]) for i in range(0, len(x_NCHW), 32)])
            found |= {f"{name}_ms_{batch}": milliseconds(run, x_NCHW[:batch]) for batch in BATCHES}
        if scoring:
            files = [Path(folder) / format_of(name).file for name in ("onnx", "onnx-int8")]
            found["polish"] = polish_int8(replace(net, scoring=scoring), *files)
    speed = {f"speed_up_{batch}": found[f"float_ms_{batch}"] / found[f"int8_ms_{batch}"] for batch in BATCHES}
    return found | speed | compared("int8", answers["int8"], answers["float"], scoring.y_N if scoring else None)


def session(file: Path) -> Callable[[np.ndarray], np.ndarray]:
    """The net on one thread, that of the caller."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    net = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda x_NCHW: np.asarray(net.run(["logits"], {"images": x_NCHW})[0])


def milliseconds(run: Callable[[np.ndarray], np.ndarray], x_NCHW: np.ndarray) -> float:
    """Median CPU time of a batch."""
    run(x_NCHW)
    times, end = list[float](), time.thread_time() + SECONDS
    while len(times) < 5 or time.thread_time() < end:
        start = time.thread_time()
        run(x_NCHW)
        times.append(time.thread_time() - start)
    return 1e3 * median(times)


if __name__ == "__main__":
    main()
