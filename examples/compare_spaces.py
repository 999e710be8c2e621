"""Which of two spaces gives more for the same budget? Each is searched with several seeds.

    python compare_spaces.py                       # resnet against alternet, on digits
    python compare_spaces.py resnet ./my_space.py  # one of them your own

Prints the hypervolume of each search, its mean with a 95 % interval, and draws the fronts into compare_spaces.png.
Few trials and short trainings, so that it ends in minutes: too little to conclude anything from.
"""

import json
import subprocess
import sys
from pathlib import Path

from matplotlib.figure import Figure

from alternas.results import read_records
from alternas.results.ranking.pareto import hypervolume
from alternas.results.ranking.stats import mean_ci, mean_ci_text, paired, verdict

SEEDS = (0, 1, 2)
TRIALS = 3
EPOCHS = 2
CHANCE = 0.1  # accuracy of guessing one of ten digits


def searched(space, seed):
    """Nets of one search as (accuracy, MACs), baselines left out: they are the same for both spaces, or nearly."""
    name = f"compare-{Path(space).stem}-{seed}"
    words = ["search", space, "--trials", str(TRIALS), "--epochs", str(EPOCHS), "--seed", str(seed), "--name", name]
    subprocess.run([sys.executable, "-m", "alternas", *words, "--strategy", "random", "--json"], check=True, text=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    records = [r for r in read_records(Path("runs") / name) if r.kind == "search" and r.status == "ok"]
    return [(r.accuracy or 0.0, r.cost["macs"]) for r in records]


def plot(found, file):
    """One colour a space, one point a net."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for (space, searches), colour in zip(found.items(), ("#0072B2", "#D55E00"), strict=True):
        points = [point for nets in searches.values() for point in nets]
        axes.scatter([cost for _, cost in points], [accuracy for accuracy, _ in points], label=space, color=colour)
    axes.set(xscale="log", xlabel="MACs", ylabel="validation accuracy")
    axes.legend()
    figure.savefig(file)


def main():
    spaces = sys.argv[1:3] if len(sys.argv) > 2 else ["resnet", "alternet"]
    found = {space: {seed: searched(space, seed) for seed in SEEDS} for space in spaces}

    # All searches share one scale of cost, or their areas could not be compared.
    costs = [cost for searches in found.values() for nets in searches.values() for _, cost in nets]
    scale = [(min(costs), max(costs))]
    volumes = {
        space: {seed: hypervolume(nets, CHANCE, scale) for seed, nets in searches.items()}
        for space, searches in found.items()
    }
    for space, by_seed in volumes.items():
        s = mean_ci(list(by_seed.values()), within=(0, 1))
        print(f"{space}: hypervolume {mean_ci_text(s)}, 95 % of the mean {s.low:.4f} to {s.high:.4f}")
    first, second = spaces
    difference = paired(volumes[first], volumes[second])  # the same seed trains the same baselines, data and order
    print(f"{second} against {first}: {mean_ci_text(difference)}, {verdict(difference)}")
    plot(found, "compare_spaces.png")
    print(json.dumps(volumes))


if __name__ == "__main__":
    main()
