"""Three searches on different data, from the search to the test split: what docs/results.md shows.

    python benchmarks/gallery.py [clutter-small] [cue] [photographs]

Each is a search with the default strategy, a retraining of the front's most accurate nets with seeds that the search
has not seen, and pictures: the front, and the net that the verdict takes. Runs lie below runs/ and resume. Figures go
to results/gallery.json, pictures to docs/pictures/. Photographs are two that scikit-learn ships, cut into patches of
24 pixels; the class is the quarter that a patch comes from, and test patches come from bands of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine import RESULTS, TINY, keep, options, sized

from alternas.results.ranking.leaderboard import leaderboard_of
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.verdict import chosen, verdict_of
from alternas.results.runs.overview import run_row

PICTURES = Path() if TINY else Path(__file__).parents[1] / "docs" / "pictures"
TRIALS, TOP, SEEDS = sized((16, 3, 3), (2, 1, 2))
SEARCHES = {
    "clutter-small": ["--data", "clutter-small", "--scheduler", "none"],
    "cue": ["--data", "cue", "--max-macs", "2M", "--scheduler", "none"],
    "photographs": ["--data", "photographs-24.npz", "--max-macs", "4M", "--scheduler", "none"],
}
SHORT = sized([], ["--epochs", "0.05"])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("searches", nargs="*", default=list(SEARCHES)[: sized(3, 1)])
    asked = parser.parse_args()
    file = RESULTS / "gallery.json"
    found = json.loads(file.read_text()).get("searches", {}) if file.exists() else {}
    for name in asked.searches:
        if name == "photographs":
            from pictures import write

            write("photographs", 24)
        found[name] = searched(name)
        keep("gallery", {"searches": found})


def searched(name: str) -> dict[str, Any]:
    """Search, retrain and draw; the figures of the page."""
    run = f"gallery-{name}"
    alternas("search", "all", *SEARCHES[name], *SHORT, "--trials", str(TRIALS), "--name", run)
    alternas("retrain", run, "--top", str(TOP), "--seeds", str(SEEDS), *SHORT)
    folder = Path("runs") / run
    board = leaderboard_of(folder, RankingQuery())
    taken = chosen(board)["trial"]
    alternas("front", run, "--svg", str(PICTURES / f"front-{name}.svg"))
    alternas("show", f"{run}:{taken}", "--svg", str(PICTURES / f"net-{name}.svg"))
    facts = run_row(folder)
    return {
        "command": f"alternas search all {' '.join(SEARCHES[name])} --trials {TRIALS} --name {run}",
        "verdict": verdict_of(board),
        "taken": taken,
        "trained": facts["trained"],
        "train_flops": facts["train_flops"],
        "eval_flops": facts["eval_flops"],
        "seed noise": board.noise.sd if board.noise else None,
        "front": [{key: row[key] for key in COLUMNS} for row in board.front],
    }


COLUMNS = (
    "trial",
    "family",
    "kind",
    "macs",
    "params",
    "accuracy",
    "gain",
    "rising",
    "retrained_accuracy",
    "retrained_sd",
    "retrained_seeds",
    "retrained_test",
)  # fmt: skip


def alternas(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
