"""What training the front's cuts on is worth, on pictures on which nothing was chosen.

    python benchmarks/pretrained_finetuned.py [stamps cells] [--stamps /usr/share/tuxpaint/stamps]

Data, weights, thirds and fronts are those of pretrained.py, whose figures must be there. Of each third's front the most
accurate cut by cross-validation within some MACs is trained on as a search does that; frozen and trained on it answers
the held-back third. One thread. With --tiny pictures and weights are random.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from known_sets import lite
from machine import RESULTS, keep, options, sized
from pretrained import HELD_BACK, METRICS, Labelled, Row, judged, read, summary
from threadpoolctl import threadpool_limits

from alternas.archs.cost import FORWARD_FACTOR
from alternas.archs.cut_network import CutNetwork
from alternas.archs.timm_net import CutNet, cut_cost
from alternas.archs.weights import fill, save
from alternas.search.data.dataset import DataSet, Split
from alternas.search.data.splits import iterative_split
from alternas.search.probe.finetune import Finetuning, answers
from alternas.search.probe.job import MAX_EPOCHS, FinetuneCutJob
from alternas.search.training.loaders import MemoryLoader

WITHIN = {"stamps": sized((2.5e6, 5e6, 8e6, 13e6), (1e9,)), "cells": sized((0.6e6, 2.6e6), (1e9,))}
EPOCHS = sized(MAX_EPOCHS, 1.0)
SIDE = sized(96, 32)  # px that pictures are kept at
WHITE = 255.0
CPU = torch.device("cpu")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=["stamps", "cells"])
    parser.add_argument("--stamps", type=Path, default=Path("/usr/share/tuxpaint/stamps"), help="folder of the stamps")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "pretrained_finetuned.json"
    found = json.loads(file.read_text(encoding="utf-8"))["parts"] if file.exists() else {}
    for name in asked.parts:
        with threadpool_limits(1):
            pictures = read(name, asked.stamps)
            rows = list(finetuned(name, pictures, fronts_of(name, pictures)))
        found[name] = {"epochs": EPOCHS, "means": means(rows), "rows": rows}
        keep("pretrained_finetuned", {"parts": found})


def fronts_of(name: str, pictures: Labelled) -> list[list[Row]]:
    """The fronts that pretrained.py has found without each third; found now where it has not run."""
    file = RESULTS / "pretrained_probe.json"
    probed = json.loads(file.read_text(encoding="utf-8"))["parts"] if file.exists() else {}
    return probed[name]["fronts"] if name in probed else summary(name, list(judged(name, pictures)))["fronts"]


def finetuned(name: str, pictures: Labelled, fronts: list[list[Row]]) -> Iterator[Row]:
    """A row for each number of MACs and held-back third."""
    y_N, x_NCHW = np.array([label for _, label in pictures]), pixels(pictures)
    classes = tuple(map(str, range(y_N.max() + 1)))
    thirds = iterative_split(np.eye(len(classes), dtype=np.uint8)[y_N], (1 / HELD_BACK,) * HELD_BACK)
    for within in WITHIN[name]:
        for third, out in enumerate(thirds):
            rest = np.setdiff1d(np.arange(len(y_N)), out)
            cut = [row for row in fronts[third] if row["macs"] <= within][-1]
            net = CutNet(cut["net"], cut["block"], cut["side"], cut["pooling"])
            parts = [Split(x_NCHW[rows], y_N[rows]) for rows in (rest[:-1], rest[-1:], out)]
            channels = x_NCHW.shape[1]
            data = DataSet(
                name, (SIDE, SIDE), classes, parts[0], parts[1], None, (0.0,) * channels, (WHITE,) * channels, WHITE, ""
            )
            row = {"within": within, "third": third} | {key: cut[key] for key in ("net", "side", "block", "macs")}
            row |= compared(net, data, parts[2], METRICS[name])
            print(row, flush=True)
            yield row


def pixels(pictures: Labelled) -> np.ndarray:
    """x_NCHW, uint8."""
    small = [np.atleast_3d(np.asarray(picture.resize((SIDE, SIDE)))) for picture, _ in pictures]
    return np.ascontiguousarray(np.stack(small).transpose(0, 3, 1, 2))


def compared(net: CutNet, data: DataSet, held_back: Split, metric: Any) -> Row:
    """The score of a cut, frozen and trained on, by cross-validation and on held-back pictures."""
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        for part in ("weights", "checkpoints"):
            (folder / part).mkdir()
        frozen, tuned = folder / "weights" / "frozen.safetensors", folder / "weights" / "tuned.safetensors"
        state = lite(int(net.name[-1]))
        save(CutNetwork(net, len(data.classes), data.in_chans, state), frozen)
        job = FinetuneCutJob(0, net, str(frozen), EPOCHS, str(tuned), str(folder / "checkpoints" / "a.pt"), 0, metric)
        began, finetuning = time.monotonic(), Finetuning(job, MemoryLoader(data, CPU))
        for fold in range(len(finetuning.folds)):
            finetuning.judge(fold)
        result = finetuning.finish()
        start = finetuning.with_head(finetuning.heads[-1])
        after = CutNetwork(net, len(data.classes), data.in_chans)
        fill(after, tuned)
        out = MemoryLoader(replace(data, val=held_back), CPU)
        told = [answers(each.eval(), out) for each in (start, after)]
    scores = [finetuning.score(logits_NK, held_back.y_N) for logits_NK in told]
    return {
        "cv frozen": round(finetuning.score(finetuning.frozen_NK, finetuning.pictures.y), 4),
        "cv": round(result.accuracy or 0.0, 4),
        "held back frozen": round(scores[0], 4),
        "held back": round(scores[1], 4),
        "FLOPs of the folds": FORWARD_FACTOR * cut_cost(net, len(data.classes)).macs * result.how["evaluated"],
        "seconds": round(time.monotonic() - began, 1),
    }


def means(rows: list[Row]) -> list[Row]:
    """Means over the thirds; "kept" is held back, of the better one by cross-validation."""
    found = []
    for within in dict.fromkeys(row["within"] for row in rows):
        own = [row for row in rows if row["within"] == within]
        kept = [row["held back" if row["cv"] > row["cv frozen"] else "held back frozen"] for row in own]
        names = ("cv frozen", "cv", "held back frozen", "held back")
        found.append({"within": within} | {name: round(fmean(row[name] for row in own), 4) for name in names})
        found[-1] |= {"kept": round(fmean(kept), 4)}
    return found


if __name__ == "__main__":
    main()
