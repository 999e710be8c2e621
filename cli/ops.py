"""Operations: dashboard, doctor."""

from __future__ import annotations

from pathlib import Path

import typer

from .command import command
from .options import print_result


@command()
def dashboard(
    run: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
) -> None:
    """Show a run in optuna-dashboard, during or after the search; Ctrl-C stops it."""
    from ..results.runs.store import find_run
    from ..search.trials.dashboard import serve

    serve(find_run(run), host, port)


@command()
def doctor(
    *,
    address: str = "",
    data: str = "digits",
    shared_folder: Path = Path("runs"),
    storage_path: str = "",
    as_json: bool = False,
) -> None:
    """Check this machine or a Ray cluster: versions, GPUs, data, storage, and a tiny trial on each node."""
    from ..search.engine.doctor import drawn, examine

    checks = examine(address, data, shared_folder, storage_path)
    fit = all(check.ok for check in checks)
    print_result(as_json, {"ok": fit, "checks": [check.to_dict() for check in checks]}, lambda: drawn(checks))
    if not fit:
        raise typer.Exit(1)
