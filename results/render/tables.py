"""Numbers and tables of nets for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..ranking.metric import Metric, value_text
from ..ranking.objectives import LATENCY, is_cost
from ..ranking.objectives import title as objective_title
from ..runs.record import REFERENCE_KINDS
from .terminal import plain

WRAPPED = ("retrained", "note")  # columns of several words, which are broken before numbers are cut
# Columns of every front, beside that of the metric.
BASE = ("trial", "MACs", "params", "gain", "acc/GMAC", "family", "net")
SHOWN = 20  # values of a list, such as the classes of a data set


def short(number: float) -> str:
    """Three digits and a unit: 1509826560 -> "1.51 G"."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def duration(seconds: float) -> str:
    """A time in the unit that it is read best in: "45 s", "14 min", "3.2 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def gain_text(gain: float | None, bound: str | None) -> str:
    """A gain, or the bound that is known of it: "+2.41", ">= 13.8", "<= -0.5", "-"."""
    if gain is None:
        return "-"
    return f"{gain:+.2f}" if bound is None else f"{'>=' if bound == 'lower' else '<='} {gain:.1f}"


def nets_table(
    rows: Sequence[dict[str, Any]],
    title: str = "",
    others: Sequence[str] = (),
    ranks: bool = False,
    none: str = "",
    metric: Metric | None = None,
) -> RenderableType:
    """Rows of a leaderboard as a table; columns that say nothing about these rows are left out.

    Args:
        rows: as `ranking.front.rank_rows` makes them.
        title: over the table.
        others: objectives beside accuracy, a column each: costs, and metrics of the run.
        ranks: whether to say the rank.
        none: what is said under the title in place of a table without rows.
        metric: what the nets are ranked by; None is accuracy.
    """
    metric = metric or Metric()
    if not rows:
        return Group(plain(title, style="italic"), plain(none))
    tuned = [name for name, values in tuned_columns(rows).items() if len(values) > 1]
    beside = [name for name in others if name not in ("macs", "params")]
    names = {row["trial"]: row["label"] for row in rows if row["kind"] == "reference"}  # rather than their numbers
    cells = [_cells(row, beside, metric, tuned, names) for row in rows]
    budgets = {(row["weights"], row["budget_steps"]) for row in rows if row["weights"] in ("alone", "inherited")}
    optional = {"steps": len(budgets) > len({weights for weights, _ in budgets}), "rank": ranks}
    names = [name for name in cells[0] if optional.get(name, any(row[name] for row in cells))]
    if more := {*names} - {*BASE, metric.name, "note"}:  # 80 columns are few; the JSON has all
        names = [name for name in names if name not in _given_up(more, bool(tuned))]
    whole = ("trial", metric.name, "MACs", *tuned) if tuned else ("trial",)  # what a net is asked for by is never cut
    wrapped = () if any(row["kind"] == "reference" for row in rows) else WRAPPED  # names of references are not broken
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in names:
        if name in ("family", "net"):  # on a narrow terminal names give way to numbers
            table.add_column(name, style="dim" * (name == "net"))
        else:
            justify = "left" if name in ("run", "note") else "right"
            least = max(len(row[name]) for row in cells) if name in whole else len(name) * (name in WRAPPED)
            head = name.replace("_" if name in (metric.name, *tuned) else " ", "\n")
            table.add_column(Text(head), justify=justify, no_wrap=name not in wrapped, min_width=least)
    for row in cells:
        table.add_row(*(row[name] for name in names))
    return table


def _given_up(more: set[str], tuned: bool) -> Sequence[str]:
    """Columns that give way to others than every front has."""
    columns, latency = ("acc/GMAC", "net", "family", "params"), objective_title(LATENCY)
    if tuned or more >= {"retrained", latency}:
        return columns
    if "retrained" in more:
        return columns[:3]
    return columns[:1] if more == {latency} else columns[:2]


def tuned_columns(rows: Sequence[dict[str, Any]]) -> dict[str, set[Any]]:
    """The fields of the recipe that rows of a leaderboard have values of, and these."""
    values: dict[str, set[Any]] = {}
    for row in rows:
        for name, value in row.get("recipe", {}).items():
            values.setdefault(name, set()).add(value)
    return values


def tuned_text(value: Any) -> str:
    """A value of a recipe's field, to three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _cells(
    row: dict[str, Any], others: Sequence[str], metric: Metric, tuned: Sequence[str], names: Mapping[Any, str]
) -> dict[str, str]:
    """One row's text by column; `tuned` are fields of the recipe, `names` those of trials that have one."""
    again, tied = row["retrained_accuracy"], row["tied_with"] or ()
    deviation = _deviation(row["retrained_sd"], row["retrained_seeds"])
    ties = (
        [f"= {names.get(tied[0], tied[0])}" + f" +{len(tied) - 1}" * (len(tied) > 1)] if tied else []
    )  # the closest net, and how many
    marks = [row["kind"]] * (row["kind"] in REFERENCE_KINDS) + ["knee"] * row["knee"]
    marks += ["rising"] * bool(row["rising"]) + [row["weights"]] * (row["weights"] != "alone")
    return {
        "run": row.get("run", ""),
        "trial": names.get(row["trial"], str(row["trial"])),
        "rank": str(row["rank"]),
        metric.name: metric.text(row["accuracy"]),
        "sd (seeds)": _deviation(row["sd"], row["seeds"]),
        "MACs": short(row["macs"]),
        "params": short(row["params"]),
        **{objective_title(n): _other(n, row[n]) for n in others},
        **{name: tuned_text(row["recipe"][name]) if name in row.get("recipe", {}) else "" for name in tuned},
        "gain": gain_text(row["gain"], row["gain_bound"]),
        "acc/GMAC": short(row["accuracy_per_gmac"]) if metric.is_accuracy else "",
        "steps": str(row["budget_steps"]),
        "retrained": "" if again is None else " ±".join(filter(None, (metric.text(again), deviation))),
        "family": row["family"],
        "net": row["key"],
        "note": ", ".join([*ties, *marks]),
    }


def _other(objective: str, value: float | None) -> str:
    """A value beside accuracy, "" where it was not measured."""
    if value is None:
        return ""
    return short(value) if is_cost(objective) else value_text(value)


def _deviation(sd: float | None, seeds: int) -> str:
    return "" if sd is None else f"{sd:.4f} ({seeds})"


def facts_table(facts: dict[str, Any]) -> Table:
    """Facts about a data set, a line each; long lists of classes are cut."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        if isinstance(value, dict):
            for inner, what in value.items():
                table.add_row(f"{name}: {inner}", _fact(what))
        else:
            table.add_row(name, _fact(value))
    return table


def list_text(values: Sequence[Any]) -> str:
    """Values with commas between; of more than SHOWN the first ones, and how many there are."""
    shown = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values[:SHOWN])
    return f"{shown}, ... ({len(values)})" if len(values) > SHOWN else shown


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return list_text(value)
    if isinstance(value, dict):
        by_part = value.items() if value.keys() != {"all"} else [("", value["all"])]  # a set in one piece
        return ", ".join(f"{name} {what}".strip() for name, what in by_part)
    return f"{value:,}" if isinstance(value, int) else str(value)
