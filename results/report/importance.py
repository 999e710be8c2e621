"""Gene importance: PED-ANOVA on accuracy, by Optuna, on a study rebuilt in memory from the records."""

from __future__ import annotations

import warnings
from typing import Any

from ..record import Record
from .facts import Run
from .parts import BLUE, Plot, Series
from .progress import thin

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
