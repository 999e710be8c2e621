"""Tables of others: read, checked, searched by the real strategies; the command."""

import json
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import OPS, SEEDS, STEPS, cells, write

from alternas.archs import InputError
from alternas.search.strategies.registry import STRATEGIES
from alternas.search.strategies.strategy_context import NetCosts, StrategyContext
from alternas.search.tabular import simulated as simulation
from alternas.search.tabular.benchmark_table import Training
from alternas.search.tabular.evaluate import BenchmarkConfig, run_benchmark
from alternas.search.tabular.published import load_table
from alternas.search.tabular.simulated import (
    LARGEST,
    ORACLE,
    STOCK,
    SearcherConfig,
    Simulator,
    run,
    searchers,
    simulate,
)
from alternas.search.tabular.table_file import read_table
from alternas.search.tabular.table_space import TableNets, TableSpace
from alternas.spaces import FixedChooser, members, options_of

Rows = list[dict[str, Any]]
NEVER = 2.0  # more hypervolume than there is


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(cells(), tmp_path / "cells.parquet")


def of_net(rows: Rows, genes: tuple[Any, ...], step: int = STEPS[-1]) -> dict[int, dict[str, Any]]:
    """The row of each seed."""
    names = ("gene_first", "gene_second", "gene_depth")
    return {row["seed"]: row for row in rows if tuple(row[name] for name in names) == genes and row["step"] == step}


def test_a_table_is_read(file: Path) -> None:
    table, rows = read_table(file), cells()
    space = table.space
    assert isinstance(space, TableSpace)
    assert options_of(space) == {
        "gene_first": tuple(sorted(OPS)), "gene_second": tuple(sorted(OPS)), "gene_depth": (1, 2, 4, 8),
    }  # fmt: skip
    assert len(table.entries) == len(space.rows) == len(rows) // len(SEEDS) // len(STEPS)
    assert (table.steps, table.first_step, table.objective, table.name) == (100, 3, "macs", "cells")
    for genes in space.rows:
        entry, wanted = table.entries[space.net(genes).key], of_net(rows, genes)
        assert entry.costs == {name: next(iter(wanted.values()))[name] for name in ("macs", "params", "latency_ms")}
        assert set(entry.trainings) == set(SEEDS)
        for seed, row in wanted.items():
            training = entry.trainings[seed]
            assert (training.at(100), training.seconds) == (row["accuracy"], row["seconds"])
            assert training.at(12) == training.at(24.9) == of_net(rows, genes, 12)[seed]["accuracy"]
        assert entry.accuracy == pytest.approx(statistics.mean(row["accuracy"] for row in wanted.values()))
    assert table.floor == min(entry.accuracy for entry in table.entries.values())


def test_the_order_of_rows_does_not_matter(file: Path, tmp_path: Path) -> None:
    rows = cells()
    random.Random(1).shuffle(rows)
    one, other = read_table(file), read_table(write(rows, tmp_path / "shuffled.parquet"))
    assert one.entries == other.entries
    assert one.hypervolume(one.front()) == other.hypervolume(one.front()) == 1


def test_only_the_last_readings_are_needed(tmp_path: Path) -> None:
    rows = [row for row in cells() if row["step"] == 100]
    for row in rows:
        del row["seconds"]
    table = read_table(write(rows, tmp_path / "last.parquet"))
    assert table.first_step == table.steps == 100
    assert {t.seconds for entry in table.entries.values() for t in entry.trainings.values()} == {1.0}
    trace = simulate(table, SearcherConfig("random"), 0, 1, NEVER)
    assert trace.seconds == trace.spent
    with pytest.raises(InputError, match="readings from step 100 of 100 on"):
        run_benchmark(BenchmarkConfig("", 1, file=tmp_path / "last.parquet"), [SearcherConfig("random", "asha")], print)


def test_another_cost_and_another_floor(file: Path) -> None:
    table = read_table(file, objective="latency_ms", floor=0.6)
    points = {key: (entry.accuracy, entry.costs["latency_ms"]) for key, entry in table.entries.items()}
    for key, (accuracy, cost) in points.items():
        better = [a >= accuracy and c <= cost and (a, c) != (accuracy, cost) for a, c in points.values()]
        assert (key in table.front()) != any(better)
    poor = [key for key, (accuracy, _) in points.items() if accuracy < 0.6]
    assert poor
    assert table.hypervolume(poor) == 0 < replace(table, floor=0.5).hypervolume(poor)


def test_nets_that_are_missing_are_infeasible_the_more_the_farther(file: Path) -> None:
    table = read_table(file)
    space: Any = table.space
    count = 0
    for first in OPS:
        for second in OPS:
            for depth in (1, 2, 4, 8):
                genes = {"gene_first": first, "gene_second": second, "gene_depth": depth}
                net = space.sample(FixedChooser(genes))
                nearest = min(sum(a != b for a, b in zip(genes.values(), row, strict=True)) for row in space.rows)
                assert table.distance(net) == nearest / 3
                assert (net.key in table.entries) == (nearest == 0) == math.isfinite(table.costs(net)["macs"])
                count += nearest > 0
    assert count == 64 - len(table.entries) > 5


def test_draws_from_few_nets_of_many_combinations_are_uniform(tmp_path: Path) -> None:
    table = read_table(write(cells(missing=0.8), tmp_path / "few.parquet"))
    space, draw = table.space, random.Random(0)
    assert isinstance(space, TableSpace)
    context = StrategyContext(space, 0, lambda net: NetCosts(1.0, 1.0), nets=[space.genes(row) for row in space.rows])
    nets = TableNets(space, table.distance)
    missing = next(genes for genes in all_genes() if table.distance(space.sample(FixedChooser(genes))) > 0)
    for drawn in (lambda: context.random_genes(draw), lambda: nets.moved(missing, draw)):
        counts = dict.fromkeys(table.entries, 0)
        for _ in range(200 * len(counts)):
            counts[space.sample(FixedChooser(drawn())).key] += 1
        assert 120 < min(counts.values()) <= max(counts.values()) < 280
    assert {key for _, key in nets.walk()} == set(table.entries)


def all_genes() -> Rows:
    return [{"gene_first": a, "gene_second": b, "gene_depth": d} for a in OPS for b in OPS for d in (1, 2, 4, 8)]


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.85])
@pytest.mark.parametrize("strategy", ["random", "tpe", "nsga2", "evolution", "enumerate"])
def test_every_strategy_finds_all_nets_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, missing: float
) -> None:
    table, trained = read_table(write(cells(missing), tmp_path / "table.parquet")), list[str]()

    class Watched(Simulator):
        def submit(self, job: Any) -> None:
            trained.append(job.genotype.key)
            super().submit(job)

    monkeypatch.setattr(simulation, "Simulator", Watched)
    trace = simulate(table, SearcherConfig(strategy), 0, 4, NEVER)
    assert sorted(trained) == sorted(table.entries)
    assert trace.volume[-1] == 1.0


def test_strategies_compare_nets_by_their_genes(file: Path) -> None:
    table, seen = read_table(file), list[Any]()
    controller = simulation.trials_on(table, SearcherConfig("evolution", "mo-asha"), 0)
    context: Any = controller.proposer.strategy
    features = context._context.features_of({"gene_first": "pool", "gene_second": "skip", "gene_depth": 4})
    seen.append(features.traits)
    assert seen == [frozenset({(("gene_first",), "pool"), (("gene_second",), "skip"), (("gene_depth",), 4)})]
    trace = run(table, SearcherConfig("evolution", "mo-asha"), 0, 4)
    assert trace == run(table, SearcherConfig("evolution", "mo-asha"), 0, 4)
    assert (trace.spent_to(0.95) or math.inf) < len(table.entries)


def without(name: str) -> Callable[[Rows], Rows]:
    return lambda rows: [{key: value for key, value in row.items() if key != name} for row in rows]


def changed(name: str, value: Any, where: slice = slice(0, 1)) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        for row in rows[where]:
            row[name] = value
        return rows

    return change


ALL = slice(None)
BROKEN: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "no macs": (without("macs"), "column 'macs' is missing"),
    "no params": (without("params"), "column 'params' is missing"),
    "no seed": (without("seed"), "column 'seed' is missing"),
    "no step": (without("step"), "column 'step' is missing"),
    "no accuracy": (without("accuracy"), "column 'accuracy' is missing"),
    "no genes": (
        lambda rows: [{k: v for k, v in row.items() if not k.startswith("gene_")} for row in rows],
        "has no genes",
    ),
    "no rows": (lambda rows: [], "column 'macs' is missing"),
    "one net": (lambda rows: [row for row in rows if row["macs"] == rows[0]["macs"]][:5], "two nets or more"),
    "accuracy in percent": (changed("accuracy", 93.0), "fraction from 0 to 1"),
    "accuracy below 0": (changed("accuracy", -0.1), "fraction from 0 to 1"),
    "accuracy unknown": (changed("accuracy", math.nan), "'accuracy' has a value that is no number"),
    "accuracy a text": (changed("accuracy", "high", ALL), "'accuracy' must be of numbers"),
    "macs unknown": (changed("macs", math.inf), "'macs' has a value that is no number"),
    "macs zero": (changed("macs", 0.0, slice(0, 10)), "'macs' must be above 0"),
    "params below zero": (changed("params", -1, slice(0, 10)), "'params' must be above 0"),
    "macs that differ": (changed("macs", 1.25), "'macs' must be the same in all rows of a net"),
    "macs near zero": (changed("macs", 1e-320, slice(0, 10)), "must differ between nets and be from 1e-09 to 1e+18"),
    "macs all alike": (changed("macs", 5.0, ALL), "must differ between nets"),
    "a seed of halves": (changed("seed", 0.5), "'seed' must be of whole numbers"),
    "a step of halves": (changed("step", 2.5), "'step' must be of whole numbers"),
    "step zero": (changed("step", 0), "'step' must be above 0"),
    "seconds below zero": (changed("seconds", -1.0), "'seconds' must be above 0"),
    "a step twice": (lambda rows: [*rows, dict(rows[0])], "two rows of one step"),
    "no full training": (lambda rows: rows[:4] + rows[5:], "ends at step 50, not at the full budget of 100"),
    "a gene unknown": (changed("gene_depth", None), "'gene_depth' has a value that is no number"),
    "a text unknown": (changed("gene_first", None), "'gene_first' must be all texts or all numbers"),
    "a gene of lists": (changed("gene_first", [1], ALL), "'gene_first' must be all texts or all numbers"),
}


@pytest.mark.parametrize("harm", BROKEN)
def test_a_malformed_table_is_one_line(tmp_path: Path, harm: str) -> None:
    spoil, about = BROKEN[harm]
    file = write(spoil(cells()), tmp_path / "broken.parquet")
    with pytest.raises(InputError) as raised:
        read_table(file)
    assert about in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"no parquet", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_file_that_is_no_table(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.parquet"
    file.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_table(file)


def test_genes_may_be_true_or_false(tmp_path: Path) -> None:
    rows = cells()
    for row in rows:
        row["gene_wide"] = row["gene_depth"] > 2
    assert options_of(read_table(write(rows, tmp_path / "t.parquet")).space)["gene_wide"] == (0, 1)


def test_one_of_several_data_sets(tmp_path: Path) -> None:
    rows = [row | {"data": name} for name, seed in (("birds", 0), ("cars", 1)) for row in cells(seed=seed)]
    file = write(rows, tmp_path / "two.parquet")
    assert read_table(file, "cars").entries == read_table(write(cells(seed=1), tmp_path / "cars.parquet")).entries
    for data in ("", "planes"):
        with pytest.raises(InputError, match="known: birds, cars"):
            read_table(file, data)


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_the_command_takes_a_table(alternas: Any, file: Path) -> None:
    words = ("--strategy", "oracle,random,evolution", "--seeds", "2", "--processes", "1", "--workers", "2", "--json")
    code, out, _ = alternas("bench", "--table", str(file), "--objective", "latency_ms", "--floor", "0.6", *words)
    rows, table = json.loads(out), read_table(file, objective="latency_ms", floor=0.6)
    assert code == 0
    assert {row["strategy"] for row in rows} == {"oracle", "random", "evolution"}
    assert {row["scheduler"] for row in rows if row["strategy"] == "evolution"} == {"none", "mo-asha"}
    fields = {f"spent_to_{share}_median" for share in (90, 95, 99)}
    assert all(fields <= set(row) for row in rows)
    oracle = next(row for row in rows if row["strategy"] == ORACLE)
    assert oracle["spent_to_95_median"] == run(table, SearcherConfig(ORACLE), 0, 1).spent_to(0.95)


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_without_readings_at_rungs_no_scheduler_is_run(alternas: Any, tmp_path: Path) -> None:
    write([row for row in cells() if row["step"] == 100], tmp_path / "last.parquet")
    words = ("bench", "--table", "last.parquet", "--strategy", "random", "--seeds", "1", "--processes", "1", "--json")
    code, out, _ = alternas(*words)
    assert code == 0
    assert [row["scheduler"] for row in json.loads(out)] == ["none"]
    code, out, errors = alternas(*words, "--scheduler", "mo-asha")
    assert (code, out) == (2, "")
    assert "readings from step 100" in errors


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("words", "about"), [
    (("--table", "none.parquet"), "not there"), (("--table", "cells.parquet", "--objective", "price"), "price"),
    (("--table", "cells.parquet", "--floor", "0.99"), "best accuracy"),
    (("--table", "cells.parquet", "--floor", "-1"), "best accuracy"),
    (("--table", "cells.parquet", "--floor", "nan"), "best accuracy"),
    (("--table", "cells.parquet", "--data", "cue"), "no column 'data'"),
    (("--objective", "latency_ms",), "latency_ms"), (("--floor", "1",), "floor"), (("--data", "cu",), "did you mean"),
])  # fmt: skip
def test_bad_input_is_one_line(alternas: Any, file: Path, words: tuple[str, ...], about: str) -> None:
    code, out, errors = alternas("bench", *words, "--strategy", "oracle", "--processes", "1")
    assert (code, out) == (2, "")
    assert about in errors
    assert errors.count("\n") == 1
    assert "Traceback" not in errors


@pytest.mark.usefixtures("elsewhere")
def test_what_is_run_on_a_table_of_genes(file: Path) -> None:
    table = read_table(file)
    strategies = {found.strategy for found in searchers(table, (), ())}
    assert strategies == {ORACLE, LARGEST, *STOCK, *STRATEGIES} - {"buildup", "enumerate"}
    with pytest.raises(InputError, match="buildup"):
        run(table, SearcherConfig("buildup", "none"), 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cells", "fifty", "unrelated"])
def test_the_optimum_of_made_up_tables_is_known(name: str) -> None:
    table = load_table(name)
    entries = [(entry.accuracy, table.cost(entry)) for entry in table.entries.values()]
    accuracy, cost = np.array(entries).T
    order = np.argsort(cost)
    best = np.maximum.accumulate(accuracy[order])
    edges = np.log(np.append(cost[order], cost.max()))
    area = float(((best - table.floor) * np.diff(edges)).sum())
    keys = table.front()
    front = np.array([(table.entries[key].accuracy, table.cost(table.entries[key])) for key in keys])
    front = front[np.argsort(front[:, 1])]
    edges = np.log(np.append(front[:, 1], cost.max()))
    assert float(((front[:, 0] - table.floor) * np.diff(edges)).sum()) == pytest.approx(area)
    assert load_table(name) is not table
    assert load_table(name).entries == table.entries, "the same each time"


def test_most_of_fifty_genes_make_no_difference() -> None:
    table = load_table("fifty")
    space, draw = table.space, random.Random(0)
    options = options_of(space)
    assert len(options) == 50
    genes = {name: draw.choice(choices) for name, choices in options.items()}
    net = space.sample(FixedChooser(genes))
    changing = set()
    for name, choices in options.items():
        for value in choices:
            other = space.sample(FixedChooser(genes | {name: value}))
            assert (other.key == net.key) == (value == genes[name]), "another net all the same"
            if table.entry(other.key) is not table.entry(net.key):
                changing.add(name)
    assert len(changing) == 6


def test_a_space_with_genes_fixed() -> None:
    table = load_table("hybrids")
    assert set(options_of(table.space)) == {"width", "depth1", "depth2", "trunk", "embed_dim", "encoder_depth"}
    nets = [net for _, net in members(table.space)]
    assert {net.key for net in nets} == set(table.entries)
    assert len(nets) == 144
    assert all(net.encoder for net in nets)
    assert "buildup" not in {found.strategy for found in searchers(table, (), ())}


def test_a_short_budget_is_judged_by_a_long_one(tmp_path: Path) -> None:
    """Nets whose order turns round with the budget: what a search at the short one finds is worth little."""
    long = read_table(write(cells(), tmp_path / "long.parquet"))
    worth = {key: entry.accuracy for key, entry in long.entries.items()}
    turned = {
        key: replace(entry, trainings={0: Training((10,), (1.2 - worth[key],))}) for key, entry in long.entries.items()
    }
    short = replace(long, name="short", entries=turned, steps=10, judge=long)
    assert short.front() == long.front()
    assert short.hypervolume(long.front()) == 1.0
    alone = replace(short, judge=None)
    assert alone.front() != long.front()
    assert short.hypervolume(alone.front()) == long.hypervolume(alone.front()) < 0.6
    assert run(short, SearcherConfig(ORACLE), 0, 1) == run(long, SearcherConfig(ORACLE), 0, 1)
    by_short = simulate(short, SearcherConfig("evolution"), 0, 1, 0.95)
    by_long = simulate(long, SearcherConfig("evolution"), 0, 1, 0.95)
    assert (by_short.spent_to(0.95) or math.inf) > (by_long.spent_to(0.95) or math.inf)
    assert len(simulate(short, SearcherConfig("random"), 0, 1, NEVER).spent) == len(long.entries)
