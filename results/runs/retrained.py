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
    rows = []
    for group in by_net(records):
        best, over_seeds = best_of(group), spreads(group)
        row = {
            "trial": best.factors.get("trial"),
            "net": best.key,
            "family": best.family,
            "macs": best.cost["macs"],
            "params": best.cost["params"],
            "steps": best.budget.get("full"),
            "seeds": len(group),
            "searched": searched.get(best.key),
            "accuracy": over_seeds["accuracy"],
            "test_accuracy": over_seeds.get("test_accuracy"),
            "best_seed": best.seed,
            "training_id": best.training_id,
        }
        rows.append(row)
    return sorted(rows, key=lambda row: -row["accuracy"]["mean"])


def spreads(group: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval of each of METRICS that was measured, over seeds."""
    values = {name: list[float]() for name in METRICS}
    for r in group:
        for name, value in zip(METRICS, (r.accuracy, r.metrics.get("test_accuracy")), strict=True):
            if value is not None:
                values[name].append(value)
    return {name: vars(mean_ci(measured, SHARE)) for name, measured in values.items() if measured}


def mean_of(group: Iterable[Record]) -> float:
    """Mean validation accuracy."""
    return spreads(group)["accuracy"]["mean"]


def retrainings(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """What retraining gave, by the net's key, as columns RETRAINED; of several recipes that of the best mean."""
    best: dict[str, dict[str, Any]] = {}
    for group in by_net(records):
        key, over_seeds = group[0].key, spreads(group)["accuracy"]
        values = (over_seeds["mean"], over_seeds["sd"], over_seeds["n"], group[0].budget.get("full"))
        if key not in best or over_seeds["mean"] > best[key]["retrained_accuracy"]:
            best[key] = dict(zip(RETRAINED, values, strict=True))
    return best


def table(rows: Iterable[dict[str, Any]]) -> Table:
    """The rows of `summary` for the terminal; columns that no row fills are left out."""
    cells = []
    for row in rows:
        spread = ("-" if row[m] is None else mean_ci_text(MeanCI(**row[m])).rpartition(" (")[0] for m in METRICS)
        trial = "-" if row["trial"] is None else str(row["trial"])
        searched = "-" if row["searched"] is None else f"{row['searched']:.4f}"
        seeds = (str(row["seeds"]), str(row["best_seed"]))
        cells.append((trial, row["family"], short(row["macs"]), searched, *spread, *seeds))
    drawn, shown = Table(header_style="bold", box=None, pad_edge=False), []
    for i, name in enumerate(COLUMNS):
        if any(row[i] != "-" for row in cells):
            shown.append(i)
            drawn.add_column(name, justify="left" if i < 2 else "right", no_wrap=name == "family")
    for row in cells:
        drawn.add_row(*(row[i] for i in shown))
    return drawn


def failures(records: Iterable[Record]) -> list[str]:
    """A line on the trainings that did not end well; none if all did."""
    failed = [r for r in records if r.status != "ok"]
    if not failed:
        return []
    first = failed[0]
    return [f"failed: {len(failed)}; the first, seed {first.seed} of net {first.key}: {first.status} {first.error}"]


def summary_line(run: Path, key: str) -> str:
    """One line on the retrainings of a net of a run; "" if there are none."""
    groups = [group for group in by_net(retrained(run)) if group[0].key == key]
    if not groups:
        return ""
    text = {name: mean_ci_text(MeanCI(**s)) for name, s in spreads(max(groups, key=mean_of)).items()}
    test = f", test {text['test_accuracy']}" if "test_accuracy" in text else ""
    return f"retrained, over seeds: validation accuracy {text['accuracy']}{test}"


def prune(run: Path) -> None:
    """Keep of each net and recipe the best weights only."""
    for group in by_net(retrained(run)):
        best = best_of(group)
        for r in group:
            if r.training_id != best.training_id:
                for end in (".safetensors", ".head.safetensors", ".npz"):
                    (run / FOLDER / "weights" / f"{r.training_id}{end}").unlink(missing_ok=True)
