"""The command line: parses, calls one function, prints. Heavy imports wait for their command.

Exit code 0 done, 1 not done and not the input's fault, 2 the input is wrong, 130 stopped with Ctrl-C, 143 with SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from importlib import metadata
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from ..archs.errors import InputError, OperationError
from ..results.render.terminal import LogHandler, guarded, visible
from . import analyze, export, ops, results, search, train  # noqa: F401 - each declares its commands
from .command import COMMANDS, Command, take_config
from .help import GroupedCommand, GroupedCommands, show_all
from .options import typed_errors

HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="alternas",
    cls=GroupedCommands,
    context_settings=HELP,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich for the help would double its time
)

MOST = 1000  # characters of a message: what was typed may be of any length, and hold what terminals obey
NO_MEMORY = ("failed to map segment", "cannot allocate memory")  # of a library that could not be loaded
INTERRUPTED, TERMINATED = 130, 143  # 128 and the signal's number, as shells have it; the first is typer's own answer

CONFIG = typer.Option(
    "--config", is_eager=True, callback=take_config, expose_value=False,
    help="Options from a TOML or JSON file: by these names; those typed here win.",
)  # fmt: skip
HELP_ALL = typer.Option("--help-all", is_eager=True, callback=show_all, expose_value=False, help="Show all options.")


def _declare(command: Command) -> None:
    """Make a typer command; the search's, whose help shows but the first options, can have them in a file."""
    shown, more = signature(command.run).parameters.values(), dict[str, Any]()
    if command.name == "search":
        more = {"config": Annotated[str, CONFIG], "help_all": Annotated[bool, HELP_ALL]}

    def run(**given: Any) -> None:
        command.run(**{name: value for name, value in given.items() if name not in more})

    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=of) for name, of in more.items()]
    run.__signature__ = Signature([*shown, *added])  # type: ignore[attr-defined] - typer makes options of it
    run.__annotations__ = {p.name: p.annotation for p in shown} | more
    run.__doc__ = command.run.__doc__
    examples = "\n".join(command.examples)
    app.command(command.name, cls=GroupedCommand, context_settings=HELP, epilog=examples)(run)


for each in COMMANDS.values():
    _declare(each)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"alternas {metadata.version('alternas')}")
        raise typer.Exit


@app.callback()
def alternas(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the image classifier that gives the most accuracy for the compute it costs."""
    if context.invoked_subcommand is None:
        print(context.get_help())


_terminated: list[int] = []  # the signal that came


def _terminate(number: int, _: Any) -> None:
    """SIGTERM, as job schedulers send it, ends a command as Ctrl-C does. Ray lets no other exception through."""
    _terminated.append(number)
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: runs the command, and ends with its exit code."""
    with guarded():
        code = _run()
    sys.exit(code)


def _run() -> int:
    _terminated.clear()
    before = signal.signal(signal.SIGTERM, _terminate)
    logging.basicConfig(handlers=[LogHandler()], level=logging.WARNING)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of its cache where no home can be written
    try:
        with typed_errors():
            code = app(standalone_mode=False)
    except InputError as error:
        code = _print_error(str(error), 2)
    except OperationError as error:
        code = _print_error(str(error), 1)
    except (ImportError, MemoryError) as error:
        if isinstance(error, ImportError) and not any(words in str(error).lower() for words in NO_MEMORY):
            raise
        code = _print_error(f"memory: there is not enough ({str(error) or 'it could not be had'}); free some", 1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one changes nothing any more
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    if code == INTERRUPTED:
        resumes = any(command.resumes and [command.name] == sys.argv[1:2] for command in COMMANDS.values())
        print(f"alternas: stopped{'; the same command resumes' if resumes else ''}", file=sys.stderr)
        code = TERMINATED if _terminated else code
    else:
        signal.signal(signal.SIGTERM, before)
    return code


def _print_error(message: str, code: int) -> int:
    line = visible(" ".join(message.split()))
    print(f"alternas: {line if len(line) <= MOST else f'{line[: MOST - 3]}...'}", file=sys.stderr)
    return code
