"""Genes of a run's nets: which of them matter, and which values the front has in common."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...archs import Genotype
from ...archs.candidate import recipe_genes, tuned_values
from ..runs.record import REFERENCE_KINDS, Record
from ..runs.status import Status
from .elements import BLUE, GREY, VERMILLION, Plot, Series, Table
from .run import Run, thin

MAX_GENES = 15  # in a table or a plot
MAX_NETS = 2000  # that importance looks at: of 10,000, Optuna would take half a minute
MIN_NETS, MIN_BEST, SHARE = 20, 5, 0.1  # nets in all and among the best; share of nets that are the best


def importances(
    records: Sequence[Record], used: Callable[[Record], Mapping[str, Any]] = lambda r: r.genes
) -> dict[str, float]:
    """Importance of each gene for being among the best tenth in accuracy, summing to 1, the largest first.

    Watanabe et al., "PED-ANOVA", IJCAI 2023: how far a gene's values among the best differ from those of all. Each gene
    is looked at in the nets that use it, all that drew it without `used`. Genes of one value are left out, and those
    that fewer than MIN_NETS nets use; of more than MAX_NETS, so many, evenly spread.
    """
    trained = [
        r for r in records if r.kind == "search" and r.status == Status.OK and r.accuracy is not None and r.genes
    ]
    trained = thin(trained, MAX_NETS)
    users: defaultdict[str, list[int]] = defaultdict(list)  # by gene: places of the nets that use it
    for i, record in enumerate(trained if len(trained) >= MIN_NETS else []):
        for name in used(record):
            users[name].append(i)
    together: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)  # genes that the same nets use
    for name, nets in users.items():
        if len(nets) >= MIN_NETS:
            together[tuple(nets)].append(name)
    found: dict[str, float] = {}
    for nets, names in together.items():
        found |= _raw_importances([trained[i] for i in nets], names)
    total = sum(found.values())
    return {name: of / total for name, of in sorted(found.items(), key=lambda item: -item[1])} if total else {}


def _raw_importances(nets: Sequence[Record], names: Sequence[str]) -> dict[str, float]:
    """PED-ANOVA importance of genes that all these nets use; those of one value are left out."""
    import optuna

    options: dict[str, list[Any]] = {}
    for name in names:
        values = [r.genes[name] for r in nets]
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
        for r in nets
    ])  # fmt: skip
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=max(SHARE, MIN_BEST / len(nets)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.importance.get_param_importances(study, evaluator=evaluator, normalize=False)


def importance_parts(run: Run) -> tuple[Plot | Table, ...]:
    """Gene importance; where the recipe was searched too, the recipe's share of it."""
    genes = importances(run.nets, run.used)
    searched = any(tuned_values(record.genes) for record in run.records)
    return (importance_plot(run, genes), *([recipe_table(genes)] if searched else []))


def recipe_table(genes: Mapping[str, float]) -> Table:
    """Importance of the recipe's genes, of the net's, and of each of the recipe's; `genes` is from `importances`."""
    of_recipe, title = recipe_genes(genes), "Recipe against net"
    if not genes:
        return Table("recipe_importance", title, f"Needs {MIN_NETS} nets of the search, trained to the end.", [])
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
    """A bar for each gene, the most important on top; `genes` is what `importances` returns."""
    shown = dict(list(genes.items())[:MAX_GENES])
    caption = (
        "How far the genes of the most accurate tenth differ from those of all nets (PED-ANOVA), each gene among the "
        "nets that use it. No effect of two genes together, no direction, and among few nets mostly noise."
    )
    caption += f" The first {len(shown)} of {len(genes)}." if len(shown) < len(genes) else ""
    if not genes:
        caption = f"Gene importance needs {MIN_NETS} nets of the search, trained to the end, whose genes differ."
    values = [round(of, 4) for of in shown.values()]
    series = [Series("importance", list(shown), values, "bars", BLUE)] if genes else []
    title = f"Gene importance for {run.metric.name}"
    return Plot("importance", title, "share of importance", "", caption, series, sideways=True)


def attention_of(net: Genotype | None) -> tuple[str, ...]:
    """The parts of a net that hold attention: "stage 2", "encoder"."""
    if net is None:
        return ()
    stages = [f"stage {i}" for i, stage in enumerate(net.stages, start=1) if stage.places]
    return (*stages, *(["encoder"] if net.encoder else []))


def attention_plot(run: Run) -> Plot:
    """Share of nets with attention in each part, on the front and in all."""
    title, front = "Where attention sits", {r.trial for r in run.front}
    attended = {r.trial: attention_of(run.net(r)) for r in run.ranked if r.kind not in REFERENCE_KINDS}
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
    """The genes whose commonest value on the front is rarer among all, of the nets that use them."""
    searched = [run.used(r) for r in run.ranked if r.kind not in REFERENCE_KINDS]
    front = [run.used(r) for r in run.front if r.kind not in REFERENCE_KINDS]
    rows: list[dict[str, Any]] = []
    for name in run.genes:
        values, everywhere = ([str(genes[name]) for genes in nets if name in genes] for nets in (front, searched))
        if not values:
            continue
        value, count = Counter(values).most_common(1)[0]
        here, among_all = count / len(values), everywhere.count(value) / len(everywhere)
        if round(here - among_all, 3) > 0:
            row = {"gene": name, "value": value, "on the front": round(here, 3), "among all": round(among_all, 3)}
            rows.append(row | {"difference": round(here - among_all, 3), "nets": len(values)})
    rows.sort(key=lambda row: -row["difference"])
    caption = (
        f"Each gene's commonest value on the front ({len(front)} nets) and its share there and among all "
        f"{len(searched)}, of the nets that use it: nets of the front that do are counted. Few nets agree by chance."
    )
    if not rows:
        caption = "The front has no gene value that is commoner there than among all."
    return Table("common", "Genes of the front", caption, rows[:MAX_GENES])
