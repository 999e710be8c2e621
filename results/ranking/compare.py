"""Several runs side by side: hypervolumes against one reference, who covers whom, and their joint front."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...archs.candidate import tuned_values
from ...archs.errors import InputError
from ..render.tables import nets_table
from ..render.terminal import plain
from ..runs.retrained import retrained
from ..runs.store import find_run, read_data_facts, read_records, read_settings
from .front import Leaderboard, with_ranks
from .metric import as_shown, score_range, trained_scores
from .noise import UNKNOWN_NOISE, Noise, noise_of
from .objectives import RankingQuery, column
from .pareto import Bounds, coverage
from .quantities import ACCURACY, LATENCY
from .ranked_net import RankedNet
from .remarks import budget_lines, count_rising, left_out, why_empty
from .run_leaderboard import costs_of, leaderboard_of
from .stats import TIED

MAX_RUN, COVERED = 18, 9  # characters of a run's name on a line of the table, and of its heads
COVERS = "covers: share of that run's front that this run's front equals or beats in every objective (C metric)"
MAX_TOLD = 4  # settings that differ
SHOWN = 40  # characters of a value
WORDS = {  # of settings that people know by another name; those that count most first
    "epochs": "epochs",
    "seed": "seed",
    "folds": "folds",
    "repeats": "trainings of each net",
    "from": "weights that nets begin with",
    "tune": "tuned settings",
    "lr": "learning rate",
    "batch_size": "batch size",
}


@dataclass(frozen=True)
class Comparison:
    """Result of comparing several runs."""

    query: RankingQuery  # what the nets are ranked on
    # a row each: run, nets, hypervolume, best_accuracy, best_trial, on_front, on_joint_front, seconds
    runs: list[dict[str, Any]]
    # by run and by other run, the share of the other's front that the run's front equals or beats
    coverage: dict[str, dict[str, float | None]]
    front: list[RankedNet]  # the joint front, rows as those of a leaderboard, with `run`
    noise: Noise | None  # of the seeds of all runs
    notes: list[str]  # what makes the comparison less than fair

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON, without the records."""
        noise = self.noise if self.noise and self.noise.groups else None
        return {
            "objectives": list(self.query.objectives),
            "runs": [as_shown(row, self.query.metric) for row in self.runs],
            "coverage": self.coverage,
            "front": [row.to_dict(self.query.metric) for row in self.front],
            "seed_noise": noise and {"sd": noise.sd, "trainings": noise.trainings, "nets": noise.nets},
            "notes": self.notes,
        }


def compare(names: Sequence[str], query: RankingQuery) -> Comparison:
    """Compare two runs or more; objectives left out are those of the first.

    InputError if they were not trained and validated on the same images, are ranked by different metrics, or there are
    fewer than two.
    """
    paths = [find_run(name) for name in names]
    if len({folder.resolve() for folder in paths}) < max(2, len(names)):
        raise InputError(f"compare: two different runs or more, got {', '.join(names) or 'none'}")
    short = len({folder.name for folder in paths}) == len(names)
    folders = {folder.name if short else str(folder): folder for folder in paths}
    notes = differing(folders)
    query = replace(query, objectives=query.objectives or (ACCURACY, *costs_of(paths[0])[:2]))
    boards = {name: leaderboard_of(folder, query) for name, folder in folders.items()}
    metrics = {name: board.query.metric for name, board in boards.items()}
    if len(set(metrics.values())) > 1:
        each = ", ".join(f"{metric.needed_text or metric.name} in {name}" for name, metric in metrics.items())
        raise InputError(f"compare: runs must be ranked by the same metric, got {each}")
    query = next(iter(boards.values())).query
    settings = {board.latency_setting for board in boards.values()}
    if LATENCY in (*query.objectives, *query.limits) and len(settings) > 1:
        raise InputError(f"compare: latencies must be of one setting, got {', '.join(sorted(settings))}")
    if len({tuple(board.extra.settings) for board in boards.values()}) > 1:
        each = "; ".join(f"{', '.join(board.extra.settings) or 'none'} in {name}" for name, board in boards.items())
        raise InputError(f"compare: numbers of devices must be of the same command, got {each}")
    noise = noise_of(
        [r for board in boards.values() for r in board.records],
        query.metric,
        min(board.extra.images for board in boards.values()),
        [r for folder in folders.values() for r in retrained(folder)],
        next(iter(boards.values())).extra.class_images,
    )
    rows = [replace(row, run=name) for name, board in boards.items() for row in board.rows]
    rows = with_ranks(rows, query, noise, lambda row: boards[row.run].extra.right_of(row))
    front = [row for row in rows if row.rank == 1]
    scores = [score for board in boards.values() for score in trained_scores(board.records)]
    bounds = query.bounds(rows) | {ACCURACY: score_range(query.metric, read_data_facts(paths[0]), scores)}
    points = {name: [query.point(row) for row in board.front] for name, board in boards.items()}
    covers = {
        name: {other: coverage(own, theirs) for other, theirs in points.items() if other != name}
        for name, own in points.items()
    }
    unranked = [
        f"run {name}: {line}"
        for name, board in boards.items()
        for line in filter(None, (why_empty(board), *left_out(board)))
    ]
    return Comparison(
        query,
        [_run_row(name, board, front, bounds) for name, board in boards.items()],
        covers,
        front,
        noise,
        [*notes, *unranked, *budget_lines(rows)],
    )


def _run_row(name: str, board: Leaderboard, joint: Sequence[RankedNet], bounds: Mapping[str, Bounds]) -> dict[str, Any]:
    """A run beside the others: its hypervolume up to the most expensive net of all."""
    best = max(board.rows, key=lambda row: (row.accuracy, -row.costs[board.query.cost]), default=None)
    return {
        "run": name,
        "nets": len(board.rows),
        "hypervolume": board.hypervolume(bounds),
        "best_accuracy": best and best.accuracy,
        "best_trial": best and best.trial,
        "on_front": len(board.front),
        "on_joint_front": sum(row.run == name for row in joint),
        "seconds": sum(r.spent_seconds for r in board.records),
    }


def drawn(comparison: Comparison) -> RenderableType:
    """Tables of the runs and of their joint front, with notes."""
    runs = Table(title="Runs", title_justify="left", header_style="bold", box=None, pad_edge=False)
    names = [row["run"] for row in comparison.runs]
    metric = comparison.query.metric
    runs.add_column("run", overflow="fold", width=min(MAX_RUN, max(map(len, names))))
    for title in ("nets", "hyper-\nvolume", f"best\n{metric.name}", "front", "joint\nfront"):
        runs.add_column(Text(title), justify="right", no_wrap=True)
    for name in names:
        head = Text(f"covers\n{name}", overflow="fold")
        runs.add_column(head, justify="right", overflow="fold", min_width=min(COVERED, len(name)))
    for row in comparison.runs:
        best = metric.text(row["best_accuracy"])
        shares = [comparison.coverage[row["run"]].get(other) for other in names]
        covers = ["" if share is None else f"{100 * share:.0f} %" for share in shares]
        counts = (str(row["on_front"]), str(row["on_joint_front"]))
        runs.add_row(row["run"], str(row["nets"]), f"{row['hypervolume']:.4f}", best, *counts, *covers)
    none = "no run has a net that can be ranked"
    others = [column(name) for name in comparison.query.objectives if name != ACCURACY]
    front = nets_table(comparison.front, "Joint front", others, none=none, metric=metric)
    tied = [TIED] if any(row.tied_with for row in comparison.front) else []
    warnings = [plain(f"note: {line}", style="bold yellow") for line in comparison.notes]
    noise = comparison.noise.line(metric.points) if comparison.noise else UNKNOWN_NOISE
    known = [noise, *tied, *filter(None, [count_rising(comparison.front)])]
    return Group(*warnings, runs, front, plain(COVERS, *known, style="dim"))


def differing(folders: Mapping[str, Path]) -> list[str]:
    """Lines on what makes a comparison unfair: pictures, recipe, seed, start; InputError if images or split differ."""
    facts = {name: read_data_facts(folder) for name, folder in folders.items()}
    sizes = {name: "x".join(map(str, of["image_size"])) for name, of in facts.items()}
    notes = [*_unknown_splits(facts)]
    if len({*sizes.values()}) > 1:
        notes.append(f"no fair comparison, pictures are read at {_each(sizes)}: larger ones cost more and show more")
    settings = {name: _settings(folder) for name, folder in folders.items()}
    if unknown := [name for name, own in settings.items() if "epochs" not in own]:
        notes.append(f"whether recipes are the same is unknown: {', '.join(unknown)} do not say")
    known = set.intersection(*({*own} for own in settings.values()))
    differ = [key for key in known if len({json.dumps(own[key]) for own in settings.values()}) > 1]
    order = [*WORDS]
    differ.sort(key=lambda key: (order.index(key) if key in order else len(order), key))
    told = [f"{_title(key)} ({_each({name: _text(own[key]) for name, own in settings.items()})})" for key in differ]
    if told:
        more = f", and {len(told) - MAX_TOLD} more settings of the recipe" if len(told) > MAX_TOLD else ""
        notes.append(f"no fair comparison, runs differ in {'; '.join(told[:MAX_TOLD])}{more}")
    return notes


def _unknown_splits(facts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line where it is not known whether splits are the same; InputError where they are not."""
    splits = {name: of.get("split") or "" for name, of in facts.items()}
    pictures = {of.get("pictures") or "" for of in facts.values()}  # the same at whatever size they are read
    if (len({*splits.values()}) == 1 and all(splits.values())) or (len(pictures) == 1 and all(pictures)):
        return
    if len({split for split in splits.values() if split}) > 1 or len({of["name"] for of in facts.values()}) > 1:
        each = ", ".join(f"{name} {of['name']} ({splits[name] or 'unknown'})" for name, of in facts.items())
        raise InputError(f"compare: runs must have the same images and validation split, got {each}")
    unknown = ", ".join(name for name, split in splits.items() if not split)
    yield f"whether the splits are the same is unknown: {unknown} do not say"


def _settings(folder: Path) -> dict[str, Any]:
    """Settings that accuracies depend on apart from the nets, as far as the run says them; of a plan its nets' own."""
    own = read_settings(folder).get("settings", {})
    recipe = own.get("recipe") or next((record.recipe for record in read_records(folder) if record.recipe), {})
    flat = {key: value for key, value in recipe.items() if key not in ("name", "augment")} | recipe.get("augment", {})
    tuned = {"tune": ", ".join(tuned_values(own["tune"]))} if "tune" in own else {}
    return (
        flat | {key: own[key] for key in ("seed", "repeats", "folds") if key in own} | {"from": own.get("from")} | tuned
    )


def _each(values: Mapping[str, str]) -> str:
    return ", ".join(f"{value} in {name}" for name, value in values.items())


def _title(key: str) -> str:
    return WORDS.get(key, key.replace("_", " "))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else f"{value or 'none':.{SHOWN}}"
