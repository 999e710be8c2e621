"""What a short search finds with a scheduler and without: from how many trials on it pays (default `--scheduler`).

python benchmarks/short.py [--seeds 30]

Share of the table's hypervolume found by the equal of so many full trainings, medians over seeds.
"""

from __future__ import annotations

import statistics
from typing import Any

from machine import keep, options, sized

from alternas.search.tabular.evaluate import BenchmarkConfig, run_benchmark
from alternas.search.tabular.simulated import SearcherConfig

SPENT, WORKERS = (4, 8, 16, 24, 32), sized((1, 2, 8), (8,))
DATA = sized(("cue", "clutter"), ("clutter",))
CONTENDERS = [SearcherConfig(name, scheduler) for name in ("evolution", "random") for scheduler in ("none", "mo-asha")]


def found(data: str, seeds: int, workers: int) -> dict[str, Any]:
    """By strategy and scheduler: the shares found."""
    traces = run_benchmark(BenchmarkConfig(data, seeds, workers), CONTENDERS, lambda _: None)
    return {
        f"{c.strategy}, scheduler {c.scheduler}": {
            at: statistics.median(t.volume_at(at) for t in traces[c]) for at in SPENT
        }
        for c in CONTENDERS
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, default=sized(30, 1))
    seeds = parser.parse_args().seeds
    figures = {f"{data}, {n} workers": found(data, seeds, n) for data in DATA for n in WORKERS}
    keep("short", {"seeds": seeds} | figures)


if __name__ == "__main__":
    main()
