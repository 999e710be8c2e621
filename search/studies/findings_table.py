"""What `explain --findings` prints: the nets, and a line for each claim of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from ...results.console import plain


def drawing(told: Mapping[str, Any]) -> RenderableType:
    """Tables that fit 80 columns; findings.json says each claim in full, and whose it is."""
    title = f"The papers' claims on {told['data']}, {told['seeds']} seeds: mean and 95 % interval, positive if right"
    return Group(_nets(told["nets"]), _claims(told["claims"], title), plain(f"in full: {told['folder']}/findings.json"))


def _nets(nets: Mapping[str, Any]) -> Table:
    table = Table("net", "MACs", "accuracy by seed", box=None)
    for name, net in nets.items():
        accuracies = ", ".join("failed" if value is None else f"{value:.3f}" for value in net["accuracy"])
        table.add_row(name, f"{net['macs']:,}", accuracies)
    return table


def _claims(claims: list[dict[str, Any]], title: str) -> Table:
    table = Table("claim", "verdict", "mean", "interval", "unit", title=title, title_justify="left", box=None)
    for row in claims:
        mean = "" if row["mean"] is None else f"{row['mean']:+.3g}"
        interval = "" if row["low"] is None else f"{row['low']:+.2g} {row['high']:+.2g}"
        table.add_row(row["claim"], row["verdict"], mean, interval, row["unit"])
    return table
