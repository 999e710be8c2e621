"""Retrain the best nets of a search at full budget with several seeds, and measure them on the test split."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from ...archs import InputError
from ...archs.errors import MAX_SEEDS, check_count
from ...archs.timm_net import net_from_dict
from ...results.ranking.metric import Metric, run_metric
from ...results.ranking.objectives import RankingQuery, title
from ...results.ranking.quantities import cost_value
from ...results.ranking.remarks import why_empty
from ...results.ranking.run_leaderboard import costs_of, leaderboard_of, limits_of
from ...results.ranking.verdict import recommended
from ...results.render.describe_net import find_trial
from ...results.runs.nets import best_weights, better_weights, trained_nets
from ...results.runs.record import Record
from ...results.runs.retrained import FOLDER, prune
from ...results.runs.store import read_records, read_settings
from ..data.dataset import DataSet
from ..data.views import WHOLE, fold_view
from ..fitted_recipe import DecidedRecipe, decided_recipe, kept_recipes
from ..run_config import RunConfig
from ..training.recipe import Recipe
from ..training.trainer_file import TrainerFile
from ..training.tuned import recipe_of as tuned_recipe
from .plan import ExperimentContext, Training, repeated
from .run_plan import run_experiment
from .trained_nets import data_of, recipe_of

TOP = 3


@dataclass(frozen=True)
class Retrain:
    """Settings of a retraining: which nets of a search, how and where."""

    search: Path
    seeds: int
    run: RunConfig  # where, for how long, and which trackers are told
    top: int = TOP  # so many nets: the recommended one, then by Pareto rank and accuracy
    trials: tuple[int, ...] = ()  # these nets instead
    limits: Mapping[str, float] = field(default_factory=dict)  # largest cost of a net, by kind of cost
    recipe: Recipe | None = None  # None takes that of the search, which is each net's own where it was searched too
    epochs: float | None = None  # of the recipe; None leaves them
    trainer: TrainerFile | None = None  # the user's own training, where that is how the search trained

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds, most=MAX_SEEDS)
        check_count("top", self.top)
        if self.trials and self.limits:
            raise InputError("retrain: --trials names nets and a limit chooses among them; give one of the two")


def retrain(config: Retrain, console: Console) -> list[Record]:
    """Retrain, or go on with it; the best weights of each net are kept. Returns the records of all trainings.

    InputError if there is no such net, or the data are not those of the search; OperationError if workers do not start
    or everything fails.
    """
    run, trainer = config.search, config.trainer
    _check_trainer(run, trainer)
    nets = _chosen(config)
    for line in limit_notes(run, nets):
        console.print(line, highlight=False)
    data = trainer.data_set() if trainer and trainer.images else data_of(run, console)
    test = data.test is not None and trainer is None
    if not test:
        of = trainer.name if trainer else data.name
        console.print(f"{of} has no test split: validation accuracy is all there is", highlight=False)
    seeds, metric = unseen_seeds(read_records(run), config.seeds), run_metric(run)
    decided = _decided(config, data, metric)
    view = fold_view(read_settings(run).get("settings", {}).get("folds", 0))
    if view != WHOLE:
        console.print(f"a search of {view.folds} folds: retrained without the pictures of the first, which validate")
    plan = list[Training]()
    for net in nets:
        how = decided.recipe if config.recipe else tuned_recipe(decided.recipe, net.genes)
        factors = {"trial": net.trial, "net": net.key}
        plan += repeated(net_from_dict(net.genotype), how, data, seeds, factors, test=test, view=view)
    settings = {"objective": costs_of(run)[0], "run": run.name, "metric": asdict(metric)}
    if trainer:
        settings["trainer"] = trainer.identity
    kept = {"trainer": trainer, "recipes": decided.kept}
    context = ExperimentContext(run / FOLDER, "retrain", data, config.run, settings, metric=metric, **kept)
    records = run_experiment(plan, context, console)
    prune(run)
    return records


def unseen_seeds(records: Sequence[Record], count: int) -> list[int]:
    """The first seeds, for all nets, that no net of the search was trained with: those made nets look good."""
    seen = {seed for r in records for seed in (r.seed, *map(int, r.accuracies))}
    return [seed for seed in range(count + len(seen)) if seed not in seen][:count]


def _decided(config: Retrain, data: DataSet, metric: Metric) -> DecidedRecipe:
    """The recipe asked for, as it is for the data; else that of the search, which is kept there."""
    recipe = config.recipe or recipe_of(config.search)
    recipe = recipe if config.epochs is None else recipe.with_epochs(config.epochs)
    folder = config.search / FOLDER
    if config.recipe and not config.trainer:
        return decided_recipe(folder, recipe, data, metric)
    return DecidedRecipe(recipe.on(len(data.train)), kept_recipes(folder))


def _check_trainer(run: Path, trainer: TrainerFile | None) -> None:
    """Raise InputError unless the trainer is that of the search; code from a run's folder is never run."""
    searched, given = read_settings(run).get("settings", {}).get("trainer", ""), trainer.identity if trainer else ""
    if searched != given:
        rule = f"run {run.name!r} was trained by {searched or 'our own training'}, and is retrained so"
        raise InputError(f"trainer: {rule}; got {given or 'none: name its file with --trainer'}")


def _chosen(config: Retrain) -> Sequence[Record]:
    """The nets to retrain. Raises InputError if one is not there, or none is within the limits."""
    records = read_records(config.search)
    if config.trials:
        named = [better_weights(records, find_trial(config.search, trial)) for trial in config.trials]
        return list({r.trial_key: r for r in named}.values())
    board = leaderboard_of(config.search, RankingQuery(limits=config.limits))
    if not board.rows:
        raise InputError(f"run {config.search.name}: {why_empty(board)}")
    first = recommended(board).trial
    rows = sorted(board.rows, key=lambda row: (row.trial != first, row.rank, -row.accuracy))
    by_trial = {r.trial: r for r in map(best_weights, trained_nets(records))}
    return [by_trial[row.trial] for row in rows[: config.top]]


def limit_notes(run: Path, nets: Sequence[Record]) -> list[str]:
    """A line for each net that the run's own limits leave out, for those who named it."""
    limits = limits_of(run)
    return [
        f"trial {net.trial} is over the limit of its run: {cost_value(cost, net.cost):,} {title(cost)}, "
        f"at most {limits[cost]:,}; the front is without it, and "
        f"`export {run.name}:{net.trial}` takes it by its number alone"
        for net in nets
        for cost in limits.broken(net.cost)
    ]
