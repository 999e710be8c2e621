"""The command line: parses, calls one function, prints. Heavy imports wait for their command.

Exit code 0 done, 1 not done and not the input's fault, 2 the input is wrong, 130 stopped with Ctrl-C.
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
from .results.say import print_front, print_json, print_listing, print_text
from .search.bench.commands import commands as bench_commands
from .search.commands import commands as search_commands
from .search.options import Json
from .search.studies.commands import commands as study_commands

app = typer.Typer(
    name="alternas",
    help="Find the image classifier that gives the most accuracy for the compute it costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich for the help would double its time
)

commands = typer.Typer()  # those below

INTERRUPTED = 130  # typer's own answer to Ctrl-C
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # its base, which typer does not name

Run = Annotated[str, typer.Argument(help="A run's name below runs/, or its folder.")]


@commands.command()
def front(
    run: Run, objective: Annotated[str, typer.Option(help="macs or params.")] = "", as_json: Json = False
) -> None:
    """The Pareto front of a run, ranked."""
    from .results.store import find_run

    print_front(find_run(run), objective, as_json)


@commands.command()
def show(run: Run, trial: Annotated[int, typer.Argument(help="Number of the trial.")], as_json: Json = False) -> None:
    """One net of a run, drawn stage by stage, and its scores, class by class."""
    from .results.show import draw_trial, trial_facts
    from .results.store import find_run

    folder = find_run(run)
    if as_json:
        print_json(trial_facts(folder, trial))
    else:
        print_text(draw_trial(folder, trial))


@commands.command()
def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="Folder to create.")],
    trial: Annotated[int | None, typer.Option(help="Number of a trial, instead of the best.")] = None,
    pick: Annotated[str, typer.Option(help="The best of the front by accuracy (default), gain, or cheapest.")] = "",
    as_json: Json = False,
) -> None:
    """Write the best net as a folder that needs no alternas to run."""
    from .results.export.folder import export_net
    from .results.store import find_run

    if trial is not None and pick:
        raise InputError(f"export: --trial names a net and --pick chooses one, got both {trial} and {pick!r}")
    facts = export_net(find_run(run), out, trial, pick or "accuracy")
    if as_json:
        print_json(facts)
    else:
        worst = f"{facts['max_abs_difference']:.1e}"
        print(f"{out}: trial {facts['trial']}, accuracy {facts['accuracy']:.4f}, outputs equal to {worst}")
        print(f"try it:  python {out}/model.py")


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
    as_json: Json = False,
) -> None:
    """Params, MACs and memory of one net, part by part; of timm's nets too."""
    from .results.costs import cost_facts
    from .search.settings import amount

    total = amount("images", images) if images else None
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
    image_size: Annotated[str, typer.Option(help="Side in pixels, or HEIGHTxWIDTH.")] = "", as_json: Json = False
) -> None:
    """The search spaces and how many distinct nets they hold."""
    from .results.show import parse_size
    from .spaces import SPACES, get, options_of

    sizes = [parse_size(image_size)] if image_size else [(8, 8), (32, 32), (224, 224)]
    found = [(get(name, size), size) for name in SPACES for size in sizes]
    rows = [
        {"space": s.name, "image_size": f"{h}x{w}", "genes": len(options_of(s)), "nets": s.size()}
        for s, (h, w) in found
    ]
    print_listing(rows, as_json)


for part in (search_commands, commands, study_commands, bench_commands):
    app.add_typer(part)


def main() -> None:
    """Entry point: turns `InputError` into one line and exit code 2."""
    logging.basicConfig(format="alternas: %(message)s", level=logging.WARNING)
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        code = _complain(str(error), 2)
    except USAGE_ERROR as error:
        code = _complain(error.format_message(), 2)
    except OperationError as error:
        code = _complain(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C changes nothing any more
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    if code == INTERRUPTED:
        print("alternas: stopped; the same command resumes", file=sys.stderr)
    sys.exit(code)


def _complain(message: str, code: int) -> int:
    print(f"alternas: {' '.join(message.split())}", file=sys.stderr)
    return code
