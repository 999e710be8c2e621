"""A run's records as a pandas DataFrame."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pandas as pd

from ..ranking.metric import as_shown
from ..ranking.objectives import RankingQuery, parse_objectives
from ..ranking.quantities import costs
from ..ranking.ranked_net import RankedNet
from ..ranking.run_leaderboard import leaderboard_of
from .record import Record
from .store import find_run

SPREAD = ("cost", "budget", "metrics", "factors")  # fields of a record that become columns of their own
TOTALS = ("macs", "params", "activation_bytes", "peak_activation_bytes", "training_activation_bytes")
OWN = [f.name for f in fields(Record) if f.name not in (*SPREAD, "format", "trial")]
NO_COLUMNS = {"run", "trial", "label", "is_cut", "costs", "metrics", "recipe", "recipes"}  # fields of a ranked net


def ranked_columns() -> list[str]:
    """The columns that only ranked nets have values of, costs first."""
    own = [f.name for f in fields(RankedNet) if f.name not in (*OWN, *NO_COLUMNS)]
    return [*(name for name in costs() if name not in TOTALS), "latency_spread_ms", *own]


def run_frame(run: str | Path, objectives: str | Sequence[str] = "") -> pd.DataFrame:
    """One row a record of a run, by name or folder, indexed by `trial`; objectives as --objectives.

    Of a run that is ranked by another metric than accuracy, accuracy is that of the first seed where trainings report
    it, points of curve and rungs have value in place of accuracy, and accuracies, accuracy_per_gmac and
    retrained_accuracy are missing.

    docs/reading-a-front.md names the columns that are always there. Then comes one for each metric that a record has,
    by its name (nll, ece, top5, train_accuracy, ...), and one for each factor of a study, factor_NAME.
    """
    board = leaderboard_of(find_run(run), RankingQuery(parse_objectives(objectives)))
    metric = board.query.metric
    shown = {row.trial: row.to_dict(metric) for row in board.rows}
    ranked = {trial: {name: row.get(name) for name in ranked_columns()} for trial, row in shown.items()}
    rows = []
    for record in board.records:
        held = as_shown(vars(record), metric)
        row = {name: held.get(name) for name in ("trial", *OWN)}
        row |= {name: record.cost.get(name) for name in TOTALS}
        row |= {f"steps_{name}": record.budget.get(name) for name in ("done", "full")}
        row |= record.metrics | {f"factor_{name}": value for name, value in record.factors.items()}
        row |= {"metric": metric.name, "value": None if record.accuracy is None else metric.value(record.accuracy)}
        row["values"] = held.get("values", record.accuracies)
        texts = {as_text(name): as_text(value) if isinstance(value, str) else value for name, value in row.items()}
        rows.append(texts | ranked.get(record.trial, {}))
    known = ["metric", "value", "values", *OWN, *TOTALS, "steps_done", "steps_full", *ranked_columns()]
    more = dict.fromkeys(name for row in rows for name in row if name not in known and name != "trial")
    frame = pd.DataFrame(rows, columns=["trial", *known, *sorted(more, key=lambda name: name.startswith("factor_"))])
    return frame.set_index("trial")


def as_text(value: object) -> str:
    """Text without lone surrogates, which a record may hold and a file may not."""
    return str(value).encode("utf-8", "replace").decode()
