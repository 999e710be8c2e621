"""What retraining found, read from records written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy.stats import binomtest

from alternas.archs import InputError, zoo
from alternas.cli.train import _print_trained
from alternas.results.ranking.chance import retrained_guess
from alternas.results.ranking.metric import Metric
from alternas.results.render.describe_net import find_trial
from alternas.results.runs.record import Record
from alternas.results.runs.retrained import by_net, failures, prune, retrainings, spreads, summary, summary_line, table
from alternas.results.runs.trained_weights import facts_of, select_net, trained_weights
from alternas.search.experiments.retrain import limit_notes, unseen_seeds
from runs import finished_run

NET = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
OTHER = zoo.alternet("basic", (1, 1), (0, 0), (1, 1), 0, width=4)


def record(seed: int, accuracy: float | None, net: Any = NET, **changes: Any) -> Record:
    cost = {"params": 900, "macs": 40_000, "activation_bytes": 100}
    metrics = {} if accuracy is None else {"test_accuracy": accuracy - 0.1}
    given: dict[str, Any] = {
        "trial": seed, "kind": "retrain", "family": net.family, "key": net.key, "genotype": net.to_dict(), "genes": {},
        "cost": cost, "status": "ok", "accuracy": accuracy, "metrics": metrics, "budget": {"full": 8, "done": 8},
        "recipe": {"name": "smoke", "epochs": 2}, "seed": seed, "factors": {"trial": 1, "net": net.key},
        "training_id": f"{net.key[:6]}{seed:06d}",
    }  # fmt: skip
    return Record(**(given | changes))


RECORDS = [
    record(1, 0.8), record(2, 0.9), record(3, 0.7),
    record(1, 0.6, OTHER, trial=7, factors={"trial": 7, "net": OTHER.key}),
    record(1, 0.95, recipe={"name": "smoke", "epochs": 4}, budget={"full": 16, "done": 16}, training_id="long"),
    record(4, None, status="oom", error="no room"),
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run with retrainings."""
    monkeypatch.chdir(tmp_path)
    folder = finished_run()
    home = folder / "retrain"
    (home / "weights").mkdir(parents=True)
    (home / "run.json").write_text((folder / "run.json").read_text(encoding="utf-8"))
    (home / "records.jsonl").write_text("".join(json.dumps(r.to_dict()) + "\n" for r in RECORDS), encoding="utf-8")
    for r in RECORDS:
        (home / "weights" / f"{r.training_id}.safetensors").write_bytes(b"")
    return folder


def test_groups_differ_in_the_seed_alone() -> None:
    assert [[r.seed for r in group] for group in by_net(RECORDS)] == [[1, 2, 3], [1], [1]]


def test_a_row_is_a_net_and_a_recipe() -> None:
    rows = summary(RECORDS, {1: 0.85}, {})
    assert [(row["net"], row["steps"], row["seeds"]) for row in rows] == [
        (NET.key, 16, 1), (NET.key, 8, 3), (OTHER.key, 8, 1),
    ]  # fmt: skip
    row = rows[1]
    assert (row["accuracy"]["mean"], row["accuracy"]["sd"]) == (pytest.approx(0.8), pytest.approx(0.1))
    assert row["test_accuracy"]["mean"] == pytest.approx(0.7)
    assert (row["searched"], row["best_seed"], row["training_id"]) == (0.85, 2, RECORDS[1].training_id)
    assert rows[2]["searched"] is None


def test_bounds_of_accuracies_lie_between_0_and_1() -> None:
    """Of two seeds that differ much the t interval is wider than all that an accuracy can be."""
    found = spreads([record(1, 0.2), record(2, 0.95)], Metric(), {})
    assert {name: (s["low"], s["high"]) for name, s in found.items()} == dict.fromkeys(found, (0, 1))
    assert found.keys() == {"accuracy", "test_accuracy"}


def test_of_several_recipes_the_best_mean_stands_beside_the_search() -> None:
    found = retrainings([*RECORDS, record(1, 0.7, OTHER, recipe={"name": "fast"}, training_id="worse")], Metric())
    assert found[NET.key] == {
        "retrained_accuracy": 0.95, "retrained_sd": None, "retrained_seeds": 1, "retrained_steps": 16,
        "retrained_test": pytest.approx(0.85),
    }  # fmt: skip
    assert retrainings(RECORDS[:3], Metric())[NET.key]["retrained_sd"] == pytest.approx(0.1)
    assert found[OTHER.key]["retrained_accuracy"] == 0.7


def shown(rows: Any) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    console.print(table(rows))
    return console.export_text()


def test_the_table_fits_80_columns_and_leaves_out_empty_ones() -> None:
    text = shown(summary(RECORDS, {1: 0.85}, {}))
    assert "0.8000 ± 0.1000" in text
    assert "0.7000 ± 0.1000" in text
    assert text.splitlines()[0].split() == ["trial", "family", "MACs", "search", "validation", "test", "seeds", "best"]
    bare = [record(1, 0.5, metrics={}, factors={"start": "x"})]
    assert shown(summary(bare, {}, {})).splitlines()[0].split() == ["family", "MACs", "validation", "seeds", "best"]


def test_failures_are_told() -> None:
    assert failures(RECORDS) == [f"failed: 1; the first, seed 4 of net {NET.key}: oom no room"]
    assert failures(RECORDS[:3]) == []


def test_no_seed_that_the_search_has_seen_is_retrained_with() -> None:
    """Baselines have two seeds or those of --repeats; other nets of the run are compared with the same new ones."""
    once, baseline = record(0, 0.9), record(0, 0.8, OTHER, kind="baseline", accuracies={"0": 0.8, "1": 0.7})
    assert unseen_seeds([once], 3) == [1, 2, 3]
    assert unseen_seeds([once, baseline], 3) == [2, 3, 4]
    assert unseen_seeds([record(5, 0.9, accuracies={"5": 0.9, "6": 0.8, "7": 0.7})], 6) == [0, 1, 2, 3, 4, 8]


def test_the_best_retraining_of_the_best_net_is_meant(run: Path) -> None:
    home, found = select_net(run)
    assert (home, found.training_id) == (run / "retrain", "long"), "of two recipes the better mean"
    assert select_net(run, 1)[1].training_id == "long"
    lone = record(5, 0.3, zoo.alternet("basic", (1, 1), (0, 0), (1, 1), 0, width=6), kind="search", training_id="")
    with (run / "records.jsonl").open("a") as file:
        file.write(json.dumps(lone.to_dict()) + "\n")
    assert select_net(run, 5) == (run, lone), "not retrained"
    assert trained_weights(home, found) == home / "weights" / "long.safetensors"
    assert facts_of(home, found)["classes"] == [str(i) for i in range(10)]
    (home / "weights" / "long.safetensors").unlink()
    with pytest.raises(InputError, match="its trained weights are not there"):
        trained_weights(home, found)


@pytest.mark.parametrize(("searched", "home"), [(0.94, "retrain"), (0.96, "")])
def test_weights_that_retraining_made_worse_stay_in_the_run(searched: float, home: str, run: Path) -> None:
    """The search's may have inherited and been trained on; the best retraining has 0.95."""
    rows = [json.loads(line) for line in (run / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row | ({"accuracy": searched} if row["trial"] == 1 else {}) for row in rows]
    (run / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert select_net(run, 1)[0] == run / home


def test_a_net_beyond_the_front_is_not_the_best_for_having_been_retrained(run: Path) -> None:
    """Over the run's limit, or behind the front: only its number takes it."""
    over = zoo.alternet("basic", (1, 1), (0, 0), (1, 1), 0, width=6)
    cost = {"params": 9000, "macs": 400_000, "activation_bytes": 100}
    found = [
        record(7, 0.5, OTHER, kind="search", training_id=""),
        record(8, None, over, kind="search", training_id="", status="infeasible", cost=cost),
    ]
    with (run / "records.jsonl").open("a") as file:
        file.writelines(json.dumps(r.to_dict()) + "\n" for r in found)
    again = [record(1, 0.99, net, training_id=name) for net, name in ((OTHER, "behind"), (over, "over"))]
    (run / "retrain" / "records.jsonl").write_text(
        "".join(json.dumps(r.to_dict()) + "\n" for r in again), encoding="utf-8"
    )
    told = json.loads((run / "run.json").read_text(encoding="utf-8"))
    told["settings"] |= {"limits": {"macs": 100_000}}
    (run / "run.json").write_text(json.dumps(told), encoding="utf-8")
    for how in ("accuracy", "cheapest"):
        home, best = select_net(run, how=how)
        assert (home, best.trial, best.key) == (run, 1, NET.key), "the front's, with the search's weights"
    assert [select_net(run, trial)[1].training_id for trial in (7, 8)] == ["behind", "over"]
    (line,) = limit_notes(run, [find_trial(run, trial) for trial in (1, 7, 8)])
    assert line.startswith("trial 8 is over the limit of its run: 400,000 MACs, at most 100,000; ")


def test_show_tells_of_it(run: Path) -> None:
    assert (
        summary_line(run, NET.key, Metric()) == "retrained, over seeds: validation accuracy 0.9500 (1), test 0.8500 (1)"
    )
    assert summary_line(run, "nothing", Metric()) == ""


def test_pruning_keeps_the_best_of_each_group(run: Path) -> None:
    prune(run)
    kept = {path.stem for path in (run / "retrain" / "weights").iterdir()}
    best = {"long", RECORDS[1].training_id, RECORDS[3].training_id}
    assert kept == best | {RECORDS[5].training_id}, "what failed has no weights of its own to lose"


@pytest.mark.parametrize(("accuracies", "above"), [((0.1, 0.14, 0.12), False), ((0.3, 0.34, 0.32), True), ((), True)])
def test_nets_that_all_guess_are_not_offered_for_export(accuracies: tuple[float, ...], above: bool) -> None:
    """Ten classes, 100 images, two nets, each side of the interval its share of 5 %; that of the seeds is narrower."""
    trainings = [record(n, a, net) for net in (NET, OTHER) for n, a in enumerate(accuracies)] + RECORDS[-1:]
    data = {"classes": [*map(str, range(10))], "images": {"val": 100}}
    found = binomtest(12, 100).proportion_ci(1 - 2 * 0.05 / 2, "wilson")
    ends = f"{found.low:.3f} to {found.high:.3f}, the best of 2 nets on 100 images"
    said = f"No net is above chance (0.100) by more than the noise; the best has 0.120 ({ends}): train longer."
    assert retrained_guess(trainings, Metric(), data) == ("" if above else said)
    assert retrained_guess(trainings, Metric(), data | {"images": {}}) == "", "nobody knows on how many pictures"


@pytest.mark.parametrize("accuracy", [0.1, 0.9])
def test_what_retrain_prints_at_its_end(accuracy: float, capsys: pytest.CaptureFixture[str]) -> None:
    data = {"classes": [*map(str, range(10))], "images": {"val": 100}}
    trainings = [record(seed, accuracy) for seed in range(3)]
    _print_trained(trainings, summary(trainings, {}, {}), Metric(), data, "alternas export mine --out out", None)
    out = capsys.readouterr().out
    assert ("export the best:  alternas export mine --out out" in out) == (accuracy == 0.9)
    assert ("No net is above chance" in out) == (accuracy == 0.1)
