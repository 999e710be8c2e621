"""Report sections: Pareto front, leaderboard, attention placement, gene importance, analyses, provenance."""

from __future__ import annotations

import json
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...archs import Genotype, InputError
from ...archs.candidate import recipe_genes, tuned_values
from ..analysis_tools.index import FOLDER, INDEX, read_index
from ..ranking.objectives import COSTS, LATENCY
from ..ranking.objectives import title as title_of
from ..ranking.pareto import envelope, pareto_ranks
from ..render.tables import list_text, tuned_columns
from ..runs.record import BESIDE, Record
from .elements import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILLION, Picture, Plot, Run, Series, Table, thin

LOOKS = {
    "resnet": (BLUE, "circle"),
    "alternet": (VERMILLION, "diamond"),
    "hybrid": (GREEN, "square"),
    "vit": (PINK, "triangle-up"),
    "modern": (ORANGE, "cross"),
    "timm": (GREY, "star"),  # references
}
UNITS = {"macs": "MACs", "params": "parameters", LATENCY: "ms"}
MOST_ROWS, MOST_GENES = 300, 15
MOST_NETS = 2000  # that importance looks at: of 10,000, Optuna would take half a minute
FEWEST, FEWEST_BEST, SHARE = 20, 5, 0.1  # nets in all and among the best; share of nets that are the best
MOST_BYTES = 2**20  # of pictures: a page stays below 8 MB


def unit(cost: str) -> str:
    """What a cost's column is called."""
    return UNITS.get(cost) or title_of(cost)


def front_plots(run: Run) -> tuple[Plot, ...]:
    """Accuracy over each cost that the front is ranked by."""
    others = (replace(run, objective=cost) for cost in run.other_costs)
    further = (front_plot(of, f"front_{number}") for number, of in enumerate(others, start=2))
    return (front_plot(run), *further)


def front_plot(run: Run, plot: str = "front") -> Plot:
    """Accuracy, or another metric, over one cost; rings are nets of the front by all costs."""
    metric, cost = run.metric, unit(run.objective) if run.other_costs else "cost"
    title = f"{metric.name.capitalize()} and {cost}"
    if not run.rows:
        return Plot(plot, title, "", "", run.why_empty, [])
    places = {record.trial: i for i, record in enumerate(run.nets)}
    groups: dict[str, list[Record]] = {}  # by what the legend calls them
    for record in run.nets:
        groups.setdefault("stopped early" if record.status == "pruned" else family_in(record), []).append(record)
    order = ["baseline", "reference", *LOOKS, *(f"{family} (inherited)" for family in LOOKS)]
    series = []
    for name in sorted(groups, key=lambda name: order.index(name) if name in order else len(order)):
        nets, early = groups[name], name == "stopped early"
        colour, symbol = LOOKS.get(nets[0].family, (GREY, "circle"))
        if early or name.startswith("baseline"):
            colour, symbol = GREY, "x-thin" if early else "circle"
        symbol += "-open" if nets[0].weights != "alone" or early else ""
        at = [places[r.trial] for r in nets]
        series.append(Series(name, *_points(run, nets), "points", colour, symbol, hidden=early, nets=at))
    # The baselines' upper envelope, which gains refer to; straight over log cost, as they are measured.
    plain = [r for r in run.records if r.kind == "baseline" and r.status == "ok" and r.accuracy is not None]
    if curve := envelope([(r.accuracy or 0.0, run.cost(r)) for r in plain]):
        x, y = [10**x for x, _ in curve], [metric.value(y) for _, y in curve]
        series.append(Series("plain ResNets' curve", x, y, "line", GREY))
    series.append(Series("the front", *_points(run, _front_by_cost(run)), "steps", SKY))
    series.append(Series("on the front", *_points(run, run.front), "rings", SKY))
    up, above = ("down", "below") if metric.minimize else ("up", "above")
    better = "more accurate" if metric.is_accuracy else f"better by {metric.name}"
    caption = (
        f"A point is a net: {up} is {better}, left is cheaper. On the line lies the front: no net is both {better} "
        f"and cheaper. Nets {above} the dashed curve beat plain ResNets of their cost. Hover or tap for genes and "
        "drawing."
    )
    x = {"macs": "MACs of one image", LATENCY: "latency, ms a batch"}.get(run.objective, unit(run.objective))
    return Plot(plot, title, x, f"validation {metric.name}", caption, series, log_x=True)


def family_in(record: Record) -> str:
    """Baseline, reference or the family, and whether the net started from another's weights."""
    name = record.kind if record.kind in BESIDE else record.family
    return name + ("" if record.weights == "alone" else f" ({record.weights})")


def _front_by_cost(run: Run) -> list[Record]:
    """The nets that no other one beats in accuracy and this cost, the cheapest first."""
    ranks = pareto_ranks([(r.accuracy or 0.0, run.cost(r)) for r in run.ranked])
    return sorted((r for r, rank in zip(run.ranked, ranks, strict=True) if rank == 1), key=run.cost)


def _points(run: Run, nets: list[Record]) -> tuple[list[float], list[float]]:
    known = [(run.cost(r), round(run.metric.value(r.accuracy), 5)) for r in nets if r.accuracy is not None]
    return [cost for cost, _ in known], [accuracy for _, accuracy in known]


def leaderboard_table(run: Run) -> Table:
    """The leaderboard, of which the page shows the first rows, those of the front first."""
    differ, tuned = any(row["weights"] != "alone" for row in run.rows), tuned_columns(run.rows)
    rows = [
        {
            "trial": row["trial"],
            "rank": row["rank"],
            run.metric.name: run.metric.value(row["accuracy"]),
            **{unit(cost): row.get(cost) for cost in dict.fromkeys((*COSTS, run.objective, *run.other_costs))},
            "gain": row["gain"],
            "gain_bound": row["gain_bound"],
            "family": "baseline" if row["kind"] == "baseline" else row["label"],
            "seeds": row["seeds"],
            "rising": row["rising"],
            "seconds": row["seconds"],
            **({"weights": row["weights"]} if differ else {}),
            **{name: row.get("recipe", {}).get(name) for name in tuned},
            "net": row["key"],
        }
        for row in run.rows
    ]
    gained = f"accuracy {run.metric.points}" if run.metric.is_accuracy else run.metric.points
    shown = f"the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else f"{len(rows)}"
    caption = (
        f"{shown.capitalize()} nets trained to the end. Rank 1 is the front. Gain: {gained} above the plain "
        "ResNets' curve at the same cost; >= and <= are bounds, of nets cheaper or dearer than all of these. "
        f"A heading sorts, a trial draws. Rising: whether it still rose at its end. {run.rising}"
    )
    return Table("nets", "Leaderboard", caption if rows else run.why_empty, rows)


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
    title, front = "Where attention sits", {r.trial for r in run.front}
    attended = {r.trial: attention_of(r) for r in run.ranked if r.kind not in BESIDE}
    best = [parts for trial, parts in attended.items() if trial in front]
    parts = sorted({part for of in attended.values() for part in of}, key=lambda part: (part == "encoder", part))
    if not parts or not best:
        caption = (
            "No net of the front but baselines and references." if parts else "No net on the leaderboard has attention."
        )
        return Plot("attention", title, "", "", caption, [])
    series = []
    for name, nets, colour in (("the front", best, VERMILLION), ("all", [*attended.values()], GREY)):
        counts = Counter(part for of in nets for part in of)
        shares = [round(counts[part] / len(nets), 4) for part in parts]
        series.append(Series(f"{name} ({len(nets)})", parts, shares, "bars", colour))
    caption = (
        f"Share of nets with attention in each part: {len(best)} of the front beside all {len(attended)} that were "
        "searched and trained to the end, without baselines and references. Taller on the front: attention pays there, "
        "or the strategy favoured it."
    )
    return Plot("attention", title, "", "share of nets", caption, series)


def common_table(run: Run) -> Table:
    """The genes whose commonest value on the front is rarer among all, the most telling first."""
    searched = [r for r in run.ranked if r.kind not in BESIDE]
    front = [r for r in run.front if r.kind not in BESIDE]
    rows: list[dict[str, Any]] = []
    for name in run.genes:
        values, everywhere = ([str(r.genes[name]) for r in nets if name in r.genes] for nets in (front, searched))
        if not values:
            continue
        value, count = Counter(values).most_common(1)[0]
        here, among_all = count / len(values), everywhere.count(value) / len(everywhere)
        if round(here - among_all, 3) > 0:
            row = {"gene": name, "value": value, "on the front": round(here, 3), "among all": round(among_all, 3)}
            rows.append(row | {"difference": round(here - among_all, 3)})
    rows.sort(key=lambda row: -row["difference"])
    caption = (
        f"Each gene's commonest value on the front ({len(front)} nets) and its share there and among all "
        f"{len(searched)}. Dormant genes count too, and few nets agree by chance."
    )
    if not rows:
        caption = "The front has no gene value that is commoner there than among all."
    return Table("common", "Genes of the front", caption, rows[:MOST_GENES])


def importances(records: list[Record]) -> dict[str, float]:
    """Importance of each gene for being among the best tenth in accuracy, summing to 1, the largest first.

    Watanabe et al., "PED-ANOVA", IJCAI 2023: how far a gene's values among the best differ from those of all. Genes
    of one value are left out; {} for fewer than FEWEST nets; of more than MOST_NETS, so many, evenly spread.
    """
    import optuna

    trained = [r for r in records if r.kind == "search" and r.status == "ok" and r.accuracy is not None and r.genes]
    trained = thin(trained, MOST_NETS)
    options: dict[str, list[Any]] = {}  # of genes that all nets have, as plain values, and not all the same
    for name in trained[0].genes if len(trained) >= FEWEST else []:
        values = [r.genes.get(name) for r in trained]
        if all(isinstance(value, int | float | str) for value in values) and len(set(values)) > 1:
            options[name] = list(dict.fromkeys(values))
    if not options:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    spread: Any = {name: optuna.distributions.CategoricalDistribution(choices) for name, choices in options.items()}
    study.add_trials([
        optuna.trial.create_trial(
            value=r.accuracy, params={name: r.genes[name] for name in options}, distributions=spread
        )
        for r in trained
    ])  # fmt: skip
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=max(SHARE, FEWEST_BEST / len(trained)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.importance.get_param_importances(study, evaluator=evaluator)


def importance_parts(run: Run) -> tuple[Plot | Table, ...]:
    """What genes matter; where the recipe was searched too, how much of that is its."""
    genes = importances(run.records)
    searched = any(tuned_values(record.genes) for record in run.records)
    return (importance_plot(run, genes), *([recipe_table(genes)] if searched else []))


def recipe_table(genes: Mapping[str, float]) -> Table:
    """Importance of the recipe's genes, of the net's, and of each of the recipe's; `genes` as `importances` has it."""
    of_recipe, title = recipe_genes(genes), "Recipe against net"
    if not genes:
        return Table("recipe_importance", title, f"Needs {FEWEST} nets of the search, trained to the end.", [])
    shares = {"recipe": sum(of_recipe.values()), "net": sum(genes.values()) - sum(of_recipe.values())}
    counts = {"recipe": len(of_recipe), "net": len(genes) - len(of_recipe)}
    rows = [{"genes of": name, "number": counts[name], "importance": round(shares[name], 3)} for name in shares]
    rows += [{"genes of": name, "number": 1, "importance": round(share, 3)} for name, share in of_recipe.items()]
    caption = (
        "Gene importance from above, added up. Where the recipe's share is high, how a net is trained decides more "
        "than which net it is, and comparing nets by one recipe would mislead."
    )
    return Table("recipe_importance", title, caption, rows)


def importance_plot(run: Run, genes: Mapping[str, float]) -> Plot:
    """Bars, the most important gene on top; `genes` as `importances` has it."""
    caption = (
        "How far the genes of the most accurate tenth differ from those of all nets (PED-ANOVA). Each gene by itself, "
        "on the nets this search chose: no effect of two genes together, no direction, and among few nets mostly noise."
    )
    if not genes:
        caption = f"Gene importance needs {FEWEST} nets of the search, trained to the end, whose genes differ."
    series = [Series("importance", list(genes), [round(of, 4) for of in genes.values()], "bars", BLUE)] if genes else []
    title = f"Gene importance for {run.metric.name}"
    return Plot("importance", title, "share of importance", "", caption, series, sideways=True)


def explained_parts(run: Run) -> Iterator[Picture]:
    """A picture for each analysis of `alternas explain`; none where nothing was explained.

    The first ones, up to MOST_BYTES of them; of the others the words alone, and where the picture is.

    Raises:
        InputError: if what is there cannot be read.
    """
    folder, room = run.folder / FOLDER, MOST_BYTES
    for part in read_index(folder)["analyses"] if (folder / INDEX).exists() else []:
        texts = [f"{net}: {text}" for net, text in zip(part.nets, part.summaries, strict=True)]
        path = folder / part.png if part.png else None
        if path is not None and not path.is_file():
            path = None
        if path is not None:
            room -= path.stat().st_size
            if room < 0:
                texts, path = [*texts, f"Picture: {path}"], None
        yield Picture(part.analysis, part.title, texts, path)


def command_of(run_json: Mapping[str, Any]) -> str:
    """The command that started or last resumed a run, to be typed again; "" if run.json does not hold one."""
    words = run_json.get("command")
    if not isinstance(words, list) or len(words) < 2:
        return ""
    return shlex.join(["alternas", *map(str, words[1:])])


def provenance_tables(run: Run) -> list[Table]:
    """Settings; versions and seeds; data; recipe: a line each."""
    settings = {name: value for name, value in run.settings.items() if name != "recipe"}
    recipe, versions = run.settings.get("recipe"), run.run_json.get("versions")
    seeds = sorted({r.seed for r in run.records} | {int(s) for r in run.records for s in r.accuracies if s.isdigit()})
    devices = sorted({r.device for r in run.records if r.device})
    place = {"seeds of trainings": seeds, "devices": devices} | (versions if isinstance(versions, dict) else {})
    tables = (
        ("settings", "Settings", "All that defines the search; other settings are another run.", settings),
        ("versions", "Versions, seeds, devices", "What a repetition needs to be the same.", place),
        ("data", "Data", "What nets were trained and validated on.", run.data),
        ("recipe", "Recipe", "How each net was trained.", recipe if isinstance(recipe, dict) else {}),
    )
    made = []
    for name, title, caption, facts in tables:
        rows = [{"name": key, "value": _value_text(value)} for key, value in _flat(facts).items()]
        made.append(Table(name, title, caption if rows else "Not recorded.", rows))
    return made


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts with dots between the names."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        inner = isinstance(value, dict) and value
        flat |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat


def _value_text(value: Any) -> str:
    if value in ([], {}):
        return "none"
    if isinstance(value, list):
        return list_text(value)
    return value if isinstance(value, str) else json.dumps(value)
