"""Results of retraining: each net's accuracy over seeds, on validation and test, and its best weights."""

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from ..ranking.metric import Metric
from ..ranking.stats import MeanCI, mean_ci, mean_ci_text, resolution_of
from ..render.tables import short, text_table
from .record import Record
from .status import Status
from .store import read_records

FOLDER = "retrain"  # of a run
RETRAINED = tuple(f"retrained_{name}" for name in ("accuracy", "sd", "seeds", "steps", "test"))


def retrained(run: Path) -> list[Record]:
    """All successful retrainings of a run."""
    return [r for r in read_records(run / FOLDER) if r.status == Status.OK]


def by_net(records: Iterable[Record]) -> list[list[Record]]:
    """Successful trainings, in groups that differ in the seed alone: one net, recipe and set of factors each."""
    groups: dict[str, list[Record]] = {}
    for r in records:
        if r.status == Status.OK and r.accuracy is not None:
            same = json.dumps([r.key, r.budget.get("full"), r.recipe, r.factors], sort_keys=True)
            groups.setdefault(same, []).append(r)
    return list(groups.values())


def best_of(records: Iterable[Record]) -> Record:
    """The most accurate on validation; of equal ones the first seed."""
    return min(records, key=lambda r: (-(r.accuracy or 0.0), r.seed))


def summary(
    records: Iterable[Record],
    searched: Mapping[int, float | None],
    images: Mapping[str, int],
    metric: Metric | None = None,
) -> list[dict[str, Any]]:
    """One row a net and recipe, the most accurate first; `searched` are scores in the search, by trial.

    Of another metric than accuracy rows have `metric`, its name, and `value` and `test_value`.
    """
    metric = metric or Metric()
    found, tested = names_of(metric)
    named = {} if metric.is_accuracy else {"metric": metric.name}
    rows = []
    for group in sorted(by_net(records), key=lambda group: -mean_of(group)):
        best, over_seeds = best_of(group), spreads(group, metric, images)
        before = searched.get(group[0].factors.get("trial", -1))
        row = {
            "trial": best.factors.get("trial"),
            "net": best.key,
            "family": best.family,
            "macs": best.cost["macs"],
            "params": best.cost["params"],
            "steps": best.budget.get("full"),
            "seeds": len(group),
            "searched": None if before is None else metric.value(before),
            **named,
            found: over_seeds[metric.name],
            tested: over_seeds.get(f"test_{metric.name}"),
            "best_seed": best.seed,
            "training_id": best.training_id,
        }
        rows.append(row)
    return rows


def names_of(metric: Metric) -> tuple[str, str]:
    """Names of the columns for validation and test in the rows of `summary`."""
    return ("accuracy", "test_accuracy") if metric.is_accuracy else ("value", "test_value")


def spreads(group: Iterable[Record], metric: Metric, images: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval over seeds of the metric by its name, and as test_NAME; of those measured."""
    values: dict[str, list[float]] = {metric.name: [], f"test_{metric.name}": []}
    for r in group:
        score, tested = r.accuracy, r.metrics.get(f"test_{metric.name}")
        for name, value in zip(values, (None if score is None else metric.value(score), tested), strict=True):
            if value is not None:
                values[name].append(value)
    return {
        name: vars(mean_ci(measured, metric.within, resolution_of(name, images)))
        for name, measured in values.items()
        if measured
    }


def mean_of(group: Iterable[Record]) -> float:
    """Mean validation accuracy, or score."""
    return statistics.fmean(r.accuracy for r in group if r.accuracy is not None)


def retrainings(records: Iterable[Record], metric: Metric) -> dict[str, dict[str, Any]]:
    """Results of retraining by the net's key, as columns RETRAINED, of the best recipe; the test's as values."""
    best: dict[str, dict[str, Any]] = {}
    for group in by_net(records):
        key, over_seeds = group[0].key, mean_ci([r.accuracy for r in group if r.accuracy is not None])
        tested = spreads(group, metric, {}).get(f"test_{metric.name}", {}).get("mean")
        values = (over_seeds.mean, over_seeds.sd, over_seeds.n, group[0].budget.get("full"), tested)
        if key not in best or over_seeds.mean > best[key]["retrained_accuracy"]:
            best[key] = dict(zip(RETRAINED, values, strict=True))
    return best


def table(rows: Iterable[dict[str, Any]], metric: Metric | None = None) -> Table:
    """The rows of `summary` for the terminal; columns that no row fills are left out."""
    validation, test = names_of(metric or Metric())
    cells = [
        {
            "trial": "" if row["trial"] is None else str(row["trial"]),
            "family": row["family"],
            "MACs": short(row["macs"]),
            "search": "" if row["searched"] is None else f"{row['searched']:.4f}",
            "validation": _spread_text(row[validation]),
            "test": _spread_text(row[test]),
            "seeds": str(row["seeds"]),
            "best": str(row["best_seed"]),
        }
        for row in rows
    ]
    return text_table(cells, left=("trial", "family"))


def _spread_text(spread: dict[str, Any] | None) -> str:
    return "" if spread is None else mean_ci_text(MeanCI(**spread)).rpartition(" (")[0]


def failures(records: Iterable[Record]) -> list[str]:
    """One line on failed trainings; none if all succeeded."""
    failed = [r for r in records if r.status != Status.OK]
    if not failed:
        return []
    first = failed[0]
    return [f"failed: {len(failed)}; the first, seed {first.seed} of net {first.key}: {first.status} {first.error}"]


def summary_line(run: Path, key: str, metric: Metric) -> str:
    """One line on the retrainings of a net of a run; "" if there are none."""
    groups = [group for group in by_net(retrained(run)) if group[0].key == key]
    if not groups:
        return ""
    text = [mean_ci_text(MeanCI(**s)) for s in spreads(max(groups, key=mean_of), metric, {}).values()]
    test = f", test {text[1]}" if len(text) > 1 else ""
    return f"retrained, over seeds: validation {metric.name} {text[0]}{test}"


def prune(run: Path) -> None:
    """Keep of each net and recipe the best weights only."""
    for group in by_net(retrained(run)):
        best = best_of(group)
        for r in group:
            if r.training_id != best.training_id:
                for end in (".safetensors", ".head.safetensors", ".npz"):
                    (run / FOLDER / "weights" / f"{r.training_id}{end}").unlink(missing_ok=True)
