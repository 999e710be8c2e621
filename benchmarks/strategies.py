"""Every strategy with every scheduler, on all published tables: what docs/strategies.md shows.

python benchmarks/strategies.py [cue clutter ...] [--seeds 30] [--markdown]

One contender after the other, each kept in results/strategies.json as it ends; those that are there are not run
again. --markdown prints the tables and runs nothing. Settings are the same on all tables. A search on shared weights is
no look-up in a table: its rows are real searches, judged at their end (results/supernet_search.json).
"""

import json
import statistics
from collections import defaultdict
from typing import Any

from machine import RESULTS, machine, options, sized

from alternas.search.tabular.evaluate import SHARES, BenchmarkConfig, cells, heads, rows, run_benchmark
from alternas.search.tabular.published import TABLES
from alternas.search.tabular.simulated import PLAIN, searchers

DATA = sized(tuple(TABLES), ("clutter",))
FILE, SUPERNET = RESULTS / "strategies.json", RESULTS / "supernet_search.json"


def measure(data: str, seeds: int, kept: dict[str, Any]) -> None:
    """Run what is missing, beside random search, which every row is a share of."""
    found = {(row["strategy"], row["scheduler"]): row for row in kept.get(data, [])}
    match = BenchmarkConfig(data, seeds)
    contenders = searchers(match.table(), *sized(((), ()), (("evolution",), ("none",))))
    traces = run_benchmark(match, [PLAIN], lambda _: None)
    for contender in contenders:
        name = contender.strategy, contender.scheduler
        if name not in found:
            for row in rows(traces | run_benchmark(match, [contender], print)):
                found[row["strategy"], row["scheduler"]] = row
            kept |= {data: sorted(found.values(), key=lambda row: row["spent_to_99_median"] or float("inf"))}
            FILE.write_text(json.dumps(kept | {"machine": machine()}, indent=2) + "\n", encoding="utf-8")


def markdown(found: list[dict[str, Any]]) -> str:
    lines = [heads(found), ("---",) * len(heads(found)), *map(cells, found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def on_shared_weights(data: str) -> str:
    """Rows of the searches with --supernet on these data, by budget."""
    runs = json.loads(SUPERNET.read_text(encoding="utf-8")) if SUPERNET.exists() else {}
    by_budget = defaultdict[int, list[dict[str, Any]]](list)
    for name, run in runs.items():
        if name.startswith(f"{data}, "):
            by_budget[int(name.split()[1])].append(run)
    return "\n".join(f"| {' | '.join(_judged_at_end(*item))} |" for item in sorted(by_budget.items()))


def _judged_at_end(trainings: int, found: list[dict[str, Any]]) -> list[str]:
    """Cells of a row; what had been found before the end is not known."""
    spent, worth = max(run["trainings"] for run in found), statistics.median(run["finetuned"] for run in found)
    shares = (*SHARES, SHARES[-1])  # the last for compute, which it is counted in
    reached = [f"at most {spent:.1f}" if worth >= share else "-" for share in shares]
    return [f"--supernet {trainings}", f"seeds {len(found)}", *reached, f"{worth:.3f}", "-"]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("data", nargs="*", default=DATA)
    parser.add_argument("--seeds", type=int, default=sized(30, 1))
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for data in asked.data:
        if not asked.markdown:
            measure(data, asked.seeds, kept)
        print(f"\n{data}\n\n{markdown(kept[data])}\n{on_shared_weights(data)}".rstrip())


if __name__ == "__main__":
    main()
