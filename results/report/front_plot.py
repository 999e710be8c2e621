"""The plot of a front: nets by family and kind of weights, the front with its noise, its ties and its knee."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...archs.errors import InputError
from ..ranking.front import envelope
from ..ranking.objectives import RankingQuery
from ..ranking.quantities import ACCURACY, quantity
from ..ranking.remarks import why_empty
from ..render.drawing import write_svg
from ..runs.record import REFERENCE_KINDS, Record
from ..runs.status import Status, Weights
from .elements import BLUE, GREEN, GREY, ORANGE, PINK, SKY, TEXT, VERMILLION, Plot, Series
from .run import Run, open_run, thin
from .svg import plot_svg

FAMILY_LOOKS = {  # colour and shape
    "resnet": (BLUE, "circle"),
    "alternet": (VERMILLION, "diamond"),
    "hybrid": (GREEN, "square"),
    "vit": (PINK, "triangle"),
    "modern": (ORANGE, "cross"),
    "timm": (GREY, "star"),  # references
}
WEIGHT_LOOKS = {
    "alone": "full", "inherited": "open", "shared": "dotted", "finetuned": "half", "frozen": "open"
}  # fmt: skip
WEIGHT_NAMES = {str(way): str(way) for way in Weights if way != Weights.ALONE} | {"shared": "sliced"}
EARLY = "stopped early"
MAX_RINGS = 100  # around tied nets: more would cover all else, and wait in the legend
MAX_NAMED = 40  # nets of a front, of as many as there is room for
FIGURE = (760, 420)  # pixels of a picture of its own


def write_front(folder: Path, path: Path, query: RankingQuery | None = None) -> None:
    """Write the plot of a run's front as an SVG picture; InputError if it is empty, or the file cannot be written."""
    run = open_run(folder, query)
    if not run.rows:
        raise InputError(f"svg: nothing to draw, {why_empty(run.board)}")
    write_svg(path, plot_svg(front_plot(run), *FIGURE))


def front_plots(run: Run) -> tuple[Plot, ...]:
    """Accuracy over each cost that the front is ranked by."""
    query, costs = run.board.query, run.board.query.costs
    turned = (replace(query, objectives=(ACCURACY, cost, *(c for c in costs if c != cost))) for cost in costs[1:])
    further = [replace(run, board=replace(run.board, query=by)) for by in turned]
    return (front_plot(run), *(front_plot(of, f"front_{number}") for number, of in enumerate(further, start=2)))


def front_plot(run: Run, name: str = "front") -> Plot:
    """Accuracy, or another metric, over the first cost."""
    metric = run.metric
    title = f"{metric.name.capitalize()} and {'cost' if name == 'front' else quantity(run.objective).unit}"
    if not run.rows:
        return Plot(name, title, "", "", run.why_empty, [])
    x = quantity(run.objective).axis
    series = [*_nets_series(run), *_baseline_curve(run), *_front_series(run), *_again_series(run)]
    within = metric.within if metric.is_known else None
    return Plot(name, title, x, f"validation {metric.name}", _caption(run), series, log_x=True, within=within)


def _caption(run: Run) -> str:
    metric, noise = run.metric, run.board.noise
    up, above = ("down", "below") if metric.minimize else ("up", "above")
    better = "more accurate" if metric.is_accuracy else f"better by {metric.name}"
    if noise:
        bars = f"Bars are 95 % intervals by {noise.source}"
        ties = "dashed rings, where there are few, are nets behind the front that the noise does not tell from it."
        ties = ties if noise.knows_seeds else "that of seeds is not known, nor which nets are tied."
    else:
        bars, ties = "There are no bars: too few nets were trained again", "the seed noise is not known."
    curve = f"Nets {above} the dashed curve beat plain ResNets of their cost. " if _baseline_curve(run) else ""
    return (
        f"A point is a net: {up} is {better}, left is cheaper. The line is the front: no net is both {better} "
        f"and cheaper. {bars}; {ties} {curve}Hover or tap for a net's facts and drawing, click to hold it; a name in "
        "the legend hides or shows its nets."
    )


def _nets_series(run: Run) -> list[Series]:
    groups: dict[str, list[tuple[int, Record]]] = {}
    for i, record in enumerate(run.nets):
        if run.cost(record):
            name = record.kind if record.kind in REFERENCE_KINDS else record.family
            name += "" if record.weights == "alone" else f" ({WEIGHT_NAMES[record.weights]})"
            groups.setdefault(EARLY if record.status == Status.PRUNED else name, []).append((i, record))
    names = ["baseline", "reference", *FAMILY_LOOKS]
    order = [*names, *(f"{name} ({how})" for how in WEIGHT_NAMES.values() for name in names)]
    series = []
    for name in sorted(groups, key=lambda name: order.index(name) if name in order else len(order)):
        nets, early = [record for _, record in groups[name]], name == EARLY
        colour, symbol = FAMILY_LOOKS.get(nets[0].family, (GREY, "circle"))
        look = WEIGHT_LOOKS.get(nets[0].weights, "open")
        if early or nets[0].kind == "baseline":
            colour, symbol, look = GREY, "x" if early else "circle", "open" if early else look
        at = [i for i, _ in groups[name]]
        xy = _points(run, nets)
        series.append(Series(name, *xy, "points", colour, symbol, look, hidden=early, nets=at))
    return series


def _baseline_curve(run: Run) -> list[Series]:
    """The baselines' upper envelope, which gains refer to; straight over log cost, as they are measured."""
    plain = [r for r in run.records if r.kind == "baseline" and r.status == Status.OK and r.accuracy is not None]
    curve = envelope([(r.accuracy or 0.0, cost) for r in plain if (cost := run.cost(r))])
    x, y = [10**x for x, _ in curve], [run.metric.value(y) for _, y in curve]
    return [Series("plain ResNets' curve", x, y, "line", GREY, look="dotted")] if len(curve) > 1 else []


def _front_series(run: Run) -> list[Series]:
    """The staircase, of a front of accuracy and one cost; its nets with bars and numbers; those tied with it."""
    front, noise = run.front, run.board.noise
    series = []
    if run.board.query.objectives == (ACCURACY, run.objective):
        series.append(Series("the front", *_points(run, front), "steps", TEXT))
    name = "on the front, 95 %" if noise else "on the front"
    bars = [_interval(run, r) for r in front] if noise else []
    named = {r.trial for r in thin(front, MAX_NAMED)}
    labels = [f"knee: {r.trial}" if run.row_of[r.trial].knee else str(r.trial) * (r.trial in named) for r in front]
    series.append(Series(name, *_points(run, front), "rings", TEXT, bars=bars, labels=labels))
    tied = [r for r in run.ranked if run.row_of[r.trial].rank > 1 and run.row_of[r.trial].tied_with]
    if tied:
        many = len(tied) > MAX_RINGS
        series.append(Series("tied with it", *_points(run, tied), "rings", GREY, look="dotted", hidden=many))
    return series


def _interval(run: Run, record: Record) -> tuple[float, float]:
    """The ends of a net's 95 % interval, cut to what the metric can be."""
    row, metric = run.row_of[record.trial], run.metric
    assert run.board.noise
    low, high = sorted(map(metric.value, run.board.noise.interval(row.accuracy, row.seeds)))
    return max(metric.within[0], low), min(metric.within[1], high)


def _again_series(run: Run) -> list[Series]:
    """Results of retraining the front: means over seeds on validation and on test."""
    series = []
    for name, column, look in (
        ("retrained", "retrained_accuracy", "full"),
        ("retrained, on test", "retrained_test", "open"),
    ):
        found = [(row, getattr(row, column)) for row in run.board.front]
        known = [(row, score) for row, score in found if score is not None]
        value = run.metric.value if column == "retrained_accuracy" else float
        x, y = [row.costs[run.objective] for row, _ in known], [round(value(score), 5) for _, score in known]
        series += [Series(name, x, y, "points", SKY, "down", look)] if known else []
    return series


def _points(run: Run, nets: Iterable[Record]) -> tuple[list[Any], list[Any]]:
    known = [(run.cost(r), round(run.metric.value(r.accuracy), 5)) for r in nets if r.accuracy is not None]
    return [cost for cost, _ in known], [accuracy for _, accuracy in known]
