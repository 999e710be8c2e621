"""The front: every net as a point, the front as steps, the plain ResNets' curve; and the leaderboard."""

from __future__ import annotations

from ..objectives import COSTS, LATENCY
from ..ranking import envelope
from ..record import Record
from .facts import Run
from .parts import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILLION, Plot, Series, Table

LOOKS = {
    "resnet": (BLUE, "circle"),
    "alternet": (VERMILLION, "diamond"),
    "hybrid": (GREEN, "square"),
    "vit": (PINK, "triangle-up"),
    "modern": (ORANGE, "cross"),
}
UNITS = {"macs": "MACs", "params": "parameters", LATENCY: "ms"}
MOST_ROWS = 300


def front_plot(run: Run) -> Plot:
    """Accuracy over cost."""
    caption = (
        "A point is a net: up is more accurate, left is cheaper. On the line lies the front: no net is both more "
        "accurate and cheaper. Nets above the dashed curve beat plain ResNets of their cost. Hover or tap for genes "
        "and drawing."
    )
    if not run.rows:
        return Plot("front", "Accuracy and cost", "", "", _none(run), [])
    front = run.front
    points = [_points(run, name, nets) for name, nets in _groups(run).items()]
    curve = [_curve(run)] if _curve(run).x else []
    steps = Series("the front", _costs(run, front), _accuracies(front), "steps", SKY)
    rings = Series("on the front", _costs(run, front), _accuracies(front), "rings", SKY)
    x = {"macs": "MACs of one image", LATENCY: "latency, ms a batch"}.get(run.objective, UNITS[run.objective])
    return Plot(
        "front", "Accuracy and cost", x, "validation accuracy", caption, [*points, *curve, steps, rings], log_x=True
    )


def leaderboard_table(run: Run) -> Table:
    """The first rows of the leaderboard, those of the front first."""
    heirs = any(row["inherited"] for row in run.rows)
    rows = [
        {
            "trial": row["trial"],
            "rank": row["rank"],
            "accuracy": row["accuracy"],
            **{UNITS[cost]: row[cost] for cost in dict.fromkeys((*COSTS, run.objective))},
            "gain": row["gain"],
            "gain_bound": row["gain_bound"],
            "family": "baseline" if row["kind"] == "baseline" else row["family"],
            "seeds": row["seeds"],
            "seconds": row["seconds"],
            **({"inherited": "yes" if row["inherited"] else ""} if heirs else {}),
            "net": row["key"],
        }
        for row in run.rows
    ]
    shown = f"the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else f"{len(rows)}"
    caption = (
        f"{shown.capitalize()} nets trained to the end. Rank 1 is the front. Gain: accuracy points above the plain "
        "ResNets' curve at the same cost; >= and <= are bounds, of nets cheaper or dearer than all of these. "
        "A heading sorts, a trial draws."
    )
    return Table("nets", "Leaderboard", caption if rows else _none(run), rows)


def _none(run: Run) -> str:
    return f"{run.none[:1].upper()}{run.none[1:]}."


def _groups(run: Run) -> dict[str, list[Record]]:
    """Nets by what the legend calls them."""
    groups: dict[str, list[Record]] = {}
    for record in run.nets:
        groups.setdefault(_group(record), []).append(record)
    order = ["baseline", *LOOKS, *(f"{family} (inherited)" for family in LOOKS)]
    return dict(sorted(groups.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _group(record: Record) -> str:
    if record.status == "pruned":
        return "stopped early"
    if record.kind == "baseline":
        return "baseline"
    return record.family + (" (inherited)" if record.lineage else "")


def _points(run: Run, name: str, nets: list[Record]) -> Series:
    colour, symbol = LOOKS.get(nets[0].family, (GREY, "circle"))
    if name in ("baseline", "stopped early"):
        colour, symbol = GREY, "x-thin" if name == "stopped early" else "circle"
    symbol += "-open" if nets[0].lineage or name == "stopped early" else ""
    places, early = [run.place[r.trial] for r in nets], name == "stopped early"
    return Series(name, _costs(run, nets), _accuracies(nets), "points", colour, symbol, hidden=early, nets=places)


def _curve(run: Run) -> Series:
    """The baselines' upper envelope, which gains refer to; straight over log cost, as they are measured."""
    plain = [r for r in run.records if r.kind == "baseline" and r.status == "ok" and r.accuracy is not None]
    points = envelope([(r.accuracy or 0.0, run.cost(r)) for r in plain])
    return Series("plain ResNets' curve", [10**x for x, _ in points], [y for _, y in points], "line", GREY)


def _costs(run: Run, nets: list[Record]) -> list[float]:
    return [run.cost(r) for r in nets]


def _accuracies(nets: list[Record]) -> list[float]:
    return [round(r.accuracy, 5) for r in nets if r.accuracy is not None]
