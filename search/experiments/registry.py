"""All studies by name, and one of them carried out: trained, tabled, plotted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType

from ...archs.errors import MOST_SEEDS, check_choice, check_count
from ...results.render.experiment import PlotSpec, seed_noise, study_csv, study_json, study_rows, study_table
from ...results.render.plots import draw
from ...results.render.terminal import plain
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder, write_json
from ..data.dataset import DataConfig
from ..data.load import load_showing
from ..engine.pool import Resources
from ..training.recipe import Recipe
from .comparison import Comparison, ComparisonSetting, quickened
from .data_and_compute import COMPUTE, DATA_SIZE, FEW_SHOT, MODEL_SIZE, UNDERFIT
from .plan import ExperimentContext
from .run import run_experiment
from .tokens import LOCAL, MASKED, POOLS, TABLE_8

STUDIES = {s.name: s for s in (DATA_SIZE, MODEL_SIZE, UNDERFIT, COMPUTE, FEW_SHOT, POOLS, TABLE_8, LOCAL, MASKED)}


@dataclass(frozen=True)
class ComparisonRun:
    """One study as a command asks for it.

    Attributes:
        name: of the study.
        data: what to study on.
        recipe: of every training.
        seeds: how often each is repeated.
        quick: whether a small and short form of it will do.
        folder: name of the run; "" makes one of the study and the data.
        resources: where.
    """

    name: str
    data: DataConfig
    recipe: Recipe
    seeds: int
    quick: bool
    folder: str
    resources: Resources

    def __post_init__(self) -> None:
        check_choice("study", self.name, STUDIES)
        check_count("seeds", self.seeds, most=MOST_SEEDS)


@dataclass(frozen=True)
class ComparisonResult:
    """What came out: rows of factors and metrics, noise of a seed, files."""

    study: Comparison
    sight: PlotSpec
    rows: list[dict[str, Any]]
    noise: float | None
    folder: Path
    files: list[Path]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        files = [str(path) for path in self.files]
        about = {"study": self.study.name, "folder": str(self.folder), "seed_noise": self.noise, "files": files}
        return about | {"rows": study_json(self.rows)}

    def drawing(self) -> RenderableType:
        noise = "unknown: one seed" if self.noise is None else f"{self.noise:.4f}"
        lines = [f"noise of a seed (pooled standard deviation): {noise}", *(f"written: {path}" for path in self.files)]
        return Group(study_table(self.rows, self.sight), plain(*lines, style="dim"))


def make_study(asked: ComparisonRun, console: Console) -> ComparisonResult:
    """Carry out a study, or go on with it.

    Raises:
        InputError: if something asked for is wrong.
        OperationError: if workers do not start or everything fails.
    """
    study, data = STUDIES[asked.name], load_showing(asked.data, console)
    setting = ComparisonSetting(data, asked.recipe, asked.seeds)
    setting = quickened(setting) if asked.quick else setting
    plan, folder = study.plan(setting), run_folder(asked.folder or folder_name(asked))
    settings = {"study": study.name, "quick": asked.quick}
    room = ExperimentContext(folder, "study", data, asked.resources, settings, about=study.about)
    records = [r for r in run_experiment(plan, room, console) if r.factors]
    return _found(study, study.sight(setting), records, folder)


def folder_name(asked: ComparisonRun) -> str:
    """The name of a study's run where none is given."""
    return plain_name(asked.name, asked.data.name, "quick" if asked.quick else "")


def _found(study: Comparison, sight: PlotSpec, records: list[Record], folder: Path) -> ComparisonResult:
    rows = study_rows(records, sight.names)
    files = [folder / "table.json", folder / "table.csv", *draw(rows, sight, folder / "plot")]
    found = ComparisonResult(study, sight, rows, seed_noise(records), folder, files)
    write_json(files[0], found.to_dict())
    study_csv(rows, files[1])
    return found
