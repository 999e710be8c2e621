"""What must be known to read a leaderboard: nets left out, failures, budgets, shared weights, nets that still rose."""

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Sequence

from ..render.tables import duration, short
from ..runs.record import Record
from ..runs.retrained import retrained
from ..runs.status import FAILED, Status
from ..runs.store import as_argument, read_data_facts, read_settings
from .expected import nested_choice
from .front import NEAR_HALF, Leaderboard
from .metric import Metric
from .objectives import own_flops, title
from .quantities import ACCURACY
from .ranked_net import RankedNet
from .stats import count_nets, rank_correlation

LONGER = 4  # times the steps, of the longer training
RANKS = 0.9  # the rank correlation from which on a budget ranks nets


def why_empty(board: Leaderboard) -> str:
    """Why no net is ranked, and how many are left out; "" where one is."""
    if board.rows:
        return ""
    within = [f"at most {short(most)} {title(name)}" for name, most in board.query.limits.items()]
    within += [f"family {' or '.join(board.query.families)}"] if board.query.families else []
    within += [needed] if (needed := board.query.metric.needed_text) else []
    if board.over:
        return f"no net is within the limits ({', '.join(within)}): {count_nets(board.over)} left out"
    return "no net can be ranked" if board.missing else "no net has been trained to the end"


def sentence(line: str) -> str:
    """A line as a sentence; "" stays."""
    return line and f"{line[:1].upper()}{line[1:]}."


def left_out(board: Leaderboard) -> list[str]:
    """A line on each reason why nets are not ranked."""
    needed = board.query.metric.needed_text
    reason = "limits or family" + (f" or without {needed}" if needed else "")
    over = f"left out by {reason}: {count_nets(board.over)}; gains refer to all plain ResNets"
    missing = [f"left out: {count_nets(n)} without {title(name)}" for name, n in board.missing.items()]
    return [over] * bool(board.over and board.rows) + missing + failures(board.records)


def failures(records: Sequence[Record]) -> list[str]:
    """How many nets failed, and the last one's cause, in a line; none where none did."""
    failed = [record for record in records if record.status in FAILED]
    cause = f"; the last, {failed[-1].name} ({failed[-1].label}): {failed[-1].error}" if failed else ""
    return [f"failed: {count_nets(len(failed))}{cause}"] if failed else []


def budget_lines(rows: Sequence[RankedNet]) -> list[str]:
    """A warning where nets that were trained for longer or shorter stand side by side; else nothing.

    Nets of a supernet are told by how they came by their weights: how long the finetuned ones were trained on differs.
    """
    budgets = Counter(
        f"on {row.weights} weights"
        if row.weights in ("shared", "finetuned")
        else f"{row.budget_steps or '?'} steps{' on inherited weights' * (row.weights == 'inherited')}"
        for row in rows
        if not row.is_cut
    )
    if len(budgets) < 2:
        return []
    each = [f"{count_nets(n)} {budget}" for budget, n in budgets.items()]
    return [f"budgets differ, which is no fair comparison: {', '.join(each)}"]


def count_rising(front: Sequence[RankedNet]) -> str:
    """How many nets of a front still rose at their end; "" where none was trained from nothing."""
    front = [row for row in front if not row.is_cut]
    rising, unknown = [row for row in front if row.rising], sum(row.rising is None for row in front)
    if not front:
        return ""
    if unknown == len(front):
        return "whether nets on the front still rose at the end of their training is unknown: no readings on the way"
    left = f" ({unknown} unknown)" * bool(unknown)
    if not rising:
        return f"no net on the front still rose at the end of its training{left}"
    steps = sorted(known for row in rising if (known := row.steps_in_all))
    end = f"{number_range(steps)} steps" if len(steps) == len(rising) else "their training"
    of = f"{len(rising)} of {count_nets(len(front))}"
    return f"{of} on the front still rose at the end of {end}{left}: a front belongs to its budget"


def number_range(numbers: Sequence[int]) -> str:
    """Sorted numbers in words: "32", "32 to 1,600"."""
    return " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))


def rising_lines(board: Leaderboard) -> list[str]:
    """How many nets of the front still rose at their end and what more steps would cost, and the command for these.

    More are `LONGER` times the most that one of them has had, its ancestors' counted: training begins anew. No command
    where no net rose, all were retrained for as long, or none can be: a study has no recipe, a URL is not opened again,
    and how long the weights were trained that a net started from may be unknown.
    """
    if ACCURACY not in board.query.objectives or not count_rising(board.front):
        return []
    trained = {r.trial: r for r in board.records if r.status == Status.OK}
    alone = max((r.budget.get("full", 0) for r in trained.values() if r.weights == "alone"), default=0)
    enough, most = (1 - NEAR_HALF) * LONGER, _longest(board)  # epochs were rounded
    rising = [(row, row.steps_in_all) for row in board.front if row.rising and row.steps_in_all]
    had = {row.trial: steps for row, steps in rising if most.get(row.key, 0) < enough * steps}
    epochs = recipe_epochs(board)
    if not had or not alone or epochs is None:
        return list(filter(None, [count_rising(board.front)]))
    steps = LONGER * max(had.values())
    longer = math.ceil(1000 * epochs * steps / alone) / 1000
    trials, run = ",".join(map(str, had)), shlex.quote(as_argument(board.folder))
    command = f"alternas retrain {run} --trials {trials} --epochs {longer:.10g} --seeds 1"
    of = "the steps" if len({*had.values()}) == 1 else "the most of these steps"
    return [f"{count_rising(board.front)}{_cost_text([trained[trial] for trial in had], steps, of)}", command]


def expected_text(board: Leaderboard, row: RankedNet) -> str:
    """What to expect of new pictures without the luck, where that reads lower."""
    metric = board.query.metric
    own, expected = (f"{metric.value(score):.3f}" for score in (row.accuracy, row.expected or 0.0))
    if row.expected is None or row.expected >= row.accuracy or own == expected:
        return ""
    return f": expect {'accuracy' if metric.is_accuracy else metric.name} {expected} of new pictures"


def nested_text(board: Leaderboard, row: RankedNet) -> str:
    """What to expect of new pictures, where nets were cross-validated."""
    metric, noise = board.query.metric, board.noise
    name = "accuracy" if metric.is_accuracy else metric.name
    nets = [(other.costs[board.query.cost], other.folds) for other in board.rows if other.nested is not None]
    nested = metric.text(nested_choice(nets, lambda score: noise.standard_error(score, 1) if noise else 0.0))
    how = f"a net chosen likewise on {len(row.folds) - 1} folds and judged on the one left"
    lucky = f"; its own is that of the luckiest of {len(board.rows)}" * (nested != metric.text(row.accuracy))
    return f"Expect {name} {nested} of new pictures: {how}{lucky}."


def recipe_epochs(board: Leaderboard) -> float | None:
    """Epochs of a search's recipe; None where its nets cannot be retrained."""
    if not board.folder.name:
        return None
    epochs = (read_settings(board.folder).get("settings", {}).get("recipe") or {}).get("epochs")
    known = isinstance(epochs, (int, float)) and "://" not in read_data_facts(board.folder)["name"]
    return epochs if known else None


def _longest(board: Leaderboard) -> dict[str, int]:
    """Steps of the longest retraining of each net, by its key."""
    longest: dict[str, int] = {}
    for record in retrained(board.folder):
        longest[record.key] = max(longest.get(record.key, 0), record.budget.get("full", 0))
    return longest


def _cost_text(nets: Sequence[Record], steps: int, of: str) -> str:
    """FLOPs and seconds of training each net once for so many steps, by its own training; "" where that is unknown."""
    each = [(r, r.budget.get("done", 0)) for r in nets]
    if not all(done and own_flops(r) for r, done in each):
        return ""
    flops = sum(own_flops(r) / done * steps for r, done in each)
    seconds = sum(r.seconds / max(1, len(r.accuracies)) / done * steps for r, done in each)
    device = ", ".join(sorted({r.device for r in nets if r.device})) or "the same device"
    time = f" (about {duration(seconds)} on {device}, as measured here)" if seconds else ""
    return f"; {LONGER} x {of} would cost {flops:.2g} FLOPs{time}"


def sharing_lines(records: Sequence[Record], metric: Metric) -> list[str]:
    """How far shared weights can be trusted: the nets of a run that were trained alone beside their slices.

    Differences in percentage points. Few of a large space's blocks are among these nets: slices that are worse than
    each of them are told too.
    """
    trained = [(r.weights, r.key, r.accuracy) for r in records if r.status == Status.OK and r.accuracy is not None]
    alone = {key: accuracy for weights, key, accuracy in trained if weights == "alone"}
    shared = {key: accuracy for weights, key, accuracy in trained if weights == "shared"}
    pairs = [(alone[key], accuracy) for key, accuracy in shared.items() if key in alone]
    if not pairs:
        return []
    order = rank_correlation(pairs)
    told = f", rank correlation {order:.2f}" if order is not None else ""
    nets, untrained = count_nets(len(pairs)), sum(accuracy < min(alone.values()) for accuracy in shared.values())
    lines = [f"shared weights: {nets} on slices {_mean_change(pairs):+.1f} {metric.points} from trained alone{told}"]
    if untrained:
        worst = f"{untrained} of {count_nets(len(shared))} on slices are worse than all nets trained alone"
        lines.append(f"{worst}: their parts of the bank may be hardly trained, which says nothing of the nets")
    return lines


def budget_order_lines(records: Sequence[Record], metric: Metric) -> list[str]:
    """Whether the search's budget ranks nets: the order of those that were trained on, before and after.

    They are the best of the search and the plain ResNets; how much longer each was trained differs.
    """
    accuracies = {r.trial: r.accuracy for r in records if r.status == Status.OK and r.accuracy is not None}
    finetuned = [r for r in records if r.trial in accuracies and r.weights == "finetuned" and not r.is_cut]
    before = [(accuracies.get(r.lineage.get("trial", -1)), accuracies[r.trial]) for r in finetuned]
    pairs = [(one, other) for one, other in before if one is not None]
    order = rank_correlation(pairs)
    if order is None:
        return []
    change = f"trained on: {count_nets(len(pairs))}, {_mean_change(pairs):+.1f} {metric.points} on average"
    doubt = f"; below {RANKS}, a longer budget (--epochs) would rank nets better" if order < RANKS else ""
    return [f"{change}; rank correlation with their order before {order:.2f}{doubt}"]


def _mean_change(pairs: Sequence[tuple[float, float]]) -> float:
    """Mean difference of the second accuracies to the first ones, in percentage points."""
    return 100 * statistics.mean(other - one for one, other in pairs)
