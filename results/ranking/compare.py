"""Several runs side by side: hypervolumes against one reference, who covers whom, and their joint front."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from ...archs.errors import InputError
from ..render.tables import nets_table
from ..render.terminal import plain
from ..runs.retrained import retrained
from ..runs.store import find_run, read_data_facts, read_settings
from .leaderboard import cost_bounds, front_hypervolume, point, resolve_objectives
from .objectives import ACCURACY, RankingQuery
from .pareto import coverage
from .run_leaderboard import LATENCY, TIED, RunLeaderboard, budget_lines, leaderboard_of, left_out, no_net, objective_of
from .seed_noise import UNKNOWN, Noise, Row, noise_of

COVERS = "covers: share of that run's front that this run's front equals or beats in every objective (C metric)"
SHOWN = 60  # characters of a value that differs


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        asked: what the nets are ranked on.
        runs: a row each: run, nets, hypervolume, best_accuracy, best_trial, on_front, on_joint_front, seconds.
        coverage: by run and by other run, the share of the other's front that the run's front equals or beats.
        front: the joint front, rows as those of a leaderboard, with `run`.
        noise: of the seeds of all runs.
        notes: what makes the comparison less than fair.
    """

    asked: RankingQuery
    runs: list[dict[str, Any]]
    coverage: dict[str, dict[str, float | None]]
    front: list[Row]
    noise: Noise | None
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        noise = (
            {"sd": self.noise.sd, "trainings": self.noise.trainings, "nets": self.noise.nets} if self.noise else None
        )
        return {
            "objectives": list(self.asked.objectives),
            "runs": self.runs,
            "coverage": self.coverage,
            "front": self.front,
            "seed_noise": noise,
            "notes": self.notes,
        }


def compare(names: Sequence[str], asked: RankingQuery) -> Comparison:
    """Compare two runs or more; objectives left out are those of the first.

    Raises:
        InputError: if they were not trained and validated on the same images, or there are fewer than two.
    """
    found = [find_run(name) for name in names]
    if len({folder.resolve() for folder in found}) < max(2, len(names)):
        raise InputError(f"compare: two different runs or more, got {', '.join(names) or 'none'}")
    short = len({folder.name for folder in found}) == len(names)
    folders = {folder.name if short else str(folder): folder for folder in found}
    notes = differing(folders)
    boards = _boards(folders, asked)
    asked = next(iter(boards.values())).board.asked
    noise = noise_of(
        [r for found in boards.values() for r in found.records],
        [r for folder in folders.values() for r in retrained(folder)],
    )
    rows = [{"run": name} | row for name, found in boards.items() for row in found.board.rows]
    rows = resolve_objectives(rows, asked, noise, lambda row: f"{row['run']}:{row['trial']}")
    left = [
        f"run {name}: {line}"
        for name, found in boards.items()
        for line in filter(None, (no_net(found.board), *left_out(found.board)))
    ]
    return Comparison(
        asked,
        [_run_row(name, found, rows) for name, found in boards.items()],
        _coverages(boards, asked),
        [row for row in rows if row["rank"] == 1],
        noise,
        [*notes, *left, *budget_lines(rows)],
    )


def differing(folders: Mapping[str, Path]) -> list[str]:
    """A line on each thing that makes runs no fair comparison: recipe, seed, repeats, size of the images.

    Raises:
        InputError: if their images, or the split of these, are not the same.
    """
    facts = {name: read_data_facts(folder) for name, folder in folders.items()}
    splits = {name: found.get("split") or "" for name, found in facts.items()}
    data = {name: found["name"] for name, found in facts.items()}
    known = {split for split in splits.values() if split}
    if len(known) > 1 or (not all(splits.values()) and len({*data.values()}) > 1):
        each = ", ".join(f"{name} {data[name]} ({splits[name] or 'unknown'})" for name in folders)
        raise InputError(f"compare: runs must have the same images and validation split, got {each}")
    unknown = [name for name, split in splits.items() if not split]
    notes = [f"whether the splits are the same is unknown: {', '.join(unknown)} do not say"] if unknown else []
    settings = {name: _flat(read_settings(folder).get("settings", {})) for name, folder in folders.items()}
    for key in sorted({key for found in settings.values() for key in found}):
        values = {name: found.get(key) for name, found in settings.items()}
        if len({json.dumps(value) for value in values.values()}) > 1:
            each = ", ".join(f"{value!r:.{SHOWN}} in {name}" for name, value in values.items())
            notes.append(f"{key} differs, which is no fair comparison: {each}")
    return notes


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that accuracies depend on apart from the nets, a recipe's one by one."""
    recipe = settings.get("recipe") or {}
    found = {f"recipe.{name}": value for name, value in recipe.items() if name != "name"}
    return found | {name: settings.get(name) for name in ("seed", "repeats", "image_size")}


def _boards(folders: Mapping[str, Path], asked: RankingQuery) -> dict[str, RunLeaderboard]:
    """Leaderboards on the same objectives; latencies that these need are all of one setting."""
    first = next(iter(folders.values()))
    asked = replace(asked, objectives=asked.objectives or (ACCURACY, objective_of(first)))
    boards = {name: leaderboard_of(folder, asked) for name, folder in folders.items()}
    settings = {found.setting for found in boards.values()}
    if LATENCY in (*asked.objectives, *asked.limits) and len(settings) > 1:
        raise InputError(f"compare: latencies must be of one setting, got {', '.join(sorted(settings))}")
    return boards


def _run_row(name: str, found: RunLeaderboard, rows: Sequence[Row]) -> dict[str, Any]:
    """A run among all rows: its hypervolume up to the dearest net of all."""
    asked, own = found.board.asked, found.board.rows
    best = max(own, key=lambda row: (row["accuracy"], -row[asked.costs[0]]), default=None)
    return {
        "run": name,
        "nets": len(own),
        "hypervolume": front_hypervolume(own, asked, found.chance, cost_bounds(rows, asked)),
        "best_accuracy": best and best["accuracy"],
        "best_trial": best and best["trial"],
        "on_front": len(found.board.front),
        "on_joint_front": sum(row["run"] == name and row["rank"] == 1 for row in rows),
        "seconds": sum(r.seconds for r in found.records),
    }


def _coverages(boards: Mapping[str, RunLeaderboard], asked: RankingQuery) -> dict[str, dict[str, float | None]]:
    """Share of each other run's front that a run's front equals or beats."""
    points = {name: [point(row, asked) for row in found.board.front] for name, found in boards.items()}
    return {
        name: {other: coverage(own, theirs, asked.maximise) for other, theirs in points.items() if other != name}
        for name, own in points.items()
    }


def draw_comparison(found: Comparison) -> RenderableType:
    """Runs, coverage, the joint front, and what is to be known of them."""
    runs = Table(title="Runs", title_justify="left", header_style="bold", box=None, pad_edge=False)
    names = [row["run"] for row in found.runs]
    for title in ("run", "nets", "hypervolume", "best accuracy", "front", "joint front"):
        runs.add_column(title, justify="left" if title == "run" else "right")
    for name in names:
        runs.add_column(f"covers {name}", justify="right")
    for row in found.runs:
        best = "-" if row["best_accuracy"] is None else f"{row['best_accuracy']:.4f}"
        covers = [_percent(found.coverage[row["run"]].get(other)) for other in names]
        counts = (str(row["on_front"]), str(row["on_joint_front"]))
        runs.add_row(row["run"], str(row["nets"]), f"{row['hypervolume']:.4f}", best, *counts, *covers)
    front = nets_table(found.front, "Joint front", found.asked.costs, none="no run has a net that can be ranked")
    said = [COVERS, str(found.noise or UNKNOWN), *([TIED] if any(row["tied_with"] for row in found.front) else [])]
    warnings = [plain(f"note: {line}", style="bold yellow") for line in found.notes]
    return Group(*warnings, runs, front, plain(*said, style="dim"))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"
