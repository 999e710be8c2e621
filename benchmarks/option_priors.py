"""What each option of a modern net is worth beside its cost, as measured on one data set and judged on another.

python benchmarks/option_priors.py [--data cue clutter] [--trials 130] [--epochs 0.5]

Nets of space `modern` up to 3 M MACs are trained, scattered over all combinations (strategy `enumerate`, which no prior
moves). Their accuracies are explained by a parabola in the logarithm of MACs and a term for each option that a net
uses, shrunk by as much as the options differ. A prior is exp(term / SCALE), at least 1/2 and at most 2. Priors of one
data set are judged on the other: the mean accuracy over that of nets of the same cost, drawn by them and evenly.
Searches lie below runs/ and resume.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from machine import keep, options, sized

from alternas.archs import Genotype
from alternas.archs.blocks.spec import BLOCKS
from alternas.results.runs.record import Record
from alternas.results.runs.status import Status
from alternas.results.runs.store import read_records
from alternas.spaces import Genes

GENES = ("conv", "attention", "mlp_ratio", "kernel", "expand", "se")
SCALE = 0.03  # of accuracy
MOST = 2.0  # of a prior; 1 / MOST at least
ROUNDS = 20  # of learning the spreads of options and noise
RESAMPLED = sized(1000, 10)
Options = dict[tuple[str, Any], float]


class Trained(NamedTuple):
    """A net: its accuracy, MACs, genes and the kinds of blocks that it uses."""

    accuracy: float
    macs: float
    genes: Genes
    kinds: tuple[str, ...]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", nargs=2, default=sized(["cue", "clutter"], ["digits", "digits"]))
    parser.add_argument("--trials", type=int, default=sized(130, 6))
    parser.add_argument("--epochs", type=float, default=sized(0.5, 0.2))
    asked = parser.parse_args()
    nets = {data: searched(data, asked.trials, asked.epochs) for data in asked.data}
    worth = {data: worth_of(of) for data, of in nets.items()}
    judged = {b: gain(nets[b], worth[a]) for a, b in (asked.data, asked.data[::-1])}
    names = sorted(set().union(*worth.values()), key=str)
    rows = {}
    for name in names:
        terms = [of.get(name) for of in worth.values()]
        rows[f"{name[0]} {name[1]}"] = {"terms": terms, "prior": prior(statistics.fmean(t or 0.0 for t in terms))}
    keep("option_priors", {"nets": {d: len(of) for d, of in nets.items()}, "options": rows, "judged_on": judged})


def searched(data: str, trials: int, epochs: float) -> list[Trained]:
    """Nets that scatter over the space, trained alone."""
    name = f"options-{data}"
    words = ["modern", "--data", data, "--strategy", "enumerate", "--scheduler", "none", "--max-macs", "3M"]
    words += ["--trials", str(trials), "--epochs", str(epochs), "--workers", "1", "--name", name]
    subprocess.run([sys.executable, "-m", "alternas", "search", *words], check=True, stdout=subprocess.DEVNULL)
    return [trained(r) for r in read_records(Path("runs") / name) if r.kind == "search" and r.status == Status.OK]


def trained(record: Record) -> Trained:
    stages = Genotype.from_dict(record.genotype).stages
    convs = {stage.block for stage in stages if stage.depth > len(stage.places)}
    attentions = {stage.attention for stage in stages if stage.msa}
    assert record.accuracy is not None
    return Trained(record.accuracy, record.cost["macs"], record.genes, (*convs, *attentions))


def used(net: Trained) -> set[tuple[str, Any]]:
    """The options that a net's blocks have."""
    found = set()
    for gene in GENES:
        value = net.genes[gene]
        if gene in ("conv", "attention"):
            does = value in net.kinds or (value == "residual" and "basic" in net.kinds)
        elif gene == "mlp_ratio":
            does = any(BLOCKS[kind].has_mlp for kind in net.kinds)
        else:
            does = any(gene in BLOCKS[kind].options for kind in net.kinds)
        if does:
            found.add((gene, value))
    return found


def curve(nets: list[Trained]) -> np.ndarray:
    """A parabola's columns over the logarithm of MACs."""
    x = np.log([net.macs for net in nets]) - math.log(1e6)
    return np.stack([np.ones_like(x), x, x**2], 1)


def worth_of(nets: list[Trained]) -> Options:
    """Accuracy by option, at equal cost: ridge regression whose penalty is learned (empirical Bayes)."""
    names = sorted(set().union(*map(used, nets)), key=str)
    terms = np.array([[name in used(net) for name in names] for net in nets], float)
    columns, y = np.concatenate([curve(nets), terms], 1), np.array([net.accuracy for net in nets])
    noise, spread, fitted = 0.05**2, 0.03**2, np.zeros(0)
    for _ in range(ROUNDS):
        penalty = np.diag([0.0] * 3 + [noise / spread] * len(names))
        inverse = np.linalg.inv(columns.T @ columns + penalty)
        fitted = inverse @ columns.T @ y
        freedom = np.trace(inverse @ columns.T @ columns)
        noise = float(np.sum((y - columns @ fitted) ** 2) / max(1.0, len(y) - freedom))
        spread = max(1e-6, float(np.mean(fitted[3:] ** 2 + noise * np.diag(inverse)[3:])))
    return dict(zip(names, map(float, fitted[3:]), strict=True))


def prior(term: float) -> float:
    return round(min(MOST, max(1 / MOST, math.exp(term / SCALE))), 2)


def gain(nets: list[Trained], worth: Options) -> dict[str, float]:
    """Accuracy above nets of equal cost, of nets drawn by priors from elsewhere; with the 90 % interval."""
    y = np.array([net.accuracy for net in nets])
    over = y - curve(nets) @ np.linalg.lstsq(curve(nets), y, rcond=None)[0]
    weights = np.array([math.prod(prior(worth.get(o, 0.0)) for o in used(net)) for net in nets])
    draw, means = random.Random(0), []
    for _ in range(RESAMPLED):
        at = draw.choices(range(len(nets)), k=len(nets))
        means.append(float(np.average(over[at], weights=weights[at]) - over[at].mean()))
    low, high = np.quantile(means, [0.05, 0.95])
    mean = float(np.average(over, weights=weights) - over.mean())
    return {"gain": mean, "low": float(low), "high": float(high), "spread": float(over.std())}


if __name__ == "__main__":
    main()
