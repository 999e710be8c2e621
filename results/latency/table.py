"""What was measured, as rows: latency beside MACs, ranks by either, and how well the one stands for the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from ..ranking.pareto import pareto_ranks
from ..render.tables import short
from ..render.terminal import plain
from .measure import BUSY, Latency
from .nets import TimedNet
from .setting import LatencySetting

Pairs = Sequence[tuple[TimedNet, Latency]]


def rows_of(pairs: Pairs) -> list[dict[str, Any]]:
    """A row for each net under one setting, the quickest first: what is known of it, its latency, ranks by both costs.

    `rank` is the Pareto rank on accuracy and latency, `rank_macs` that on accuracy and MACs; None without accuracies.
    """
    rows: list[dict[str, Any]] = [
        {"name": subject.name, "key": subject.key} | subject.facts | latency.to_dict() for subject, latency in pairs
    ]
    known = [row for row in rows if row.get("accuracy") is not None]
    for name, cost in (("rank", "latency_ms"), ("rank_macs", "macs")):
        for row in rows:
            row[name] = None
        ranks = pareto_ranks([(row["accuracy"], row[cost]) for row in known])
        for row, rank in zip(known, ranks, strict=True):
            row[name] = rank
    return sorted(rows, key=lambda row: (row["rank"] or 0, row["latency_ms"]))


def agreement(rows: Sequence[dict[str, Any]]) -> float | None:
    """Spearman's rank correlation of MACs and latency; None for fewer than three nets, or where all are equal."""
    from scipy.stats import spearmanr

    macs, latencies = ([row[name] for row in rows] for name in ("macs", "latency_ms"))
    if len(rows) < 3 or min(len(set(macs)), len(set(latencies))) == 1:
        return None
    return float(spearmanr(macs, latencies).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def drawn(rows: Sequence[dict[str, Any]], setting: LatencySetting) -> RenderableType:
    """The rows as a table, with what must be said about them."""
    table = Table(title=said(setting, rows[0]["machine"]), title_justify="left", header_style="bold", box=None)
    table.add_column("net")
    for title in ("latency", "± quartiles", "images/s", "MACs", "accuracy", "rank", "by MACs"):
        table.add_column(title, justify="right")
    for row in rows:
        accuracy = row.get("accuracy")
        table.add_row(
            row["name"],
            f"{row['latency_ms']:.3g} ms" + ("" if row["tight"] else " ?"), f"{row['latency_spread_ms']:.2g}",
            short(row["images_per_second"]), short(row["macs"]), "-" if accuracy is None else f"{accuracy:.4f}",
            str(row["rank"] or "-"), str(row["rank_macs"] or "-"),
        )  # fmt: skip
    return Group(table, *(plain(note, style="dim") for note in _notes(rows)))


def said(setting: LatencySetting, machine: str) -> str:
    """A setting in words."""
    threads = "" if setting.device == "cuda" else f", {setting.threads} thread{'s' * (setting.threads > 1)}"
    return f"{machine} ({setting.device}{threads}): batch {setting.batch}, {setting.dtype}, {setting.runtime}"


def _notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    notes, correlation = [], agreement(rows)
    if correlation is not None:
        notes.append(f"rank correlation of MACs and latency: {correlation:.2f} (Spearman, {len(rows)} nets)")
    if not all(row["tight"] for row in rows):
        notes.append("?: the median's 95 % interval stayed wider than 2 %; other work on the machine?")
    if busy := max(row["busy"] for row in rows):
        notes.append(f"the machine was busy: a load of {busy:.2f} a core, and more than {BUSY} is not to be trusted")
    return notes
