"""The command line: parses, calls one function, prints. Heavy imports wait for their command.

Exit code 0 done, 1 not done and not the input's fault, 2 the input is wrong, 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .archs.errors import InputError, OperationError

app = typer.Typer(
    name="alternas",
    help="Find the image classifier that gives the most accuracy for the compute it costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich for the help would double its time
)

INTERRUPTED = 130  # typer's own answer to Ctrl-C
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # its base, which typer does not name

Json = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead of a table.")]
Run = Annotated[str, typer.Argument(help="A run's name below runs/, or its folder.")]
Data = Annotated[
    str,
    typer.Option(
        help="digits, cue, clutter, a torchvision set such as cifar10, a folder of class folders, an .npz file, "
        "hfds/NAME, wds/PATH or tfds/NAME."
    ),
]
ImageSize = Annotated[str, typer.Option(help="Side in pixels or HEIGHTxWIDTH; without it, the data's own or 224.")]
Loader = Annotated[str, typer.Option(help="memory, stream, or auto: memory up to 2 GiB.")]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Leave out pictures that cannot be read.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch the data if they are not there.")]
Objective = Annotated[str, typer.Option(help="Cost to weigh accuracy against: macs or params.")]


@app.command()
def search(
    space: Annotated[str, typer.Argument(help="all, alternet, hybrid, modern or resnet.")] = "all",
    data: Data = "digits",
    trials: Annotated[int, typer.Option(help="Distinct nets to train, baselines not counted.")] = 16,
    name: Annotated[str, typer.Option(help="Name of the run; without one, SPACE-DATA.")] = "",
    strategy: Annotated[str, typer.Option(help="Who proposes: random, tpe or nsga2.")] = "nsga2",
    ladder: Annotated[str, typer.Option(help="off: all at full budget; pareto: the weaker half stops early.")] = "off",
    objective: Objective = "macs",
    max_macs: Annotated[str, typer.Option(help="Largest MACs of a net, such as 50M.")] = "",
    max_params: Annotated[str, typer.Option(help="Largest number of parameters, such as 2M.")] = "",
    recipe: Annotated[
        str,
        typer.Option(
            help="A name of `alternas recipes` or a JSON file; without one, smoke, or cue for cue and clutter."
        ),
    ] = "",
    epochs: Annotated[
        float | None, typer.Option(help="Full budget of a net in epochs; without it, the recipe's.")
    ] = None,
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    compile_nets: Annotated[bool, typer.Option("--compile", help="Make each net faster with torch.compile.")] = False,
    keep: Annotated[
        str, typer.Option(help="Early weights to keep: warmup, or shares of the budget, as in warmup,0.06.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Of the strategy and of every training.")] = 0,
    workers: Annotated[int, typer.Option(help="Nets trained at a time; 0 means as many as fit.")] = 0,
    cpus_per_trial: Annotated[float, typer.Option(help="CPUs of each worker.")] = 1.0,
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(help="GPUs of each worker; 0.5 puts two on a card. Without it, 1 where there are any."),
    ] = None,
    address: Annotated[str, typer.Option(help="An existing Ray cluster: auto or HOST:PORT.")] = "",
    as_json: Json = False,
) -> None:
    """Search for nets; the same command again resumes."""
    from dataclasses import replace

    from rich.console import Console

    from .search.engine.pool import Resources
    from .search.run import Search
    from .search.run import search as run_search
    from .search.settings import Settings, amount
    from .search.training import recipes

    limits = {cost: amount(f"max-{cost}", text) for cost, text in (("macs", max_macs), ("params", max_params)) if text}
    how = recipes.get(recipe or recipes.usual(data))
    how = how if epochs is None else how.with_epochs(epochs)
    how = replace(how, compile=True) if compile_nets else how
    kept = tuple(part.strip() for part in keep.split(",") if part.strip())
    settings = Settings(space, data, strategy, ladder, objective, how, seed, limits, kept)
    request = _request(data, image_size, loader, skip_broken, download)
    place = Resources(address, workers, cpus_per_trial, gpus_per_trial)
    run_name = name or re.sub(r"[^A-Za-z0-9._-]+", "-", f"{space}-{Path(data).stem}")
    folder = run_search(Search(settings, request, trials, run_name, place), Console(stderr=as_json))
    _print_front(folder, objective, as_json)
    if not as_json:
        print(f"\nexport the best:  alternas export {run_name} --out {run_name}-best")


@app.command()
def front(
    run: Run, objective: Annotated[str, typer.Option(help="macs or params.")] = "", as_json: Json = False
) -> None:
    """The Pareto front of a run, ranked."""
    from .results.store import find_run

    _print_front(find_run(run), objective, as_json)


@app.command()
def show(run: Run, trial: Annotated[int, typer.Argument(help="Number of the trial.")], as_json: Json = False) -> None:
    """One net of a run, drawn stage by stage, and its scores, class by class."""
    from .results.show import draw_trial, trial_facts
    from .results.store import find_run

    folder = find_run(run)
    if as_json:
        _print_json(trial_facts(folder, trial))
    else:
        _print(draw_trial(folder, trial))


@app.command()
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
        _print_json(facts)
    else:
        worst = f"{facts['max_abs_difference']:.1e}"
        print(f"{out}: trial {facts['trial']}, accuracy {facts['accuracy']:.4f}, outputs equal to {worst}")
        print(f"try it:  python {out}/model.py")


@app.command()
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
        _print_json(facts)
    else:
        _print(drawing)


@app.command()
def archs(as_json: Json = False) -> None:
    """The zoo: named nets and where they come from."""
    from .archs.zoo import ZOO

    rows = [{"name": name, "timm": entry.timm, "about": entry.about} for name, entry in ZOO.items()]
    _print_listing(rows, as_json)


@app.command()
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
    _print_listing(rows, as_json)


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="As --data of a search.")],
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    as_json: Json = False,
) -> None:
    """What a data set holds, how it is split and read; --download fetches it."""
    from rich.console import Console

    from .results.draw import facts_table
    from .search.data.progress import load_showing

    request = _request(name, image_size, loader, skip_broken, download)
    facts = load_showing(request, Console(stderr=True)).facts()
    if as_json:
        _print_json(facts)
    else:
        _print(facts_table(facts))


@app.command()
def recipes(
    name: Annotated[str, typer.Argument(help="One of them, whole; without it, all of them.")] = "",
    as_json: Json = False,
) -> None:
    """The training recipes and where they come from; one as JSON, to change and use as --recipe FILE.json."""
    from .search.training.recipes import RECIPES, get

    if name:
        _print_json(get(name).to_dict())
        return
    rows: list[dict[str, Any]] = []
    for known, make in RECIPES.items():
        recipe, about = make(), (make.__doc__ or "").split("\n")[0]
        rows.append({"recipe": known, "epochs": recipe.epochs, "batch": recipe.batch, "about": about})
    _print_listing(rows, as_json)


def _request(name: str, image_size: str, loader: str, skip_broken: bool, download: bool) -> Any:
    from .results.show import parse_size
    from .search.data.dataset import Request

    size = parse_size(image_size) if image_size else None
    return Request(name, size, loader, skip_broken, download)


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


def _print_front(folder: Path, objective: str, as_json: bool) -> None:
    from .results.show import draw_front, front_rows

    if as_json:
        _print_json(front_rows(folder, objective))
    else:
        _print(draw_front(folder, objective))


def _print_listing(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _print_json(rows)
    else:
        from .results.draw import listing

        _print(listing(rows))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)
