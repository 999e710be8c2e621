"""A study in rows and tables: trainings that differ in named factors, each repeated with several seeds."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from ...archs.errors import InputError, check_choice
from ..ranking.quantities import static_costs
from ..ranking.stats import MeanCI, mean_ci, mean_ci_text, pooled_sd, range_of, resolution_of
from ..runs.record import Record
from ..runs.status import Status
from .tables import short, text_table
from .terminal import write_csv

COUNTS = ("failed", "seconds")  # columns of every study, next to its factors and metrics
MISSING: dict[str, Any] = {"mean": None, "sd": None, "n": 0, "low": None, "high": None}


@dataclass(frozen=True)
class PlotSpec:
    """How a study is shown."""

    title: str  # over table and plot
    x: str  # factor or metric on the x axis: fraction, train_flops, shots, ...
    y: str = "accuracy"  # metric on the y axis
    line: str = ""  # factor that makes separate curves; "" is none
    log_x: bool = False  # whether the x axis is logarithmic
    metrics: tuple[str, ...] = ("accuracy",)  # columns of the table, each mean ± sd (n)
    x_label: str = ""  # of the axis; "" takes the name
    y_label: str = ""  # likewise

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics and factors that `study_rows` needs for table and plot."""
        return tuple(dict.fromkeys((*self.metrics, self.y, self.x)))


def study_rows(
    records: Sequence[Record], metrics: Sequence[str], images: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """One row for each combination of factors, in order of first appearance.

    A row holds the factors (None where a record has no such factor), mean, sd, n, low and high of each metric over the
    trainings that are ok (means of None where none has it), `failed`, the number of those that are not, and `seconds`,
    the mean of those that are. `metrics` may name factors, failed or seconds; those stay what they are. `images` is
    their number by split, whose share is the resolution of an accuracy. InputError if a factor has the name of a
    column, or a seed of a combination is there twice.
    """
    rows = []
    for factors, group in _groups(records):
        good = [r for r in group if r.status == Status.OK]
        cells = {}
        for name in metrics:
            if name not in factors and name not in COUNTS:
                values = _values(good, name)
                resolution = resolution_of(name, images or {})
                cells[name] = asdict(mean_ci(values, range_of(name), resolution)) if values else dict(MISSING)
        seconds = mean_ci([r.seconds for r in good]).mean if good else None
        rows.append(factors | cells | {"failed": len(group) - len(good), "seconds": seconds})
    return rows


def seed_noise(records: Sequence[Record], metric: str) -> float | None:
    """Standard deviation between seeds, pooled over the combinations of factors; None without repetitions."""
    groups = [[r for r in group if r.status == Status.OK] for _, group in _groups(records)]
    return pooled_sd([_values(group, metric) for group in groups])


def _groups(records: Sequence[Record]) -> list[tuple[dict[str, Any], list[Record]]]:
    """Records by combination of factors; 1 and 1.0, a tuple and a list are the same."""
    names = dict.fromkeys(name for record in records for name in record.factors)
    for name in COUNTS:
        if name in names:
            raise InputError(f"study: a factor cannot be called {name!r}, which is a column of every study")
    groups: dict[str, tuple[dict[str, Any], list[Record]]] = {}
    for record in records:
        factors = {name: record.factors.get(name) for name in names}
        key = json.dumps(json.loads(json.dumps(factors), parse_int=float))
        groups.setdefault(key, (factors, []))[1].append(record)
    for factors, group in groups.values():  # one training counted twice would make the intervals too narrow
        seeds = Counter(record.seed for record in group if record.status == Status.OK)
        if twice := [seed for seed, count in seeds.items() if count > 1]:
            where = ", ".join(f"{name} {factor_text(name, value)}" for name, value in factors.items())
            raise InputError(f"study: seed {twice[0]} is there {seeds[twice[0]]} times at {where or 'no factors'}")
    return list(groups.values())


def _values(records: Sequence[Record], metric: str) -> list[float]:
    """A metric of each record that has it as a finite number: one of its own, or a cost."""
    if metric in ("accuracy", "error"):
        accuracies = [record.accuracy for record in records if record.accuracy is not None]
        values = accuracies if metric == "accuracy" else [1 - accuracy for accuracy in accuracies]
    else:
        own = [(record.metrics.get(metric), record.cost.get(metric)) for record in records]
        values = [cost if value is None else value for value, cost in own]
    return [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]


def is_spread(value: Any) -> bool:
    """Whether a row's value is a metric, not a factor or a number."""
    return isinstance(value, dict) and value.keys() == MISSING.keys()


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def factor_names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The columns of rows that are factors."""
    return [name for name, value in rows[0].items() if not is_spread(value) and name not in COUNTS] if rows else []


def factor_text(name: str, value: Any) -> str:
    """A factor's value for people: 0.03 of a `fraction` is "3 %"."""
    if name == "fraction" and is_number(value):
        return f"{100 * value:g} %"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def study_table(rows: Sequence[dict[str, Any]], spec: PlotSpec) -> Table:
    """Rows as a table: factors, metrics as mean ± sd, seeds, failures if there are any, seconds.

    Where the metrics of the rows come from different numbers of seeds, each has its own behind it. InputError if the
    rows do not have a metric of the spec.
    """
    factors, failed = factor_names(rows), any(row["failed"] for row in rows)
    alike = all(len({row[name]["n"] for name in spec.metrics if is_spread(row.get(name))}) == 1 for row in rows)
    metrics = [name for name in spec.metrics if name not in COUNTS and name not in factors]
    cells = [
        {name: factor_text(name, row[name]) for name in factors}
        | {name: _cell_text(name, row[check_choice("metric", name, row)], not alike) for name in metrics}
        | ({"seeds": str(row[metrics[0]]["n"])} if alike else {})
        | ({"failed": str(row["failed"])} if failed else {})
        | {"seconds": "-" if row["seconds"] is None else f"{row['seconds']:.1f}"}
        for row in rows
    ]
    left = [name for name in factors if not all(is_number(row[name]) for row in rows)]
    return text_table(cells, left, spec.title)


def _cell_text(name: str, cell: dict[str, Any], counted: bool) -> str:
    if cell["mean"] is None:
        return "-"
    if name in (*static_costs(), "activation_bytes") and not cell["sd"]:
        return short(cell["mean"])
    text = mean_ci_text(MeanCI(**cell))
    return text if counted else text.rpartition(" (")[0]


def study_json(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as a copy of objects, lists, text, numbers and None only."""
    return json.loads(json.dumps(rows))


def study_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows, at least one, as CSV with columns accuracy_mean, accuracy_sd, ...; None is empty."""
    if not rows:
        raise InputError(f"{path}: no rows to write")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv([_flat(row) for row in rows], path)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= {f"{name}_{part}": of for part, of in value.items()} if is_spread(value) else {name: value}
    return flat
