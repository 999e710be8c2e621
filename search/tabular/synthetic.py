"""Made-up landscapes, unlike our own tables: what they are is known, so their best nets are known too.

Each is a function of the genes, drawn from a seed; all nets that differ in it are gone through to find the front.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from scipy.special import ndtr

from ...spaces import Gene
from .benchmark_table import Entry, TabularBenchmark, Training
from .table_space import TableSpace, entry_key

STEPS = 16
READ = (2, 4, 8, 16)
SEEDS = 3
NOISE = 0.004  # of a training, in accuracy
LOWEST, HIGHEST = 0.6, 0.95  # accuracies


def cells() -> TabularBenchmark:
    """Six unordered genes of five operators, as in cell-based spaces; cost explains half of the accuracy."""
    draw, operators = np.random.default_rng(0), ("none", "skip", "pool", "conv1", "conv3")
    codes = _combinations([5] * 6)
    costs = 5 + np.array([0.0, 0.0, 1.0, 4.0, 20.0])[codes].sum(axis=1)
    worth = _scaled(np.log(costs)) + _scaled(_effects(codes, draw) + 0.5 * _pairs(codes, draw))
    return _table("cells", {f"gene_edge{i}": operators for i in range(6)}, codes, costs, worth, draw)


def fifty() -> TabularBenchmark:
    """Fifty ordered genes of four numbers: three set the cost and some of the accuracy, three accuracy alone."""
    draw = np.random.default_rng(1)
    codes = _combinations([4] * 6)
    costs = 2.0 ** codes[:, :3].sum(axis=1) * (1 + 0.1 * codes[:, 0])
    peaks = draw.integers(4, size=3)
    worth = _scaled(np.log(costs)) + _scaled(-(np.abs(codes[:, 3:] - peaks) ** 1.5).sum(axis=1))
    options = {f"gene_{i:02}": (1, 2, 3, 4) for i in range(50)}
    return _table("fifty", options, codes, costs, worth, draw, tuple(f"gene_{i:02}" for i in range(4, 50, 8)))


def unrelated() -> TabularBenchmark:
    """Three ordered and three unordered genes; what a net costs says nothing about its accuracy."""
    draw, kinds = np.random.default_rng(2), ("a", "b", "c", "d")
    codes = _combinations([5, 5, 5, 4, 4, 4])
    costs = 10 ** (0.5 * _scaled(_effects(codes, draw)))
    worth = _scaled(np.sin(codes[:, :3] @ draw.uniform(0.3, 0.8, 3)) + _effects(codes, draw) + _pairs(codes, draw))
    worth = _scaled(worth - np.polyval(np.polyfit(np.log(costs), worth, 1), np.log(costs)))
    options: dict[str, tuple[Gene, ...]] = {f"gene_size{i}": (1, 2, 4, 8, 16) for i in range(3)}
    options |= {f"gene_kind{i}": kinds for i in range(3)}
    return _table("unrelated", options, codes, costs, worth, draw)


def _combinations(counts: Sequence[int]) -> np.ndarray:
    """All combinations of so many options of each gene, as places of the options."""
    return np.array(list(product(*map(range, counts))))


def _scaled(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def _effects(codes: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A normal effect of each option of each gene, added up."""
    return sum((draw.normal(size=codes.max() + 1)[column] for column in codes.T), np.zeros(len(codes)))


def _pairs(codes: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A normal effect of each pair of options of two genes that follow each other, added up."""
    side, total = codes.max() + 1, np.zeros(len(codes))
    for one, other in zip(codes.T, codes.T[1:], strict=False):
        total += draw.normal(size=(side, side))[one, other]
    return total


def _table(
    name: str,
    options: Mapping[str, tuple[Gene, ...]],
    codes: np.ndarray,
    costs: np.ndarray,
    worth: np.ndarray,
    draw: np.random.Generator,
    matter: Sequence[str] = (),
) -> TabularBenchmark:
    """The table of all nets: `worth` becomes an accuracy that saturates; slow learners are those that end high."""
    matter = matter or tuple(options)
    rows = [tuple(options[gene][at] for gene, at in zip(matter, code, strict=True)) for code in codes.tolist()]
    space = TableSpace(name, options, (), matter)
    final = LOWEST + (HIGHEST - LOWEST) * ndtr(0.7 * _scaled(worth))
    rate = np.clip(0.15 + 0.04 * _scaled(worth) + 0.03 * draw.normal(size=len(final)), 0.02, None)
    shares = np.array(READ) / STEPS
    curves = final[:, None, None] * shares ** rate[:, None, None] + NOISE * draw.normal(size=(len(final), SEEDS, 1))
    curves = np.clip(curves + NOISE * draw.normal(size=curves.shape) * (shares < 1), 0, 1)
    entries = {}
    for row, cost, curve in zip(rows, costs.tolist(), curves.tolist(), strict=True):
        trainings = {seed: Training(READ, tuple(read), cost) for seed, read in enumerate(curve)}
        entries[entry_key(row)] = Entry({"macs": cost, "params": cost**0.8}, trainings)
    return TabularBenchmark(name, space, entries, STEPS, LOWEST)
