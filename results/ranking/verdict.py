"""The verdict on a front in words: which net to take and why, what is as good, and what is not known. Free of torch."""

import math
import re
import shlex
from collections.abc import Sequence

from ...archs.errors import InputError, check_choice
from ..render.tables import short
from ..runs.status import Status
from ..runs.store import as_argument
from .chance import above_chance, chance_of, guess_text, interval_ends, interval_for_all
from .front import Leaderboard
from .quantities import ACCURACY, LATENCY, quantity
from .ranked_net import RankedNet
from .remarks import expected_text, nested_text, number_range, recipe_epochs, sentence, why_empty
from .ties import paired_width, why_unknown

RECOMMENDED = "recommended"
PICKS = (RECOMMENDED, "accuracy", "gain", "cheapest")
NAMED = 3  # nets that a sentence names
SLICED = "{net}'s score is that of a slice of the supernet, not of a training of its own."
FROZEN = (
    "{net} was not trained: a classifier in closed form stands on its frozen features, judged by cross-validation; "
    "± is 95 % by the number of pictures, {images:,}."
)
FINETUNED = (
    "{net}'s frozen weights were trained on with the classifier, judged by the same folds; ± is 95 % by the number of "
    "pictures, {images:,}."
)
HOW = {"inherited": "began with weights of another net", "finetuned": "was trained on once the others had ended"}


def recommended(board: Leaderboard) -> RankedNet:
    """The net to take of a front: the cheapest within one standard error of the most accurate.

    The one-standard-error rule (Breiman, Friedman, Olshen & Stone, Classification and Regression Trees, 1984); a tie
    may be a wide interval of few repeats. Where the noise is unknown, it is the most accurate net. Nets that only guess
    are left out where others do not, one behind the front too.

    Raises InputError if the front is empty.
    """
    rows = _candidates(board)
    best = pick(rows, "accuracy", board.query.cost)
    error = board.noise.standard_error(best.accuracy, best.seeds) if board.noise else 0.0
    return pick([row for row in rows if row.accuracy >= best.accuracy - error], "cheapest", board.query.cost)


def _candidates(board: Leaderboard) -> list[RankedNet]:
    """The nets that may be recommended: those of the front that are above chance, else any that is."""
    better = above_chance(board)
    return [row for row in better if row.rank == 1] or better or board.front


def pick(rows: Sequence[RankedNet], how: str = "accuracy", cost: str = "macs") -> RankedNet:
    """One row of a front: the most accurate, the one with most gain, or the cheapest; see `recommended` for another.

    A gain that is known, or a lower bound, goes before one of which nothing but an upper bound is known.

    Raises InputError if `how` is unknown or no row qualifies.
    """
    check_choice("pick", how, PICKS)
    if how == "gain":
        rows = [row for row in rows if row.gain is not None]
    if not rows:
        raise InputError(f"pick {how}: no trained net qualifies")
    if how == "cheapest":
        return min(rows, key=lambda row: row.costs[cost])
    return max(rows, key=lambda row: (how != "gain" or row.gain_bound != "upper", getattr(row, how), -row.costs[cost]))


def verdict_of(board: Leaderboard) -> list[str]:
    """The verdict on a front, a sentence each: which net to take, what is unknown, how to measure it.

    The net is the `recommended` one. Intervals are 95 %, by the seed noise of nets of about its accuracy.

    Returns no sentence where accuracy is no objective; why it is empty, of an empty front; that all nets guess.
    """
    if not board.rows:
        return [sentence(why_empty(board))]
    if ACCURACY not in board.query.objectives:
        return []
    if not above_chance(board):
        return [_all_guess(board)]
    row = recommended(board)
    again = _measured_again(board, row)
    return [
        _take(board, row),
        *_knee(board, row),
        *_others(board, row),
        *order_by_time(board),
        *_doubts(board, row),
        *again,
    ]


def score_text(board: Leaderboard, row: RankedNet) -> str:
    """Accuracy, or another metric, with its interval where the noise is known: "0.767 ± 0.027".

    Where the interval is cut by what is possible, its ends: "0.981 (0.920 to 1.000)".
    """
    score, half, (least, most) = row.accuracy, row.interval, board.query.metric.within
    value = board.query.metric.value(score)
    if half is None:
        return f"{value:.3f}"
    if least <= value - half and value + half <= most:
        return f"{value:.3f} ± {half:.3f}"
    return f"{value:.3f} ({interval_ends(board.query.metric, score - half, score + half)})"


def _all_guess(board: Leaderboard) -> str:
    """That no net is above chance, with the interval of the best that says so."""
    row, metric, chance = pick(board.front, "accuracy", board.query.cost), board.query.metric, chance_of(board)
    assert chance is not None
    ends, name = interval_for_all(board, row), _name(board, row.trial)
    guess = guess_text(metric, chance, name, row.accuracy, ends, len(board.rows), board.extra.images)
    only_cuts = all(row.is_cut for row in board.rows)
    return f"{guess}: {'learn from more pictures, or search from nothing' if only_cuts else 'train longer'}."


def _cost_text(board: Leaderboard, row: RankedNet) -> str:
    cost = board.query.cost
    return f"{short(row.costs[cost])} {quantity(cost).unit}"


def _take(board: Leaderboard, row: RankedNet) -> str:
    name = "" if board.query.metric.is_accuracy else f"{board.query.metric.name} "
    facts = [_cost_text(board, row), f"{name}{score_text(board, row)}", *_gain_text(board, row)]
    what = _name(board, row.trial) + " (a plain ResNet)" * (row.kind == "baseline")
    is_best = row.accuracy == pick(_candidates(board), "accuracy", board.query.cost).accuracy
    why = "" if is_best else ", the cheapest within one standard error of the best"
    return f"Take {what}{why}: {', '.join(facts)}{_ties_text(board, row)}."


def _gain_text(board: Leaderboard, row: RankedNet) -> list[str]:
    """Its gain over plain ResNets; nothing of one of them, or where it is unknown."""
    gain, bound, metric = row.gain, row.gain_bound, board.query.metric
    if gain is None or row.kind == "baseline":
        return []
    side = "above" if gain >= 0 else "below"
    most = {"lower": "at least ", "upper": "at most " if gain >= 0 else "at least "}.get(bound or "", "")
    said = f"{most}{abs(gain):.1f} {metric.points} {side} a plain ResNet of its cost"
    plain = [other for other in board.rows if other.kind == "baseline"]
    if board.noise and plain:
        cost = board.query.cost
        nearest = min(plain, key=lambda other: abs(math.log(other.costs[cost] / row.costs[cost])))
        width = paired_width(row, nearest, board.noise, board.extra.right_of)
        said += " (within the noise)" * (abs(gain) <= 100 * width)
    return [said]


def _ties_text(board: Leaderboard, row: RankedNet) -> str:
    """Which nets the noise does not tell from it, and the cheapest of them that is on the front and cheaper."""
    ties, cost = row.tied_with or [], board.query.cost
    if not ties:
        return ""
    cheaper = [other for other in board.front if other.trial in ties and other.costs[cost] < row.costs[cost]]
    said = f"; {_names(board, ties)} {'is' if len(ties) == 1 else 'are'} tied with it"
    if not cheaper:
        return said
    cheapest = pick(cheaper, "cheapest", cost)
    behind = any(other.costs[cost] < cheapest.costs[cost] for other in board.rows if other.trial in ties)
    which = f"the cheapest of them{' on the front' * behind} {_name(board, cheapest.trial)} " * (len(ties) > 1)
    return f"{said}, {which}at {_cost_text(board, cheapest)}"


def order_by_time(board: Leaderboard) -> list[str]:
    """That MACs mislead, where a net of the front takes longer than one of more MACs, beyond the spread of both."""
    timed = [row for row in board.front if row.costs[LATENCY]] if board.query.cost == "macs" else []
    pairs = [
        (slow.costs[LATENCY] / fast.costs[LATENCY], slow, fast)
        for slow in timed
        for fast in timed
        if slow.costs["macs"] < fast.costs["macs"]
        and slow.costs[LATENCY] - fast.costs[LATENCY] > sum(net.costs["latency_spread_ms"] or 0 for net in (slow, fast))
    ]
    if not pairs:
        return []
    _, slow, fast = max(pairs, key=lambda pair: pair[0])
    few, many = (f"{short(row.costs['macs'])} MACs take {short(row.costs[LATENCY])} ms" for row in (slow, fast))
    where = board.latency_setting.split("/")[0]
    one, other = (_name(board, row.trial) for row in (slow, fast))
    return [f"MACs mislead here: {one}'s {few}, {other}'s {many} ({where}, measured)."]


def _name(board: Leaderboard, trial: int | str) -> str:
    """ "net 7", or the name of a reference."""
    return next((row.label for row in board.rows if row.trial == trial and row.kind == "reference"), f"net {trial}")


def _names(board: Leaderboard, trials: Sequence[int | str]) -> str:
    """ "net 7", "nets 7 and 12", "nets 7, 12, timm:resnet18 and 5 others"."""
    words = [_name(board, trial).removeprefix("net ") for trial in trials[:NAMED]]
    if len(trials) > NAMED:
        words.append(f"{len(trials) - NAMED} other{'s' * (len(trials) > NAMED + 1)}")
    listed = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
    return f"net{'s' * (len(trials) > 1)} {listed}"


def _knee(board: Leaderboard, row: RankedNet) -> list[str]:
    """The net from which on more accuracy costs most, where that is neither the one to take nor the most accurate."""
    best = pick(board.front, "accuracy", board.query.cost)
    knees = [other for other in board.front if other.knee and other.trial not in (row.trial, best.trial)]
    return [
        f"The knee of the front, behind which accuracy costs more and more, is {_name(board, knee.trial)}: "
        f"{_cost_text(board, knee)}, {score_text(board, knee)}."
        for knee in knees
    ]


def _others(board: Leaderboard, row: RankedNet) -> list[str]:
    """The most accurate net, where that is another one, and what it costs more."""
    best = pick(board.front, "accuracy", board.query.cost)
    if best.trial == row.trial:
        return []
    so = ", which the noise does not tell from it" if best.trial in (row.tied_with or ()) else ""
    most = "most accurate" if board.query.metric.is_accuracy else f"best by {board.query.metric.name}"
    cost, more = board.query.cost, 100 * (best.accuracy - row.accuracy)
    times = f"{best.costs[cost] / row.costs[cost]:.2g} times the {quantity(cost).unit}"
    facts = f"{_cost_text(board, best)}, {score_text(board, best)}, {times} for {more:.1f} {board.query.metric.points}"
    return [f"The {most} is {_name(board, best.trial)}: {facts}{so}."]


def _measured_again(board: Leaderboard, row: RankedNet) -> list[str]:
    """Result of retraining, else the command for it: the best of many is in part the luckiest."""
    metric, again = board.query.metric, row.retrained_accuracy
    if again is not None:
        sd = "" if row.retrained_sd is None else f" ± {row.retrained_sd:.3f} (standard deviation)"
        on_test = "" if row.retrained_test is None else f", {row.retrained_test:.3f} on test"
        seeds = f"{row.retrained_seeds} other seed{'s' * (row.retrained_seeds != 1)}"
        return [f"Retrained with {seeds} {_name(board, row.trial)} has {metric.value(again):.3f}{sd}{on_test}."]
    if row.kind != "search" or len(board.rows) == 1:
        return []
    if row.nested is not None:
        return [nested_text(board, row)]
    lucky = f"Best of {len(board.rows)}, so in part the luckiest{expected_text(board, row)}"
    if recipe_epochs(board) is None:
        return [f"{lucky}."]
    command = f"alternas retrain {shlex.quote(as_argument(board.folder))} --trials {row.trial}"
    return [f"{lucky}; to measure it anew, and on test: {command}"]


def _doubts(board: Leaderboard, row: RankedNet) -> list[str]:
    """Sentences on what is unknown and what may change. They name the net, for those before may be about others."""
    said, cost, net = [], board.query.cost, re.sub("^net ", "Net ", _name(board, row.trial))
    if not (board.noise and board.noise.knows_seeds):
        alone = f"; ± is 95 % by the number of pictures alone, {board.noise.images:,}" if board.noise else ""
        said.append(f"Too few nets were trained again: the seed noise is not known, nor which nets are tied{alone}.")
    else:
        sd, degrees = board.noise.at(row.accuracy)
        if row.is_cut:
            how = FROZEN if row.weights == "frozen" else FINETUNED
            said.append(how.format(net=net, images=board.extra.images))
        elif row.seeds == 1 and row.weights != "shared":
            noise = f"{100 * sd:.2g} {board.query.metric.points}, known from {degrees} degrees of freedom"
            pictures = f"{board.noise.images:,} pictures and " if board.noise.images else ""
            by = f"{pictures}the seed noise of nets about as good: {noise}"
            said.append(f"{net} was trained once; ± is 95 % by {by}.")
        if row.tied_with is None:
            why = why_unknown(row, board.noise, board.query.metric)
            said.append(f"Which nets are tied with {_name(board, row.trial)} is not known: {why}.")
    if row.is_cut:
        return said
    if not any(r.kind == "baseline" and r.status == Status.OK for r in board.records):
        said.append("No plain ResNet was trained, so what it gains over one is not known.")
    elif row.gain is None and any(r.kind == "baseline" and r.costs[cost] <= row.costs[cost] for r in board.rows):
        said.append("No plain ResNet was trained for as long, so what it gains over one is not known.")
    elif row.gain is None:
        said.append(f"{net} is cheaper than every plain ResNet of the run and less accurate, so its gain is not known.")
    if row.rising:
        said.append(f"{net} still rose at its end: with longer training the front may be another.")
    return [*said, *_start(board, row, net)]


def _start(board: Leaderboard, row: RankedNet, net: str) -> list[str]:
    """How a net came by its weights, where it was not trained alone, and for how many steps beside the others."""
    if row.weights == "shared":
        return [SLICED.format(net=net)]
    if row.weights not in HOW:
        return []
    own, steps = row.budget_steps or 0, row.steps_in_all
    others = sorted(known for r in board.rows if r.rank > 1 and (known := r.steps_in_all))
    trained = f" and trained for {own:,} steps" * (row.weights == "inherited")
    trained += f", {steps:,} steps in all" if steps else ""
    behind = f"; nets behind the front have {number_range(others)}" if steps and others else ""
    return [f"{net} {HOW[row.weights]}{trained}{behind}."]
