"""The command line: parses, calls one function, prints. Heavy imports wait for their command.

Exit code 0 done, 1 not done and not the input's fault, 2 the input is wrong, 130 stopped with Ctrl-C, 143 with SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .archs.errors import InputError, OperationError
from .archs.files import full
from .results.latency.commands import commands as latency_commands
from .results.say import print_comparison, print_front, print_json, print_leaderboard, print_listing, print_text
from .results.terminal import LogHandler, guarded, print_lines, visible
from .search.bench.commands import commands as bench_commands
from .search.commands import commands as search_commands
from .search.options import Json
from .search.studies.commands import commands as study_commands
from .search.studies.explain_commands import commands as explain_commands
from .search.watch_commands import commands as watch_commands

app = typer.Typer(
    name="alternas",
    help="Find the image classifier that gives the most accuracy for the compute it costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich for the help would double its time
)

commands = typer.Typer()  # those below

MOST = 1000  # characters of a message: what was typed may be of any length, and hold what terminals obey
INTERRUPTED, TERMINATED = 130, 143  # 128 and the signal's number, as shells have it; the first is typer's own answer
RESUMING = ("search", "retrain", "finetune", "buildup", "study")  # commands that go on where they were
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # its base, which typer does not name

Run = Annotated[str, typer.Argument(help="A run's name below runs/, or its folder.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write the net as a picture to this file too.")]


Objectives = Annotated[
    str,
    typer.Option(
        "--objectives",
        "--objective",
        help="Two or three of accuracy, macs, params, latency_ms, memory, train_flops, train_seconds, with commas "
        "between; one cost alone stands for accuracy and that cost. Without it, the run's own.",
    ),
]
MaxMacs = Annotated[str, typer.Option(help="Only nets of at most these MACs, such as 50M.")]
MaxParams = Annotated[str, typer.Option(help="Only nets of at most so many parameters, such as 2M.")]
MaxLatency = Annotated[float | None, typer.Option("--max-latency-ms", help="Only nets measured to be this fast.")]
Family = Annotated[str, typer.Option(help="Only these: resnet, alternet, hybrid, vit, modern, with commas between.")]
LatencyOf = Annotated[
    str,
    typer.Option(
        help="Which latencies, where several were measured: DEVICE/BATCH/DTYPE/RUNTIME/THREADS/SIDE, or as much of it "
        "as is needed; parts may be empty."
    ),
]


def _asked(objectives: str, macs: str, params: str, latency: float | None, family: str, latency_of: str) -> Any:
    """What nets are ranked on, and which."""
    from .results.objectives import Asked, parse_objectives
    from .search.settings import limits_of, names

    if latency is not None and not 0 < latency < float("inf"):
        raise InputError(f"max-latency-ms: must be above 0, got {latency:g}")
    limits: dict[str, float] = {**limits_of(macs, params)} | ({} if latency is None else {"latency_ms": latency})
    return Asked(parse_objectives(objectives), limits, names(family), latency_of)


@commands.command()
def front(
    run: Run,
    objectives: Objectives = "",
    max_macs: MaxMacs = "",
    max_params: MaxParams = "",
    max_latency: MaxLatency = None,
    family: Family = "",
    latency_of: LatencyOf = "",
    as_json: Json = False,
) -> None:
    """The Pareto front of a run, ranked."""
    from .results.store import find_run

    asked = _asked(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_front(find_run(run), asked, as_json)


@commands.command()
def leaderboard(
    run: Run,
    objectives: Objectives = "",
    max_macs: MaxMacs = "",
    max_params: MaxParams = "",
    max_latency: MaxLatency = None,
    family: Family = "",
    latency_of: LatencyOf = "",
    top: Annotated[int, typer.Option(help="So many nets: by Pareto rank, then by cost; 0 is all.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """All nets of a run that were trained whole, front after front."""
    from .results.store import find_run

    asked = _asked(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_leaderboard(find_run(run), asked, top, as_json)


@commands.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Names below runs/, or folders: two or more.")],
    objectives: Objectives = "",
    max_macs: MaxMacs = "",
    max_params: MaxParams = "",
    max_latency: MaxLatency = None,
    family: Family = "",
    latency_of: LatencyOf = "",
    as_json: Json = False,
) -> None:
    """Fronts of several runs side by side, and their joint front."""
    asked = _asked(objectives, max_macs, max_params, max_latency, family, latency_of)
    print_comparison(runs, asked, as_json)


@commands.command()
def show(
    run: Run,
    trial: Annotated[int, typer.Argument(help="Number of the trial.")],
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """One net of a run, drawn stage by stage, and its scores, class by class."""
    from .results.show import draw_trial, svg_trial, trial_facts
    from .results.store import find_run

    folder = find_run(run)
    if svg:
        svg_trial(folder, trial, svg)
    if as_json:
        print_json(trial_facts(folder, trial))
    else:
        print_text(draw_trial(folder, trial))


@commands.command()
def report(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="The page; without it, report.html in the run's folder.")] = None,
    assets: Annotated[
        Path | None, typer.Option(help="Folder for every plot as PNG, every plot and table as CSV and Parquet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run as one HTML page: its front, how it went, what matters, where it comes from."""
    from .results.report.page import write_report
    from .results.store import find_run

    facts = write_report(find_run(run), out, assets)
    if as_json:
        print_json(facts)
    else:
        written = [f"{assets}: {len(facts['assets'])} files"] if assets else []
        front = f"{facts['records']} records, {facts['front']} on the front"
        print_lines(f"{facts['page']}: {front}, {facts['bytes']:,} bytes", *written)


@commands.command()
def export(
    run: Annotated[str, typer.Argument(help="A run's name below runs/, or its folder; RUN:TRIAL names a net.")],
    out: Annotated[Path, typer.Option(help="Folder to create.")],
    trial: Annotated[int | None, typer.Option(help="Number of a trial, instead of the best.")] = None,
    pick: Annotated[str, typer.Option(help="The best of the front by accuracy (default), gain, or cheapest.")] = "",
    formats: Annotated[str, typer.Option(help="Comma list of package, onnx, pt2, timm.")] = "package",
    as_json: Json = False,
) -> None:
    """Write the best net as a folder that needs no alternas: weights, a model card, and the formats asked for."""
    from .results.chosen import named_net
    from .results.export.folder import export_net, said

    folder, named = named_net(run)
    if sum(value not in (None, "") for value in (trial, named, pick)) > 1:
        rule = "RUN:TRIAL and --trial name a net and --pick chooses one: only one of them"
        raise InputError(f"export: {rule}, got both {run if named is not None else trial} and {pick or trial!r}")
    facts = export_net(folder, out, named if trial is None else trial, pick or "accuracy", formats.split(","))
    if as_json:
        print_json(facts)
    else:
        print_lines(*said(facts, out))


@commands.command()
def cost(
    arch: Annotated[str, typer.Argument(help="A zoo name, a genotype's JSON file, RUN:TRIAL, or timm:NAME.")],
    image_size: Annotated[
        str, typer.Option(help="Side in pixels or HEIGHTxWIDTH; without it, the run's, timm's or 224.")
    ] = "",
    classes: Annotated[
        int | None, typer.Option(help="Number of classes; without it, the run's, timm's or 1000.")
    ] = None,
    channels: Annotated[
        int | None, typer.Option(help="Channels of the image; without it, the run's, timm's or 3.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Images of a training step, for its memory.")] = 1,
    images: Annotated[str, typer.Option(help="Images of a whole training, such as 2.1G, for its compute.")] = "",
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Params, MACs and memory of one net, part by part; of timm's nets too."""
    from .results.costs import cost_facts, cost_svg
    from .search.settings import amount

    total = amount("images", images) if images else None
    if svg:
        cost_svg(arch, svg, image_size, classes, channels)
    facts, drawing = cost_facts(arch, image_size, classes, channels, batch, total)
    if as_json:
        print_json(facts)
    else:
        print_text(drawing)


@commands.command()
def archs(as_json: Json = False) -> None:
    """The zoo: named nets and where they come from."""
    from .archs.zoo import ZOO

    rows = [{"name": name, "timm": entry.timm, "about": entry.about} for name, entry in ZOO.items()]
    print_listing(rows, as_json)


@commands.command()
def spaces(
    space: Annotated[str, typer.Argument(help="One of them, or a file of your own, which is checked.")] = "",
    image_size: Annotated[
        str, typer.Option(help="Side in pixels, or HEIGHTxWIDTH; without it 8, 32 and 224, for a file 32.")
    ] = "",
    as_json: Json = False,
) -> None:
    """The search spaces and how many distinct nets they hold."""
    from .results.show import parse_size
    from .spaces import SPACES, find, is_file, options_of

    usual = (32,) if is_file(space) else (8, 32, 224)
    sizes = [parse_size(image_size)] if image_size else [(side, side) for side in usual]
    found = [(find(name, size), size) for name in ([space] if space else SPACES) for size in sizes]
    rows = [
        {"space": s.name, "image_size": f"{h}x{w}", "genes": len(options_of(s)), "nets": s.size()}
        for s, (h, w) in found
    ]
    print_listing(rows, as_json)


for part in (
    search_commands,
    commands,
    study_commands,
    explain_commands,
    bench_commands,
    latency_commands,
    watch_commands,
):
    app.add_typer(part)


_terminated: list[int] = []  # the signal that came


def _terminate(number: int, _: Any) -> None:
    """SIGTERM, as job schedulers send it, ends a command as Ctrl-C does. Ray lets no other exception through."""
    _terminated.append(number)
    raise KeyboardInterrupt


def _check_here() -> None:
    """Raise InputError if the current folder is gone: runs, data and libraries are found from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder has been deleted; change to one that is there") from None


def main() -> None:
    """Entry point: runs the command, and ends with its exit code."""
    with guarded():
        code = _run()
    sys.exit(code)


def _run() -> int:
    """One command: turns `InputError` into one line and exit code 2."""
    _terminated.clear()
    before = signal.signal(signal.SIGTERM, _terminate)
    logging.basicConfig(handlers=[LogHandler()], level=logging.WARNING)
    try:
        _check_here()
        code = app(standalone_mode=False)
    except InputError as error:
        code = _complain(str(error), 2)
    except USAGE_ERROR as error:
        code = _complain(error.format_message(), 2)
    except OperationError as error:
        code = _complain(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one changes nothing any more
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        if not full(error):
            raise
        code = _complain(full(error), 1)
    if code == INTERRUPTED:
        again = "; the same command resumes" if {*sys.argv[1:2]} & {*RESUMING} else ""
        print(f"alternas: stopped{again}", file=sys.stderr)
        code = TERMINATED if _terminated else code
    else:
        signal.signal(signal.SIGTERM, before)
    return code


def _complain(message: str, code: int) -> int:
    line = visible(" ".join(message.split()))
    print(f"alternas: {line if len(line) <= MOST else f'{line[: MOST - 3]}...'}", file=sys.stderr)
    return code
