"""Fronts and leaderboards in the terminal and as JSON: the table, and what must be known to read it."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType

from ..ranking.chance import above_chance
from ..ranking.front import Leaderboard
from ..ranking.metric import floor_name
from ..ranking.noise import UNKNOWN_NOISE
from ..ranking.objectives import RankingQuery, column, title
from ..ranking.quantities import ACCURACY, LATENCY
from ..ranking.ranked_net import RankedNet
from ..ranking.remarks import budget_lines, budget_order_lines, left_out, rising_lines, sharing_lines, why_empty
from ..ranking.run_leaderboard import leaderboard_of
from ..ranking.stats import TIED, count_nets, counted
from ..ranking.verdict import verdict_of
from ..runs.store import read_data_facts
from .tables import has_gain, nets_table
from .terminal import plain, print_json, print_lines, print_text

BOUNDS = {
    "lower": "gain >= G: cheaper than all plain ResNets of the run, and G points above the cheapest",
    "upper": "gain <= G: more expensive than all plain ResNets of the run, and G points above the best",
}
log = logging.getLogger("alternas")


def print_front(folder: Path, query: RankingQuery, as_json: bool) -> bool:
    """Print the front of a run, and return whether one of its nets is worth exporting: is above chance."""
    board = leaderboard_of(folder, query)
    if board.rows and not as_json:
        for said in verdict_of(board):
            if "alternas " in said:
                print_lines(said)  # a command stays whole, however narrow the terminal
            else:
                print_text(plain(said))
        print_lines("")
    _print(board, board.front, f"Pareto front of {folder.name}", as_json)
    return bool(above_chance(board))


def print_leaderboard(folder: Path, query: RankingQuery, top: int, as_json: bool) -> None:
    """Print all ranked nets of a run, or the first `top` of them."""
    board = leaderboard_of(folder, query)
    rows = board.rows[: top or None]
    cut = f" (the first {len(rows)} of {len(board.rows)})" if len(rows) < len(board.rows) else ""
    _print(
        board, rows, f"Leaderboard of {folder.name}, by rank and {title(board.query.cost)}{cut}", as_json, ranks=True
    )


def _print(board: Leaderboard, rows: list[RankedNet], heading: str, as_json: bool, ranks: bool = False) -> None:
    """Rows as a table with notes, or as JSON with warnings on stderr of what they do not say themselves."""
    if as_json:
        rising = rising_lines(board)
        longer = [": ".join(rising)] if len(rising) > 1 else []
        for line in filter(None, (why_empty(board), *left_out(board), *budget_lines(board.rows), *longer)):
            log.warning("%s", line)
        print_json([row.to_dict(board.query.metric) for row in rows])
    else:
        print_text(board_drawing(board, rows, heading, ranks))
        for command in rising_lines(board)[1:]:  # whole, however narrow the terminal
            print_lines("", f"train longer:  {command}")


def board_drawing(board: Leaderboard, rows: list[RankedNet], heading: str, ranks: bool = False) -> RenderableType:
    """Rows of a leaderboard as a table, and what must be known to read it."""
    named = [*board.query.objectives, *board.query.limits]
    device = board.latency_setting.partition("/")[0]
    named += [LATENCY] * (f"{LATENCY}@{device}" not in named)  # its column has the same numbers
    others = [column(name) for name in dict.fromkeys(named) if name != ACCURACY]
    table = nets_table(rows, heading, others, ranks, why_empty(board), board.query.metric)
    return Group(table, plain(*summary_lines(board, rows), style="dim"))


def _latency_line(board: Leaderboard, rows: Sequence[RankedNet]) -> list[str]:
    """In which setting latencies were measured, and of how many of these nets; nothing where none was."""
    measured = sum(bool(row.costs[LATENCY]) for row in rows)
    some = f", of {measured} of these {count_nets(len(rows))}" if measured < len(rows) else ""
    return [f"latency: {board.latency_setting}{some}"] if measured else []


def summary_lines(board: Leaderboard, rows: Sequence[RankedNet]) -> list[str]:
    """What must be known to read these rows of a leaderboard, a line each; marks that none of them has are left out."""
    counts = Counter(r.status for r in board.records)
    metric, of = board.query.metric, [f"log {title(name)}" for name in board.query.costs]
    of = [f"{title(name)} above the worst" for name in board.query.metrics] + of
    if ACCURACY in board.query.objectives:
        of.insert(0, f"{metric.name} above {floor_name(metric, read_data_facts(board.folder))}")
    bounds = {row.gain_bound for row in rows}
    gain = f"; gain: {metric.points} above plain ResNets of equal {title(board.query.cost)}" * has_gain(rows)
    how = ", ".join(f"{n} {status}" for status, n in counts.items()) or "none yet"
    lines = [
        f"{counted(len(board.records), 'record')}: {how}; "
        f"{sum(r.spent_seconds for r in board.records):.0f} s of training",
        f"hypervolume ({' x '.join(of)}) {board.hypervolume():.4f}{gain}",
        *_latency_line(board, rows),
        *(f"measured in {setting}" for setting in board.extra.settings),
        *(line for bound, line in BOUNDS.items() if bound in bounds),
        board.noise.line(metric.points) if board.noise else UNKNOWN_NOISE,
    ]
    if any(row.nested is not None for row in rows):
        lines.append(f"nested: {metric.name} of the best net of at most that cost, chosen without the pictures judged")
    if any(row.tied_with for row in rows):
        behind = sum(bool(row.tied_with) for row in board.rows if row.rank > 1)
        lines.append(f"{TIED}; nets behind the front that may be on it: {behind}")
    lines += [*left_out(board), *budget_lines(board.rows), *rising_lines(board)[:1]]
    lines += [*sharing_lines(board.records, metric), *budget_order_lines(board.records, metric)]
    if several := sum(row.recipes > 1 for row in rows):
        lines.append(f"recipe: {count_nets(several)} trained by several; the best one counts")
    if any(row.recipe for row in rows) and any(row.kind == "baseline" for row in rows):
        lines.append("baselines are trained by the recipe's own values")
    if steps := sorted({row.retrained_steps for row in rows if row.retrained_steps}):
        of_steps = ", ".join(map(str, steps))
        lines.append(
            f"retrained: mean and sd over other seeds, {of_steps} steps; nets are ranked on the search's {metric.name}"
        )
    return lines
