"""Make the tabular bench's table, search/tabular/table.parquet, out of runs that train its nets. Ten core-hours.

python benchmarks/table.py train            train what is missing: runs below runs/, resumed if broken off
python benchmarks/table.py pack [RUN ...]   add the runs to the table
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from machine import RESULTS, TINY, options, sized

from alternas.results.runs.store import read_records
from alternas.search.tabular import trained
from alternas.search.tabular.table_file import GENE
from alternas.spaces import Genes, get, members

# Space, data, seeds, nets. Seeds 0 to 2 of `placements` are in `bench`, whose nets are a superset.
PLAN = sized(
    (
        ("bench", "cue", range(3), 424),
        ("bench", "clutter", range(3), 160),
        ("placements", "cue", range(3, 10), 42),
    ),
    (("placements", "cue", range(1), 1),),
)
EPOCHS = sized([], ["--epochs", "0.06", "--workers", "1"])
FILE = RESULTS / "table.parquet" if TINY else trained.FILE


def names() -> Iterator[tuple[list[str], str]]:
    """The arguments of each run's search, and its name."""
    for space, data, seeds, nets in PLAN:
        for seed in seeds:
            name = f"{space}-{data}-{seed}"
            how = ["--data", data, "--strategy", "enumerate", "--trials", str(nets), "--seed", str(seed)]
            yield ["search", space, *how, "--scheduler", "none", *EPOCHS, "--name", name], name


def train() -> None:
    """Train all that is missing."""
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


def _keep(old: pd.DataFrame, found: pd.DataFrame) -> None:
    """Write the table."""
    training = ["data", *(name for name in found if name.startswith(GENE)), "seed"]
    known = pd.MultiIndex.from_frame(found[training]).isin(pd.MultiIndex.from_frame(old[training]))
    rows = pd.concat([old, found[~known]]).sort_values([*training, "step"], ignore_index=True)
    rows.to_parquet(FILE, compression="zstd", index=False)
    counts = rows.drop_duplicates(training).groupby(["data", "seed"]).size()
    print(f"{counts.to_string()}\n{counts.sum()} trainings, {FILE.stat().st_size / 1e6:.2f} MB")


def _rows(folder: Path, genes_of: dict[str, Genes]) -> Iterator[dict[str, Any]]:
    for record in read_records(folder):
        if record.status == "ok":
            genes = {f"{GENE}{name}": value for name, value in genes_of[record.key].items()}
            costs = {name: record.cost[name] for name in ("macs", "params")}
            about = {"data": record.data["name"], **genes, **costs, "seed": record.seed, "seconds": record.seconds}
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
