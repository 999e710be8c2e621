"""Three searches on different data, from the search to the test split: what docs/results.md shows.

    python benchmarks/gallery.py [clutter-small] [cue] [photographs] [--markdown]

Each is a search with the default strategy, a retraining of the front's most accurate nets with seeds that the search
has not seen, and pictures: the front, and the most accurate net that the search found. Runs lie below runs/ and
resume. Figures go to results/gallery.json, pictures to docs/pictures/. Photographs are two that scikit-learn ships,
cut into patches of 24 pixels; the class is the quarter that a patch comes from, and test patches come from bands of
their own. --markdown writes docs/results.md from the figures and runs nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine import RESULTS, TINY, keep, options, sized

from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.ranking.verdict import recommended, verdict_of
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
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    file = RESULTS / "gallery.json"
    found = json.loads(file.read_text(encoding="utf-8")).get("searches", {}) if file.exists() else {}
    for name in [] if asked.markdown else asked.searches:
        if name == "photographs":
            from pictures import write

            write("photographs", 24)
        found[name] = searched(name)
        keep("gallery", {"searches": found})
    (PICTURES.parent / "results.md").write_text(page(found), encoding="utf-8")


def searched(name: str) -> dict[str, Any]:
    """Search, retrain and draw; the figures of the page."""
    run = f"gallery-{name}"
    alternas("search", "all", *SEARCHES[name], *SHORT, "--trials", str(TRIALS), "--name", run)
    alternas("retrain", run, "--top", str(TOP), "--seeds", str(SEEDS), *SHORT)
    folder = Path("runs") / run
    board = leaderboard_of(folder, RankingQuery())
    searched_for = [row for row in board.front if row["kind"] == "search"]
    taken = max(searched_for, key=lambda row: row["accuracy"])["trial"] if searched_for else recommended(board)["trial"]
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


HEAD = """# Results

Searches from the command to the test split, on data of different kinds, each run by `python benchmarks/gallery.py` on
two cores without a GPU; [figures](../benchmarks/results/gallery.json). Fronts belong to these short budgets: what a
longer training turns round, `retrain` says. Validation chose the nets, so the test accuracies are the ones to read.
Retrained (validation, ± standard deviation) and test are means over three seeds that the search had not seen.
"""
ABOUT = {
    "clutter-small": "Digits among fragments of others, 10x10: what a first search runs on, 16 nets of 140 steps.",
    "cue": "Two digits and a glyph that says which of them counts, 16x16: a local feature decides about a far one.",
    "photographs": "Grey patches of 24 pixels of two photographs; the class is the quarter that a patch is from.",
}


def page(found: dict[str, dict[str, Any]]) -> str:
    return "\n".join([HEAD, *(line for name, facts in found.items() for line in section(name, facts))])


def section(name: str, facts: dict[str, Any]) -> list[str]:
    flops = (facts["train_flops"] + facts["eval_flops"]) / 1e12
    noise = "unknown" if facts["seed noise"] is None else f"{100 * facts['seed noise']:.1f} points"
    again = [row for row in facts["front"] if row["retrained_test"] is not None]
    rows = [
        f"| {row['trial']} | {row['kind'] if row['kind'] == 'baseline' else row['family']} | {row['macs'] / 1e6:.2f} M "
        f"| {row['accuracy']:.3f} | {row['retrained_accuracy']:.3f} ± {row['retrained_sd'] or 0:.3f} "
        f"| {row['retrained_test']:.3f} |"
        for row in again
    ]
    return [
        f"## {name}",
        "",
        ABOUT[name],
        "",
        f"`{facts['command']}`: {facts['trained']} nets trained, {flops:.1f} TFLOPs, seed noise {noise}.",
        "",
        f"![The front](pictures/front-{name}.svg)",
        "",
        " ".join(facts["verdict"]),
        "",
        *(["| net | family | MACs | search | retrained | test |", "| --- | --- | --- | --- | --- | --- |", *rows]),
        "",
        f"![Net {facts['taken']}](pictures/net-{name}.svg)",
        "",
        f"**Not found:** {not_found(facts)}",
        "",
    ]


def not_found(facts: dict[str, Any]) -> str:
    """What the search does not show, from its figures."""
    front = facts["front"]
    missing = sorted({"resnet", "alternet", "hybrid", "modern"} - {row["family"] for row in front})
    plain = sum(row["kind"] == "baseline" for row in front)
    below = sum(row["gain"] is not None and row["gain"] < 0 for row in front)
    rising = sum(bool(row["rising"]) for row in front)
    said = [f"no net of {' or '.join(missing)} on the front" if missing else "no family is missing from the front"]
    said += [f"{plain} of its {len(front)} nets are plain ResNets, and {below} lie below their curve"]
    said += [f"{rising} still rose at the end, so a longer training may order them otherwise"]
    return f"{'; '.join(said)}."


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
