"""A run's leaderboard as the commands front and leaderboard give it: read from the folder, and drawn with its notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Group, RenderableType

from ...archs.errors import InputError, check_choice, short_repr
from ..latency.store import Measurement, latencies_of, read_latencies, settings_in
from ..render.tables import nets_table, short
from ..render.terminal import plain
from ..runs.record import Record
from ..runs.retrained import retrained
from ..runs.store import no_collection, read_data_facts, read_records, read_settings
from .leaderboard import ExtraResults, Leaderboard, cost_bounds, front_hypervolume, rank_rows
from .objectives import ACCURACY, LATENCY, OBJECTIVES, RankingQuery
from .seed_noise import UNKNOWN, Row, nets

TIED = "= 7 +2: tied with net 7 and two more, whose accuracies the noise does not tell apart (95 %)"


@dataclass(frozen=True)
class RunLeaderboard:
    """A run's records and its leaderboard."""

    folder: Path
    records: Sequence[Record]
    board: Leaderboard
    latencies: Mapping[str, Measurement] = field(default_factory=dict)  # by key, all in one setting

    @property
    def setting(self) -> str:
        """That the latencies were measured in."""
        return next((m.setting for m in self.latencies.values()), "")

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / len(read_data_facts(self.folder)["classes"])

    def hypervolume(self) -> float:
        """Of the front, up to the dearest net on the leaderboard."""
        rows, asked = self.board.rows, self.board.asked
        return front_hypervolume(rows, asked, self.chance, cost_bounds(rows, asked))


def leaderboard_of(folder: Path, asked: RankingQuery | None = None) -> RunLeaderboard:
    """A run's leaderboard; objectives left out are the run's own, and its own limits hold too.

    Raises:
        InputError: if the run is broken, or latencies are asked for that were not measured.
    """
    asked, records = asked or RankingQuery(), read_records(folder)
    asked = replace(asked, objectives=asked.objectives or (ACCURACY, objective_of(folder)))
    limits = limits_of(folder)
    least = {name: min(most, limits.get(name, most)) for name, most in asked.limits.items()}
    asked = replace(asked, limits=limits | least)
    with no_collection():
        latencies = _latencies(folder, asked)
        board = rank_rows(records, asked, ExtraResults(latencies, retrained(folder)))
    return RunLeaderboard(folder, records, board, latencies)


def _latencies(folder: Path, asked: RankingQuery) -> dict[str, Measurement]:
    """Those of the setting asked for; unasked, those that the run was searched with, or of the only one there is."""
    measured, which = read_latencies(folder), asked.latency_of or searched_with(folder)
    if not (measured or asked.latency_of) and which:
        return {}  # its search has not come so far
    if which or LATENCY in (*asked.objectives, *asked.limits) or len(settings_in(measured)) == 1:
        return latencies_of(measured, which, folder.name)
    return {}


def searched_with(folder: Path) -> str:
    """The setting in which a run measured the latencies that it weighed accuracy against; "" if it did not."""
    return str(read_settings(folder).get("settings", {}).get("latency", ""))


def objective_of(folder: Path) -> str:
    """The kind of cost that a run weighs accuracy against."""
    costs = [name for name in OBJECTIVES if name != ACCURACY]
    return check_choice("objective", read_settings(folder).get("settings", {}).get("objective", "macs"), costs)


def limits_of(folder: Path) -> dict[str, float]:
    """The largest costs that a run allows, by kind of cost."""
    limits = read_settings(folder).get("settings", {}).get("limits", {})
    costs = [name for name in OBJECTIVES if name != ACCURACY]
    if not isinstance(limits, dict) or not all(k in costs and type(v) in (int, float) for k, v in limits.items()):
        raise InputError(
            f"{folder / 'run.json'}: limits must be numbers by {', '.join(costs)}, got {short_repr(limits)}"
        )
    return limits


def draw_front(found: RunLeaderboard) -> RenderableType:
    """The front as a table, and how many nets stand behind it."""
    board, title = found.board, f"Pareto front of {found.folder.name}"
    table = nets_table(board.front, title, board.asked.costs, none=no_net(board))
    return Group(table, plain(*summary_lines(found), style="dim"))


def draw_leaderboard(found: RunLeaderboard, top: int = 0) -> RenderableType:
    """All ranked nets as a table, or the first `top` of them."""
    board, rows = found.board, found.board.rows[: top or None]
    cut = f" (the first {len(rows)} of {len(board.rows)})" if len(rows) < len(board.rows) else ""
    title = f"Leaderboard of {found.folder.name}{cut}"
    table = nets_table(rows, title, board.asked.costs, ranks=True, none=no_net(board))
    return Group(table, plain(*summary_lines(found), style="dim"))


def summary_lines(found: RunLeaderboard) -> list[str]:
    """What must be known to read a front, a line each."""
    counts = Counter(r.status for r in found.records)
    costs = [OBJECTIVES[name] for name in found.board.asked.costs]
    of = ["accuracy above chance"] * (ACCURACY in found.board.asked.objectives) + [f"log {cost}" for cost in costs]
    return [
        f"{len(found.records)} records: {', '.join(f'{n} {status}' for status, n in counts.items()) or 'none yet'}; "
        f"{sum(r.seconds for r in found.records):.0f} s of training",
        f"hypervolume ({' x '.join(of)}) {found.hypervolume():.4f}; "
        f"gain: points above plain ResNets of equal {costs[0]}",
        *([f"latency: {found.setting}"] if LATENCY in found.board.asked.costs and found.setting else []),
        *gain_lines(found.board.rows),
        *noise_lines(found.board),
        *left_out(found.board),
        *budget_lines(found.board.rows),
        *retrained_lines(found.board.rows),
    ]


def gain_lines(rows: Sequence[Row]) -> list[str]:
    """What the bounds among the gains mean, those that are there."""
    bounds = {row["gain_bound"] for row in rows}
    said = {
        "lower": "gain >= G: cheaper than all plain ResNets of the run, and G points above the cheapest",
        "upper": "gain <= G: dearer than all plain ResNets of the run, and G points above the best",
    }
    return [line for bound, line in said.items() if bound in bounds]


def noise_lines(board: Leaderboard) -> list[str]:
    """The seed noise, and what it leaves tied."""
    said = [str(board.noise) if board.noise else UNKNOWN]
    behind = sum(bool(row["tied_with"]) for row in board.rows if row["rank"] > 1)
    if any(row["tied_with"] for row in board.rows):
        said.append(f"{TIED}; nets behind the front that may be on it: {behind}")
    return said


def no_net(board: Leaderboard) -> str:
    """Why no net is ranked, and how many are left out; "" where one is."""
    if board.rows:
        return ""
    asked = board.asked
    within = [f"at most {short(most)} {OBJECTIVES[name]}" for name, most in asked.limits.items()]
    within += [f"family {' or '.join(asked.families)}"] if asked.families else []
    if board.over:
        return f"no net is within the limits ({', '.join(within)}): {nets(board.over)} left out"
    return "no net can be ranked" if board.missing else "no net has been trained to the end"


def left_out(board: Leaderboard) -> list[str]:
    """Which nets are not ranked."""
    said = []
    if board.over and board.rows:
        said.append(f"left out by limits or family: {nets(board.over)}; gains refer to all plain ResNets")
    return said + [f"left out: {nets(n)} without {OBJECTIVES[name]}" for name, n in board.missing.items()]


def budget_lines(rows: Sequence[Row]) -> list[str]:
    """A warning where nets that were trained for longer or shorter stand side by side; else nothing."""
    budgets = Counter((row["budget_steps"], row["inherited"]) for row in rows)
    if len(budgets) < 2:
        return []
    each = [
        f"{nets(n)} {steps or '?'} steps{' on inherited weights (heir)' * heir}" for (steps, heir), n in budgets.items()
    ]
    return [f"budgets differ, which is no fair comparison: {', '.join(each)}"]


def retrained_lines(rows: Sequence[Row]) -> list[str]:
    """What the column of retrainings holds, where there is one."""
    steps = sorted({row["retrained_steps"] for row in rows if row["retrained_steps"]})
    if not steps:
        return []
    of = ", ".join(str(count) for count in steps)
    return [f"retrained: mean and sd over other seeds, {of} steps; nets are ranked on the search's accuracy"]
