"""How much training each searcher needs, as medians over seeds with their spread."""

import math
import random
import signal
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from rich.table import Table

from ...archs.children import safe_path
from ...archs.cpus import usable_cpus
from ...archs.errors import InputError
from ..trials.schedulers import Scheduler
from .benchmark_table import TabularBenchmark
from .published import load_table
from .simulated import MAX_SPENT, SearcherConfig, Trace, run
from .table_file import read_table

SHARES = (0.90, 0.95, 0.99)  # of the table's hypervolume
AT = 50.0  # full trainings after which hypervolumes are compared
RESAMPLES = 2000  # of the seeds, for intervals of a ratio of medians
REFERENCE = SearcherConfig("random")


@dataclass(frozen=True)
class BenchmarkConfig:
    """Settings of a benchmark: table, seeds, how many simulated workers, over how many processes (0: one per CPU)."""

    data: str = "cue"  # name of a published table; of `file` the data set, "" where it has one
    seeds: int = 10
    workers: int = 8
    processes: int = 0
    file: Path | None = None  # a table of one's own; see `read_table`
    objective: str = "macs"
    floor: float | None = None  # accuracy that hypervolumes are counted above; None for the table's own

    def table(self) -> TabularBenchmark:
        """Raise InputError if there is no such table."""
        if self.file is None:
            return load_table(self.data, self.objective, self.floor)
        return read_table(self.file, self.data, self.objective, self.floor)


def run_benchmark(
    config: BenchmarkConfig, searchers: Sequence[SearcherConfig], report: Callable[[str], None]
) -> dict[SearcherConfig, list[Trace]]:
    """Run every searcher with every seed; `report` hears of each that is done.

    Raises InputError if there is no such table, or a scheduler stops nets where the table has no readings yet.
    """
    table = config.table()  # errors here, not in a worker
    for searcher in searchers:
        _check_readings(table, searcher)
    traces: dict[SearcherConfig, list[Trace]] = {}
    count, ignore_ctrl_c = config.processes or usable_cpus(), (signal.SIGINT, signal.SIG_IGN)  # the parent ends them
    with safe_path(), ProcessPoolExecutor(count, get_context("spawn"), signal.signal, ignore_ctrl_c) as pool:
        try:
            seeds = range(config.seeds)
            jobs = {s: [pool.submit(_run_one, config, s, seed) for seed in seeds] for s in searchers}
            for searcher, futures in jobs.items():
                traces[searcher] = [future.result() for future in futures]
                report(f"{searcher.strategy}, scheduler {searcher.scheduler}")
        except BaseException:  # the pool would wait until all is done
            for process in active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
    return traces


def _check_readings(table: TabularBenchmark, searcher: SearcherConfig) -> None:
    first = Scheduler(searcher.scheduler, searcher.rungs, searcher.eta).rungs(table.steps)[0]
    if first < table.first_step:
        rule = f"stops nets at step {first}, table {table.name} has readings from step {table.first_step} of"
        raise InputError(f"scheduler {searcher.scheduler}: {rule} {table.steps} on")


_table = cache(BenchmarkConfig.table)  # once in each process


def _run_one(config: BenchmarkConfig, searcher: SearcherConfig, seed: int) -> Trace:
    return run(_table(config), searcher, seed, config.workers)


def rows(traces: dict[SearcherConfig, list[Trace]]) -> list[dict[str, Any]]:
    """A row for each searcher, those that need least first; training in full trainings.

    Medians and quartiles over seeds; None where half of the seeds, or a quarter, did not get so far. `times_random`
    is the ratio of medians of training to 99 %, with a 95 % bootstrap interval over two seeds or more, where random
    was run too. A random search that was given up counts with what it had spent: the true ratio is below that.
    """
    reference = (
        [min(MAX_SPENT, spent) for spent in _spent(traces[REFERENCE], SHARES[-1])] if REFERENCE in traces else None
    )
    table = []
    for searcher, runs in traces.items():
        row: dict[str, Any] = {"strategy": searcher.strategy, "scheduler": searcher.scheduler, "seeds": len(runs)}
        for share in SHARES:
            for name, value in zip(("low", "median", "high"), _quartiles(_spent(runs, share)), strict=True):
                row[f"spent_to_{share * 100:.0f}_{name}"] = _finite(value)
        compute = _quartiles(_or_infinite(trace.compute_to(SHARES[-1]) for trace in runs))
        for name, value in zip(("low", "median", "high"), compute, strict=True):
            row[f"compute_to_99_{name}"] = _finite(value)
        low, middle, high = _quartiles([trace.volume_at(AT) for trace in runs])
        row |= {"hypervolume_low": low, "hypervolume_median": middle, "hypervolume_high": high, "hypervolume_at": AT}
        times = _ratio(_spent(runs, SHARES[-1]), reference) if reference else (None, None, None)
        table.append(row | dict(zip(("times_random", "times_random_low", "times_random_high"), times, strict=True)))
    ends = ("spent_to_99_median", "spent_to_95_median")
    return sorted(table, key=lambda row: [math.inf if row[end] is None else row[end] for end in ends])


def _spent(runs: Sequence[Trace], share: float) -> list[float]:
    return _or_infinite(trace.spent_to(share) for trace in runs)


def _or_infinite(values: Iterable[float | None]) -> list[float]:
    return [math.inf if value is None else value for value in values]


def _quartiles(values: Sequence[float]) -> list[float]:
    """Lower quartile, median, upper quartile; unlike NumPy's they may be infinite."""
    ordered, quartiles = sorted(values), []
    for share in (0.25, 0.5, 0.75):
        place = share * (len(ordered) - 1)
        below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
        quartiles.append(below if below == above else below + (place - math.floor(place)) * (above - below))
    return quartiles


def _ratio(own: Sequence[float], other: Sequence[float]) -> tuple[float | None, ...]:
    """Ratio of medians, and the 95 % interval of resampled seeds; of one seed there is none."""

    def over(own: Sequence[float], other: Sequence[float]) -> float:
        a, b = statistics.median(own), statistics.median(other)
        return math.inf if math.isinf(a) or math.isinf(b) else a / b

    if len(own) < 2 or len(other) < 2:
        return _finite(over(own, other)), None, None
    draw = random.Random(0)

    def resampled(values: Sequence[float]) -> list[float]:
        return draw.choices(values, k=len(values))

    ratios = sorted(over(resampled(own), resampled(other)) for _ in range(RESAMPLES))
    return tuple(map(_finite, (over(own, other), ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES)])))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def bench_table(rows: list[dict[str, Any]], title: str) -> Table:
    """A row for each searcher, within 80 columns: its scheduler and intervals stand in a second line."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, padding=(0, 1, 0, 0))
    strategy, _, *others = heads(rows)
    table.add_column(strategy, overflow="fold")
    for head in others:
        table.add_column(head.removesuffix(" (quartiles)"), justify="right", overflow="fold")
    for row in rows:
        strategy, scheduler, *numbers = cells(row)
        pairs = [number.removesuffix(")").partition(" (") for number in numbers]
        table.add_row(strategy.rpartition(":")[2], *(middle for middle, _, _ in pairs))
        second = (f"  {scheduler}" * (scheduler != "none"), *(interval for _, _, interval in pairs))
        if any(second):
            table.add_row(*second)
    table.caption = (
        "Full trainings spent until so much of the table's hypervolume is found: medians over seeds, quartiles below; "
        f"-: given up after {MAX_SPENT:.0f}. compute: to 99%, in trainings of the table's mean net, by MACs. "
        "found at: the share found by so many. / random's: ratio of medians to 99%, 95 % interval below."
    )
    table.caption_justify = "left"
    return table


def heads(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Heads of the columns that `cells` fills."""
    spent = (f"to {share:.0%} (quartiles)" for share in SHARES)
    return "strategy", "scheduler", *spent, "compute", f"found at {rows[0]['hypervolume_at']:.0f}", "/ random's"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A searcher's row as it is shown."""
    spent = []
    for share in SHARES:
        low, middle, high = (row[f"spent_to_{share * 100:.0f}_{name}"] for name in ("low", "median", "high"))
        low, high = (f">{MAX_SPENT:.0f}" if value is None else f"{value:.0f}" for value in (low, high))
        spent.append("-" if middle is None else f"{middle:.0f} ({low}-{high})")
    compute = row["compute_to_99_median"]
    spent.append("-" if compute is None else f"{compute:.0f}")
    times, low, high = (row[f"times_random{end}"] for end in ("", "_low", "_high"))
    ratio = "-" if times is None else f"{times:.2f}"
    if times is not None and low is not None:
        ratio += f" ({low:.2f} or more)" if high is None else f" ({low:.2f}-{high:.2f})"
    return row["strategy"], row["scheduler"], *spent, f"{row['hypervolume_median']:.3f}", ratio


def plot(traces: dict[SearcherConfig, list[Trace]], file: Path) -> None:
    """Share of the table's hypervolume against training spent: medians, quartiles as bands."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    most = max(trace.spent[-1] for runs in traces.values() for trace in runs if trace.spent)
    along = [most * i / 200 for i in range(1, 201)]
    for searcher, runs in traces.items():
        heights = [sorted(trace.volume_at(spent) for trace in runs) for spent in along]
        low, middle, high = ([h[round(share * (len(h) - 1))] for h in heights] for share in (0.25, 0.5, 0.75))
        label = searcher.strategy if searcher.scheduler == "none" else f"{searcher.strategy}, {searcher.scheduler}"
        (line,) = axes.plot(along, middle, label=label)
        axes.fill_between(along, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="full trainings spent", ylabel="share of the table's hypervolume", ylim=(0.5, 1.005))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    plt.close(figure)
