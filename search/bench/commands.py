"""The command `bench`: parse, run, print."""

from __future__ import annotations

from itertools import count
from typing import Annotated

import typer

from ..options import Eta, Json, Rungs

commands = typer.Typer()


@commands.command()
def bench(
    strategy: Annotated[
        str, typer.Option(help="Strategies, with commas between; also oracle and largest. Without it, all.")
    ] = "",
    ladder: Annotated[
        str, typer.Option(help="Ladders, with commas between. Without it, all; single for random draws alone.")
    ] = "",
    data: Annotated[str, typer.Option(help="cue or clutter.")] = "cue",
    seeds: Annotated[int, typer.Option(help="Searches of each.")] = 10,
    workers: Annotated[int, typer.Option(help="Simulated workers.")] = 8,
    rungs: Rungs = "",
    eta: Eta = 1.5,
    processes: Annotated[int, typer.Option(help="Real processes; 0 means one a core.")] = 0,
    plot: Annotated[str, typer.Option(help="File to draw the searches into: .png, .svg or .pdf.")] = "",
    as_json: Json = False,
) -> None:
    """Compare strategies on a table of trained nets, with a simulated clock: minutes, no training."""
    from pathlib import Path

    from ...archs.errors import MOST_SEEDS, InputError, count_of, shown
    from ...results.console import Console
    from ...results.say import print_json, print_text
    from ..settings import RUNGS, names, shares
    from .contenders import contenders
    from .draw import bench_table
    from .draw import plot as draw
    from .judge import Match, play, rows
    from .simulate import Contender

    count_of("seeds", seeds, most=MOST_SEEDS)
    count_of("workers", workers, most=10_000)
    count_of("processes", processes, 0)
    file = Path(plot) if plot else None
    if file and file.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"plot: must end in .png, .svg or .pdf, got {shown(plot)}")
    how = Contender("", rungs=shares("rungs", rungs) if rungs else RUNGS, eta=eta)
    chosen = contenders(names(strategy), names(ladder), how)
    console = Console(stderr=True)
    with console.status(f"0 of {len(chosen)}") as status:
        match, done = Match(data, seeds, workers, processes), count(1)
        traces = play(match, chosen, lambda last: status.update(f"{next(done)} of {len(chosen)}; last: {last}"))
    found = rows(traces)
    if as_json:
        print_json(found)
    else:
        print_text(bench_table(found, f"{data}, {seeds} seeds, {workers} workers"))
    if file:
        draw(traces, file)
