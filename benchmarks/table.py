"""Make the tabular bench's table, search/bench/table.parquet, out of runs that train its nets. Ten core-hours.

python benchmarks/table.py train            train what is missing: runs below runs/, resumed if broken off
python benchmarks/table.py pack [RUN ...]   add the runs to the table
python benchmarks/table.py signals          work out the cheap signals of all its nets: minutes
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from machine import RESULTS, TINY, options, sized
from rich.progress import track

from alternas.results.record import Record
from alternas.results.store import read_records
from alternas.search.bench import table
from alternas.search.bench.table import COLUMNS, IMAGE_SIZE, READINGS
from alternas.search.data.dataset import Request
from alternas.search.data.load import load
from alternas.search.training.job import SIGNALS
from alternas.search.training.memory import open_bench
from alternas.search.training.signals import signals
from alternas.spaces import get
from alternas.spaces.space import members

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
            yield ["search", space, *how, "--ladder", "off", *EPOCHS, "--name", name], name


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
    """Write the table, a net's signals in all its rows."""
    rows = rows.drop_duplicates(["data", "key", "seed"]).sort_values(["data", "key", "seed"], ignore_index=True)
    for name in rows.columns[rows.columns.str.startswith("signal_")]:
        rows[name] = rows.groupby(["data", "key"])[name].transform("first").astype("float32")
    rows.to_parquet(FILE, compression="zstd", index=False)
    print(rows.groupby(["data", "seed"]).size().to_string())
    print(f"{len(rows)} trainings, {FILE.stat().st_size / 1e6:.2f} MB")


def add_signals() -> None:
    """Of every net on each of its data sets, with seed 0, as `--signals` records them."""
    torch.set_num_threads(1)
    rows, nets = pd.read_parquet(FILE), {net.key: net for _, net in members(get("bench", IMAGE_SIZE))}
    found = []
    for data, part in rows.groupby("data"):
        bench = open_bench(load(Request(str(data))), torch.device("cpu"), workers=1)
        for key in track(part["key"].unique(), f"signals on {data}"):
            found.append({"data": data, "key": key} | signals(nets[key], bench, 0))
    told = pd.DataFrame(found).rename(columns={name: f"signal_{name}" for name in SIGNALS})
    old = rows.columns[rows.columns.str.startswith("signal_")]
    _keep(rows.drop(columns=old).merge(told, on=["data", "key"]))


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
    parser.add_argument("what", choices=("train", "pack", "signals"))
    parser.add_argument("runs", nargs="*")
    asked = parser.parse_args()
    {"train": train, "pack": lambda: pack(asked.runs), "signals": add_signals}[asked.what]()


if __name__ == "__main__":
    main()
