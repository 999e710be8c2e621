"""Leaderboards on hand-made records: objectives, limits, gains, knees, ties, and what is read beside the records."""

import io
import itertools
import math
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from alternas.archs import InputError, static_cost, zoo
from alternas.results.latency.measurement import latencies_of
from alternas.results.ranking.front import ExtraResults, leaderboard, rank_rows
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.noise import noise_of
from alternas.results.ranking.objectives import RankingQuery, parse_objectives, train_flops, train_seconds
from alternas.results.ranking.ranked_net import RankedNet
from alternas.results.ranking.remarks import budget_order_lines
from alternas.results.ranking.run_leaderboard import leaderboard_of, read_latencies
from alternas.results.ranking.verdict import pick
from alternas.results.render.board import board_drawing, summary_lines
from alternas.results.render.tables import nets_table
from alternas.results.runs.record import Record
from runs import add_measured, made_run, measured, near_noise, width_of


def record(
    trial: int, accuracy: float | None, macs: int, kind: str = "search", status: str = "ok", **more: Any
) -> Record:
    cost = {"macs": macs, "params": 10 * macs, "activation_bytes": 1} | more.pop("cost", {})
    return Record(
        trial, kind, more.pop("family", "resnet"), f"k{trial}", {}, {}, cost, status, accuracy=accuracy, **more
    )


RECORDS = [
    record(0, 0.80, 1_000_000, "baseline"), record(1, 0.90, 100_000_000, "baseline"), record(2, 0.87, 10_000_000),
    record(3, 0.70, 20_000_000), record(4, 0.95, 30_000_000, status="pruned"),
    record(5, None, 30_000_000, status="nan"), record(6, 0.60, 500_000),
]  # fmt: skip


def test_leaderboard_holds_full_budgets_alone() -> None:
    rows = leaderboard(RECORDS).rows
    assert [(row.trial, row.rank) for row in rows] == [(6, 1), (0, 1), (2, 1), (1, 1), (3, 2)]
    gains = {row.trial: (row.gain, row.gain_bound) for row in rows}
    assert gains[2] == (pytest.approx(2.0), None)
    assert gains[6] == (None, None), "cheaper than the baselines, and worse"
    assert rows[2].accuracy_per_gmac == pytest.approx(87.0)


def test_nets_over_the_limits_shape_the_curve_and_are_not_ranked() -> None:
    rows = leaderboard(RECORDS, "macs", macs=20_000_000, params=150_000_000).rows
    assert [row.trial for row in rows] == [6, 0, 2]
    assert rows[2].gain == pytest.approx(2.0)


def test_gains_beyond_the_baselines_are_shown_as_bounds(tmp_path: Path) -> None:
    """A net cheaper than every ResNet and better than the cheapest, one above all in cost, one cheap and worse."""
    records = [*RECORDS, record(7, 0.938, 900_000), record(8, 0.97, 200_000_000)]
    found = {row.trial: row for row in leaderboard(records).rows}
    assert (found[7].gain, found[7].gain_bound) == (pytest.approx(13.8), "lower")
    assert (found[8].gain, found[8].gain_bound) == (pytest.approx(7.0), "upper")
    rows = list(found.values())
    console = Console(width=80, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(nets_table(rows, "", ("macs",)))
    lines = {line.split()[0]: line for line in console.export_text().splitlines() if line.split()[0].isdigit()}
    assert ">= 13.8" in lines["7"]
    assert "<= 7.0" in lines["8"]
    assert "+2.00" in lines["2"]
    assert " - " in lines["6"]
    board = replace(rank_rows(records, RankingQuery(("accuracy", "macs"))), folder=made_run(tmp_path, []))
    assert [line for line in summary_lines(board, board.rows) if line.startswith("gain ")] == [
        "gain >= G: cheaper than all plain ResNets of the run, and G points above the cheapest",
        "gain <= G: more expensive than all plain ResNets of the run, and G points above the best",
    ]
    assert not [line for line in summary_lines(board, [found[2]]) if line.startswith("gain ")]


def test_pick() -> None:
    rows = leaderboard(RECORDS).front
    assert [pick(rows, how).trial for how in ("accuracy", "gain", "cheapest")] == [1, 2, 6]
    bounds = {2: (3.0, "upper"), 1: (1.0, "lower"), 0: (0.5, None)}
    for row in rows:
        row.gain, row.gain_bound = bounds.get(row.trial, (None, None))
    assert pick(rows, "gain").trial == 1, "no more than 3 may be nothing"
    assert pick([row for row in rows if row.trial == 2], "gain").trial == 2
    with pytest.raises(InputError, match="did you mean 'gain'"):
        pick(rows, "gains")
    with pytest.raises(InputError, match="no trained net"):
        pick([], "accuracy")


def test_objectives_as_typed() -> None:
    assert parse_objectives("") == ()
    assert parse_objectives("params") == ("accuracy", "params")
    assert parse_objectives(" memory, accuracy,macs ") == ("accuracy", "memory", "macs")
    assert parse_objectives("macs,params") == ("macs", "params")
    assert parse_objectives("macs,nll,accuracy") == ("accuracy", "macs", "-nll"), "of NLL less is better"
    assert parse_objectives("-rmse") == ("accuracy", "-rmse")
    assert parse_objectives("loss,-train_nll") == ("-loss", "-train_nll")
    for wrong in ("accuracy", "macs,macs", "accuracy,macs,params,memory", "nll,-nll", "rmse,-rmse,macs"):
        with pytest.raises(InputError, match="objectives"):
            parse_objectives(wrong)


def test_three_objectives() -> None:
    """Net 3 loses to net 2 on MACs, but has the fewest bytes alive."""
    memory = {0: 500, 1: 900, 2: 700, 3: 100, 6: 400}
    records = [
        record(r.trial, r.accuracy, r.cost["macs"], cost={"peak_activation_bytes": memory[r.trial]})
        for r in RECORDS
        if r.trial in memory
    ]
    found = {row.trial: row.rank for row in leaderboard(records, "accuracy,macs,memory").rows}
    assert found == {0: 1, 1: 1, 2: 1, 3: 1, 6: 1}
    assert [row.trial for row in leaderboard(records, "memory").front] == [3, 0, 2, 1]
    assert [row.trial for row in leaderboard(records, "macs,memory").front] == [6, 3], "without accuracy"
    without = rank_rows([*records, record(9, 0.99, 1)], RankingQuery(parse_objectives("memory")))
    assert without.missing == {"memory": 1}
    assert 9 not in {row.trial for row in without.rows}


def test_gains_are_at_equal_cost_of_the_first_objective() -> None:
    latency = {"k0": 1.0, "k1": 100.0, "k2": 10.0}
    measured = latencies_of([_measured(key, ms) for key, ms in latency.items()])
    rows = rank_rows(RECORDS, RankingQuery(("accuracy", "latency_ms")), ExtraResults(measured)).rows
    assert {row.trial: row.gain for row in rows} == {0: 0.0, 1: 0.0, 2: pytest.approx(2.0)}
    assert rows[0].costs["latency_spread_ms"] == 0.1


def test_families_are_ranked_alone() -> None:
    records = [*RECORDS, record(7, 0.5, 10_000_000, family="hybrid")]
    board = rank_rows(records, RankingQuery(("accuracy", "macs"), families=("hybrid",)))
    assert [(row.trial, row.rank) for row in board.rows] == [(7, 1)]
    assert board.rows[0].gain == pytest.approx(-35.0), "baselines shape the curve"
    assert board.over == 5
    with pytest.raises(InputError, match="did you mean 'hybrid'"):
        RankingQuery(families=("hybird",))


def test_training_compute_counts_ancestors() -> None:
    net = zoo.get("alternet18", 32)
    cost = static_cost(net, 10, 32)
    first = record(0, 0.5, cost.macs, budget={"done": 7, "full": 7}, recipe={"batch_size": 32}, seconds=3.0)
    child = record(1, 0.6, 1000, budget={"done": 4, "full": 4}, recipe={"batch_size": 32}, seconds=6.0,
                  accuracies={"0": 0.6, "1": 0.6}, lineage={"trial": 0, "flops": train_flops(first)})  # fmt: skip
    assert train_flops(first) == 6 * cost.macs * 7 * 32
    assert train_flops(child) == 6 * 1000 * 4 * 32 + train_flops(first)
    assert train_seconds(child, {0: first, 1: child}) == 6.0, "one of two seeds, and the ancestor"
    assert train_seconds(child, {1: child}) is None
    assert train_flops(record(2, 0.5, 10)) is None
    unknown = record(2, 0.5, 10, budget={"done": 1}, recipe={"batch_size": 2}, lineage={"weights": "timm"})
    assert train_flops(unknown) is None
    assert train_seconds(record(2, 0.5, 10), {}) is None


def with_seeds(trial: int, accuracies: list[float], macs: int, **more: Any) -> Record:
    mean = sum(accuracies) / len(accuracies)
    return record(trial, mean, macs, accuracies={str(i): a for i, a in enumerate(accuracies)}, **more)


def test_noise_is_pooled_over_all_that_was_repeated() -> None:
    records = [with_seeds(0, [0.1, 0.3], 10, kind="baseline"), with_seeds(1, [0.4, 0.5, 0.6], 10), record(2, 0.9, 10)]
    again = [
        record(i, a, 10, "retrain", budget={"full": 5, "done": 5}, seed=i, factors={"trial": 2})
        for i, a in enumerate([0.7, 0.8])
    ]
    again = [Record(**(r.to_dict() | {"key": "k2"})) for r in again]
    noise = noise_of(records)
    assert noise
    assert (noise.sd, noise.degrees, noise.trainings, noise.nets) == (pytest.approx(math.sqrt(0.04 / 3)), 3, 5, 2)
    noise = noise_of(records, retrained=again)
    assert noise
    assert (noise.sd, noise.degrees, noise.trainings, noise.nets) == (pytest.approx(math.sqrt(0.045 / 4)), 4, 7, 3)
    assert noise_of([record(2, 0.9, 10)], retrained=again[:1]) is None
    rows = rank_rows(records, RankingQuery(("accuracy", "macs")), ExtraResults(retrained=again)).rows
    found = {row.trial: (row.sd, row.seeds, row.retrained_accuracy, row.retrained_seeds) for row in rows}
    assert found[1] == (pytest.approx(0.1), 3, None, None)
    assert found[2] == (None, 1, pytest.approx(0.75), 2)


def brute_ties(rows: list[RankedNet], groups: list[list[float]]) -> dict[int, set[int] | None]:
    """By scipy's t, pair by pair."""

    def within(a: RankedNet, b: RankedNet) -> bool:
        width = width_of(groups, (a.accuracy, a.seeds), (b.accuracy, b.seeds))
        return abs(a.accuracy - b.accuracy) <= width

    def beaten(row: RankedNet) -> bool:
        return any(f.costs["macs"] <= row.costs["macs"] and f.accuracy > row.accuracy and not within(f, row)
                   for f in rows if f.rank == 1)  # fmt: skip

    def known(row: RankedNet) -> bool:
        net = row.accuracy, row.seeds
        return near_noise(groups, net[0])[1] >= 4 and width_of(groups, net, net) <= 0.1

    def behind(a: RankedNet, b: RankedNet) -> bool:
        """Whether what dominates one of them is told from the other."""
        better = [d for d in rows if d.costs["macs"] <= a.costs["macs"] and d.accuracy >= a.accuracy]
        return any(b.accuracy > d.accuracy and not within(b, d) for d in better)

    ties: dict[int, set[int] | None] = {row.trial: set() if known(row) else None for row in rows}
    for a, b in itertools.permutations(rows, 2):
        near = 1 in (a.rank, b.rank) and known(a) and known(b) and not beaten(a) and not beaten(b)
        if near and within(a, b) and not behind(a, b) and not behind(b, a):
            own = ties[a.trial]
            assert own is not None
            own.add(b.trial)
    return ties


def test_ties_are_those_of_brute_force() -> None:
    chance = random.Random(0)
    sizes, unknown = set(), 0
    for round_ in range(30):
        records = [with_seeds(0, [0.5, 0.5 + chance.choice([0.0, 0.02, 0.1])], 50)]
        for trial in range(1, 14):
            middle, apart = chance.randint(45, 60) / 100, chance.choice([0.0, 0.01, 0.03])
            seeds = [middle + apart * chance.random() + 0.001 * i for i in range(chance.randint(1, 3))]
            records.append(with_seeds(trial, seeds, chance.randint(1, 9) * 10))
        groups = [list(r.accuracies.values()) for r in records if len(r.accuracies) > 1]
        rows = leaderboard(
            [r if len(r.accuracies) > 1 else record(r.trial, r.accuracy, r.cost["macs"]) for r in records]
        ).rows
        expected = brute_ties(rows, groups)
        found = {row.trial: row.tied_with for row in rows}
        assert {trial: None if ties is None else set(ties) for trial, ties in found.items()} == expected, round_
        sizes.add(sum(len(ties or ()) for ties in expected.values()))
        unknown += sum(ties is None for ties in expected.values())
    assert len(sizes) > 8
    assert unknown


def test_ties_name_the_closest_first_and_need_noise() -> None:
    rest = [record(1, 0.53, 20), record(2, 0.56, 30), record(3, 0.99, 40)]
    records = [with_seeds(0, [0.50, 0.50, 0.52, 0.52, 0.52], 10), *rest]
    found = {row.trial: row.tied_with for row in leaderboard(records).rows}
    assert found == {0: [1], 1: [0, 2], 2: [1], 3: []}
    few = [with_seeds(0, [0.50, 0.51, 0.52, 0.52], 10), *rest]
    assert all(row.tied_with is None and row.interval for row in leaderboard(few).rows), "3 degrees of freedom"
    wide = [with_seeds(0, [0.45, 0.45, 0.51, 0.57, 0.57], 10), *rest]
    assert all(row.tied_with is None for row in leaderboard(wide).rows), "nets 24 points apart would be equal"
    assert all(row.tied_with is None for row in leaderboard(RECORDS).rows)
    costs_alone = rank_rows(records, RankingQuery(("macs", "params")))
    assert all(row.tied_with is None for row in costs_alone.rows)


def _line(key: Any, ms: Any, **setting: Any) -> dict[str, Any]:
    usual = {"device": "cpu", "batch": 1, "dtype": "float32", "runtime": "eager", "threads": 2}
    usual |= {"image_size": [8, 8], "machine": "Chip"}
    return {"key": key, "latency_ms": ms, "latency_spread_ms": 0.1, "when": "2026-01-01"} | usual | setting


def _measured(key: str, ms: float) -> Any:
    from alternas.results.latency.measurement import Measurement

    return Measurement(key, ms, 0.1, "cpu")


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    return add_measured(folder, rows)


def test_the_last_latency_of_a_net_counts(tmp_path: Path) -> None:
    write(tmp_path, _line("a", 1.0), _line("b", 2.0), _line("a", 3.0))
    found = latencies_of(read_latencies(tmp_path))
    assert {key: m.ms for key, m in found.items()} == {"a": 3.0, "b": 2.0}
    assert found["a"].setting == "cpu/1/float32/eager/2/8/Chip"


def test_a_setting_is_named_by_as_much_as_tells_it(tmp_path: Path) -> None:
    write(tmp_path, _line("a", 1.0), _line("a", 2.0, batch=8), _line("a", 3.0, device="N/V H200", dtype="bfloat16"),
          _line("a", 4.0, image_size=[8, 12], runtime="onnx", batch=8), _line("a", 5.0, machine="Other"))  # fmt: skip
    measured = read_latencies(tmp_path)
    for selector, ms in (("cpu/1/////chip", 1.0), ("/8//eager", 2.0), ("n-v h200", 3.0), ("///ONNX", 4.0),
                         ("/////8x12", 4.0), ("//////other", 5.0)):  # fmt: skip
        assert latencies_of(measured, selector)["a"].ms == ms, selector
    for selector, said in (("", "5 settings, say which: cpu/1/float32/eager/2/8/Chip, "),
                           ("cpu", "'cpu' is 4 of those"),
                           ("tpu", "'tpu' is none of those"), ("cpu/1/float32/eager/2/8/9", "none")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            latencies_of(measured, selector)
    with pytest.raises(InputError, match="nothing was measured in run mine"):
        latencies_of([], where="mine")


def test_broken_latencies_are_named(tmp_path: Path) -> None:
    assert read_latencies(tmp_path) == []
    good = measured(**_line("a", 1.0))
    wrong = (_line("a", 0.0), _line("a", 1e-320), _line("a", 1e300), _line("a", 1.0, numbers={"energy_mj": 1e-10}))
    for bad in (measured("a"), measured("a", latency_ms=[]), *(measured(**line) for line in (*wrong, _line(3, 1.0)))):
        (tmp_path / "records.jsonl").write_text(f"{good}{bad}{good}", encoding="utf-8")
        with pytest.raises(InputError, match="line 2 is broken"):
            read_latencies(tmp_path)
    (tmp_path / "records.jsonl").write_text(measured(**_line("a", "fast")), encoding="utf-8")
    with pytest.raises(InputError, match=r"latency_ms must be a number from 0 to 1e\+18, got 'fast'"):
        read_latencies(tmp_path)
    (tmp_path / "records.jsonl").write_text(f"{good}{good[:9]}", encoding="utf-8")
    assert len(read_latencies(tmp_path)) == 1


def test_a_runs_own_objective_and_limits_hold(tmp_path: Path) -> None:
    records = [record(0, 0.5, 100), record(1, 0.6, 150, cost={"params": 7}), record(2, 0.9, 200)]
    made_run(tmp_path, [r.to_dict() for r in records], settings={"objective": "params", "limits": {"macs": 150}})
    board = leaderboard_of(tmp_path)
    assert (board.query.objectives, [row.trial for row in board.front]) == (("accuracy", "params"), [1])
    assert [row.trial for row in board.rows] == [1, 0]
    tighter = leaderboard_of(tmp_path, RankingQuery(("accuracy", "macs"), {"macs": 120}))
    assert [row.trial for row in tighter.rows] == [0]
    looser = leaderboard_of(tmp_path, RankingQuery(limits={"macs": 1000}))
    assert len(looser.rows) == 2
    with pytest.raises(InputError, match="nothing was measured"):
        leaderboard_of(tmp_path, RankingQuery(limits={"latency_ms": 5.0}))
    write(tmp_path, _line("k0", 3.0), _line("k1", 6.0))
    assert [row.costs["latency_ms"] for row in leaderboard_of(tmp_path).rows] == [6.0, 3.0]
    assert [row.trial for row in leaderboard_of(tmp_path, RankingQuery(limits={"latency_ms": 5.0})).rows] == [0]


def test_times_on_this_machine_stand_beside_macs(tmp_path: Path) -> None:
    made_run(tmp_path, [record(0, 0.5, 100).to_dict(), record(1, 0.6, 200).to_dict(), record(2, 0.4, 300).to_dict()])
    write(tmp_path, _line("k0", 3.0, threads=1), _line("k1", 6.0, threads=1), _line("k1", 9.0, batch=32))
    found = leaderboard_of(tmp_path)
    assert [row.costs["latency_ms"] for row in found.rows] == [3.0, 6.0, None], "in the setting that a search ends with"
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(board_drawing(found, found.front, "front"))
    text = console.export_text()
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["0"], ["1"])]
    assert [row[:5] for row in rows] == [["0", "0.5000", "100", "1", "k"], ["1", "0.6000", "200", "2", "k"]]
    assert [row[5] for row in rows] == ["3", "6"]
    assert " k0 " in text, "the net stays, accuracy per GMAC goes"
    assert "cpu/1/float32/eager/1/8/Chip" in text


def test_a_retrained_net_has_its_deviation_beside_it_on_80_columns() -> None:
    again = [record(i, a, 10, "retrain", budget={"full": 5, "done": 5}, seed=i) for i, a in ((0, 0.3), (1, 0.5))]
    extra = ExtraResults(retrained=[replace(r, key="k2") for r in again])
    rows = rank_rows([record(2, 0.75, 10)], RankingQuery(("accuracy", "macs")), extra).rows
    for width, family in ((80, True), (64, False)):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(nets_table(rows, others=["latency_ms"], ranks=True))
        text = console.export_text()
        assert "0.4000 ±0.1414 (2)" in text
        assert ("family" in text) == family, "it gives way"


def test_a_front_says_whether_its_budget_ranked_the_nets_that_were_trained_on() -> None:
    """Spearman's of 1 2 3 4 and 1 2 4 3: 1 - 6 x 2 / (4 x 15) = 0.8; of the same order 1."""
    first = [record(n, 0.1 * n, 1000) for n in (1, 2, 3, 4)]

    def after(*accuracies: float) -> list[Record]:
        lineages = [{"weights": f"trial {n}", "trial": n} for n in (1, 2, 3, 4)]
        return [
            record(10 + n, accuracy, 1000, weights="finetuned", lineage=lineage)
            for n, (accuracy, lineage) in enumerate(zip(accuracies, lineages, strict=False))
        ]

    (line,) = budget_order_lines([*first, *after(0.5, 0.6, 0.8, 0.7)], Metric())
    assert line == (
        "trained on: 4 nets, +40.0 points on average; rank correlation with their order before 0.80; below 0.9, a "
        "longer budget (--epochs) would rank nets better"
    )
    (line,) = budget_order_lines([*first, *after(0.5, 0.6, 0.7)], Metric())
    assert line == "trained on: 3 nets, +40.0 points on average; rank correlation with their order before 1.00"
    assert budget_order_lines([*first, *after(0.5, 0.6)], Metric()) == []
