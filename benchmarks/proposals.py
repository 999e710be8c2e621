"""The time a strategy takes to propose a net, with so many trials finished; and that of ranking 10,000 points.

python benchmarks/proposals.py [--space all] [--trials 1000 10000]

The sampler's own time: `sample_relative` and `ready` alone, the study in memory; what Optuna takes comes
on top.
"""

from __future__ import annotations

import random
import time
from typing import Any

import optuna
from machine import keep, options, sized, summary
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState, create_trial

from alternas.archs import Genotype, static_cost
from alternas.results.ranking.pareto import pareto_ranks
from alternas.search.samplers.random import TrialChooser
from alternas.search.samplers.registry import STRATEGIES, sampler
from alternas.search.samplers.sampler_context import NetCosts, SamplerContext
from alternas.spaces import RandomChooser, RecordingChooser, Space, get, options_of

SIDE, PROPOSALS, POINTS = 32, sized(21, 3), sized(10_000, 100)


def price(net: Genotype) -> NetCosts:
    cost = static_cost(net, 10, SIDE)
    return NetCosts(cost.macs, cost.params, cost.macs)


def study_of(space: Space, trials: int) -> optuna.Study:
    """A study with so many random nets, trained in fancy."""
    study, draw = optuna.create_study(directions=["maximize", "minimize"]), random.Random(0)
    options = options_of(space)
    distributions: Any = {name: CategoricalDistribution(choices) for name, choices in options.items()}
    found = []
    for number in range(trials):
        memo = RecordingChooser(RandomChooser(number))
        net = space.sample(memo)
        values = [fancied(net) + draw.gauss(0, 0.01), price(net).objective]
        found.append(
            create_trial(
                state=TrialState.COMPLETE, values=values, params=memo.genes, distributions=distributions,
                user_attrs={"key": net.key},
            )
        )  # fmt: skip
    study.add_trials(found)
    return study


def fancied(net: Genotype) -> float:
    return 1 - 30 / price(net).objective ** 0.5 / (1.3 if net.family == "alternet" else 1.0)


def propose(strategy: str, space: Space, trials: int) -> dict[str, Any]:
    """Milliseconds of the first proposal, which reads all trials, and of those that follow."""
    study = study_of(space, trials)
    chosen: Any = sampler(strategy, SamplerContext(space, 0, price))
    study.sampler = chosen
    own, sample_relative = [], chosen.sample_relative

    def timed(*of: Any) -> Any:
        begin = time.perf_counter()
        if hasattr(chosen, "ready"):
            chosen.ready(study)
        found = sample_relative(*of)
        own.append(1e3 * (time.perf_counter() - begin))
        return found

    chosen.sample_relative = timed
    for _ in range(PROPOSALS):
        trial = study.ask()
        net = space.sample(RecordingChooser(TrialChooser(trial)))
        trial.set_user_attr("key", net.key)
        study.tell(trial, [fancied(net), price(net).objective])
    return {"first": own[0], "ms": summary(own[1:])}


def rank() -> dict[str, float]:
    """Milliseconds of ranking so many random points, on many fronts and on one."""
    draw, times = random.Random(0), []
    points = [(draw.random(), draw.random()) for _ in range(POINTS)]
    for _ in range(PROPOSALS):
        begin = time.perf_counter()
        pareto_ranks(points)
        times.append(1e3 * (time.perf_counter() - begin))
    return summary(times)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--space", default="all")
    parser.add_argument("--trials", type=int, nargs="+", default=sized([1_000, 10_000], [10]))
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = get(asked.space, SIDE)
    figures: dict[str, Any] = {"space": asked.space, f"rank {POINTS:,} points, ms": rank()}
    for trials in asked.trials:
        for strategy in STRATEGIES:
            figures[f"{strategy} at {trials}"] = propose(strategy, space, trials)
    keep("proposals", figures)


if __name__ == "__main__":
    main()
