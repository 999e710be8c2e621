"""Commands that read runs: runs, front, leaderboard, compare, show, report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..results.render.terminal import print_json, print_lines, print_text
from .command import command
from .options import LimitOptions, print_result, run_and_trial_of

if TYPE_CHECKING:
    from ..results.ranking.objectives import RankingQuery


@dataclass(frozen=True)
class RankingOptions(LimitOptions):
    """What nets are ranked by, and which."""

    objectives: str = ""
    family: tuple[str, ...] | None = None
    latency_of: str = ""

    def query(self) -> RankingQuery:
        from ..results.ranking.objectives import RankingQuery, parse_objectives

        return RankingQuery(parse_objectives(self.objectives), self.limits(), self.family or (), self.latency_of)


@command()
def runs(*, as_json: bool = False) -> None:
    """List the runs of this folder: how far each is, its best accuracy, what it has cost."""
    from ..results.runs.overview import print_runs

    print_runs(as_json)


@command()
def front(run: str, *, ranking: RankingOptions, svg: Path | None = None, as_json: bool = False) -> None:
    """Show the Pareto front of a run, ranked."""
    from ..results.render.board import print_front
    from ..results.runs.store import find_run

    folder, query = find_run(run), ranking.query()
    if svg:
        from ..results.report.front_plot import write_front

        write_front(folder, svg, query)
    print_front(folder, query, as_json)


@command()
def leaderboard(run: str, *, ranking: RankingOptions, top: int = 0, as_json: bool = False) -> None:
    """Rank all nets of a run that were trained for the full budget, front after front."""
    from ..results.render.board import print_leaderboard
    from ..results.runs.store import find_run

    query = ranking.query()
    print_leaderboard(find_run(run), query, top, as_json)


@command()
def compare(runs: list[str], *, ranking: RankingOptions, as_json: bool = False) -> None:
    """Compare the fronts of several runs, and show their joint front."""
    from ..results.ranking.compare import compare as compare_runs
    from ..results.ranking.compare import drawn

    comparison = compare_runs(runs, ranking.query())
    print_result(as_json, comparison.to_dict(), lambda: drawn(comparison))


@command()
def show(run: str, trial: int | None = None, *, svg: Path | None = None, as_json: bool = False) -> None:
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


@command()
def report(run: str, *, out: Path | None = None, assets: Path | None = None, as_json: bool = False) -> None:
    """Write an HTML report of a run: front, progress, importance of genes, provenance."""
    from ..results.ranking.stats import counted
    from ..results.report.page import write_report
    from ..results.runs.store import find_run

    facts = write_report(find_run(run), out, assets)
    if as_json:
        print_json(facts)
        return
    on_front = f"{counted(facts['records'], 'record')}, {facts['front']} on the front"
    print_lines(f"{facts['page']}: {on_front}, {facts['bytes']:,} bytes")
    if assets:
        print_lines(f"{assets}: {counted(len(facts['assets']), 'file')}")
