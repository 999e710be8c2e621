"""Other ways to find cuts of pretrained nets, by the same forward FLOPs: Optuna's samplers, NePS, whole nets, LogME.

    python benchmarks/probe_rivals.py [stamps cells] [--stamps /usr/share/tuxpaint/stamps]

Pictures, weights and held-back thirds are those of pretrained.py, every cut with its map's mean over places. A probe of
alternas judges all cuts of a net at one image side by one forward pass, and its order says which comes next. By hand a
trial of Optuna's judges one cut, for the FLOPs up to it: net and side by name, the depth as a share. Who tries whole
nets begins with the best published accuracy at the largest side. All judge by the same cross-validation, and stop where
the FLOPs are spent that alternas's search takes. What counts is the hypervolume (mean held-back score over log MACs of
what cross-validation picks) over three thirds and the seeds. LogME (You et al., ICML 2021) scores features without a
classifier: by how well it ranks all cuts. With --tiny pictures and weights are random. NePS takes its own environment,
for its networkx and pandas are older than ours: `pip install neural-pipeline-search`; without it its row is left out.
"""

import math
import random
from argparse import Namespace
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import optuna
import torch
from machine import keep, options, sized
from pretrained import HELD_BACK, METRICS, NETS, SIDES, batches, lite, rank_correlation, read
from threadpoolctl import threadpool_limits

from alternas.archs.cost import FORWARD_FACTOR
from alternas.archs.cut_network import cut_trunk
from alternas.archs.timm.cut_points import trunk_costs
from alternas.search.data.splits import iterative_split
from alternas.search.probe.crossval import cross_validate, labelled
from alternas.search.probe.probe import FeatureMatrix, score_of
from alternas.search.strategies.probe_order import ProbeOrder, ProbePair

SEEDS = sized(range(10, 16), range(10, 11))
MAX_TRIALS = sized(100, 5)  # of a sampler, many of which it has judged before
PUBLISHED = {0: 0.7485, 1: 0.7667, 2: 0.7747}  # timm's top-1 on ImageNet at their own sides of 224, 240 and 260 px
OWN_SIDE = {0: 224, 1: 240, 2: 260}
CELLS = 240
Row = dict[str, Any]
Table = dict[tuple[int, int, int], Row]  # by net, side and block
Chosen = list[Row]
Proposals = Generator[tuple[int, int, float], tuple[float, float], None]  # net, side, depth; score, log MACs


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sets", nargs="*", default=["stamps", "cells"])
    parser.add_argument("--stamps", type=Path, default=Path("/usr/share/tuxpaint/stamps"), help="folder of the stamps")
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with threadpool_limits(1):
        keep("probe_rivals", {name: compared(name, asked) for name in asked.sets})


def compared(name: str, asked: Namespace) -> Row:
    """Hypervolumes of each way, and rank correlations of LogME and of cross-validation with held-back scores."""
    found: dict[str, list[float]] = {}
    ranks: dict[str, list[float]] = {"LogME": [], "cross-validation": []}
    spent = list[float]()
    for table in tables(name, asked.stamps):
        rows = [*table.values()]
        ranks["LogME"].append(rank_correlation([[row["logme"], row["held back"]] for row in rows]))
        ranks["cross-validation"].append(rank_correlation([[row["cv"], row["held back"]] for row in rows]))
        own, flops = by_probes(table)
        spent.append(flops)
        found.setdefault("alternas", []).append(volume(own, table))
        found.setdefault("all cuts", []).append(volume(rows, table))
        found.setdefault("whole nets", []).append(volume(whole_nets(table, flops), table))
        nets, sides = (sorted({key[at] for key in table}) for at in (0, 1))
        for way, make in SAMPLERS.items():
            tried = [by_hand(table, make(seed, nets, sides), flops) for seed in SEEDS]
            found.setdefault(way, []).extend(volume(chosen, table) for chosen in tried)
    return {
        "FLOPs": [round(flops) for flops in spent],
        "hypervolume": {way: round(fmean(values), 4) for way, values in found.items()},
        "each": {way: [round(value, 4) for value in values] for way, values in found.items()},
        "rank correlation": {way: [round(value, 3) for value in values] for way, values in ranks.items()},
    }


def tables(name: str, folder: Path) -> Iterator[Table]:
    """All cuts, judged without each third in turn."""
    pictures = read(name, folder)
    y_N, metric = np.array([label for _, label in pictures]), METRICS[name]
    classes = list(map(str, range(y_N.max() + 1)))
    matrices = dict[tuple[int, int], FeatureMatrix]()
    for number in NETS[name]:
        for side in SIDES[name]:
            trunk = cut_trunk(f"tf_efficientnet_lite{number}", side, lite(number))
            matrices[number, side] = FeatureMatrix(len(y_N), Path("none"))
            matrices[number, side].fill(trunk, batches(pictures, side))
    for out in iterative_split(np.eye(len(classes), dtype=np.uint8)[y_N], (1 / HELD_BACK,) * HELD_BACK):
        rest, table = np.setdiff1d(np.arange(len(y_N)), out), Table()
        known, once = labelled(y_N[rest], len(classes)), FORWARD_FACTOR * len(rest)  # FLOPs of a MAC in a forward pass
        for (number, side), matrix in matrices.items():
            costs = trunk_costs(f"tf_efficientnet_lite{number}", side)
            for block in range(matrix.blocks):
                columns = matrix.columns(block, "mean")
                assert columns is not None
                made = cross_validate(columns[rest], known, metric.name == "balanced_accuracy")
                told, _ = score_of(made.logits_NK, y_N[rest], metric, classes)
                held, _ = score_of(made.head.logits(columns, out).astype(np.float32), y_N[out], metric, classes)
                macs = costs[block][1] + columns.shape[1] * len(classes)
                table[number, side, block] = {
                    "cv": told, "held back": held, "macs": float(macs), "flops": once * costs[block][1],
                    "logme": logme(columns[rest], y_N[rest]),
                }  # fmt: skip
        yield table


def by_probes(table: Table) -> tuple[Chosen, float]:
    """The cuts that alternas's order judges, and the FLOPs of its probes."""
    pairs = {
        ProbePair(f"lite{n}", side, of_pair(table, n, side)[-1]["macs"], PUBLISHED[n], "lite", OWN_SIDE[n]): (n, side)
        for n, side in sorted({key[:2] for key in table})
    }
    history, chosen, flops = list[Any](), Chosen(), 0.0
    while pair := ProbeOrder().ask([*pairs], history):
        rows = of_pair(table, *pairs[pair])
        history.append((pair, [(row["macs"], row["cv"]) for row in rows]))
        chosen, flops = chosen + rows, flops + rows[-1]["flops"]
    return chosen, flops


def of_pair(table: Table, number: int, side: int) -> Chosen:
    """The cuts of a net at a side, the first block's first."""
    return [row for key, row in table.items() if key[:2] == (number, side)]


def by_hand(table: Table, proposals: Proposals, flops: float) -> Chosen:
    """The cuts that a sampler judges; those that it has judged before cost nothing."""
    judged = dict[tuple[int, int, int], Row]()
    number, side, depth = next(proposals)
    for _ in range(MAX_TRIALS):
        blocks = len(of_pair(table, number, side))
        key = number, side, min(blocks - 1, int(blocks * depth))
        row = table[key]
        if key not in judged and row["flops"] > flops:
            break
        flops -= 0 if key in judged else row["flops"]
        judged[key] = row
        number, side, depth = proposals.send((row["cv"], math.log10(row["macs"])))
    return [*judged.values()]


def by_optuna(sampler: optuna.samplers.BaseSampler, nets: list[int], sides: list[int]) -> Proposals:
    """What a study of two directions asks for."""
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    while True:
        trial = study.ask()
        net, side = trial.suggest_categorical("net", nets), trial.suggest_categorical("side", sides)
        study.tell(trial, (yield net, side, trial.suggest_float("depth", 0, 1)))


def by_neps(seed: int, nets: list[int], sides: list[int]) -> Proposals:
    """What NePS takes by itself for three hyperparameters asks for: Bayesian optimisation, here of two objectives."""
    import neps  # pyright: ignore[reportMissingImports]
    from neps.optimizers.algorithms import bayesian_optimization  # pyright: ignore[reportMissingImports]

    for seeded in (torch.manual_seed, np.random.seed, random.seed):
        seeded(seed)
    genes: dict[str, Any] = {
        name: neps.HPOCategorical(choices) if len(choices) > 1 else neps.HPOConstant(choices[0])
        for name, choices in {"net": nets, "side": sides}.items()
    }
    space = neps.SearchSpace(genes | {"depth": neps.HPOFloat(0, 1)})
    chooser = neps.AskAndTell(bayesian_optimization(space))
    while True:
        trial = chooser.ask()
        score, cost = yield trial.config["net"], trial.config["side"], trial.config["depth"]
        chooser.tell(trial, {"objective_to_minimize": [1 - score, cost]})


def whole_nets(table: Table, flops: float) -> Chosen:
    """Whole nets, the most accurate by published figures first, at the largest side first."""
    chosen = Chosen()
    for number, side in sorted({key[:2] for key in table}, key=lambda pair: (-pair[1], -PUBLISHED[pair[0]])):
        row = of_pair(table, number, side)[-1]
        if row["flops"] <= flops:
            chosen, flops = [*chosen, row], flops - row["flops"]
    return chosen


def volume(chosen: Sequence[Row], table: Table) -> float:
    """Mean over log MACs of the held-back score of what cross-validation picks among the chosen within so many."""
    every = [math.log10(row["macs"]) for row in table.values()]
    edges = np.linspace(min(every), max(every), CELLS)
    front = Chosen()
    for row in sorted(chosen, key=lambda row: (row["macs"], -row["cv"])):
        if not front or row["cv"] > front[-1]["cv"]:
            front.append(row)
    held = [[row["held back"] for row in front if math.log10(row["macs"]) <= edge + 1e-9] for edge in edges]
    return fmean(scores[-1] if scores else 0.0 for scores in held)


def logme(f_NF: np.ndarray, y_N: np.ndarray) -> float:
    """Log evidence of linear models of the classes, a picture and class, maximised over both precisions."""
    turn_NR, size_R, _ = np.linalg.svd(f_NF.astype(np.float64), full_matrices=False)
    square_R, (pictures, features) = size_R**2, f_NF.shape
    total = 0.0
    for label in np.unique(y_N):
        t_N = (y_N == label).astype(float)
        along_R = (turn_NR.T @ t_N) ** 2
        alpha = beta = 1.0
        error = length = 0.0
        for _ in range(100):
            ratio = alpha / beta
            used = float((square_R / (square_R + ratio)).sum())
            length = float((square_R * along_R / (square_R + ratio) ** 2).sum())
            error = float((along_R / (1 + square_R / ratio) ** 2).sum() + t_N @ t_N - along_R.sum())
            alpha, beta = used / max(length, 1e-12), (pictures - used) / max(error, 1e-12)
            if abs(alpha / beta - ratio) <= 1e-3 * ratio:
                break
        spread = np.log(alpha + beta * square_R).sum() + (features - len(square_R)) * math.log(alpha)
        fit = features * math.log(alpha) + pictures * math.log(beta / (2 * math.pi)) - spread
        total += (fit - beta * error - alpha * length) / (2 * pictures)
    return total / len(np.unique(y_N))


SAMPLERS: dict[str, Callable[[int, list[int], list[int]], Proposals]] = {
    "GPSampler": lambda seed, *of: by_optuna(optuna.samplers.GPSampler(seed=seed), *of),
    "TPE": lambda seed, *of: by_optuna(optuna.samplers.TPESampler(seed=seed, multivariate=True), *of),
    "NSGA-II": lambda seed, *of: by_optuna(optuna.samplers.NSGAIISampler(seed=seed, population_size=20), *of),
    "random": lambda seed, *of: by_optuna(optuna.samplers.RandomSampler(seed=seed), *of),
} | ({"NePS": by_neps} if find_spec("neps") else {})


if __name__ == "__main__":
    main()
