"""Commands that read a run: front, leaderboard, compare, show, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..archs.errors import InputError
from ..results.render.terminal import print_json, print_lines, print_text
from .options import Json, Run, Svg

commands = typer.Typer()


Objectives = Annotated[
    str,
    typer.Option(
        "--objectives",
        "--objective",
        help="Objectives to rank by: two or three of accuracy, macs, params, latency_ms, memory, train_flops, "
        "train_seconds, separated by commas; a single cost implies accuracy (default: the run's own).",
    ),
]
MaxMacs = Annotated[str, typer.Option(help="Only nets with at most this many MACs, such as 50M.")]
MaxParams = Annotated[str, typer.Option(help="Only nets with at most this many parameters, such as 2M.")]
MaxLatency = Annotated[
    float | None, typer.Option("--max-latency-ms", help="Only nets with at most this measured latency in ms.")
]
Family = Annotated[
    str, typer.Option(help="Only these families, separated by commas: resnet, alternet, hybrid, vit, modern.")
]
LatencyOf = Annotated[
    str,
    typer.Option(
        help="Which latencies to use if several were measured: DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE, or as many of "
        "these parts as are needed; parts may be empty."
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
    """Show the Pareto front of a run, ranked."""
    from ..results.ranking.leaderboard import print_front
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
    top: Annotated[
        int, typer.Option(help="Number of nets to show, by Pareto rank, then by cost; 0 shows all.", min=0)
    ] = 0,
    as_json: Json = False,
) -> None:
    """Rank all nets of a run that were trained for the full budget, front after front."""
    from ..results.ranking.leaderboard import print_leaderboard
    from ..results.runs.store import find_run

    asked = _query(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_leaderboard(find_run(run), asked, top, as_json)


@commands.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Two or more run names or folders.")],
    objectives: Objectives = "",
    max_macs: MaxMacs = "",
    max_params: MaxParams = "",
    max_latency: MaxLatency = None,
    family: Family = "",
    latency_of: LatencyOf = "",
    as_json: Json = False,
) -> None:
    """Compare the fronts of several runs, and show their joint front."""
    from ..results.ranking.compare import print_comparison

    asked = _query(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_comparison(runs, asked, as_json)


@commands.command()
def show(
    run: Run,
    trial: Annotated[int, typer.Argument(help="Number of the trial.")],
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Show one net of a run: its stages, and its scores by class."""
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
    out: Annotated[
        Path | None, typer.Option(help="Path of the page (default: report.html in the run's folder).")
    ] = None,
    assets: Annotated[
        Path | None,
        typer.Option(help="Also write the numbers behind every plot and table to this folder, as CSV and Parquet."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML report of a run: front, progress, importance of genes, provenance."""
    from ..results.report.page import write_report
    from ..results.runs.store import find_run

    facts = write_report(find_run(run), out, assets)
    if as_json:
        print_json(facts)
    else:
        written = [f"{assets}: {len(facts['assets'])} files"] if assets else []
        front = f"{facts['records']} records, {facts['front']} on the front"
        print_lines(f"{facts['page']}: {front}, {facts['bytes']:,} bytes", *written)
