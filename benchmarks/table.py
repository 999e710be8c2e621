"""Make the tabular bench's table, search/tabular/table.parquet, out of runs that train its nets. Fourteen core-hours.

Every net of space `bench` for 625 steps, and as data `cue-long` nets over all costs and families for 2,500.

python benchmarks/table.py train            train what is missing: runs below runs/, resumed if broken off
python benchmarks/table.py pack [RUN ...]   add the runs to the table
"""

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from machine import RESULTS, TINY, options, sized

from alternas.results.runs.status import Status
from alternas.results.runs.store import read_records
from alternas.search.tabular import trained
from alternas.search.tabular.published import load_table
from alternas.search.tabular.table_file import GENE
from alternas.spaces import Genes, get, members

EVERY = ("--strategy", "enumerate", "--trials")
LONG, LONG_FILE = 2_500, "long-nets.json"  # steps of the long budget; nets that are trained for it
LONG_NETS = {"resnet": 16, "alternet": 44, "hybrid": 36}
LISTED = ("--epochs", "4", "--start-with", LONG_FILE, "--strategy", "random", "--trials", str(sum(LONG_NETS.values())))
# Name, search, seeds. Seeds 0 to 2 of `placements` are in `bench`, whose nets are a superset.
PLAN: tuple[tuple[str, tuple[str, ...], range], ...] = sized(
    (
        ("bench-cue", ("bench", "--data", "cue", *EVERY, "424"), range(3)),
        ("bench-clutter", ("bench", "--data", "clutter", *EVERY, "160"), range(3)),
        ("placements-cue", ("placements", "--data", "cue", *EVERY, "42"), range(3, 10)),
        ("bench-cue-long", ("bench", "--data", "cue", *LISTED), range(2)),
    ),
    (("placements-cue", ("placements", "--data", "cue", *EVERY, "1", "--epochs", "0.06", "--workers", "1"), range(1)),),
)
FILE = RESULTS / "table.parquet" if TINY else trained.FILE


def long_nets() -> list[Genes]:
    """Baselines, the front of the short budget, and of each family nets that are even over the logarithm of cost."""
    space, table = get("bench", trained.IMAGE_SIZE), load_table("cue")
    nets = {net.key: (genes, net.family) for genes, net in members(space)}
    chosen = list(dict.fromkeys([*(net.key for net in space.baselines()), *table.front()]))
    macs = {key: math.log(table.cost(entry)) for key, entry in table.entries.items()}
    for family, count in LONG_NETS.items():
        rest = sorted((k for k in nets if nets[k][1] == family and k not in chosen), key=lambda k: (macs[k], k))
        missing = count - sum(nets[key][1] == family for key in chosen)
        low, high = macs[rest[0]], macs[rest[-1]]
        for i in range(missing):
            at = low + (high - low) * (i + 0.5) / missing
            chosen.append(min(rest, key=lambda key, at=at: (abs(macs[key] - at), key)))
            rest.remove(chosen[-1])
    random.Random(0).shuffle(chosen)
    return [nets[key][0] for key in chosen]


def names() -> Iterator[tuple[list[str], str]]:
    """The arguments of each run's search, and its name."""
    for of, words, seeds in PLAN:
        for seed in seeds:
            name = f"{of}-{seed}"
            yield ["search", *words, "--scheduler", "none", "--seed", str(seed), "--name", name], name


def train() -> None:
    """Train all that is missing."""
    if not TINY:
        Path(LONG_FILE).write_text(json.dumps(long_nets()), encoding="utf-8")
    for arguments, _ in names():
        subprocess.run([sys.executable, "-m", "alternas", *arguments], check=True, stdout=subprocess.DEVNULL)


def pack(runs: list[str]) -> None:
    """One row for each reading of a training. Trainings that the table has already stay."""
    folders = [Path(run) for run in runs] if runs else [Path("runs") / name for _, name in names()]
    genes_of = {net.key: genes for genes, net in members(get("bench", trained.IMAGE_SIZE))}
    found = pd.DataFrame(row for folder in folders for row in _rows(folder, genes_of))
    whole = {name: "int16" for name in found if name.startswith(GENE) and name != f"{GENE}family"}
    found = found.astype(whole | {"seed": "int16", "step": "int32", "accuracy": "float32", "seconds": "float32"})
    _keep(pd.read_parquet(FILE) if FILE.is_file() else found.head(0), found)


def _keep(old: Any, found: Any) -> None:
    """Write the table."""
    training = ["data", *(name for name in found if name.startswith(GENE)), "seed"]
    known = pd.MultiIndex.from_frame(found[training]).isin(pd.MultiIndex.from_frame(old[training]))
    rows = pd.concat([old, found[~known]]).sort_values([*training, "step"], ignore_index=True)
    rows.to_parquet(FILE, compression="zstd", index=False)
    counts = rows.drop_duplicates(training).groupby(["data", "seed"]).size()
    print(f"{counts.to_string()}\n{counts.sum()} trainings, {FILE.stat().st_size / 1e6:.2f} MB")


def _rows(folder: Path, genes_of: dict[str, Genes]) -> Iterator[dict[str, Any]]:
    for record in read_records(folder):
        if record.status == Status.OK:
            genes = {f"{GENE}{name}": value for name, value in genes_of[record.key].items()}
            costs = {name: record.cost[name] for name in ("macs", "params")}
            data = record.data["name"] + ("-long" if record.budget["full"] == LONG else "")
            about = {"data": data, **genes, **costs, "seed": record.seed, "seconds": record.seconds}
            readings = {point["step"]: point["accuracy"] for point in record.curve if point["step"]}
            yield from (about | {"step": step, "accuracy": accuracy} for step, accuracy in readings.items())


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("what", choices=("train", "pack"))
    parser.add_argument("runs", nargs="*")
    asked = parser.parse_args()
    {"train": train, "pack": lambda: pack(asked.runs)}[asked.what]()


if __name__ == "__main__":
    main()
