"""Weights & Biases: a run for the whole and one for each training, in one group.

WANDB_PROJECT, WANDB_ENTITY, WANDB_DIR and WANDB_MODE as everywhere; the project is "alternas" without.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...archs.errors import InputError
from ...results.runs.status import FAILED
from .tracker import Points, Results, Tracker

if TYPE_CHECKING:
    from wandb import Run

PROJECT = "alternas"


class RunTracker(Tracker):
    """Runs of W&B, open while something comes for them."""

    def __init__(self, folder: Path) -> None:
        import wandb

        is_online = os.environ.get("WANDB_MODE", "online") == "online"
        if is_online and not wandb.login(prompt=False):
            raise InputError("not logged in: `wandb login`, or WANDB_MODE=offline")
        self._group = ""
        self._open_runs: dict[str, Run] = {}
        self._settings = wandb.Settings(silent=True, console="off", save_code=False, x_disable_stats=True)
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        super().__init__("wandb", folder, f"{os.environ.get('WANDB_ENTITY', '')}/{project}")

    def _open(self, id: str, label: str, params: Mapping[str, Any], parent: str) -> str:
        import wandb

        id = id or secrets.token_hex(6)
        self._group = self._group or id  # the first is the run for the whole
        if id not in self._open_runs:
            self._open_runs[id] = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT), id=id, name=label, group=self._group,
                config=dict(params), job_type="run" if id == self._group else "training", resume="allow",
                reinit="create_new", settings=self._settings,
            )  # fmt: skip
        return id

    def _send(self, id: str, points: Points) -> None:
        for step, values in points:
            self._open_runs[id].log(dict(values), step=step)

    def _rest(self, id: str, results: Results | None) -> None:
        run = self._open_runs.pop(id)
        if results is not None:
            run.summary.update({**results.values, "status": str(results.status), "error": results.error})
        run.finish(exit_code=int(results is not None and results.status in FAILED))

    def _close(self, id: str, ended: bool, report: Path | None) -> None:
        import wandb

        if report:
            page = wandb.Artifact(f"report-{id}", type="report")
            page.add_file(str(report))
            self._open_runs[id].log_artifact(page)
        for run in self._open_runs.values():
            run.finish(exit_code=0 if ended else 255)  # 255: ended from outside, as W&B has it
