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

from alternas.results.runs.record import Record
from alternas.results.runs.store import read_records
from alternas.search.tabular import benchmark_table as table
from alternas.search.tabular.benchmark_table import COLUMNS, READINGS

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
FILE = RESULTS / "table.parquet" if TINY else table.FILE


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
    """One row for each training; readings at each sixteenth of the steps. What the table has already stays."""
    folders = [Path(run) for run in runs] if runs else [Path("runs") / name for _, name in names()]
    found = pd.DataFrame(row for folder in folders for row in _rows(folder))
    found = found.astype(dict.fromkeys([*COLUMNS, "seconds"], "float32") | {"seed": "int16"})
    _keep(pd.concat([pd.read_parquet(FILE), found]) if FILE.is_file() else found)


def _keep(rows: pd.DataFrame) -> None:
    """Write the table."""
    rows = rows.drop_duplicates(["data", "key", "seed"]).sort_values(["data", "key", "seed"], ignore_index=True)
    rows.to_parquet(FILE, compression="zstd", index=False)
    print(rows.groupby(["data", "seed"]).size().to_string())
    print(f"{len(rows)} trainings, {FILE.stat().st_size / 1e6:.2f} MB")


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for record in read_records(folder):
        if record.status == "ok":
            yield _row(record)


def _row(record: Record) -> dict[str, Any]:
    full = record.budget["full"]
    at = {round(READINGS * point["step"] / full): point["accuracy"] for point in record.curve if point["step"]}
    about = {"data": record.data["name"], "key": record.key, "seed": record.seed, "seconds": record.seconds}
    costs = {name: record.cost[name] for name in ("macs", "params")}
    return about | {name: at[i + 1] for i, name in enumerate(COLUMNS)} | costs


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("what", choices=("train", "pack"))
    parser.add_argument("runs", nargs="*")
    asked = parser.parse_args()
    {"train": train, "pack": lambda: pack(asked.runs)}[asked.what]()


if __name__ == "__main__":
    main()
