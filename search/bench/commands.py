"""The command `bench`: parse, run, print."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json

commands = typer.Typer()


@commands.command()
def bench(
    strategy: Annotated[
        str, typer.Option(help="Strategies, with commas between; also oracle and largest. Without it, all.")
    ] = "",
    ladder: Annotated[str, typer.Option(help="Ladders, with commas between. Without it, all.")] = "",
    data: Annotated[str, typer.Option(help="cue or clutter.")] = "cue",
    seeds: Annotated[int, typer.Option(help="Searches of each.")] = 10,
    workers: Annotated[int, typer.Option(help="Simulated workers.")] = 8,
    rungs: Annotated[str, typer.Option(help="Of the ladders, as in a search.")] = "",
    eta: Annotated[float, typer.Option(help="Of the ladders, as in a search.")] = 2.0,
    processes: Annotated[int, typer.Option(help="Real processes; 0 means one a core.")] = 0,
    plot: Annotated[str, typer.Option(help="File to draw the searches into: .png, .svg or .pdf.")] = "",
    as_json: Json = False,
) -> None:
    """Compare strategies on a table of trained nets, with a simulated clock: minutes, no training."""
    from pathlib import Path

    from rich.console import Console

    from ...archs.errors import InputError
    from ...results.say import print_json, print_text
    from ..settings import RUNGS, names, shares
    from .contenders import contenders
    from .draw import bench_table
    from .draw import plot as draw
    from .judge import Match, play, rows

    for name, value, least in (("seeds", seeds, 1), ("workers", workers, 1), ("processes", processes, 0)):
        if value < least:
            raise InputError(f"{name}: must be {least} or more, got {value}")
    file = Path(plot) if plot else None
    if file and file.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"plot: must end in .png, .svg or .pdf, got {plot!r}")
    chosen = contenders(names(strategy), names(ladder), shares("rungs", rungs) if rungs else RUNGS, eta)
    console = Console(stderr=True)
    with console.status("searching") as status:
        match = Match(data, seeds, workers, processes)
        traces = play(match, chosen, lambda done: status.update(f"searching; done: {done}"))
    found = rows(traces)
    if as_json:
        print_json(found)
    else:
        print_text(bench_table(found, f"{data}, {seeds} seeds, {workers} workers"))
    if file:
        draw(traces, file)
