"""The tabular bench: the table as it is stored, a small one made by hand, the simulator, the verdict, the command."""

from __future__ import annotations

import io
import json
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, islice
from multiprocessing import active_children
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from tables import cells, write

from alternas.archs import Genotype, InputError, static_cost
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.strategies.registry import STRATEGIES
from alternas.search.tabular import simulated as simulation
from alternas.search.tabular.benchmark_table import Entry, TabularBenchmark, Training
from alternas.search.tabular.evaluate import AT, REFERENCE, BenchmarkConfig, bench_table, rows, run_benchmark
from alternas.search.tabular.published import load_table
from alternas.search.tabular.simulated import (
    LARGEST,
    ORACLE,
    STOCK,
    SearcherConfig,
    Simulator,
    Trace,
    run,
    searchers,
    simulate,
)
from alternas.search.tabular.table_file import read_table
from alternas.search.tabular.trained import CHANCE, FILE, IMAGE_SIZE
from alternas.search.training import recipes
from alternas.search.training.job import Progress, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import train
from alternas.search.trials.schedulers import SCHEDULERS
from alternas.spaces import FixedChooser, get, members

NETS = 60
STEPS = 625
READ = tuple(STEPS * i // 16 for i in range(1, 17))
SEEDS = (0, 1, 2)
NEVER = 2.0  # more hypervolume than there is
ALL = 1 - 1e-12


def training(key: str, macs: float, seed: int) -> Training:
    """Better with cost, a little better or worse with the net and the seed, and better as it goes on."""
    final = 0.25 + 0.2 * math.log10(macs / 1e4) + 0.1 * random.Random(key).random()
    final += 0.01 * random.Random(f"{key} {seed}").random()
    curve = tuple(final * (0.5 + 0.5 * math.sqrt(step / STEPS)) for step in READ)
    return Training(READ, curve, 5 + macs / 1e5)


def made_up(space: str) -> TabularBenchmark:
    """The first members of a space, with accuracies made up."""
    entries = {}
    searched = get(space, 16)
    for _, net in islice(members(searched), NETS):
        cost = static_cost(net, 10, 16, 1)
        trainings = {seed: training(net.key, cost.macs, seed) for seed in SEEDS}
        entries[net.key] = Entry({"macs": float(cost.macs), "params": float(cost.params)}, trainings)
    return TabularBenchmark("made up", searched, entries, STEPS, CHANCE)


@pytest.fixture(scope="module")
def table() -> TabularBenchmark:
    """Of a few nets of the space."""
    return made_up("bench")


@pytest.fixture(scope="module")
def whole() -> TabularBenchmark:
    """Of all nets of a small space: so all of them are soon found."""
    return made_up("placements")


stored = pytest.mark.skipif(not FILE.is_file(), reason=f"{FILE.name} is not packed yet: benchmarks/table.py makes it")


@pytest.fixture(scope="module")
def packed() -> Any:
    return pd.read_parquet(FILE)


GENES = ["gene_family", "gene_width", "gene_window1", "gene_depth1", "gene_msa1_1", "gene_msa1_2", "gene_depth2",
         "gene_msa2_2", "gene_msa2_3", "gene_trunk", "gene_embed_dim", "gene_encoder_depth"]  # fmt: skip


@stored
def test_the_stored_table_is_small_and_whole(packed: Any) -> None:
    assert FILE.stat().st_size < 5_000_000
    assert set(packed.columns) == {"data", *GENES, "seed", "step", "accuracy", "seconds", "macs", "params"}
    assert not packed.duplicated(["data", *GENES, "seed", "step"]).any()
    assert ((packed["accuracy"] >= 0) & (packed["accuracy"] <= 1)).all()
    assert packed["seconds"].to_numpy().min() > 0
    assert set(packed["data"]) == {"cue", "clutter", "cue-long"}
    trainings = packed.sort_values("step").groupby(["data", *GENES, "seed"])
    assert (trainings.size().groupby("data").nunique() == 1).all(), "all are read equally often"
    assert (trainings["accuracy"].last() > trainings["accuracy"].first()).mean() > 0.9, "nets learn"


@stored
def test_the_stored_nets_are_those_of_the_space(packed: Any) -> None:
    space = get("bench", 16)
    for row in packed.drop_duplicates(["data", *GENES]).to_dict(orient="records"):
        net = space.sample(FixedChooser({name.removeprefix("gene_"): row[name] for name in GENES}))
        cost = static_cost(net, 10, 16, 1)
        assert (row["macs"], row["params"]) == (cost.macs, cost.params)
    assert (packed.groupby(GENES)[["macs", "params"]].nunique() == 1).all(axis=None)


@pytest.mark.slow
@stored
def test_the_stored_table_loads(packed: Any) -> None:
    nets = {net.key: genes for genes, net in members(get("bench", 16))}
    for data in set(packed["data"]):
        table, of_data = load_table(data), packed[packed["data"] == data]
        of_data = of_data[of_data["step"] == table.steps]
        assert set(table.entries) <= set(nets)
        means: Any = of_data.groupby(GENES)["accuracy"].mean()
        assert len(means) == len(table.entries)
        for key, entry in table.entries.items():
            genes = tuple(nets[key][name.removeprefix("gene_")] for name in GENES)
            assert entry.accuracy == pytest.approx(means[genes], abs=1e-6)
        assert table.hypervolume(table.front()) == 1.0
    assert [len(load_table(data).entries) for data in ("cue", "clutter", "cue-long")] == [424, 160, 103]
    assert [load_table(data).steps for data in ("cue", "clutter", "cue-long")] == [625, 625, 2500]


def by_grid(table: TabularBenchmark, keys: Sequence[str]) -> float:
    """Area above the floor under the best accuracy for the money, on a fine grid of log costs."""
    every = np.log10([table.cost(entry) for entry in table.entries.values()])
    grid = np.linspace(every.min(), every.max(), 20_001)
    grid = (grid[:-1] + grid[1:]) / 2
    best = np.full(len(grid), table.floor)
    for key in keys:
        entry = table.entries[key]
        best = np.where(math.log10(table.cost(entry)) <= grid, np.maximum(best, entry.accuracy), best)
    return float((best - table.floor).sum())


@pytest.mark.parametrize(("cost", "floor"), [("macs", CHANCE), ("params", CHANCE), ("macs", 0.55)])
def test_hypervolume_is_the_area_under_the_front(table: TabularBenchmark, cost: str, floor: float) -> None:
    table = replace(table, objective=cost, floor=floor)
    everything = by_grid(table, list(table.entries))
    draw = random.Random(0)
    for count in (1, 2, 5, 20):
        keys = draw.sample(list(table.entries), count)
        assert table.hypervolume(keys) == pytest.approx(by_grid(table, keys) / everything, abs=1e-3)
    assert table.hypervolume([]) == 0.0


@pytest.mark.parametrize("cost", ["macs", "params"])
def test_the_front_is_worth_the_whole_table(table: TabularBenchmark, cost: str) -> None:
    table = replace(table, objective=cost)
    front = table.front()
    assert table.hypervolume(front) == table.hypervolume(list(table.entries)) == 1.0
    at = {key: (entry.accuracy, -entry.costs[cost]) for key, entry in table.entries.items()}
    for key, (accuracy, cheap) in at.items():
        better = [a >= accuracy and c >= cheap and (a, c) != (accuracy, cheap) for a, c in at.values()]
        assert (key in front) != any(better)
    assert 3 < len(front) < NETS / 2


@pytest.mark.parametrize(("step", "reading"), [(10, 1), (10.5, 1), (19, 1), (20, 2), (99, 2), (100, 3), (101, 3)])
def test_accuracy_at_a_step_is_the_latest_reading(step: float, reading: int) -> None:
    assert Training((10, 20, 100), (1.0, 2.0, 3.0)).at(step) == reading


class Watched(Simulator):
    """Remembers its jobs and itself."""

    last: Watched

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.jobs: list[TrainJob] = []
        Watched.last = self

    def submit(self, job: Any) -> None:
        self.jobs.append(job)
        super().submit(job)
        assert len(self._running) <= self.workers


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr(simulation, "Simulator", Watched)
    return Watched


def legs(jobs: Sequence[TrainJob]) -> float:
    """Full trainings that these jobs take together: each net as far as it came."""
    reached: dict[tuple[str, int], int] = {}
    for job in jobs:
        name = job.genotype.key, job.seed
        reached[name] = max(reached.get(name, 0), job.stop_step)
    return sum(reached.values()) / STEPS


def test_without_a_scheduler_spent_is_the_number_of_nets(whole: TabularBenchmark, watched: type[Watched]) -> None:
    trace = simulate(whole, SearcherConfig("random"), 0, 1, NEVER)
    jobs = watched.last.jobs
    assert trace.spent == [float(i + 1) for i in range(len(jobs))]
    assert watched.last.spent == len(jobs) == len({job.genotype.key for job in jobs})
    assert len(jobs) == len(whole.entries)
    assert trace.volume == sorted(trace.volume)
    assert trace.seconds == sorted(trace.seconds)
    for i in (1, 5, 20):
        assert trace.volume[i - 1] == whole.hypervolume([job.genotype.key for job in jobs[:i]])
    seconds = sum(whole.entries[j.genotype.key].drawn(j.genotype.key, j.seed).seconds for j in jobs)
    assert trace.seconds[-1] == pytest.approx(seconds)


@pytest.mark.parametrize("scheduler", ["mo-asha", "asha"])
@pytest.mark.parametrize("workers", [1, 4])
def test_legs_count_by_their_share(
    whole: TabularBenchmark, watched: type[Watched], scheduler: str, workers: int
) -> None:
    trace = simulate(whole, SearcherConfig("random", scheduler), 0, workers, NEVER)
    jobs = watched.last.jobs
    started = {job.genotype.key for job in jobs}
    assert watched.last.spent == pytest.approx(legs(jobs))
    assert trace.spent[-1] < 0.75 * len(started)
    seconds = 0.0
    for key in started:
        until = max(job.stop_step for job in jobs if job.genotype.key == key)
        seconds += whole.entries[key].drawn(key, 0).seconds * until / STEPS
    assert seconds / workers <= watched.last.clock + 1e-6 < 1.4 * seconds / workers
    assert len(trace.spent) == len({job.genotype.key for job in jobs if job.stop_step == job.total_steps})
    first = [job for job in jobs if job.stop_step == STEPS // 8 + 1]
    assert len(first) == len(started), "every net stops at the first rung"


def test_rungs_read_the_curve_there(whole: TabularBenchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    class Heard(Simulator):
        def poll(self, timeout: float) -> Any:
            keys = {job.trial: job.genotype.key for *_, job in self._running}
            found = super().poll(timeout)
            heard.extend((keys[o.job], o) for o in found)
            return found

    monkeypatch.setattr(simulation, "Simulator", Heard)
    simulate(whole, SearcherConfig("random", "mo-asha", rungs=(0.25,)), 0, 2, NEVER)
    assert {outcome.step for _, outcome in heard} == {math.ceil(STEPS / 4), STEPS}
    for key, outcome in heard:
        curve = whole.entries[key].drawn(key, 0).accuracies
        assert outcome.accuracy == (curve[-1] if outcome.step == STEPS else curve[3])


@pytest.mark.parametrize("strategy", ["random", "evolution"])
def test_a_seed_gives_one_trace(table: TabularBenchmark, strategy: str) -> None:
    traces = [simulate(table, SearcherConfig(strategy), seed, 2, 0.9) for seed in (0, 0, 1)]
    assert traces[0] == traces[1] != traces[2]


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"enumerate"}))
def test_nets_outside_the_table_are_never_trained(
    table: TabularBenchmark, watched: type[Watched], strategy: str
) -> None:
    trace = simulate(table, SearcherConfig(strategy), 0, 3, 0.9)
    trained = [job.genotype.key for job in watched.last.jobs]
    assert set(trained) <= set(table.entries)
    assert len(trained) == len(set(trained))
    assert trace.volume
    assert all(volume < 0.9 for volume in trace.volume[:-1]), "it ends when enough is found"


def test_the_oracle_needs_the_fewest_nets(table: TabularBenchmark) -> None:
    found = run(table, SearcherConfig(ORACLE), 0, 1)
    assert found.volume[-1] == 1.0
    assert found.volume == sorted(found.volume)
    front = table.front()
    assert found.spent[-1] == len(front)
    assert found.volume[0] == max(table.hypervolume([key]) for key in table.entries)
    need = int(found.spent_to(ALL) or 0)
    assert all(table.hypervolume(list(few)) < ALL for few in combinations(front, need - 1))
    for contender in (SearcherConfig("random"), SearcherConfig("evolution"), SearcherConfig(LARGEST)):
        assert (run(table, contender, 0, 1).spent_to(0.9) or math.inf) > (found.spent_to(0.9) or 0)


def test_orders_and_stock_samplers_get_no_scheduler(table: TabularBenchmark) -> None:
    found = searchers(table, (), ())
    for name in (ORACLE, LARGEST, *STOCK):
        assert [c.scheduler for c in found if c.strategy == name] == ["none"]
    for name in set(STRATEGIES) - {"enumerate"}:
        on = list(SCHEDULERS) if name == "random" else ["none", "mo-asha"]
        assert [c.scheduler for c in found if c.strategy == name] == on
    assert searchers(table, ("evolution",), ("asha",)) == [SearcherConfig("evolution", "asha")], "where it is asked for"
    assert "enumerate" not in {c.strategy for c in found}
    assert searchers(table, (ORACLE, "random"), ("mo-asha",), SearcherConfig("", rungs=(0.5,), eta=3)) == [
        SearcherConfig("random", "mo-asha", (0.5,), 3)
    ]


@pytest.mark.parametrize(("strategies", "schedulers", "about"), [
    (("randm",), (), "did you mean 'random'"), (("random", "nowhere:Sampler"), (), "nowhere"),
    (("random",), ("mo-ash",), "did you mean 'mo-asha'"), ((ORACLE, LARGEST), ("mo-asha",), "nothing to run"),
])  # fmt: skip
def test_unknown_contenders(
    table: TabularBenchmark, strategies: tuple[str, ...], schedulers: tuple[str, ...], about: str
) -> None:
    with pytest.raises(InputError, match=about):
        searchers(table, strategies, schedulers)


def climb(to_90: float | None, to_95: float | None, to_99: float | None, start: float = 0.1) -> Trace:
    """A trace that reaches 0.9, 0.95 and 0.99 with so much training."""
    steps = [(1.0, start)] + [(at, share) for at, share in ((to_90, 0.9), (to_95, 0.95), (to_99, 0.99)) if at]
    return Trace(
        [at for at, _ in steps], [2 * at for at, _ in steps], [share for _, share in steps], [0.0] * len(steps)
    )


@pytest.mark.parametrize("seeds", [1, 4, 5, 10])
def test_rows_are_quartiles_over_seeds(seeds: int) -> None:
    draw = random.Random(seeds)
    numbers = np.cumsum([[draw.uniform(2, 30) for _ in range(3)] for _ in range(seeds)], axis=1)
    (row,) = rows({SearcherConfig("mine", "mo-asha"): [climb(*at) for at in numbers]})
    assert (row["strategy"], row["scheduler"], row["seeds"]) == ("mine", "mo-asha", seeds)
    for column, share in enumerate((90, 95, 99)):
        expected = np.percentile(numbers[:, column], [25, 50, 75])
        found = [row[f"spent_to_{share}_{name}"] for name in ("low", "median", "high")]
        np.testing.assert_allclose(found, expected)
    at = [0.99 if c <= AT else 0.95 if b <= AT else 0.9 if a <= AT else 0.1 for a, b, c in numbers]
    found = [row[f"hypervolume_{name}"] for name in ("low", "median", "high")]
    np.testing.assert_allclose(found, np.percentile(at, [25, 50, 75]))
    assert row["times_random"] is row["times_random_low"] is row["times_random_high"] is None


def test_what_too_few_seeds_reached_is_none() -> None:
    reached = [climb(1, 2, 10), climb(1, 2, 20), climb(1, 2, 30), climb(1, 2, None), climb(1, None, None)]
    (row,) = rows({SearcherConfig("mine"): reached})
    assert (row["spent_to_99_low"], row["spent_to_99_median"], row["spent_to_99_high"]) == (20, 30, None)
    assert row["spent_to_95_high"] == 2
    (row,) = rows({SearcherConfig("mine"): [climb(1, 2, 10), climb(1, 2, None), climb(1, None, None)]})
    assert (row["spent_to_95_median"], row["spent_to_99_low"], row["spent_to_99_median"]) == (2, None, None)
    json.dumps(row, allow_nan=False)


def test_random_is_once_random_and_the_best_come_first() -> None:
    traces = {
        REFERENCE: [climb(1, 2, at) for at in (80, 100, 120)],
        SearcherConfig("half"): [climb(1, 2, at) for at in (49, 50, 51)],
        SearcherConfig("never"): [climb(1, 3, None)] * 3,
        SearcherConfig("slow"): [climb(1, 2, None)] * 3,
    }
    found = rows(traces)
    assert [row["strategy"] for row in found] == ["half", "random", "slow", "never"]
    half, same, never, _ = found
    assert (half["times_random"], same["times_random"], never["times_random"]) == (0.5, 1.0, None)
    assert 49 / 120 <= half["times_random_low"] < 0.5 < half["times_random_high"] <= 51 / 80
    assert same["times_random_low"] < 1 < same["times_random_high"]
    assert bench_table(found, "title").row_count == 8  # two for each strategy


def test_processes_play_what_one_would_run(tmp_path: Path) -> None:
    file = write(cells(), tmp_path / "cells.parquet")
    chosen, heard = [SearcherConfig("random"), SearcherConfig(LARGEST)], list[str]()
    found = run_benchmark(BenchmarkConfig("", 2, 3, 1, file), chosen, heard.append)
    same = read_table(file)
    assert found == {c: [run(same, c, seed, 3) for seed in (0, 1)] for c in chosen}
    assert len(heard) == 2


def test_errors_come_before_processes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not there"):
        run_benchmark(BenchmarkConfig(file=tmp_path / "none.parquet"), [SearcherConfig("random")], print)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_stopped_bench_ends_at_once() -> None:
    """And not when all that was asked for is done, which here takes minutes."""

    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_benchmark(BenchmarkConfig(seeds=100), [SearcherConfig(ORACLE), SearcherConfig("tpe")], stop)
    assert not active_children()


def test_a_table_of_long_names_breaks_no_word_at_80_columns() -> None:
    spent = {f"spent_to_{share}_{end}": 123.4 for share in (90, 95, 99) for end in ("low", "median", "high")}
    numbers = {"compute_to_99_median": 140.0, "hypervolume_median": 0.9, "hypervolume_at": 100.0}
    ratios = {"times_random": 0.51, "times_random_low": 0.43, "times_random_high": 1.21}
    names = ("evolution-per-cost", "mo-asha"), ("optuna.samplers:NSGAIIISampler", "none"), ("tpe", "asha")
    found = [{"strategy": name, "scheduler": by, **spent, **numbers, **ratios} for name, by in names]
    console = Console(width=80, file=io.StringIO())
    console.print(bench_table(found, "strategies"))
    text = cast(io.StringIO, console.file).getvalue()
    words = {"evolution-per-cost": 1, "NSGAIIISampler": 1, "mo-asha": 1, "strategy": 1, "123-123": 9, "0.43-1.21": 3}
    assert {word: text.split().count(word) for word in words} == words


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
@stored
def test_the_command(alternas: Any) -> None:
    few = ("--strategy", "oracle,random", "--scheduler", "none", "--seeds", "2", "--processes", "1", "--workers", "4")
    code, out, _ = alternas("bench", *few, "--json", "--plot", "new/plot.svg")
    found = json.loads(out)
    assert code == 0
    assert [row["strategy"] for row in found] == ["oracle", "random"]
    fields = {"strategy", "scheduler", "seeds", "spent_to_95_median", "spent_to_99_median", "hypervolume_median"}
    assert all(fields <= set(row) and row["seeds"] == 2 for row in found)
    table = load_table("cue")
    assert found[0]["spent_to_95_median"] == run(table, SearcherConfig(ORACLE), 0, 1).spent_to(0.95)
    random_one = [run(table, SearcherConfig("random"), seed, 4).spent_to(0.95) or math.nan for seed in (0, 1)]
    assert found[1]["spent_to_95_median"] == pytest.approx(sum(random_one) / 2)
    assert "<svg" in Path("new/plot.svg").read_text(encoding="utf-8")


@stored
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("words", "about"), [
    (("--rungs", "0.5,0.25"), "rungs"), (("--eta", "nan", "--scheduler", "asha"), "eta"),
    (("--strategy", "oracle", "--processes", "-1"), "processes"), (("--data", "digits"), "digits"),
    (("--seeds", "0"), "seeds"), (("--workers", "-1"), "workers"), (("--plot", "plot.txt"), "plot"),
    (("--plot", "plot"), ".svg"), (("--strategy", "randm"), "did you mean 'random'"),
    (("--rungs", "2", "--scheduler", "mo-asha"), "rungs"),
    (("--rungs", "a,b"), "rungs"), (("--scheduler", "steep"), "scheduler"),
    (("--eta", "1", "--scheduler", "asha"), "eta"),
    (("--strategy", "oracle", "--scheduler", "mo-asha"), "nothing to run"),
])  # fmt: skip
def test_bad_input_is_one_line(alternas: Any, words: tuple[str, ...], about: str) -> None:
    code, out, errors = alternas("bench", *words)
    assert (code, out) == (2, "")
    assert about in errors
    assert "Traceback" not in errors


SEED = 1_000
LEARNED = 0.75  # nets below may be on a plateau in one seed and beyond it in the next
WITHIN = 4.0  # standard errors of the difference between one training and a mean
HALF, END = STEPS // 2, STEPS


def errors_at(entry: Entry, at: int) -> list[float]:
    """Its reading in each seed."""
    return [training.at(at) for training in entry.trainings.values()]


def trained(net: Genotype, folder: Path) -> dict[int, float]:
    """Its readings by step, trained as a worker of a search does it."""
    files = str(folder / "c.pt"), str(folder / "w.safetensors")
    job, threads = TrainJob(0, net, recipes.get("cue"), SEED, STEPS, STEPS, *files), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        events = list(train(job, MemoryLoader(load(DataConfig("cue")).without_test(), torch.device("cpu"))))
    finally:
        torch.set_num_threads(threads)
    return {event.point.step: event.point.accuracy for event in events if isinstance(event, Progress)}


@pytest.mark.slow
@pytest.mark.parametrize("attention", [False, True])
def test_a_net_trained_anew_lies_within_the_stored_noise(tmp_path: Path, attention: bool) -> None:
    table = load_table("cue")
    learned = {k: e for k, e in table.entries.items() if len(e.trainings) > 1 and min(errors_at(e, END)) > LEARNED}
    nets = [net for _, net in members(get("bench", IMAGE_SIZE)) if (net.family != "resnet") == attention]
    net = min((net for net in nets if net.key in learned), key=lambda net: learned[net.key].costs["macs"])
    curve = trained(net, tmp_path)
    assert set(curve) >= {HALF, END}
    for at in (HALF, END):
        sd = math.sqrt(statistics.mean(statistics.variance(errors_at(entry, at)) for entry in learned.values()))
        have = errors_at(learned[net.key], at)
        off = abs(curve[at] - statistics.mean(have))
        assert off < WITHIN * sd * math.sqrt(1 + 1 / len(have)), f"{net.key} at {at}: {curve[at]}, not {have}"
