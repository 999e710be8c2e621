"""Commands that analyse nets and searches: explain, bench, latency."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from ..archs.errors import MAX_SEEDS, InputError, OperationError, check_count, short_repr
from ..archs.timm_net import TIMM
from ..results.render.terminal import print_json, print_lines, print_text
from .command import command
from .options import DeviceOptions, ImageOptions, console_for, print_result

QUICK_SAMPLES = 64


@command()
def explain(
    run: str,
    *,
    against: str = "",
    analyses: tuple[str, ...] | None = None,
    samples: int = 1024,
    device: str = "cpu",
    out: Path | None = None,
    quick: bool = False,
    data: str = "",
    as_json: bool = False,
) -> None:
    """Explain why a net wins, with the papers' analyses as plots, tables and text."""
    from ..search.experiments.explain import Explain, drawing
    from ..search.experiments.explain import explain as run_explain

    is_timm = run.startswith(TIMM)
    if is_timm != bool(data):
        rule = "is of no run, whose data there would be; give --data" if is_timm else "is shown its run's, not --data"
        raise InputError(f"explain: {run} {rule}")
    wanted = Explain(run, against, analyses or (), min(samples, QUICK_SAMPLES) if quick else samples, device, out)
    if is_timm:
        from ..search.experiments.explain import explain_timm

        facts = explain_timm(wanted, ImageOptions().of(data), console_for(as_json))
    else:
        facts = run_explain(wanted, console_for(as_json))
    print_result(as_json, facts, lambda: drawing(facts))


@command()
def bench(
    *,
    strategy: tuple[str, ...] | None = None,
    scheduler: tuple[str, ...] | None = None,
    data: str = "",
    table: Path | None = None,
    objective: str = "macs",
    floor: float | None = None,
    seeds: int = 10,
    workers: int = 8,
    rungs: tuple[float, ...] | None = None,
    eta: float = 1.5,
    processes: int = 0,
    plot: str = "",
    as_json: bool = False,
) -> None:
    """Benchmark strategies on a table of trained nets, in minutes and without training."""
    from ..results.render.terminal import Console
    from ..search.tabular.evaluate import BenchmarkConfig, bench_table, rows, run_benchmark
    from ..search.tabular.evaluate import plot as draw
    from ..search.tabular.simulated import SearcherConfig, searchers
    from ..search.trials.schedulers import RUNGS

    check_count("seeds", seeds, most=MAX_SEEDS)
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
            config, chosen, lambda last: status.update(f"{next(done)} of {len(chosen)}; last: {last}")
        )
    results = rows(traces)
    print_result(
        as_json, results, lambda: bench_table(results, f"{table or config.data}, {seeds} seeds, {workers} workers")
    )
    if file:
        draw(traces, file)


@command()
def latency(
    target: str,
    *,
    measuring: DeviceOptions,
    device: str = "cpu",
    batch: str = "1",
    dtype: str = "float32",
    compile_nets: bool = False,
    graph: bool = False,
    onnx: bool = False,
    threads: int = 1,
    top: int = 0,
    image_size: str = "",
    as_json: bool = False,
) -> None:
    """Measure latency here or on a device, by a command; kept for a run's `front --objectives accuracy,latency_ms`."""
    import logging

    from ..results.render.terminal import Console, plain

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns where there is no GPU
    from ..results.latency.nets import measure_nets, nets_of
    from ..results.latency.setting import LatencySetting, latency_settings
    from ..results.latency.table import latency_rows, latency_table, prediction_lines, rank_correlation_macs

    here = latency_settings(device, batch, dtype, compile_nets, graph, onnx, threads)
    settings = measuring.devices() or here
    if settings is not here and here != [LatencySetting()]:
        raise InputError("latency-command: has its own device, batch, dtype and threads; leave these options out")
    nets, folder = nets_of(target, image_size, top)
    with Console(stderr=True).status("measuring") as status:
        heard = lambda name: status.update(plain(f"measuring {name}"))  # noqa: E731
        measured = list(measure_nets(nets, dict.fromkeys(settings, ()), folder, heard, measuring.latency_timeout))
    if not measured:
        raise OperationError("latency: no net was measured")
    groups = {setting: latency_rows([pair for pair in measured if pair[1].setting == setting]) for setting in settings}
    if as_json:
        print_json([{"rows": rows, "rank_correlation_macs": rank_correlation_macs(rows)} for rows in groups.values()])
        return
    for setting, rows in ((setting, rows) for setting, rows in groups.items() if rows):
        print_text(latency_table(rows, setting))
        for line in prediction_lines([pair for pair in measured if pair[1].setting == setting]):
            print_lines(line)
