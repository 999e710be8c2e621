"""Recipes searched with the nets beside one recipe for all: hypervolume of the fronts, on the test split.

    python benchmarks/joint_search.py [--trials 40] [--searches 3] [--seeds 3] [--workers 2]

On `cue`, nets of space `bench` are trained for real. One arm draws rate and decay with each net (`--tune
lr,weight_decay`, the recipe `cue` and its usual ranges); four others train all nets by one recipe each: `cue`, its rate
halved and doubled, and its decay times four. All arms train equally many nets for equally many steps, by the same
strategy and seeds. Each front is chosen on validation, then trained again with other seeds by its nets' recipes
(`alternas retrain`), and judged by their mean accuracies on the test split; the plain ResNets beside a search are left
out. The best of the four is the best in hindsight, by that very figure.

Searches lie below runs/ and resume, so the same command goes on. One search and its retraining take the time of
5 x (trials + 8) + about 5 x 8 x seeds trainings, ten seconds each on a free core: an hour and a half on two cores for
one of the three searches.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import keep, options, sized

from alternas.archs import static_cost
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.objectives import spent_on_training
from alternas.results.ranking.pareto import hypervolume
from alternas.results.runs.retrained import retrained
from alternas.results.runs.store import read_records
from alternas.search.tabular.trained import CHANCE, CLASSES, IMAGE_SIZE, IN_CHANS
from alternas.search.training import recipes
from alternas.spaces import get, members

CUE = recipes.get("cue").with_epochs(sized(1.0, 0.02))
SINGLE = {
    "cue": CUE,
    "rate / 2": replace(CUE, lr=CUE.lr / 2),
    "rate x 2": replace(CUE, lr=2 * CUE.lr),
    "decay x 4": replace(CUE, weight_decay=4 * CUE.weight_decay),
}
ARMS = {"joint": CUE} | sized(SINGLE, {"cue": CUE})
TUNED = ["--tune", "lr,weight_decay"]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--trials", type=int, default=sized(40, 2), help="nets of each search")
    parser.add_argument("--searches", type=int, default=sized(3, 1), help="seeds of the searches")
    parser.add_argument("--seeds", type=int, default=sized(3, 1), help="trainings of each net of a front")
    parser.add_argument("--workers", type=int, default=sized(2, 1))
    asked = parser.parse_args()
    costs = [static_cost(net, CLASSES, IMAGE_SIZE, IN_CHANS).macs for _, net in members(get("bench", IMAGE_SIZE))]
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for seed in range(asked.searches):
        for name in ARMS:
            run = searched(name, seed, asked)
            rows[name].append(judged(run, (min(costs), max(costs))))
    keep("joint_search", {"arms": rows} | dict(compared(rows)))


def searched(name: str, seed: int, asked: Any) -> Path:
    """The run of an arm: searched, and its front retrained."""
    plain = f"joint-{name.replace(' ', '').replace('/', 'over')}-{seed}"
    file = Path("recipes") / f"{plain}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(ARMS[name].to_dict()), encoding="utf-8")
    at = ["--workers", str(asked.workers)]
    how = ["--data", "cue", "--recipe", str(file), "--trials", str(asked.trials), "--seed", str(seed), "--name", plain]
    alternas("search", "bench", *how, *at, "--scheduler", "none", *(TUNED if name == "joint" else []))
    run = Path("runs") / plain
    trials = ",".join(str(row["trial"]) for row in front_of(run))
    alternas("retrain", plain, "--trials", trials, "--seeds", str(asked.seeds), *at)
    return run


def front_of(run: Path) -> list[dict[str, Any]]:
    """The front of a search's own nets, without the plain ResNets beside it."""
    return leaderboard([record for record in read_records(run) if record.kind == "search"]).front


def alternas(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)


def judged(run: Path, costs: tuple[float, float]) -> dict[str, Any]:
    """Hypervolume of a front on the test split, between the cheapest and the most expensive net of the space."""
    rows = {row["trial"]: row for row in front_of(run)}
    accuracies = defaultdict[int, list[float]](list)
    for record in retrained(run):
        accuracies[record.factors["trial"]].append(record.metrics["test_accuracy"] or 0.0)
    points = {
        trial: (statistics.fmean(accuracies[trial]), rows[trial]["macs"]) for trial in rows if trial in accuracies
    }
    return {
        "hypervolume": hypervolume(list(points.values()), CHANCE, [costs]),
        "front": [(macs, round(acc, 4), rows[trial].get("recipe", {})) for trial, (acc, macs) in points.items()],
        "FLOPs": sum(spent_on_training(record) for record in read_records(run) if record.kind == "search"),
    }


def compared(rows: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, Any]]:
    """Means over the searches, the best single recipe by them, and the joint search's hypervolume over its own."""
    means = {name: statistics.fmean(row["hypervolume"] for row in of_arm) for name, of_arm in rows.items()}
    best = max((name for name in means if name != "joint"), key=lambda name: means[name])
    yield "hypervolume, mean", means
    yield "best single recipe", best
    yield "joint over it, mean", means["joint"] / means[best] if means[best] else None
    pairs = zip(rows["joint"], rows[best], strict=True)
    yield "joint over it, by search", [a["hypervolume"] / b["hypervolume"] for a, b in pairs if b["hypervolume"]]


if __name__ == "__main__":
    main()
