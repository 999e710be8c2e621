"""How well each cheap signal of an untrained net ranks the nets of the bench's table, beside plain MACs and params.

python benchmarks/signals.py [--data cue]

Spearman's rank correlation with the accuracy at the end (mean over seeds): over all nets, within each family, and
within the better half; with 95 % intervals over resampled nets. `beyond_macs` is the partial correlation, MACs held:
what a signal adds to what a net's price says already. Writes results/signals.json.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from machine import keep, options, sized
from scipy.stats import rankdata

from alternas.search.bench.table import IMAGE_SIZE, Entry, load_table
from alternas.search.training.job import SIGNALS
from alternas.spaces import get, members

RESAMPLES = sized(1_000, 5)
COSTS = ("macs", "params")
EPSILON = 1e-9


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1]) if np.ptp(a) and np.ptp(b) else 0.0


def partial(a: np.ndarray, b: np.ndarray, held: np.ndarray) -> float:
    """Spearman's of a and b, with what the ranks of `held` explain of both taken out."""
    ab, ah, bh = spearman(a, b), spearman(a, held), spearman(b, held)
    rest = (1 - ah**2) * (1 - bh**2)
    return (ab - ah * bh) / rest**0.5 if rest > EPSILON else 0.0


def interval(a: np.ndarray, b: np.ndarray, held: np.ndarray) -> dict[str, float]:
    """The correlation, where 95 % of those over resampled nets lie, and what is left beyond `held`."""
    draw = np.random.default_rng(0)
    found = [spearman(a[at], b[at]) for at in draw.integers(0, len(a), (RESAMPLES, len(a)))]
    low, high = map(float, np.quantile(found, (0.025, 0.975)))
    return {"rank_correlation": spearman(a, b), "low": low, "high": high, "beyond_macs": partial(a, b, held)}


def value(entry: Entry, name: str) -> float:
    return entry.costs[name] if name in COSTS else entry.signals[name]


def figures(data: str) -> dict[str, Any]:
    """By group of nets, by signal."""
    family = {net.key: net.family for _, net in members(get("bench", IMAGE_SIZE))}
    entries = load_table(data).entries
    middle = float(np.median([entry.accuracy for entry in entries.values()]))
    groups = {"all": list(entries.items())}
    groups |= {name: [(k, e) for k, e in entries.items() if family[k] == name] for name in sorted(set(family.values()))}
    groups["better half"] = [(k, e) for k, e in entries.items() if e.accuracy >= middle]
    found: dict[str, Any] = {}
    for group, nets in groups.items():
        accuracy = np.array([entry.accuracy for _, entry in nets])
        by = {s: np.array([value(entry, s) for _, entry in nets]) for s in (*COSTS, *SIGNALS)}
        found[group] = {"nets": len(nets)} | {
            name: interval(values, accuracy, by["macs"]) for name, values in by.items()
        }
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", nargs="+", default=["cue"])
    keep("signals", {data: figures(data) for data in parser.parse_args().data})


if __name__ == "__main__":
    main()
