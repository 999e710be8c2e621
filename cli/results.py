"""Commands that read a run: front, leaderboard, compare, show, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..archs.errors import InputError
from ..results.render.console import print_comparison, print_front, print_json, print_leaderboard, print_text
from ..results.render.terminal import print_lines
from .options import Json, Run, Svg

commands = typer.Typer()


Objectives = Annotated[
    str,
    typer.Option(
        "--objectives",
        "--objective",
        help="Two or three of accuracy, macs, params, latency_ms, memory, train_flops, train_seconds, with commas "
        "between; one cost alone stands for accuracy and that cost. Without it, the run's own.",
    ),
]
MaxMacs = Annotated[str, typer.Option(help="Only nets of at most these MACs, such as 50M.")]
MaxParams = Annotated[str, typer.Option(help="Only nets of at most so many parameters, such as 2M.")]
MaxLatency = Annotated[float | None, typer.Option("--max-latency-ms", help="Only nets measured to be this fast.")]
Family = Annotated[str, typer.Option(help="Only these: resnet, alternet, hybrid, vit, modern, with commas between.")]
LatencyOf = Annotated[
    str,
    typer.Option(
        help="Which latencies, where several were measured: DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE, or as much of it "
        "as is needed; parts may be empty."
    ),
]


def _query(objectives: str, macs: str, params: str, latency: float | None, family: str, latency_of: str) -> Any:
    """What nets are ranked on, and which."""
    from ..results.ranking.objectives import RankingQuery, parse_objectives
    from ..search.config import limits_of, names

    if latency is not None and not 0 < latency < float("inf"):
        raise InputError(f"max-latency-ms: must be above 0, got {latency:g}")
    limits: dict[str, float] = {**limits_of(macs, params)} | ({} if latency is None else {"latency_ms": latency})
    return RankingQuery(parse_objectives(objectives), limits, names(family), latency_of)


@commands.command()
def front(
    run: Run,
    objectives: Objectives = "",
    max_macs: MaxMacs = "",
    max_params: MaxParams = "",
    max_latency: MaxLatency = None,
    family: Family = "",
    latency_of: LatencyOf = "",
    as_json: Json = False,
) -> None:
    """The Pareto front of a run, ranked."""
    from ..results.runs.store import find_run

    asked = _query(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_front(find_run(run), asked, as_json)


@commands.command()
def leaderboard(
    run: Run,
    objectives: Objectives = "",
    max_macs: MaxMacs = "",
    max_params: MaxParams = "",
    max_latency: MaxLatency = None,
    family: Family = "",
    latency_of: LatencyOf = "",
    top: Annotated[int, typer.Option(help="So many nets: by Pareto rank, then by cost; 0 is all.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """All nets of a run that were trained whole, front after front."""
    from ..results.runs.store import find_run

    asked = _query(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_leaderboard(find_run(run), asked, top, as_json)


@commands.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Names below runs/, or folders: two or more.")],
    objectives: Objectives = "",
    max_macs: MaxMacs = "",
    max_params: MaxParams = "",
    max_latency: MaxLatency = None,
    family: Family = "",
    latency_of: LatencyOf = "",
    as_json: Json = False,
) -> None:
    """Fronts of several runs side by side, and their joint front."""
    asked = _query(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_comparison(runs, asked, as_json)


@commands.command()
def show(
    run: Run,
    trial: Annotated[int, typer.Argument(help="Number of the trial.")],
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """One net of a run, drawn stage by stage, and its scores, class by class."""
    from ..results.render.net import draw_trial, svg_trial, trial_facts
    from ..results.runs.store import find_run

    folder = find_run(run)
    if svg:
        svg_trial(folder, trial, svg)
    if as_json:
        print_json(trial_facts(folder, trial))
    else:
        print_text(draw_trial(folder, trial))


@commands.command()
def report(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="The page; without it, report.html in the run's folder.")] = None,
    assets: Annotated[
        Path | None, typer.Option(help="Folder for every plot as PNG, every plot and table as CSV and Parquet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run as one HTML page: its front, how it went, what matters, where it comes from."""
    from ..results.report.page import write_report
    from ..results.runs.store import find_run

    facts = write_report(find_run(run), out, assets)
    if as_json:
        print_json(facts)
    else:
        written = [f"{assets}: {len(facts['assets'])} files"] if assets else []
        front = f"{facts['records']} records, {facts['front']} on the front"
        print_lines(f"{facts['page']}: {front}, {facts['bytes']:,} bytes", *written)
