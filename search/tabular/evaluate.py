"""The verdict: how much training each contender needs, as medians over seeds with their spread."""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from rich.table import Table

from .simulated import MOST, SearcherConfig, Trace, run
from .tables import FILE, TabularBenchmark, load_table

SHARES = (0.90, 0.95, 0.99)  # of the table's hypervolume
AT = 50.0  # full trainings after which hypervolumes are compared
RESAMPLES = 2000  # of the seeds, for intervals of a ratio of medians
REFERENCE = SearcherConfig("random")


@dataclass(frozen=True)
class BenchmarkConfig:
    """What is run: on which table, how many seeds, how many simulated workers, over how many processes."""

    data: str = "cue"
    seeds: int = 10
    workers: int = 8
    processes: int = 0
    path: Path = FILE


def run_benchmark(
    match: BenchmarkConfig, contenders: Sequence[SearcherConfig], tell: Callable[[str], None]
) -> dict[SearcherConfig, list[Trace]]:
    """Run every contender with every seed; `tell` hears of each that is done."""
    load_table(match.data, match.path)  # errors here, not in a worker
    found: dict[SearcherConfig, list[Trace]] = {}
    with ProcessPoolExecutor(match.processes or os.cpu_count(), get_context("spawn"), _open, (match,)) as pool:
        try:
            jobs = {c: [pool.submit(_one, c, seed, match.workers) for seed in range(match.seeds)] for c in contenders}
            for contender, futures in jobs.items():
                found[contender] = [future.result() for future in futures]
                tell(f"{contender.strategy}, scheduler {contender.scheduler}")
        except BaseException:  # the pool would wait until all is done
            _end(pool)
            raise
    return found


def _end(pool: ProcessPoolExecutor) -> None:
    """Do nothing more, now."""
    for process in active_children():
        process.terminate()
    pool.shutdown(cancel_futures=True)


_TABLE: TabularBenchmark | None = None


def _open(match: BenchmarkConfig) -> None:
    """Load the table, once in each process, which its parent ends: Ctrl-C reaches all of them."""
    global _TABLE
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _TABLE = load_table(match.data, match.path)


def _one(contender: SearcherConfig, seed: int, workers: int) -> Trace:
    assert _TABLE is not None
    return run(_TABLE, contender, seed, workers)


def rows(traces: dict[SearcherConfig, list[Trace]]) -> list[dict[str, Any]]:
    """A row for each contender, those that need least first; training in full trainings.

    Medians and quartiles over seeds; None where half of the seeds, or a quarter, did not get so far. `times_random`
    is the ratio of medians of training to 99 %, with a 95 % bootstrap interval over two seeds or more, where random
    was run too. A random search that was given up counts with what it had spent: the true ratio is below that.
    """
    reference = [min(MOST, spent) for spent in _spent(traces[REFERENCE], SHARES[-1])] if REFERENCE in traces else None
    found = [_row(contender, runs, reference) for contender, runs in traces.items()]
    return sorted(found, key=lambda row: (_or_inf(row["spent_to_99_median"]), _or_inf(row["spent_to_95_median"])))


def _row(contender: SearcherConfig, runs: list[Trace], reference: list[float] | None) -> dict[str, Any]:
    row = {name: getattr(contender, name) for name in ("strategy", "scheduler")}
    row |= {"seeds": len(runs)}
    for share in SHARES:
        spent = _spent(runs, share)
        for name, value in zip(("low", "median", "high"), _quartiles(spent), strict=True):
            row[f"spent_to_{share * 100:.0f}_{name}"] = _finite(value)
    low, middle, high = _quartiles([trace.volume_at(AT) for trace in runs])
    row |= {"hypervolume_low": low, "hypervolume_median": middle, "hypervolume_high": high, "hypervolume_at": AT}
    times = _ratio(_spent(runs, SHARES[-1]), reference) if reference else (None, None, None)
    return row | dict(zip(("times_random", "times_random_low", "times_random_high"), times, strict=True))


def _spent(runs: Sequence[Trace], share: float) -> list[float]:
    return [_or_inf(trace.spent_to(share)) for trace in runs]


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; infinite values count as the largest."""
    ordered = sorted(values)
    return _quantile(ordered, 0.25), _quantile(ordered, 0.5), _quantile(ordered, 0.75)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below if below == above else below + (place - math.floor(place)) * (above - below)


def _ratio(own: Sequence[float], other: Sequence[float]) -> tuple[float | None, ...]:
    """Ratio of medians, and the 95 % interval of resampled seeds; of one seed there is none."""
    if len(own) < 2 or len(other) < 2:
        return _finite(_over(statistics.median(own), statistics.median(other))), None, None
    draw = random.Random(0)

    def resampled(values: Sequence[float]) -> float:
        return statistics.median(draw.choices(values, k=len(values)))

    ratios = sorted(_over(resampled(own), resampled(other)) for _ in range(RESAMPLES))
    ends = ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES)]
    return tuple(map(_finite, (_over(statistics.median(own), statistics.median(other)), *ends)))


def _over(a: float, b: float) -> float:
    return math.inf if math.isinf(a) or math.isinf(b) else a / b


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
    spent = (_spent_cell(row, f"spent_to_{share * 100:.0f}") for share in SHARES)
    return row["strategy"], row["scheduler"], *spent, f"{row['hypervolume_median']:.3f}", _times(row)


def _spent_cell(row: dict[str, Any], name: str) -> str:
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
