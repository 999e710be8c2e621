"""`alternas runs`: what there is, how far, how good, and what it has cost, against sums by hand."""

import fcntl
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from alternas.results.runs.overview import ROW, list_runs
from alternas.spaces import get
from runs import RECIPE, add_bank, drawn_records, made_run, record

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_compute_is_of_all_that_was_done() -> None:
    plain, stopped, free = drawn_records(5)[0], *drawn_records(5)[3:]
    plain |= {"status": "ok", "accuracy": 0.5, "accuracies": {"0": 0.4, "1": 0.6}, "budget": {"done": 10, "full": 10}}
    plain |= {"runtime": {"evaluated": 70}, "kind": "baseline"}
    stopped |= {"status": "pruned", "accuracy": 0.9, "budget": {"done": 3, "full": 10}, "kind": "search"}
    stopped |= {"runtime": {"evaluated": 20}, "accuracies": {}}
    free |= {"status": "infeasible", "accuracy": None, "budget": {}, "runtime": {}, "accuracies": {}, "kind": "search"}
    add_bank(made_run(Path("runs/mine"), [plain, stopped, free]), 7, train_flops=1000.0, eval_flops=10.0)
    (row,) = list_runs()
    assert tuple(row) == ROW
    batch, macs = RECIPE["batch_size"], plain["cost"]["macs"]
    baseline = (6 * macs * 10 * batch * 2, 2 * macs * 70 * 2)
    other = (6 * stopped["cost"]["macs"] * 3 * batch, 2 * stopped["cost"]["macs"] * 20)
    assert (row["train_flops"], row["eval_flops"]) == (baseline[0] + other[0] + 1000, baseline[1] + other[1] + 10)
    assert (row["baseline_flops"], row["reference_flops"]) == (sum(baseline), 0)
    assert (row["records"], row["trained"], row["best_accuracy"]) == (3, 1, 0.5)
    assert (row["space"], row["data"], row["what"]) == ("all", "digits", "search")


def test_a_run_is_running_while_a_driver_has_it_and_ended_once_it_says_so() -> None:
    made_run(Path("runs/ended"), [], ended=True)
    running, stopped = made_run(Path("runs/running"), []), made_run(Path("runs/stopped"), [])
    (stopped / "lock").touch()
    with open(running / "lock", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert all(row["status"] == row["name"] for row in list_runs())


def test_what_was_written_last_comes_first() -> None:
    for number, name in enumerate(("b", "c", "a")):
        folder = made_run(Path("runs") / name, [])
        for file in folder.iterdir():
            os.utime(file, (number, number))
    assert [row["name"] for row in list_runs()] == ["a", "c", "b"]


def test_the_command(alternas: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert alternas("runs") == (0, "no runs in runs/ here; alternas search makes one\n", "")
    assert alternas("runs", "--json") == (0, "[]\n", "")
    draw, net = random.Random(0), get("all", 8).baselines()[0]
    made_run(Path("runs/mine"), [record(0, net, {}, draw, stops=False)], ended=True)
    made_run(Path("runs/study"), [], settings={"study": "data-size"})
    broken = made_run(Path("runs/broken"), [])
    (broken / "run.json").write_text("{", encoding="utf-8")
    code, out, _ = alternas("runs")
    assert code == 0
    assert [line.split(" (")[0] for line in caplog.messages] == ["runs/broken/run.json: cannot be read"]
    lines = {line.split()[0]: line.split() for line in out.splitlines()}
    assert lines["mine"][1:6] == ["ended", "all", "digits", "1", "1"]
    assert lines["study"][1:3] == ["stopped", "-"]
    assert lines["broken"][1:] == ["unreadable", *"------"]
    code, out, _ = alternas("runs", "--json")
    kinds = {"mine": "search", "study": "data-size", "broken": None}
    assert {row["name"]: row["what"] for row in json.loads(out)} == kinds


def test_a_space_of_a_file_leaves_room_for_the_rest(alternas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    space = "all_before.py of source c95a561b1531a0b2"
    data = {"name": "/home/someone/pictures/cells", "classes": ["a", "b"]}
    made_run(Path("runs/c12_10240_steps"), [], settings={"space": space, "data": data["name"]}, data=data)
    out = alternas("runs")[1]
    assert " cells " in out, "the end of a long path"
    assert "c12_10240_steps" in out
    assert "all_before.py " in out
    assert "FLOPs" in out
    assert "of source" not in out
    assert list_runs()[0]["space"] == space


def test_one_long_name_cuts_nothing(alternas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "a-first-search-of-everything-with-a-name-that-is-far-too-long"
    rows = [record(0, get("resnet", 8).baselines()[0], {}, random.Random(0))]
    for name in (long, "mine"):
        made_run(Path("runs") / name, rows, settings={"space": "resnet"}, ended=True)
    out = alternas("runs")[1]
    assert "…" not in out
    assert long in "".join(line.split("  ")[0].strip() for line in out.splitlines())
    ended = [line.split()[1:5] for line in out.splitlines() if "ended" in line]
    assert ended == [["ended", "resnet", "digits", "1"]] * 2


@pytest.mark.parametrize("flops", ["1e3", -1])
def test_a_stranger_s_numbers_are_refused(alternas: Any, flops: Any, caplog: pytest.LogCaptureFixture) -> None:
    add_bank(made_run(Path("runs/mine"), []), 7, train_flops=flops)
    code, out, _ = alternas("runs", "--json")
    assert (code, [row["status"] for row in json.loads(out)]) == (0, ["unreadable"])
    assert "train_flops must be a number from 0" in caplog.text


def test_names_are_whole_beside_a_long_metric(alternas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [record(0, get("all", 8).baselines()[0], {}, random.Random(0))]
    made_run(Path("runs/all-photos-balanced"), rows, settings={"metric": {"name": "balanced_accuracy"}})
    made_run(Path("runs/mine"), [], settings={"space": "my_space.py of source c95a561b1531a0b2"})
    lines = alternas("runs")[1].splitlines()
    assert {line.split()[0] for line in lines if line[0] != " "} == {"run", "all-photos-balanced", "mine"}
