"""MLflow: a run for the whole, a nested one for each training. The server is the one that MLflow is set up for.

MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME as everywhere; without them MLflow's own default and "alternas".
"""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...results.runs.status import FAILED
from ..redact import shown_url
from .tracker import Points, Results, Tracker

MAX_VALUES, MAX_PARAMS, MAX_CHARACTERS = 1000, 100, 500  # that MLflow takes at once, and of a parameter


class RunTracker(Tracker):
    """A run of MLflow's and its nested ones, through the client: no run is active, nothing global is set."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # its own 7 take four minutes to give up
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic", "urllib3"):  # importing it sets the first; the last tells of each try
            logging.getLogger(name).setLevel(logging.ERROR)
        self._client = MlflowClient()
        uri = self._client.tracking_uri
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "alternas")
        experiment = self._client.get_experiment_by_name(name)
        self._experiment = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._running = dict[str, None]()  # ids, in their order
        super().__init__("mlflow", folder, f"{_place(uri)} experiment {self._experiment}")

    def _open(self, id: str, label: str, params: Mapping[str, Any], parent: str) -> str:
        if id and id not in self._running:
            self._client.update_run(id, status="RUNNING")
        id = id or self._create(label, params, parent)
        self._running[id] = None
        return id

    def _create(self, label: str, params: Mapping[str, Any], parent: str) -> str:
        from mlflow.entities import Param

        tags = {"mlflow.parentRunId": parent} if parent else {}
        id = self._client.create_run(self._experiment, run_name=label, tags=tags).info.run_id
        rows = [Param(_plain(name), str(value)[:MAX_CHARACTERS]) for name, value in params.items()]
        for some in _parts(rows, MAX_PARAMS):
            self._client.log_batch(id, params=some)
        return id

    def _send(self, id: str, points: Points, seconds: float = 0.0) -> None:
        from mlflow.entities import Metric

        stamp = round(1000 * (seconds or time.time()))
        rows = [Metric(_plain(name), value, stamp, step) for step, values in points for name, value in values.items()]
        for some in _parts(rows, MAX_VALUES):
            self._client.log_batch(id, metrics=some)

    def _rest(self, id: str, results: Results | None) -> None:
        if results is None:
            return
        self._send(id, [(results.step, results.values)], results.seconds)  # the same again is one entry
        self._client.set_tag(id, "status", results.status)
        if results.error:
            self._client.set_tag(id, "error", results.error)
        self._client.set_terminated(id, "FAILED" if results.status in FAILED else "FINISHED")
        self._running.pop(id)

    def _close(self, id: str, ended: bool, report: Path | None) -> None:
        if report:
            self._client.log_artifact(id, str(report))
        for running in self._running:
            self._client.set_terminated(running, "FINISHED" if ended else "KILLED")


def _place(uri: str) -> str:
    """Name of a server or database: where a relative path starts is part of it."""
    parts = urlsplit(uri)
    is_absolute = parts.netloc or parts.scheme == "file" or parts.path.startswith("//")
    return shown_url(uri) if is_absolute else f"{uri} in {Path.cwd()}"


def _plain(name: str) -> str:
    """A name without what MLflow does not take in one."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _parts(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
