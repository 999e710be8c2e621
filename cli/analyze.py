"""The command `explain`: parses, calls one function, prints."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from ..archs.errors import InputError
from ..results.analysis.registry import ANALYSES
from ..results.render.terminal import print_json, print_lines, print_text
from .options import Epochs, Eta, Json, Rungs, console_of, recipe_of, request_of, resources_of

commands = typer.Typer()
QUICK_SAMPLES = 64
DATA, SEEDS = "digits", 3  # of --paper-claims


@commands.command()
def explain(
    run: Annotated[str, typer.Argument(help="Run name or folder, of a study too; RUN:TRIAL selects one net.")] = "",
    against: Annotated[
        str,
        typer.Option(help="Net to compare with: a trial, RUN:TRIAL, or zoo (the run's plain ResNet closest in MACs)."),
    ] = "",
    analyses: Annotated[
        str, typer.Option(help=f"Only these analyses, separated by commas: {', '.join(ANALYSES)}.")
    ] = "",
    samples: Annotated[
        int,
        typer.Option(help="Maximum number of validation images, and of training images where they are used."),
    ] = 1024,
    device: Annotated[str, typer.Option(help="Device: cpu or cuda.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Folder for plots and tables (default: explain/ in the run's folder).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few images and short trainings, to try it out.")] = False,
    paper_claims: Annotated[
        bool,
        typer.Option("--paper-claims", help="Train a CNN, a ViT and an AlterNet, and test the papers' claims on them."),
    ] = False,
    training: Annotated[
        bool,
        typer.Option(
            "--training", help="Retrain the nets to analyse the Hessian after warm-up and with 6 % of the data."
        ),
    ] = False,
    data: Annotated[str, typer.Option(help=f"Data set of --paper-claims (default: {DATA}).")] = "",
    seeds: Annotated[int | None, typer.Option(help=f"Trainings per net of --paper-claims (default: {SEEDS}).")] = None,
    epochs: Epochs = None,
    name: Annotated[str, typer.Option(help="Run name of --paper-claims.")] = "",
    workers: Annotated[
        int | None, typer.Option(help="Nets that --paper-claims and --training train at a time.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain why a net wins, with the papers' analyses as plots, tables and text."""
    if paper_claims == bool(run):
        raise InputError(f"explain: takes a run, or --paper-claims without one, got {'both' if run else 'neither'}")
    ofs = {"data": data, "seeds": seeds, "epochs": epochs, "name": name, "workers": None if training else workers}
    of_runs = {"against": against, "analyses": analyses, "out": out, "device": "" if device == "cpu" else device}
    of_runs |= {"training": training or None}
    if wrong := [name for name, value in (of_runs if paper_claims else ofs).items() if value not in ("", None)]:
        raise InputError(f"explain: --{wrong[0]} goes {'without' if paper_claims else 'with'} --paper-claims")
    samples = min(samples, QUICK_SAMPLES) if quick else samples
    if paper_claims:
        _paper_claims(
            data or DATA, SEEDS if seeds is None else seeds, epochs, (samples, quick), name, workers or 0, as_json
        )
        return
    from ..search.experiments.explain import Explain, summary_lines
    from ..search.experiments.explain import explain as run_explain

    names = tuple(part.strip() for part in analyses.split(",") if part.strip())
    place = resources_of("", workers or 0, 1.0, None) if training else None
    facts = run_explain(Explain(run, against, names, samples, device, out, place), console_of(as_json))
    if as_json:
        print_json(facts)
    else:
        print_lines(*summary_lines(facts))


def _paper_claims(
    data: str, seeds: int, epochs: float | None, depth: tuple[int, bool], name: str, workers: int, as_json: bool
) -> None:
    from ..search.experiments.explain_claims import EPOCHS, ClaimsConfig, drawing, explain_claims

    recipe = recipe_of("", data, EPOCHS.get(data) if epochs is None else epochs, False)
    place = resources_of("", workers, 1.0, None)
    config = ClaimsConfig(request_of(data, "", "auto", False, False), recipe, seeds, *depth, name, place)
    result = explain_claims(config, console_of(as_json))
    if as_json:
        print_json(result)
    else:
        print_text(drawing(result))


@commands.command()
def bench(
    strategy: Annotated[
        str, typer.Option(help="Strategies, separated by commas; also oracle and largest (default: all).")
    ] = "",
    scheduler: Annotated[
        str, typer.Option(help="Schedulers, separated by commas (default: all; asha only for random).")
    ] = "",
    data: Annotated[str, typer.Option(help="Table to search: cue or clutter.")] = "cue",
    seeds: Annotated[int, typer.Option(help="Number of searches per strategy.")] = 10,
    workers: Annotated[int, typer.Option(help="Number of simulated workers.")] = 8,
    rungs: Rungs = "",
    eta: Eta = 1.5,
    processes: Annotated[int, typer.Option(help="Number of processes; 0 uses one per core.")] = 0,
    plot: Annotated[str, typer.Option(help="Plot the searches to this file: .png, .svg or .pdf.")] = "",
    as_json: Json = False,
) -> None:
    """Benchmark strategies on a table of trained nets, in minutes and without training."""
    from pathlib import Path

    from ..archs.errors import MOST_SEEDS, InputError, check_count, short_repr
    from ..results.render.terminal import Console, print_json, print_text
    from ..search.config import RUNGS, names, shares
    from ..search.tabular.evaluate import BenchmarkConfig, bench_table, rows, run_benchmark
    from ..search.tabular.evaluate import plot as draw
    from ..search.tabular.simulated import SearcherConfig, searchers

    check_count("seeds", seeds, most=MOST_SEEDS)
    check_count("workers", workers, most=10_000)
    check_count("processes", processes, 0)
    file = Path(plot) if plot else None
    if file and file.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"plot: must end in .png, .svg or .pdf, got {short_repr(plot)}")
    how = SearcherConfig("", rungs=shares("rungs", rungs) if rungs else RUNGS, eta=eta)
    chosen = searchers(names(strategy), names(scheduler), how)
    console = Console(stderr=True)
    with console.status(f"0 of {len(chosen)}") as status:
        match, done = BenchmarkConfig(data, seeds, workers, processes), count(1)
        traces = run_benchmark(
            match, chosen, lambda last: status.update(f"{next(done)} of {len(chosen)}; last: {last}")
        )
    found = rows(traces)
    if as_json:
        print_json(found)
    else:
        print_text(bench_table(found, f"{data}, {seeds} seeds, {workers} workers"))
    if file:
        draw(traces, file)


@commands.command()
def latency(
    target: Annotated[
        str,
        typer.Argument(help="Run or net to measure: RUN, RUN:TRIAL, a zoo name, a genotype's JSON file, or timm:NAME."),
    ],
    device: Annotated[str, typer.Option(help="Device: cpu or cuda.")] = "cpu",
    batch: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1",
    dtype: Annotated[
        str, typer.Option(help="Data types, separated by commas: float32, bfloat16, float16.")
    ] = "float32",
    compile_nets: Annotated[bool, typer.Option("--compile", help="Compile each net with torch.compile.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Run each net with ONNX Runtime.")] = False,
    threads: Annotated[int, typer.Option(help="Number of CPU threads.")] = 1,
    top: Annotated[
        int, typer.Option(help="Number of nets of a run to measure, best ranked first; 0 measures all.")
    ] = 0,
    image_size: Annotated[
        str, typer.Option(help="Image size in pixels: SIDE or HEIGHTxWIDTH (default: the run's, timm's or 224).")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure latency on this machine; a run keeps it for `front --objectives accuracy,latency_ms`."""
    import logging

    from ..results.render.terminal import Console, plain

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns where there is no GPU
    from ..results.latency.nets import agreement, drawn, measured, rows_of, subjects_of
    from ..results.latency.setting import settings_of
    from ..results.render.terminal import print_json, print_text

    settings = settings_of(device, batch, dtype, (compile_nets, onnx), threads)
    subjects = subjects_of(target, image_size, top)
    with Console(stderr=True).status("measuring") as status:
        pairs = list(measured(subjects, settings, lambda name: status.update(plain(f"measuring {name}"))))
    groups = [(setting, [pair for pair in pairs if pair[1].setting == setting]) for setting in settings]
    if as_json:
        found = [rows_of(group) for _, group in groups]
        print_json([{"rows": rows, "rank_correlation_macs": agreement(rows)} for rows in found])
        return
    for setting, group in groups:
        print_text(drawn(rows_of(group), setting))
