"""The order in which pretrained nets are probed, on timm's published results: nets until most of a front is known.

    python benchmarks/probe_order.py --table timm_results.parquet

The table has a row for each net of timm and image side: model, side, gmacs, imagenet (top-1), and accuracies on other
sets: real, v2, a (adversarial), sketch. A row stands for a probe that gives one point; the target is the front on one
of those sets, and the order knows ImageNet's accuracy alone. Hypervolume is the mean height of the front over log10 of
0.02 to 100 G MACs. Six seeds: the whole table, then five halves of it drawn at random. Beside it: the nets in the order
in which they add most by their ImageNet accuracy, the best order, random ones, and ours without published accuracies.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import timm
from machine import TINY, keep, options, sized

from alternas.archs.timm.models import config_of
from alternas.search.strategies.probe_order import CELLS, ProbeOrder, ProbePair, steps

TARGETS = sized(("real", "v2", "a", "sketch"), ("sketch",))
SEEDS, RANDOM_ORDERS, MAX_NETS = sized(6, 2), sized(20, 2), sized(30, 6)
LOW, HIGH = 0.02e9, 100e9
SHARES = (0.90, 0.95)
ORDER = ProbeOrder(by_compute=False, low=LOW, high=HIGH, patience=0)


class Task:
    """Rows of the table as probes of one target set."""

    def __init__(self, table: pd.DataFrame, target: str) -> None:
        self.pairs = [as_pair(row) for row in table.itertuples()]
        self.scores = dict(zip(self.pairs, table[target] / 100, strict=True))
        edges = np.linspace(np.log10(LOW), np.log10(HIGH), CELLS)
        places = np.log10([[pair.macs] for pair in self.pairs])
        self.by_published = steps(places, np.array([[pair.published] for pair in self.pairs]), edges)
        self.by_score = steps(places, np.array([[self.scores[pair]] for pair in self.pairs]), edges)

    def nets_until(self, order: Iterator[int]) -> list[int | None]:
        """How many nets of an order reach each of `SHARES` of the hypervolume of all; None if it ends before."""
        whole, front, counts = self.by_score.max(0).mean(), np.zeros(CELLS), []
        for count, at in enumerate(order, 1):
            front = np.maximum(front, self.by_score[at])
            while len(counts) < len(SHARES) and front.mean() >= SHARES[len(counts)] * whole:
                counts.append(count)
            if len(counts) == len(SHARES):
                break
        return counts + [None] * (len(SHARES) - len(counts))

    def ours(self, published: bool) -> Iterator[int]:
        pairs = self.pairs if published else [replace(pair, published=None) for pair in self.pairs]
        history: list[tuple[ProbePair, list[tuple[float, float]]]] = []
        for _ in range(MAX_NETS):
            pair = ORDER.ask(pairs, history)
            assert pair is not None
            at = pairs.index(pair)
            history.append((pair, [(pair.macs, float(self.scores[self.pairs[at]]))]))
            yield at

    @staticmethod
    def greedy(heights: np.ndarray) -> Iterator[int]:
        """Rows in the order in which they add most area below these heights."""
        front = np.zeros(CELLS)
        for _ in range(MAX_NETS):
            at = int(np.maximum(heights, front).mean(1).argmax())
            front = np.maximum(front, heights[at])
            yield at

    def random(self, seed: int) -> Iterator[int]:
        return iter(np.random.default_rng(seed).permutation(len(self.pairs)).tolist())


def as_pair(row: Any) -> ProbePair:
    family = re.split(r"[_.\d]", row.model.removeprefix("tf_"), maxsplit=1)[0]
    own_side = config_of(row.model).input_size[-1]
    return ProbePair(row.model, int(row.side), row.gmacs * 1e9, row.imagenet / 100, family, own_side)


def made_up() -> pd.DataFrame:
    draw, names = np.random.default_rng(0), timm.list_pretrained()[::40]
    gmacs = 10 ** draw.uniform(-1.5, 2, len(names))
    top1 = 60 + 8 * np.log10(gmacs) + draw.normal(0, 3, len(names))
    return pd.DataFrame({"model": names, "side": 224, "gmacs": gmacs, "imagenet": top1, "sketch": top1 - 30})


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--table", type=Path, required=not TINY)
    table = made_up() if TINY else pd.read_parquet(parser.parse_args().table)
    figures: dict[str, Any] = {"rows": len(table), "shares": SHARES}
    for target in TARGETS:
        halves = [table.sample(frac=0.5, random_state=seed) for seed in range(1, SEEDS)]
        tasks = [Task(rows, target) for rows in (table, *halves)]
        ways: dict[str, Callable[[Task], Iterator[int]]] = {
            "ours": lambda task: task.ours(True),
            "ours without published accuracy": lambda task: task.ours(False),
            "by published accuracy": lambda task: task.greedy(task.by_published),
            "best": lambda task: task.greedy(task.by_score),
        }
        found: dict[str, Any] = {way: [task.nets_until(order(task)) for task in tasks] for way, order in ways.items()}
        counts = [tasks[0].nets_until(tasks[0].random(seed)) for seed in range(RANDOM_ORDERS)]
        found["random, median"] = [statistics.median([c[i] or len(table) for c in counts]) for i in range(len(SHARES))]
        figures[target] = found
        print(target, found, flush=True)
    keep("probe_order", figures)


if __name__ == "__main__":
    main()
