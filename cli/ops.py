"""Operations: dashboard, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import complete
from .options import Address, Data, Json, StoragePath, argument, command, option, print_result


@command(
    "alternas dashboard first --port 8081",
)
def dashboard(
    run: Annotated[str, argument("Run name or folder.", autocompletion=complete.run_names)],
    host: Annotated[str, option("Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8080,
) -> None:
    """Show a run in optuna-dashboard, during or after the search; Ctrl-C stops it."""
    from ..results.runs.store import find_run
    from ..search.trials.dashboard import serve

    serve(find_run(run), host, port)


@command(
    "alternas doctor",
    "alternas doctor --address auto --data photos",
)
def doctor(
    address: Address = "",
    data: Data = "digits",
    shared_folder: Annotated[Path, option("Folder that all nodes must be able to write to.")] = Path("runs"),
    storage_path: StoragePath = "",
    as_json: Json = False,
) -> None:
    """Check this machine or a Ray cluster: versions, GPUs, data, storage, and a tiny trial on each node."""
    from ..search.engine.doctor import drawn, examine

    checks = examine(address, data, shared_folder, storage_path)
    fit = all(check.ok for check in checks)
    print_result(as_json, {"ok": fit, "checks": [check.to_dict() for check in checks]}, lambda: drawn(checks))
    if not fit:
        raise typer.Exit(1)
