"""Operations: dashboard, track, doctor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from ..archs.errors import InputError
from ..results.render.terminal import print_lines
from .command import command
from .options import console_for, print_result


@command()
def dashboard(run: str, *, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Show a run in optuna-dashboard, during or after the search; Ctrl-C stops it."""
    from ..results.runs.store import find_run
    from ..search.trials.dashboard import serve

    serve(find_run(run), host, port)


@command(resumes=True)
def track(run: str, tool: str) -> None:
    """Send a run to an experiment tracker from outside, while it goes on or afterwards; Ctrl-C stops it."""
    from ..results.runs.store import find_run
    from ..search.tracking.view import follow

    folder = find_run(run)
    follow(folder, tool)
    print_lines(f"run {folder.name} is over, and {tool} has it")


@command()
def doctor(
    *, address: str = "", data: str = "digits", folder: Path = Path("runs"), gpu: bool = False, as_json: bool = False
) -> None:
    """Check this machine or a Ray cluster: versions, GPUs, data, storage, and a tiny trial on each node."""
    if gpu:
        if address:
            raise InputError(f"gpu: looks at this machine alone, got {address}")
        _examine_gpu(data, as_json)
        return
    from ..search.engine.doctor import drawn, examine

    checks = examine(address, data, folder)
    _print_checks(as_json, checks, lambda: drawn(checks))


def _examine_gpu(data: str, as_json: bool) -> None:
    from ..search.engine.doctor import checks_table
    from ..search.engine.doctor_gpu import GpuCheck, examine_gpu

    console, checks = console_for(as_json), list[GpuCheck]()
    for check in examine_gpu(data):
        console.print(f"{check.check}: {'ok' if check.ok else 'NO'}", style="dim", markup=False)
        checks.append(check)
    _print_checks(as_json, checks, lambda: checks_table(("check",), [((c.check,), c.ok, c.found) for c in checks]))


def _print_checks(as_json: bool, checks: Sequence[Any], drawing: Callable[[], Any]) -> None:
    fit = all(check.ok for check in checks)
    print_result(as_json, {"ok": fit, "checks": [check.to_dict() for check in checks]}, drawing)
    if not fit:
        raise typer.Exit(1)
