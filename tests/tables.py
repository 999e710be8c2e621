"""A table as somebody else would bring it: a few unordered and ordered genes, costs, accuracies by seed and step."""

import itertools
import random
from pathlib import Path
from typing import Any

import pandas as pd

OPS = ("conv3", "conv1", "pool", "skip")
STEPS = (3, 12, 25, 50, 100)
SEEDS = (777, 888)


def cells(missing: float = 0.3, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of 2 x 4 operators at 4 depths, of which a share is missing."""
    draw, rows = random.Random(seed), list[dict[str, Any]]()
    for first, second, depth in itertools.product(OPS, OPS, (1, 2, 4, 8)):
        if draw.random() < missing:
            continue
        macs = depth * (1.5 + OPS[::-1].index(first) + 0.5 * OPS.index(second))
        final = 0.5 + 0.1 * depth**0.5 + 0.05 * (first == "conv3") - 0.08 * (second == "skip") + 0.02 * draw.random()
        for training in SEEDS:
            last = final + draw.gauss(0, 0.005)
            for step in STEPS:
                rows.append({
                    "gene_first": first, "gene_second": second, "gene_depth": depth, "macs": macs,
                    "params": 100 * depth * (1 + (first == "conv3")), "latency_ms": 1 + 0.1 * macs**0.5,
                    "seed": training, "step": step, "accuracy": last * (0.4 + 0.6 * (step / 100) ** 0.5),
                    "seconds": macs * step, "note": "text",
                })  # fmt: skip
    return rows


def write(rows: list[dict[str, Any]], path: Path) -> Path:
    pd.DataFrame(rows).to_parquet(path)
    return path
