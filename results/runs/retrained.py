"""What retraining found: each net's accuracy over seeds, on validation and test, and its best weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from ..ranking.stats import SHARE, MeanCI, mean_ci, mean_ci_text
from ..render.tables import short
from .record import Record
from .store import read_records

FOLDER = "retrain"  # of a run
METRICS = ("accuracy", "test_accuracy")
RETRAINED: dict[str, Any] = dict.fromkeys(f"retrained_{name}" for name in ("accuracy", "sd", "seeds", "steps"))
COLUMNS = ("trial", "family", "MACs", "search", "validation", "test", "seeds", "best")


def retrained(run: Path) -> list[Record]:
    """All retrainings of a run that ended well."""
    return [r for r in read_records(run / FOLDER) if r.status == "ok"]


def by_net(records: Iterable[Record]) -> list[list[Record]]:
    """Trainings that ended well, in groups that differ in the seed alone: one net, recipe and set of factors each."""
    groups: dict[str, list[Record]] = {}
    for r in records:
        if r.status == "ok" and r.accuracy is not None:
            same = json.dumps([r.key, r.budget.get("full"), r.recipe, r.factors], sort_keys=True)
            groups.setdefault(same, []).append(r)
    return list(groups.values())


def best_of(records: Iterable[Record]) -> Record:
    """The most accurate on validation; of equal ones the first seed."""
    return min(records, key=lambda r: (-(r.accuracy or 0.0), r.seed))


def summary(records: Iterable[Record], searched: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """One row a net and recipe, the most accurate first.

    Args:
        records: retrainings.
        searched: accuracy in the search, by the net's key.
    """
    rows = [_row(group, searched.get(group[0].key)) for group in by_net(records)]
    return sorted(rows, key=lambda row: -row["accuracy"]["mean"])


def _row(group: list[Record], searched: float | None) -> dict[str, Any]:
    best = best_of(group)
    found = spreads(group)
    return {
        "trial": best.factors.get("trial"),
        "net": best.key,
        "family": best.family,
        "macs": best.cost["macs"],
        "params": best.cost["params"],
        "steps": best.budget.get("full"),
        "seeds": len(group),
        "searched": searched,
        "accuracy": found["accuracy"],
        "test_accuracy": found.get("test_accuracy"),
        "best_seed": best.seed,
        "training": best.training,
    }


def spreads(group: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval of each of METRICS that was measured, over seeds."""
    group = list(group)
    values = {"accuracy": [r.accuracy for r in group], "test_accuracy": [r.metrics.get("test_accuracy") for r in group]}
    known = {name: [v for v in found if v is not None] for name, found in values.items()}
    return {name: vars(mean_ci(found, SHARE)) for name, found in known.items() if found}


def mean_of(group: Iterable[Record]) -> float:
    """Mean validation accuracy."""
    return spreads(group)["accuracy"]["mean"]


def retrainings(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """What retraining gave, by the net's key, as columns RETRAINED; of several recipes that of the best mean."""
    found: dict[str, dict[str, Any]] = {}
    for group in by_net(records):
        own = spreads(group)["accuracy"]
        row = dict(zip(RETRAINED, (own["mean"], own["sd"], own["n"], group[0].budget.get("full")), strict=True))
        known = found.get(group[0].key)
        if known is None or row["retrained_accuracy"] > known["retrained_accuracy"]:
            found[group[0].key] = row
    return found


def table(rows: Iterable[dict[str, Any]]) -> Table:
    """The rows of `summary` for the terminal; columns that no row fills are left out."""
    rows, found = list(rows), Table(header_style="bold", box=None, pad_edge=False)
    cells = [_cells(row) for row in rows]
    for name in COLUMNS:
        if any(row[name] != "-" for row in cells):
            found.add_column(name, justify="left" if name in COLUMNS[:2] else "right", no_wrap=name == "family")
    for row in cells:
        found.add_row(*(row[str(column.header)] for column in found.columns))
    return found


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """One row's text by column."""
    validation, test = ("-" if row[m] is None else mean_ci_text(MeanCI(**row[m])).rpartition(" (")[0] for m in METRICS)
    trial = "-" if row["trial"] is None else str(row["trial"])
    before = "-" if row["searched"] is None else f"{row['searched']:.4f}"
    seeds = (str(row["seeds"]), str(row["best_seed"]))
    found = (trial, row["family"], short(row["macs"]), before, validation, test, *seeds)
    return dict(zip(COLUMNS, found, strict=True))


def failures(records: Iterable[Record]) -> list[str]:
    """A line on the trainings that did not end well; none if all did."""
    failed = [r for r in records if r.status != "ok"]
    if not failed:
        return []
    first = failed[0]
    return [f"failed: {len(failed)}; the first, seed {first.seed} of net {first.key}: {first.status} {first.error}"]


def said(run: Path, key: str) -> str:
    """One line on the retrainings of a net of a run; "" if there are none."""
    groups = [group for group in by_net(retrained(run)) if group[0].key == key]
    if not groups:
        return ""
    found = {name: mean_ci_text(MeanCI(**s)) for name, s in spreads(max(groups, key=mean_of)).items()}
    test = f", test {found['test_accuracy']}" if "test_accuracy" in found else ""
    return f"retrained, over seeds: validation accuracy {found['accuracy']}{test}"


def prune(run: Path) -> None:
    """Keep of each net and recipe the best weights only."""
    for group in by_net(retrained(run)):
        best = best_of(group)
        for r in group:
            if r.training != best.training:
                for end in (".safetensors", ".npz"):
                    (run / FOLDER / "weights" / f"{r.training}{end}").unlink(missing_ok=True)
