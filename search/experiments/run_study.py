"""Carry out one of the papers' studies: train what is not trained yet, write its table and its plot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType

from ...archs.errors import check_choice
from ...results.render.experiment import seed_noise, study_csv, study_json, study_rows, study_table
from ...results.render.plots import draw
from ...results.render.terminal import plain
from ...results.runs.status import Status
from ...results.runs.store import plain_name, run_folder, write_json
from .plan import ExperimentContext
from .run_plan import ExperimentConfig, run_experiment
from .studies import STUDIES
from .study_nets import CNNS, StudySetting


@dataclass(frozen=True)
class StudyConfig(ExperimentConfig):
    """One study as a command asks for it; `quick` wants few points and short trainings."""

    study: str
    quick: bool
    cnn: str = "resnet"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("study", self.study, STUDIES)
        check_choice("cnn", self.cnn, CNNS)


def run_study(config: StudyConfig, console: Console) -> tuple[dict[str, Any], RenderableType]:
    """Carry out a study, or resume it, and write table and plot; return what table.json holds, and the table drawn."""
    chosen, data = STUDIES[config.study], config.opened(console)
    named = "quick" if config.quick else "", config.cnn.replace("resnet", "")
    name = config.name or plain_name(config.study, config.data.name, *named)
    folder, settings = run_folder(name), {"study": config.study, "quick": config.quick, "cnn": config.cnn}
    decided = config.decided(folder, data)
    setting = StudySetting(data, decided.recipe, config.seeds, cnn=config.cnn)
    setting = setting.quickened() if config.quick else setting
    about = {"about": chosen.about, "recipes": decided.kept}
    experiment = ExperimentContext(folder, "study", data, config.run, settings, **about)
    records = [r for r in run_experiment([*chosen.plan(setting)], experiment, console) if r.factors]
    plot = chosen.plot(setting)
    rows, noise = study_rows(records, plot.names, data.facts()["images"]), seed_noise(records, plot.y)
    files = list[Path]()
    if any(r.status == Status.OK for r in records):  # else the time was over before one had ended
        files = [folder / "table.json", folder / "table.csv", *draw(rows, plot, folder / "plot")]
    result = {"study": config.study, "folder": str(folder), "seed_noise": noise, "noise_of": plot.y}
    result |= {"files": [str(path) for path in files], "rows": study_json(rows)}
    if files:
        write_json(files[0], result)
        study_csv(rows, files[1])
    spread = "unknown: one seed" if noise is None else f"{noise:.4f}"
    lines = [
        f"noise of a seed in {plot.y} (pooled standard deviation): {spread}",
        *(f"written: {path}" for path in files),
    ]
    return result, Group(study_table(rows, plot), plain(*lines, style="dim"))
