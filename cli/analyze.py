"""Commands that analyse nets and searches: explain, bench, latency."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

from ..archs.errors import MOST_SEEDS, InputError, OperationError, check_count, short_repr
from ..archs.timm_net import TIMM
from ..results.analysis.registry import ANALYSES
from ..results.render.terminal import print_json, print_lines, print_text
from ..search.tabular.published import TABLES
from . import complete
from .device_options import DeviceOptions
from .options import (
    Eta,
    ImageOptions,
    Json,
    NetSize,
    Rungs,
    argument,
    command,
    console_for,
    option,
    print_result,
)
from .values import words

QUICK_SAMPLES = 64


@command(
    "alternas explain first --against zoo --analyses variance,fourier",
    "alternas explain first:7 --against first:3 --quick",
    "alternas explain timm:vit_tiny_patch16_224 --data photos --analyses distance,rollout",
)
def explain(
    run: Annotated[
        str,
        argument(
            "Run name or folder, of a study too; RUN:TRIAL selects one net; timm:NAME one of timm's.",
            autocompletion=complete.run_names,
        ),
    ],
    against: Annotated[
        str, option("Net to compare with: a trial, RUN:TRIAL, or zoo (the run's plain ResNet closest in MACs).")
    ] = "",
    analyses: Annotated[
        tuple[str, ...] | None,
        option(
            f"Only these analyses, separated by commas: {', '.join(ANALYSES)}.",
            autocompletion=complete.analysis_names,
            parse=words,
        ),
    ] = None,
    samples: Annotated[
        int, option("Maximum number of validation images, and of training images where they are used.")
    ] = 1024,
    device: Annotated[str, option("Device: cpu or cuda.")] = "cpu",
    out: Annotated[Path | None, option("Folder for plots and tables (default: explain/ in the run's folder).")] = None,
    quick: Annotated[bool, option("Few images, to try it out.", "--quick")] = False,
    data: Annotated[str, option("Data set that timm:NAME is shown.")] = "",
    as_json: Json = False,
) -> None:
    """Explain why a net wins, with the papers' analyses as plots, tables and text."""
    from ..search.experiments.explain import Explain, drawing
    from ..search.experiments.explain import explain as run_explain

    is_timm = run.startswith(TIMM)
    if is_timm != bool(data):
        rule = (
            "is of no run, whose data there would be; give --data" if is_timm else "is shown its own data, not --data"
        )
        raise InputError(f"explain: {run} {rule}")
    wanted = Explain(run, against, analyses or (), min(samples, QUICK_SAMPLES) if quick else samples, device, out)
    if is_timm:
        from ..search.experiments.explain_timm import explain_timm

        facts = explain_timm(wanted, ImageOptions().of(data), console_for(as_json))
    else:
        facts = run_explain(wanted, console_for(as_json))
    print_result(as_json, facts, lambda: drawing(facts))


@command(
    "alternas bench --strategy random,evolution --seeds 20",
    "alternas bench --table my_table.parquet --objective macs",
)
def bench(
    strategy: Annotated[
        tuple[str, ...] | None,
        option("Strategies, separated by commas; also oracle and largest (default: all).", parse=words),
    ] = None,
    scheduler: Annotated[
        tuple[str, ...] | None,
        option(
            "Schedulers, separated by commas (default: all; asha only for random; none where the table has no "
            "readings at the rungs).",
            parse=words,
        ),
    ] = None,
    data: Annotated[
        str, option(f"Published table to search: {', '.join(TABLES)} (default: cue); with --table its data set.")
    ] = "",
    table: Annotated[
        Path | None,
        option(
            "Parquet file with a table of your own: a row for each reading of a training, with columns gene_NAME, "
            "macs, params, seed, step, accuracy.",
        ),
    ] = None,
    objective: Annotated[str, option("Cost beside accuracy: a column of the table.")] = "macs",
    floor: Annotated[
        float | None,
        option("Accuracy that hypervolumes are counted above (default: chance; with --table its lowest accuracy)."),
    ] = None,
    seeds: Annotated[int, option("Number of searches per strategy.")] = 10,
    workers: Annotated[int, option("Number of simulated workers.")] = 8,
    rungs: Rungs = None,
    eta: Eta = 1.5,
    processes: Annotated[int, option("Number of processes; 0 uses one per core.")] = 0,
    plot: Annotated[str, option("Plot the searches to this file: .png, .svg or .pdf.")] = "",
    as_json: Json = False,
) -> None:
    """Benchmark strategies on a table of trained nets, in minutes and without training."""
    from ..results.render.terminal import Console
    from ..search.spec import RUNGS
    from ..search.tabular.evaluate import BenchmarkConfig, bench_table, rows, run_benchmark
    from ..search.tabular.evaluate import plot as draw
    from ..search.tabular.simulated import SearcherConfig, searchers

    check_count("seeds", seeds, most=MOST_SEEDS)
    check_count("workers", workers, most=10_000)
    check_count("processes", processes, 0)
    file = Path(plot) if plot else None
    if file and file.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"plot: must end in .png, .svg or .pdf, got {short_repr(plot)}")
    defaults = SearcherConfig("", rungs=rungs or RUNGS, eta=eta)
    config = BenchmarkConfig(data or ("" if table else "cue"), seeds, workers, processes, table, objective, floor)
    chosen, done = searchers(config.table(), strategy or (), scheduler or (), defaults), count(1)
    with Console(stderr=True).status(f"0 of {len(chosen)}") as status:
        traces = run_benchmark(
            config,
            chosen,
            lambda last: status.update(f"{next(done)} of {len(chosen)}; last: {last}"),
        )
    results = rows(traces)
    print_result(
        as_json, results, lambda: bench_table(results, f"{table or config.data}, {seeds} seeds, {workers} workers")
    )
    if file:
        draw(traces, file)


@command(
    "alternas latency first --batch 1,32",
    "alternas latency first:7 --onnx --threads 2",
    "alternas latency timm:resnet18 --image-size 64",
    "alternas latency first --batch max --device cuda",
)
def latency(
    target: Annotated[
        str,
        argument(
            "Run or net to measure: RUN, RUN:TRIAL, a zoo name, a genotype's JSON file, or timm:NAME.",
            autocompletion=complete.net_names,
        ),
    ],
    measuring: DeviceOptions,
    device: Annotated[str, option("Device: cpu or cuda.")] = "cpu",
    batch: Annotated[
        str,
        option("Batch sizes, separated by commas; max for the peak speed over batch sizes, and the largest that fits."),
    ] = "1",
    dtype: Annotated[
        str, option("Data types, separated by commas: float32, bfloat16, float16, int8 (--onnx).")
    ] = "float32",
    compile_nets: Annotated[bool, option("Compile each net with torch.compile.", "--compile")] = False,
    onnx: Annotated[bool, option("Run each net with ONNX Runtime.", "--onnx")] = False,
    threads: Annotated[int, option("Number of CPU threads.")] = 1,
    top: Annotated[int, option("Number of nets of a run to measure, best ranked first; 0 measures all.")] = 0,
    image_size: NetSize = "",
    as_json: Json = False,
) -> None:
    """Measure latency here or on a device, by a command; kept for a run's `front --objectives accuracy,latency_ms`."""
    import logging

    from rich.console import Group

    from ..results.render.terminal import Console, plain

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns where there is no GPU
    from ..results.latency.measurements import LatencySetting, latency_settings
    from ..results.latency.nets import (
        latency_rows,
        latency_table,
        measure_nets,
        nets_of,
        prediction_lines,
        rank_correlation,
    )
    from ..results.latency.peak import peak_rows, peak_table

    wants_peak = batch == "max"
    here = latency_settings(device, "1" if wants_peak else batch, dtype, compile_nets, onnx, threads)
    settings = measuring.devices() or here
    if settings is not here and (here != [LatencySetting()] or wants_peak):
        raise InputError("latency-command: has its own device, batch, dtype and threads; leave these options out")
    nets, folder = nets_of(target, image_size, top)
    with Console(stderr=True).status("measuring") as status:
        heard = lambda name: status.update(plain(f"measuring {name}"))  # noqa: E731
        if wants_peak:
            peaks = {setting: peak_rows(nets, setting, heard) for setting in here}
            print_result(
                as_json,
                [{"rows": rows} for rows in peaks.values()],
                lambda: Group(*(peak_table(r, s) for s, r in peaks.items())),
            )
            return
        measured = list(measure_nets(nets, settings, folder, heard, measuring.latency_timeout))
    if not measured:
        raise OperationError("latency: no net was measured")
    groups = {setting: latency_rows([pair for pair in measured if pair[1].setting == setting]) for setting in settings}
    if as_json:
        print_json([{"rows": rows, "rank_correlation_macs": rank_correlation(rows)} for rows in groups.values()])
        return
    for setting, rows in ((setting, rows) for setting, rows in groups.items() if rows):
        print_text(latency_table(rows, setting))
        for line in prediction_lines([pair for pair in measured if pair[1].setting == setting]):
            print_lines(line)
