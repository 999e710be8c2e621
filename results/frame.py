"""A run as a pandas DataFrame, for notebooks."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from .front import leaderboard
from .show import limits_of
from .store import find_run, read_records


def load_run(run: str | Path, cost: str = "macs") -> pd.DataFrame:
    """One row a record, indexed by trial.

    Columns: those of `Record`; `cost`, `budget` and `metrics` spread out as `macs`, `params`,
    `activation_bytes`, `steps_done`, `steps_full`, `nll`; factors of a study as `factor_NAME`; and, for
    nets at full budget, `rank` and `gain` (see `results.front.leaderboard`), else missing.

    Raises:
        InputError: if there is no such run or a record is broken.
    """
    folder = find_run(run)
    records = read_records(folder)
    flat = []
    for record in records:
        row = record.to_dict()
        budget = {f"steps_{name}": steps for name, steps in row.pop("budget").items()}
        factors = {f"factor_{name}": value for name, value in row.pop("factors").items()}
        flat.append(row | factors | row.pop("cost") | budget | row.pop("metrics"))
    ranked = {
        row["trial"]: {"rank": row["rank"], "gain": row["gain"]}
        for row in leaderboard(records, cost, limits_of(folder))
    }
    frame = pd.DataFrame([row | ranked.get(row["trial"], {}) for row in flat])
    return frame.set_index("trial") if len(frame) else frame
