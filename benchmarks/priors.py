"""Leave one table out: which priors of the surrogate would the other tables choose, and what are they worth on it?

python benchmarks/priors.py [--draws 4]

On each published table the surrogate learns from a few nets, drawn at random, and predicts the others: the mean log
density of their accuracies, counted over the better 70 % and in units of the spread of these. Each alternative differs
from the surrogate as it is in one constant. One table after the other is left out: the alternative that is best on
all others is judged on it, beside what is built in and beside the best for it.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
from machine import RESULTS, machine, options, sized
from scipy.stats import norm

from alternas.search.samplers import surrogate
from alternas.search.samplers.learning_curves import LearningCurves
from alternas.search.samplers.sampler_context import Observation, SamplerContext
from alternas.search.samplers.surrogate import Net, Surrogate
from alternas.search.tabular.benchmark_table import TabularBenchmark
from alternas.search.tabular.published import TABLES, load_table
from alternas.search.tabular.simulated import SearcherConfig, controller_on
from alternas.spaces import options_of

BUILT_IN = "as built in"
ALTERNATIVES: dict[str, tuple[str, Any]] = {
    "costs less relevant": ("COST_PRIOR", (-3.0, 1.0)),
    "costs more relevant": ("COST_PRIOR", (-1.0, 1.0)),
    "genes less relevant": ("GENE_PRIOR", (-2.5, 1.5)),
    "genes more relevant": ("GENE_PRIOR", (-0.5, 1.5)),
    "traits less relevant": ("TRAITS_PRIOR", (-1.0, 1.0)),
    "traits more relevant": ("TRAITS_PRIOR", (1.0, 1.0)),
    "less noise": ("NOISE_PRIOR", (-3.0, 1.0)),
    "more noise": ("NOISE_PRIOR", (-1.0, 1.0)),
    "gaps cut at 2": ("LARGEST_GAP", 2.0),
    "gaps cut at 4": ("LARGEST_GAP", 4.0),
    "gaps not cut": ("LARGEST_GAP", 1e9),
}
LEARNED_FROM = sized((16, 48, 96), (8,))
PREDICTED = 400  # nets at most
COUNTED = 0.7  # of them, the better ones


def nets_of(table: TabularBenchmark, context: SamplerContext, draw: random.Random) -> list[Net]:
    """Different nets of a table, drawn at random: all, or as many as are learned from and predicted."""
    found: dict[str, Net] = {}
    while len(found) < min(len(table.entries), max(LEARNED_FROM) + PREDICTED):
        genes = context.random_genes(draw)
        net = Net(genes, context.features_of(genes))
        if table.has(net.features.net):
            found.setdefault(net.features.net.key.partition(".")[0], net)
    return list(found.values())


def log_density(
    table: TabularBenchmark, context: SamplerContext, nets: list[Net], learned_from: int, seed: int
) -> float:
    """Of the better nets' accuracies, as predicted from the first ones."""
    known, asked = nets[:learned_from], nets[learned_from:]
    accuracies = [table.entry(net.features.net.key).drawn(net.features.net.key, seed).accuracies[-1] for net in known]
    observations = [Observation(i, *net, a) for i, (net, a) in enumerate(zip(known, accuracies, strict=True))]
    model = Surrogate(options_of(table.space))
    model.condition(observations, [], LearningCurves(context.features_of, learned_from))
    truth = np.array([table.entry(net.features.net.key).accuracy for net in asked])
    better = truth >= np.quantile(truth, 1 - COUNTED)
    mean, sd = (values[better] for values in model.predict(asked))
    spread = truth[better].std()
    return float(norm.logpdf(truth[better], mean, np.hypot(sd, 0.05 * spread)).mean() + np.log(spread))


def densities(tables: list[str], draws: int) -> dict[str, dict[str, float]]:
    """By alternative and table."""
    found: dict[str, dict[str, float]] = {}
    for name in tables:
        table = load_table(name)
        context = controller_on(table, SearcherConfig("evolution"), 0).context.sampler_context()
        drawn = {seed: nets_of(table, context, random.Random(seed)) for seed in range(draws)}
        for alternative, (constant, value) in {BUILT_IN: ("COSTS", surrogate.COSTS), **ALTERNATIVES}.items():
            kept = getattr(surrogate, constant)
            setattr(surrogate, constant, value)
            values = [
                log_density(table, context, nets, count, seed) for count in LEARNED_FROM for seed, nets in drawn.items()
            ]
            setattr(surrogate, constant, kept)
            found.setdefault(alternative, {})[name] = float(np.mean(values))
        print(name, {alternative: round(of[name], 2) for alternative, of in found.items()}, flush=True)
    return found


def leave_one_out(found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """For each table the alternative that the others choose, and what it is worth there."""
    rows = []
    for name in found[BUILT_IN]:
        others = {alternative: sum(of.values()) - of[name] for alternative, of in found.items()}
        chosen, best = max(others, key=others.__getitem__), max(found, key=lambda alternative: found[alternative][name])
        worth = {"chosen": found[chosen][name], "built_in": found[BUILT_IN][name], "best": found[best][name]}
        rows.append({"table": name, "others_choose": chosen, "best_here": best, **worth})
    return rows


def main() -> None:
    parser = options(__doc__)
    whole = [name for name in TABLES if name != "cue-short"]
    parser.add_argument("tables", nargs="*", default=sized(whole, ["clutter", "alike"]))
    parser.add_argument("--draws", type=int, default=sized(4, 1))
    asked = parser.parse_args()
    found = densities(asked.tables, asked.draws)
    left_out = leave_one_out(found)
    for row in left_out:
        print(" ".join(f"{name} {value if isinstance(value, str) else round(value, 2)}" for name, value in row.items()))
    figures = {"log_density": found, "left_out": left_out, "machine": machine()}
    (RESULTS / "priors.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
