"""The bench's table for a terminal, and its plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from .evaluate import SHARES
from .simulated import MOST, SearcherConfig, Trace

POINTS = 200  # along the axis of training spent


def bench_table(rows: list[dict[str, Any]], title: str) -> Table:
    """A row for each contender."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for number, head in enumerate(heads(rows)):
        table.add_column(head, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*cells(row))
    table.caption = (
        "Full trainings spent until so much of the table's hypervolume is found: medians over seeds; -: given up "
        f"after {MOST:.0f}. found at: the share found by so many. to 99% / random's: ratio of medians (95 % interval)."
    )
    return table


def heads(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Of the columns that `cells` fills."""
    spent = (f"to {share:.0%} (quartiles)" for share in SHARES)
    return "strategy", "scheduler", *spent, f"found at {rows[0]['hypervolume_at']:.0f}", "to 99% / random's"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A contender's row as it is shown."""
    spent = (_spent(row, f"spent_to_{share * 100:.0f}") for share in SHARES)
    return row["strategy"], row["scheduler"], *spent, f"{row['hypervolume_median']:.3f}", _times(row)


def _spent(row: dict[str, Any], name: str) -> str:
    if row[f"{name}_median"] is None:
        return "-"
    low, high = (row[f"{name}_{end}"] for end in ("low", "high"))
    return f"{row[f'{name}_median']:.0f} ({_whole(low)}-{_whole(high)})"


def _whole(value: float | None) -> str:
    return f">{MOST:.0f}" if value is None else f"{value:.0f}"


def _times(row: dict[str, Any]) -> str:
    if row["times_random"] is None:
        return "-"
    times, low, high = (row[f"times_random{end}"] for end in ("", "_low", "_high"))
    if low is None:
        return f"{times:.2f}"
    return f"{times:.2f} ({low:.2f} or more)" if high is None else f"{times:.2f} ({low:.2f}-{high:.2f})"


def plot(traces: dict[SearcherConfig, list[Trace]], file: Path) -> None:
    """Share of the table's hypervolume against training spent: medians, quartiles as bands."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    most = max(trace.spent[-1] for runs in traces.values() for trace in runs if trace.spent)
    along = [most * i / POINTS for i in range(1, POINTS + 1)]
    for contender, runs in traces.items():
        heights = [sorted(trace.volume_at(spent) for trace in runs) for spent in along]
        low, middle, high = ([h[round(share * (len(h) - 1))] for h in heights] for share in (0.25, 0.5, 0.75))
        label = contender.strategy if contender.scheduler == "none" else f"{contender.strategy}, {contender.scheduler}"
        (line,) = axes.plot(along, middle, label=label)
        axes.fill_between(along, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="full trainings spent", ylabel="share of the table's hypervolume", ylim=(0.5, 1.005))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    plt.close(figure)
