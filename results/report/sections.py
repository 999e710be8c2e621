"""What the front's nets have in common: where their attention sits, and which genes they share."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

from ...archs import Genotype, InputError
from ..ranking.objectives import COSTS, LATENCY
from ..ranking.pareto import envelope
from ..runs.record import Record
from .facts import Run
from .parts import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILLION, Plot, Series, Table
from .progress import thin

MOST_GENES = 15


def attention_of(record: Record) -> tuple[str, ...]:
    """The parts of a net that hold attention: "stage 2", "encoder"."""
    try:
        net = Genotype.from_dict(record.genotype)
    except InputError:  # of another alternas
        return ()
    stages = [f"stage {i}" for i, stage in enumerate(net.stages, start=1) if stage.places]
    return (*stages, *(["encoder"] if net.encoder else []))


def attention_plot(run: Run) -> Plot:
    """Share of nets with attention in each part, on the front and in all."""
    searched = [r for r in run.ranked if r.kind != "baseline"]
    front = {r.trial for r in run.front}
    found = {r.trial: attention_of(r) for r in searched}
    parts = sorted({part for held in found.values() for part in held}, key=lambda part: (part == "encoder", part))
    best = [held for trial, held in found.items() if trial in front]
    caption = (
        f"Share of nets with attention in each part: {len(best)} of the front beside all {len(found)} that were "
        "searched and trained to the end, without baselines. Taller on the front: attention pays there, or the "
        "strategy favoured it."
    )
    if not parts or not best:
        caption = "No net of the front but baselines." if parts else "No net on the leaderboard has attention."
        return Plot("attention", "Where attention sits", "", "", caption, [])
    series = [
        Series(f"the front ({len(best)})", parts, _shares(best, parts), "bars", VERMILLION),
        Series(f"all ({len(found)})", parts, _shares(list(found.values()), parts), "bars", GREY),
    ]
    return Plot("attention", "Where attention sits", "", "share of nets", caption, series)


def _shares(nets: list[tuple[str, ...]], parts: list[str]) -> list[float]:
    counts = Counter(part for held in nets for part in held)
    return [round(counts[part] / len(nets), 4) for part in parts]


def common_table(run: Run) -> Table:
    """The genes whose commonest value on the front is rarer among all, the most telling first."""
    searched = [r for r in run.ranked if r.kind != "baseline"]
    front = [r for r in run.front if r.kind != "baseline"]
    rows = [_row(name, front, searched) for name in run.genes] if front else []
    rows = [row for row in rows if row is not None and row["difference"] > 0]
    rows.sort(key=lambda row: -row["difference"])
    caption = (
        f"Each gene's commonest value on the front ({len(front)} nets) and its share there and among all "
        f"{len(searched)}. Dormant genes count too, and few nets agree by chance."
    )
    if not rows:
        caption = "The front has no gene value that is commoner there than among all."
    return Table("common", "Genes of the front", caption, rows[:MOST_GENES])


def _row(name: str, front: list[Record], nets: list[Record]) -> dict[str, Any] | None:
    values = [str(r.genes[name]) for r in front if name in r.genes]
    if not values:
        return None
    value, count = Counter(values).most_common(1)[0]
    everywhere = [str(r.genes[name]) for r in nets if name in r.genes]
    here, there = count / len(values), everywhere.count(value) / len(everywhere)
    row = {"gene": name, "value": value, "on the front": here, "among all": there, "difference": here - there}
    return {key: round(found, 3) if isinstance(found, float) else found for key, found in row.items()}


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


MOST = 2000  # nets that are looked at: of 10,000, Optuna would take half a minute
FEWEST, FEWEST_BEST, SHARE = 20, 5, 0.1  # nets in all and among the best; share of nets that are the best


def importances(records: list[Record]) -> dict[str, float]:
    """Importance of each gene for being among the best tenth in accuracy, summing to 1, the largest first.

    Watanabe et al., "PED-ANOVA", IJCAI 2023: how far a gene's values among the best differ from those of all. Genes
    of one value are left out; {} for fewer than FEWEST nets; of more than MOST, so many, evenly spread.
    """
    import optuna

    trained = [r for r in records if r.kind == "search" and r.status == "ok" and r.accuracy is not None and r.genes]
    trained = thin(trained, MOST)
    names = [name for name in trained[0].genes if _usable(name, trained)] if len(trained) >= FEWEST else []
    if not names:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    options = {name: list(dict.fromkeys(r.genes[name] for r in trained)) for name in names}
    spread: Any = {name: optuna.distributions.CategoricalDistribution(found) for name, found in options.items()}
    study.add_trials([
        optuna.trial.create_trial(
            value=r.accuracy, params={name: r.genes[name] for name in names}, distributions=spread
        )
        for r in trained
    ])  # fmt: skip
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=max(SHARE, FEWEST_BEST / len(trained)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.importance.get_param_importances(study, evaluator=evaluator)


def _usable(name: str, trained: list[Record]) -> bool:
    """Whether all nets have this gene, as a plain value, and not all the same."""
    values = [r.genes.get(name) for r in trained]
    return all(isinstance(value, int | float | str) for value in values) and len(set(values)) > 1


def importance_plot(run: Run) -> Plot:
    """Bars, the most important gene on top."""
    found = importances(run.records)
    caption = (
        "How far the genes of the most accurate tenth differ from those of all nets (PED-ANOVA). Each gene by itself, "
        "on the nets this search chose: no effect of two genes together, no direction, and among few nets mostly noise."
    )
    if not found:
        caption = f"Gene importance needs {FEWEST} nets of the search, trained to the end, whose genes differ."
    bars = Series("importance", list(found), [round(value, 4) for value in found.values()], "bars", BLUE)
    title, series = "Gene importance for accuracy", [bars] if found else []
    return Plot("importance", title, "share of importance", "", caption, series, sideways=True)
