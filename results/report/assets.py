"""The numbers of a report's plots and tables as CSV and Parquet, and copies of the pictures of `explain`."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

from ...archs.errors import InputError
from ..render.terminal import csv_cell
from .elements import Matrix, Picture, Plot, Section, Table
from .run import Run
from .sections import net_columns, net_row


def write_assets(folder: Path, run: Run, sections: list[Section]) -> list[Path]:
    """Write NAME.csv and NAME.parquet of all plots, tables and nets; return their paths. InputError if it cannot."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in (part for section in sections for part in section.parts):
            if isinstance(part, Plot) and part.series:
                points = [(s.name, x, y) for s in part.series for x, y in zip(s.x, s.y, strict=True) if y is not None]
                written += _write_frame(folder / part.name, ["series", "x", "y"], points)
            elif isinstance(part, Matrix) and part.names:
                cells = [(name, *row) for name, row in zip(part.names, part.counts, strict=True)]
                written += _write_frame(folder / part.name, ["class", *part.names], cells)
            elif isinstance(part, Table) and part.rows:
                rows = [tuple(row.values()) for row in part.rows]
                written += _write_frame(folder / part.name, list(part.rows[0]), rows)
            elif isinstance(part, Picture) and part.path:
                written += _copy_picture(part.path, folder)
        names = [*net_columns(), *(f"gene_{name}" for name in run.genes)]
        every = [(net_row(run, r), [r.genes.get(name) for name in run.genes]) for r in run.nets]
        return written + _write_frame(folder / "all_nets", names, [(*row, *genes) for row, genes in every])
    except OSError as error:
        raise InputError(f"assets: {folder} cannot be written to ({error.strerror or error})") from None
    except csv.Error as error:
        raise InputError(f"assets: a table of explain is no CSV ({error})") from None


def _write_frame(stem: Path, names: list[str], rows: list[tuple[Any, ...]]) -> list[Path]:
    """Write a table; a column that is not all numbers becomes text, as Parquet wants one type a column."""
    import pandas as pd

    from ..runs.frame import as_text

    columns: dict[str, list[Any]] = {}
    for i, name in enumerate(names):
        values = [row[i] for row in rows]
        if not all(value is None or isinstance(value, int | float) for value in values):
            values = [None if value is None else as_text(value) for value in values]
        columns[as_text(name)] = values
    frame, table, parquet = pd.DataFrame(columns), Path(f"{stem}.csv"), Path(f"{stem}.parquet")
    frame.map(csv_cell).rename(columns=csv_cell).to_csv(table, index=False)
    frame.to_parquet(parquet)
    return [table, parquet]


def _copy_picture(path: Path, folder: Path) -> list[Path]:
    """Copy a picture of `alternas explain` and its table, whose cells are escaped again: anyone may have written it."""
    table, copies = path.with_suffix(".csv"), [folder / f"explain_{path.name}"]
    shutil.copyfile(path, copies[0])
    if table.is_file():
        copies.append(folder / f"explain_{table.name}")
        with (
            open(table, encoding="utf-8", newline="", errors="replace") as theirs,
            open(copies[1], "w", encoding="utf-8", newline="") as ours,
        ):
            csv.writer(ours).writerows(map(csv_cell, row) for row in csv.reader(theirs))
    return copies
