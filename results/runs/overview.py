"""List of runs: state, best accuracy and compute of each."""

import fcntl
import logging
from pathlib import Path
from typing import Any

from rich.table import Table

from ...archs.errors import InputError
from ...archs.files import check_own, open_own
from ..ranking.metric import run_metric, trained_scores
from ..ranking.objectives import spent_on_evaluation, spent_on_training
from ..render.tables import short
from ..render.terminal import plain, print_json, print_lines, print_text
from .append_only import no_collection
from .bank_progress import read_progress
from .nets import trained_nets
from .record import REFERENCE_KINDS
from .store import RUNS, has_ended, read_records, read_settings

ROW = (
    "name", "status", "what", "space", "data", "records", "trained", "best_accuracy", "metric", "best_value",
    "train_flops", "eval_flops", "baseline_flops", "reference_flops",
)  # fmt: skip
SHOWN = ("name", "status", "space", "data", "records", "trained", "best_accuracy", "flops")  # in the terminal
FOLDED = ("name", "space", "data")  # columns that a narrow terminal breaks, and cuts no letter of
WHOLE_NAME = 24  # characters of a run's name that stay on one line
WHOLE_DATA = 16  # and of its data's
log = logging.getLogger("alternas")


def print_runs(as_json: bool) -> None:
    """Print the runs of this folder, the latest first."""
    rows = list_runs()
    if as_json:
        print_json(rows)
    elif not rows:
        print_lines(f"no runs in {RUNS}/ here; alternas search makes one")
    else:
        print_text(_drawn(rows))


def list_runs(folder: Path = RUNS) -> list[dict[str, Any]]:
    """A row for each run below a folder, the one that was written last first, then those that cannot be read.

    Rows hold name, status (running; ended; stopped: the same command goes on; unreadable: the rest is None),
    what (search, or the experiment), space (None of an experiment), data, records, trained (nets trained to the end,
    or evaluated on shared weights), best_accuracy (on validation; None where there is none, or the run is ranked by
    another metric), metric (its name), best_value (of that metric, on validation), train_flops and eval_flops of
    everything that the run did; contained in these two are baseline_flops, of the plain ResNets, and reference_flops,
    of nets of timm.
    """
    written, unreadable = dict[Path, float](), list[Path]()
    for run in sorted(path for path in folder.glob("*") if path.is_dir()):
        try:
            files = [run / name for name in ("run.json", "records.jsonl")]
            if files[0].exists():
                written[run] = max(file.stat().st_mtime for file in files if file.exists())
        except PermissionError as error:
            log.warning("%s: cannot be read (%s)", run, error.strerror)
            unreadable.append(run)
    rows = []
    for run in sorted(written, key=written.__getitem__, reverse=True):
        try:
            rows.append(run_row(run))
        except (InputError, PermissionError) as error:
            log.warning("%s", error)
            unreadable.append(run)
    return rows + [dict.fromkeys(ROW) | {"name": run.name, "status": "unreadable"} for run in unreadable]


def run_row(folder: Path) -> dict[str, Any]:
    """The row of one run, see `list_runs`; InputError if it cannot be read."""
    check_own(folder)
    facts = read_settings(folder)
    settings = facts.get("settings", {})
    with no_collection():
        records = read_records(folder)
    bank = read_progress(folder) or {}
    trained, evaluated = list(map(spent_on_training, records)), list(map(spent_on_evaluation, records))
    beside = dict.fromkeys(REFERENCE_KINDS, 0)  # FLOPs by kind
    for record, train, evaluation in zip(records, trained, evaluated, strict=True):
        if record.kind in beside:
            beside[record.kind] += train + evaluation
    metric, scores = run_metric(folder), trained_scores(records)
    best = metric.value(max(scores)) if scores else None
    return {
        "name": folder.name,
        "status": _status(folder),
        "what": settings.get("study") or "search",
        "space": settings.get("space"),
        "data": facts.get("data", {}).get("name"),
        "records": len(records),
        "trained": len(trained_nets(records)),
        "best_accuracy": best if metric.is_accuracy else None,
        "metric": metric.name,
        "best_value": best,
        "train_flops": sum(trained) + bank.get("train_flops", 0),
        "eval_flops": sum(evaluated) + bank.get("eval_flops", 0),
        **{f"{kind}_flops": flops for kind, flops in beside.items()},
    }


def _status(folder: Path) -> str:
    try:
        with open_own(folder / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except FileNotFoundError:
        pass
    return "ended" if has_ended(folder) else "stopped"


def _drawn(rows: list[dict[str, Any]]) -> Table:
    """A table that 80 columns hold: FLOPs are of training and evaluation together."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name in SHOWN:
        title = {"name": "run", "best_accuracy": "best", "flops": "FLOPs"}.get(name, name)
        justify = "left" if SHOWN.index(name) < 4 else "right"
        least = max(min(WHOLE_NAME, len(row["name"])) for row in rows) if name == "name" else None
        table.add_column(title, justify=justify, no_wrap=name not in FOLDED, overflow="fold", min_width=least)
    for row in rows:
        best = "-" if row["best_value"] is None else f"{row['best_value']:.4f}"
        best += "" if row["metric"] in ("accuracy", None) else f" {row['metric']}"
        flops = None if row["train_flops"] is None else short(row["train_flops"] + row["eval_flops"])
        facts = row | {"best_accuracy": best, "flops": flops}
        facts["space"] = row["space"] and row["space"].split(" of source ")[0]  # a file's name, without its hash
        if row["data"] and len(row["data"]) > WHOLE_DATA:
            facts["data"] = row["data"].rsplit("/", 1)[-1]  # of a long path its end
        table.add_row(*("-" if facts[name] is None else plain(str(facts[name])) for name in SHOWN))
    return table
