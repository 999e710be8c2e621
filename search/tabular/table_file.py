"""`read_table`: anybody's table of trained nets, a Parquet file, as a `TabularBenchmark`.

One row for each reading of a training: a column `gene_NAME` for each gene (texts, or numbers, whose order counts),
`seed`, `step` (the last is the full budget), `accuracy` (a fraction), `macs`, `params` and any further costs, the same
in all rows of a net; if known `seconds`, of the whole training in the row of its last step; where the file has several
data sets, `data`. Combinations of genes may be missing, trainings may have any readings but need that of the full
budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...archs.errors import InputError, check_choice, short_repr
from ...spaces import Gene
from .benchmark_table import Entry, TabularBenchmark, Training
from .table_space import TableSpace

if TYPE_CHECKING:
    import pandas as pd

GENE = "gene_"
REQUIRED = ("macs", "params", "seed", "step", "accuracy")
NO_COSTS = ("seed", "step", "accuracy", "seconds")  # columns of numbers beside genes


def read_table(path: Path, data: str = "", objective: str = "macs", floor: float | None = None) -> TabularBenchmark:
    """Read a table.

    `data`: which data set of a file that has several; "" where it has one. `floor`: accuracy that hypervolumes are
    counted above; by default the lowest of the table, mean over seeds. Raises InputError if the file cannot be read, or
    is no such table.
    """
    rows = _rows_of(_read(path), path, data)
    genes = _genes(rows, path)
    _check_numbers(rows, path)
    space, entries = _nets(rows, genes, path)
    if objective not in next(iter(entries.values())).costs:
        raise InputError(f"objective: table {path} has no column {objective!r} of numbers")
    lowest = min(entry.accuracy for entry in entries.values())
    steps = int(rows["step"].to_numpy().max())
    return TabularBenchmark(path.stem, space, entries, steps, lowest if floor is None else floor, objective)


def _read(path: Path) -> pd.DataFrame:
    from pyarrow.parquet import read_table as read_parquet

    try:
        return read_parquet(BytesIO(path.read_bytes())).to_pandas(ignore_metadata=True)  # which may be anything
    except FileNotFoundError:
        raise InputError(f"table {short_repr(str(path))}: not there") from None
    except (OSError, ValueError) as error:  # the latter is what pyarrow raises on a file that is no Parquet
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise InputError(f"table {short_repr(str(path))}: cannot be read as Parquet ({reason[:80]})") from None


def _rows_of(rows: pd.DataFrame, path: Path, data: str) -> pd.DataFrame:
    missing = [name for name in REQUIRED if name not in rows]
    if missing:
        raise InputError(f"table {path}: column {missing[0]!r} is missing")
    if "data" in rows:
        named = sorted(map(str, set(rows["data"])))
        chosen = named[0] if not data and len(named) == 1 else check_choice("data", data, named)
        rows = rows.loc[(rows["data"] == chosen).to_numpy()]
    elif data:
        raise InputError(f"data: table {path} has no column 'data' to choose {data!r} from")
    if rows.empty:
        raise InputError(f"table {path}: has no rows")
    return rows


def _genes(rows: pd.DataFrame, path: Path) -> dict[str, list[Gene]]:
    genes = {str(name): rows[name].tolist() for name in rows if str(name).startswith(GENE)}
    if not genes:
        raise InputError(f"table {path}: has no genes, which are columns such as {GENE}depth")
    for name, values in genes.items():
        kinds = set(map(type, values))
        if not (kinds <= {str} or kinds <= {bool} or kinds <= {int, float}):
            kind = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InputError(f"table {path}: column {name!r} must be all texts or all numbers, got {kind}")
        if kinds <= {int, float} and not np.isfinite(values).all():
            raise InputError(f"table {path}: column {name!r} has a value that is no number")
        if kinds == {bool}:
            genes[name] = [int(value) for value in values]
    return genes


def _check_numbers(rows: pd.DataFrame, path: Path) -> None:
    for name in (*REQUIRED, *(("seconds",) if "seconds" in rows else ())):
        column = rows[name].to_numpy()
        if column.dtype.kind not in "iuf":
            raise InputError(f"table {path}: column {name!r} must be of numbers")
        if not np.isfinite(column).all():
            raise InputError(f"table {path}: column {name!r} has a value that is no number")
        least, most = column.min(), column.max()
        if name == "accuracy" and not 0 <= least <= most <= 1:
            raise InputError(f"table {path}: accuracy must be a fraction from 0 to 1, got {least:g} to {most:g}")
        if name in ("seed", "step") and not (column == np.floor(column)).all():
            raise InputError(f"table {path}: column {name!r} must be of whole numbers")
        if name in ("macs", "params", "step", "seconds") and least <= 0:
            raise InputError(f"table {path}: column {name!r} must be above 0, got {least:g}")


def _nets(rows: pd.DataFrame, genes: dict[str, list[Gene]], path: Path) -> tuple[TableSpace, dict[str, Entry]]:
    options = {name: tuple(sorted(set(values))) for name, values in genes.items()}  # pyright: ignore[reportArgumentType]
    values = list(zip(*genes.values(), strict=True))
    numbers: dict[tuple[Gene, ...], int] = {}
    net = np.array([numbers.setdefault(row, len(numbers)) for row in values])
    space = TableSpace(path.stem, options, list(numbers))
    keys = [space.net(row).key for row in numbers]
    costs = _costs(rows, net, path)
    entries = {key: Entry(of_net, {}) for key, of_net in zip(keys, costs, strict=True)}
    for number, seed, training in _trainings(rows, net, path):
        entries[keys[number]].trainings[seed] = training
    return space, entries


def _costs(rows: pd.DataFrame, net: np.ndarray, path: Path) -> list[dict[str, float]]:
    """Costs of each net. Columns of numbers that differ from row to row of a net are none."""
    first = np.unique(net, return_index=True)[1]  # the first row of each net
    costs: dict[str, list[float]] = {}
    for name in rows:
        column = rows[name].to_numpy()
        if column.dtype.kind not in "iuf" or name in NO_COSTS or str(name).startswith(GENE):
            continue
        if (column == column[first][net]).all():
            costs[str(name)] = column[first].astype(float).tolist()
        elif name in REQUIRED:
            raise InputError(f"table {path}: column {name!r} must be the same in all rows of a net")
    return [dict(zip(costs, of_net, strict=True)) for of_net in zip(*costs.values(), strict=True)]


def _trainings(rows: pd.DataFrame, net: np.ndarray, path: Path) -> Iterator[tuple[int, int, Training]]:
    seed, step = (rows[name].to_numpy().astype(np.int64) for name in ("seed", "step"))
    accuracy = rows["accuracy"].to_numpy()
    seconds: Any = rows["seconds"].to_numpy() if "seconds" in rows else np.ones(len(rows))
    order = np.lexsort((step, seed, net))
    net, seed, step, accuracy, seconds = (column[order] for column in (net, seed, step, accuracy, seconds))
    starts = np.flatnonzero(np.diff(net, prepend=-1) | np.diff(seed, prepend=seed[0]))
    full = int(step.max())
    for begin, end in zip(starts, [*starts[1:], len(net)], strict=True):
        read = step[begin:end]
        what = f"table {path}: a net's training with seed {int(seed[begin])}"
        if (np.diff(read) == 0).any():
            raise InputError(f"{what} has two rows of one step")
        if read[-1] != full:
            raise InputError(f"{what} ends at step {int(read[-1])}, not at the full budget of {full}")
        training = Training(tuple(map(int, read)), tuple(map(float, accuracy[begin:end])), float(seconds[end - 1]))
        yield int(net[begin]), int(seed[begin]), training
