"""The command `explain`: parses, calls one function, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...archs.errors import InputError
from ...results.probes.catalogue import ANALYSES
from ...results.say import print_json, print_text
from ...results.terminal import print_lines
from ..options import Epochs, Json, console_of, recipe_of, request_of, resources_of

commands = typer.Typer()
QUICK_SAMPLES = 64
DATA, SEEDS = "digits", 3  # of the findings


@commands.command()
def explain(
    run: Annotated[
        str, typer.Argument(help="A run's name below runs/, or its folder, a study's too; RUN:TRIAL names a net.")
    ] = "",
    against: Annotated[
        str, typer.Option(help="A second net: a trial, RUN:TRIAL, or zoo for the run's plain ResNet next in MACs.")
    ] = "",
    analyses: Annotated[str, typer.Option(help=f"Only these, with commas between: {', '.join(ANALYSES)}.")] = "",
    samples: Annotated[
        int,
        typer.Option(help="Images of the validation split, and of the training split where it takes part, at most."),
    ] = 1024,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Folder for pictures and tables; without it, explain/ in the run's.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few images, short trainings: to see that it works.")] = False,
    findings: Annotated[
        bool, typer.Option("--findings", help="Train a CNN, a ViT and an AlterNet, and test the papers' claims.")
    ] = False,
    training: Annotated[
        bool,
        typer.Option("--training", help="Train the nets again: the Hessian after warm-up, and on 6 % of the data."),
    ] = False,
    data: Annotated[str, typer.Option(help=f"Of --findings: what they are trained on; {DATA} without it.")] = "",
    seeds: Annotated[int | None, typer.Option(help=f"Of --findings: trainings of each; {SEEDS} without it.")] = None,
    epochs: Epochs = None,
    name: Annotated[str, typer.Option(help="Of --findings: name of its run.")] = "",
    workers: Annotated[int | None, typer.Option(help="Of --findings and --training: nets trained at a time.")] = None,
    as_json: Json = False,
) -> None:
    """Why a net wins: the papers' analyses of it, as pictures, tables and words; `report` shows them too."""
    if findings == bool(run):
        raise InputError(f"explain: takes a run, or --findings without one, got {'both' if run else 'neither'}")
    ofs = {"data": data, "seeds": seeds, "epochs": epochs, "name": name, "workers": None if training else workers}
    of_runs = {"against": against, "analyses": analyses, "out": out, "device": "" if device == "cpu" else device}
    of_runs |= {"training": training or None}
    if wrong := [name for name, value in (of_runs if findings else ofs).items() if value not in ("", None)]:
        raise InputError(f"explain: --{wrong[0]} goes {'without' if findings else 'with'} --findings")
    samples = min(samples, QUICK_SAMPLES) if quick else samples
    if findings:
        _findings(
            data or DATA, SEEDS if seeds is None else seeds, epochs, (samples, quick), name, workers or 0, as_json
        )
        return
    from .explain import Explain, said
    from .explain import explain as run_explain

    names = tuple(part.strip() for part in analyses.split(",") if part.strip())
    place = resources_of("", workers or 0, 1.0, None) if training else None
    facts = run_explain(Explain(run, against, names, samples, device, out, place), console_of(as_json))
    if as_json:
        print_json(facts)
    else:
        print_lines(*said(facts))


def _findings(
    data: str, seeds: int, epochs: float | None, depth: tuple[int, bool], name: str, workers: int, as_json: bool
) -> None:
    from .findings import Findings, usual_epochs
    from .findings import findings as run_findings
    from .findings_table import drawing

    recipe = recipe_of("", data, usual_epochs(data) if epochs is None else epochs, False)
    place = resources_of("", workers, 1.0, None)
    asked = Findings(request_of(data, "", "auto", False, False), recipe, seeds, *depth, name, place)
    told = run_findings(asked, console_of(as_json))
    if as_json:
        print_json(told)
    else:
        print_text(drawing(told))
