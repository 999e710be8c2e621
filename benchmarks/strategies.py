"""Every strategy on every ladder, on both tables: the published table of docs/strategies.md.

python benchmarks/strategies.py [--seeds 30]

Figures go to results/strategies.json, Markdown to the terminal. Settings were chosen on `cue`; `clutter` confirms.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from machine import keep

from alternas.search.bench.contenders import STOCK, contenders
from alternas.search.bench.judge import Match, play, rows

DATA = ("cue", "clutter")
WORKERS = 8
HEAD = ("strategy", "ladder", "to 95 %", "to 99 %", "at 50", "of random's (95 %)")


def name(row: dict[str, Any]) -> str:
    """Optuna's own samplers by their class."""
    return row["label"].rpartition(":")[2] + (" as it comes" if row["strategy"] in STOCK else "")


def line(row: dict[str, Any]) -> tuple[str, ...]:
    spent = [_spent(row, share) for share in ("95", "99")]
    times = row["times_random"]
    ratio = (
        "-"
        if times is None
        else f"{times:.2f} ({_short(row['times_random_low'])} to {_short(row['times_random_high'])})"
    )
    return (name(row), row["ladder"], *spent, f"{row['hypervolume_median']:.3f}", ratio)


def _spent(row: dict[str, Any], share: str) -> str:
    low, median, high = (row[f"spent_to_{share}_{end}"] for end in ("low", "median", "high"))
    return "never" if median is None else f"{median:.0f} ({_short(low, 0)} to {_short(high, 0)})"


def _short(value: float | None, digits: int = 2) -> str:
    return "more" if value is None else f"{value:.{digits}f}"


def markdown(found: list[dict[str, Any]]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *map(line, found)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=30)
    asked = parser.parse_args()
    figures: dict[str, Any] = {"load": os.getloadavg()[0], "workers": WORKERS}
    for data in DATA:
        figures[data] = rows(play(Match(data, asked.seeds, WORKERS), contenders((), ()), print))
        print(f"\n{data}\n\n{markdown(figures[data])}\n")
    keep("strategies", figures)


if __name__ == "__main__":
    main()
