"""What small searches say of the time that they have left, beside what they took.

    python benchmarks/forecast.py

Ten searches of different kinds on two workers, each in a process and a folder of its own: the time left that the view
tells at a quarter, half and three quarters of the time from the first reading to the end, over what was left then; and
the FLOPs announced before it began, over those that it spent. Resumed ones are the second command of two.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import TINY, keep, options, sized

from alternas.results.ranking.objectives import spent_on_training
from alternas.results.runs.store import read_records

COMMON = ["--workers", "2", "--name", "run"]
DIGITS, CLUTTER = (
    ["all", "--data", "digits", "--max-macs", "500k"],
    ["all", "--data", "clutter-small", "--max-macs", "1M"],
)
TRIALS = sized(("12", "24"), ("2", "3"))
KINDS: dict[str, list[list[str]]] = {
    "default": [[*DIGITS, "--trials", TRIALS[1]]],
    "default, pictures": [[*CLUTTER, "--trials", TRIALS[0]]],
    "alone": [[*DIGITS, "--trials", TRIALS[1], "--alone"]],
    "repeats": [[*DIGITS, "--trials", TRIALS[0], "--repeats", "2"]],
    "scheduler": [[*DIGITS, "--trials", TRIALS[1], "--scheduler", "mo-asha"]],
    "known nets": [[*DIGITS, "--trials", TRIALS[0], "--with", "timm:test_resnet"]],
    "a limit on compute": [[*DIGITS, "--max-train-flops", sized("240G", "2G")]],
    "resumed": [[*DIGITS, "--trials", TRIALS[0]], [*DIGITS, "--trials", TRIALS[1]]],
    "resumed, pictures": [[*CLUTTER, "--trials", "6"], [*CLUTTER, "--trials", TRIALS[0]]],
    "supernet": [["bench", "--data", "digits", "--epochs", sized("4", "0.2"), "--supernet", sized("8", "2")]],
}
SHARES = (0.25, 0.5, 0.75)


def watched(words: list[str]) -> dict[str, Any]:
    """Run a search here, and say what its view told."""
    from alternas.cli.app import main
    from alternas.search import run

    said: list[tuple[float, float | None]] = []
    announced, view_of = list[float](), run.view_of

    def noting(shown: Any, console: Any) -> Any:
        announced.append(sum(work.flops for work in shown.left().values()))
        view = view_of(shown, console)
        for name in ("tick", "ended"):
            told = getattr(view, name)

            def note(*given: Any, told: Any = told) -> None:
                told(*given)
                said.append((time.monotonic(), view.seconds_left()))

            setattr(view, name, note)
        return view

    run.view_of = noting
    before = _spent()
    sys.argv = ["alternas", "search", *words, *COMMON]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    (began, _), (ended, _) = said[0], said[-1]
    ratios = {}
    for share in SHARES:
        at, left = next(pair for pair in said if pair[0] >= began + share * (ended - began))
        ratios[f"{share:g}"] = round((left or 0.0) / max(1e-9, ended - at), 2)
    ratio = announced[0] / max(1.0, _spent() - before)
    return {"seconds": round(ended - began, 1), "time left": ratios, "announced": round(ratio, 2)}


def _spent() -> float:
    folder = Path("runs/run")
    return float(sum(map(spent_on_training, read_records(folder)))) if folder.exists() else 0.0


def measure(kind: str) -> dict[str, Any]:
    """Run the searches of a kind in a folder of their own; the last one counts."""
    with tempfile.TemporaryDirectory() as scratch:
        done = None
        for words in KINDS[kind]:
            command = [
                sys.executable,
                str(Path(__file__).resolve()),
                "watch",
                *["--tiny"] * TINY,
                "--words",
                json.dumps(words),
            ]
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{kind}: {done.stderr[-2000:]}")
    assert done is not None, "each kind has a search"
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("part", nargs="?", choices=("watch",))
    parser.add_argument("--words", help="of one search, which is run in this process")
    asked = parser.parse_args()
    if asked.part == "watch":
        found = watched(json.loads(asked.words))
        print(json.dumps(found))
    else:
        figures: dict[str, Any] = {kind: measure(kind) for kind in KINDS}
        every = [ratio for one in figures.values() for ratio in one["time left"].values()]
        within = sum(1 / 1.5 <= ratio <= 1.5 for ratio in every)
        keep("forecast", figures | {"within a factor of 1.5": f"{within} of {len(every)}"})
