"""Measured latencies for the terminal and as JSON: a table for each setting, and what must be said about it."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType

from ..ranking.metric import as_shown
from ..ranking.pareto import pareto_ranks
from ..ranking.stats import rank_correlation
from ..render.tables import short, text_table
from ..render.terminal import plain
from .measurement import Latency
from .nets import TimedNet
from .on_device import SPREAD
from .on_this_machine import BUSY, meter_of
from .predictor import MIN_NETS, LatencyPredictor
from .setting import DeviceCommand, LatencySetting, Setting

NOT_TIGHT = "?: the median's 95 % interval stayed wider than 2 %; other work on the machine?"
NOT_TIGHT_ON_DEVICE = f"?: the quartiles of repeats stayed more than {SPREAD:.0%} apart: the device is busy"


def latency_rows(pairs: Sequence[tuple[TimedNet, Latency]]) -> list[dict[str, Any]]:
    """A row for each net in one setting, the quickest first: what is known of it, its latency, ranks by both costs.

    `rank` is the Pareto rank on accuracy and latency, `rank_macs` that on accuracy and MACs; None without accuracies.
    Of a run that is ranked by another metric rows are as `as_shown` makes them.
    """
    rows: list[dict[str, Any]] = [
        {"name": net.name, "key": net.key, **net.facts, **latency.to_dict(), "rank": None, "rank_macs": None}
        for net, latency in pairs
    ]
    for name, cost in (("rank", "latency_ms"), ("rank_macs", "macs")):
        known = [row for row in rows if row.get("accuracy") is not None and row[cost]]
        ranks = pareto_ranks([(row["accuracy"], row[cost]) for row in known])
        for row, rank in zip(known, ranks, strict=True):
            row[name] = rank
    rows.sort(key=lambda row: (row["rank"] or 0, row["latency_ms"]))
    return [as_shown(row, pairs[0][0].metric) for row in rows]


def rank_correlation_macs(rows: Sequence[dict[str, Any]]) -> float | None:
    """Spearman's rank correlation of MACs and latency; None for fewer than three nets, or where all are equal."""
    return rank_correlation([(row["macs"], row["latency_ms"]) for row in rows])


def prediction_lines(pairs: Sequence[tuple[TimedNet, Latency]]) -> list[str]:
    """How well latency of other nets is predicted from these in one setting; nothing where they are too few."""
    known = {net.key: (net.cost, latency.latency_ms) for net, latency in pairs if net.cost and latency.latency_ms}
    if len(known) < MIN_NETS:
        return []
    error = LatencyPredictor(*zip(*known.values(), strict=True)).left_out_error()
    return [f"latency of other nets: predicted from {len(known)} nets, leave-one-out error {100 * error:.0f} %"]


def latency_table(rows: Sequence[dict[str, Any]], setting: Setting) -> RenderableType:
    """The rows as a table, with what must be said about them; numbers of a device beside latency have columns too."""
    numbers = dict.fromkeys(name for row in rows for name in row["numbers"])
    cells = [
        {
            "net": row["name"],
            "latency": (f"{row['latency_ms']:.3g} ms" if row["latency_ms"] else "") + ("" if row["tight"] else " ?"),
            "± quartiles": f"{row['latency_spread_ms']:.2g}" if row["latency_ms"] else "",
            "images/s": short(row["images_per_second"]) if row["latency_ms"] else "",
            "MACs": short(row["macs"]),
            row.get("metric", "accuracy"): "" if (a := row.get("value", row.get("accuracy"))) is None else f"{a:.4f}",
            "rank": str(row["rank"] or ""),
            "by MACs": str(row["rank_macs"] or ""),
            "memory": f"{row['memory_bytes'] / 1e6:.1f} MB" if row["memory_bytes"] else "",
            **{name: f"{row['numbers'][name]:.3g}" if name in row["numbers"] else "" for name in numbers},
        }
        for row in rows
    ]
    table = text_table(cells, left=("net",), title=describe_setting(setting, rows[0]["machine"]))
    notes, correlation = [], rank_correlation_macs(rows)
    if correlation is not None:
        notes.append(f"rank correlation of MACs and latency: {correlation:.2f} (Spearman, {len(rows)} nets)")
    if isinstance(setting, LatencySetting):
        notes.append(f"energy: {meter_of(setting).name}")
    if not all(row["tight"] for row in rows):
        notes.append(NOT_TIGHT if isinstance(setting, LatencySetting) else NOT_TIGHT_ON_DEVICE)
    if (busy := max(row["busy"] for row in rows)) and isinstance(setting, LatencySetting):
        notes.append(f"the machine was busy: a load of {busy:.2f} a core, and more than {BUSY} is not to be trusted")
    return Group(table, *(plain(note, style="dim") for note in notes))


def describe_setting(setting: Setting, machine: str) -> str:
    if isinstance(setting, DeviceCommand):
        return f"device {setting.name}: {setting.form}, by {setting.command}"
    threads = "" if setting.device == "cuda" else f", {setting.threads} thread{'s' * (setting.threads > 1)}"
    return f"{machine} ({setting.device}{threads}): batch {setting.batch}, {setting.dtype}, {setting.runtime}"
