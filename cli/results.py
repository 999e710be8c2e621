"""Commands that read runs: runs, front, leaderboard, compare, show, report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..results.render.terminal import print_json, print_lines, print_text
from . import complete
from .options import Json, MaxLatency, MaxMacs, MaxParams, Net, Run, Svg, argument, command, option, run_and_trial_of
from .values import limits, words

if TYPE_CHECKING:
    from ..results.ranking.objectives import RankingQuery


@dataclass(frozen=True)
class RankingOptions:
    """What nets are ranked by, and which."""

    objectives: Annotated[
        str,
        option(
            "Objectives to rank by: two or three of accuracy, macs, params, latency_ms, memory, train_flops, "
            "train_seconds, what a device has measured, as latency_ms@board, and metrics that the run has recorded "
            "(-NAME where less is better), separated by commas; a single one implies accuracy (default: the run's "
            "own).",
            "--objectives",
            "--objective",
        ),
    ] = ""
    max_macs: MaxMacs = None
    max_params: MaxParams = None
    max_latency_ms: MaxLatency = None
    family: Annotated[
        tuple[str, ...] | None,
        option("Only these families, separated by commas: resnet, alternet, hybrid, vit, modern.", parse=words),
    ] = None
    latency_of: Annotated[
        str,
        option(
            "Which latencies to use if several were measured: DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE, or as many "
            "of these parts as are needed; parts may be empty."
        ),
    ] = ""

    def query(self) -> RankingQuery:
        from ..results.ranking.objectives import RankingQuery, parse_objectives

        most = limits(self.max_macs, self.max_params, self.max_latency_ms)
        return RankingQuery(parse_objectives(self.objectives), most, self.family or (), self.latency_of)


@command(
    "alternas runs",
    "alternas runs --json",
)
def runs(as_json: Json = False) -> None:
    """List the runs of this folder: how far each is, its best accuracy, what it has cost."""
    from ..results.runs.overview import print_runs

    print_runs(as_json)


@command(
    "alternas front first",
    "alternas front first --objectives accuracy,macs,params --max-macs 1M",
    "alternas front first --svg front.svg",
)
def front(
    run: Run,
    ranking: RankingOptions,
    svg: Annotated[Path | None, option("Also draw the front into this SVG file.", "--svg")] = None,
    as_json: Json = False,
) -> None:
    """Show the Pareto front of a run, ranked."""
    from ..results.render.board import print_front
    from ..results.runs.store import find_run

    folder, query = find_run(run), ranking.query()
    if svg:
        from ..results.report.front import write_front

        write_front(folder, svg, query)
    print_front(folder, query, as_json)


@command(
    "alternas leaderboard first --top 20",
)
def leaderboard(
    run: Run,
    ranking: RankingOptions,
    top: Annotated[int, option("Number of nets to show, by Pareto rank, then by cost; 0 shows all.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Rank all nets of a run that were trained for the full budget, front after front."""
    from ..results.render.board import print_leaderboard
    from ..results.runs.store import find_run

    query = ranking.query()
    print_leaderboard(find_run(run), query, top, as_json)


@command(
    "alternas compare first second",
)
def compare(
    runs: Annotated[list[str], argument("Two or more run names or folders.", autocompletion=complete.run_names)],
    ranking: RankingOptions,
    as_json: Json = False,
) -> None:
    """Compare the fronts of several runs, and show their joint front."""
    from ..results.ranking.compare import print_comparison

    print_comparison(runs, ranking.query(), as_json)


@command(
    "alternas show first:7 --svg net.svg",
    "alternas show first",
)
def show(
    run: Net,
    trial: Annotated[int | None, argument("The trial, where it does not stand behind the run's name.")] = None,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Show one net of a run: its stages, and its scores by class."""
    from ..results.ranking.run_leaderboard import best_trial
    from ..results.render.describe_net import draw_trial, svg_trial, trial_facts

    folder, trial = run_and_trial_of(run, trial)
    if trial is None:
        trial = best_trial(folder)
    if svg:
        svg_trial(folder, trial, svg)
    if as_json:
        print_json(trial_facts(folder, trial))
    else:
        print_text(draw_trial(folder, trial))


@command(
    "alternas report first",
    "alternas report first --out page.html --assets numbers",
)
def report(
    run: Run,
    out: Annotated[Path | None, option("Path of the page (default: report.html in the run's folder).")] = None,
    assets: Annotated[
        Path | None,
        option("Also write the numbers behind every plot and table to this folder, as CSV and Parquet."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML report of a run: front, progress, importance of genes, provenance."""
    from ..results.report.page import write_report
    from ..results.runs.store import find_run

    facts = write_report(find_run(run), out, assets)
    if as_json:
        print_json(facts)
        return
    on_front = f"{facts['records']} records, {facts['front']} on the front"
    print_lines(f"{facts['page']}: {on_front}, {facts['bytes']:,} bytes")
    if assets:
        print_lines(f"{assets}: {len(facts['assets'])} files")
