"""Records on disk: round trip, torn and broken lines, names that stay inside."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import InputError
from alternas.results import find_run, load_run
from alternas.results.runs.record import FORMAT, Record
from alternas.results.runs.store import Store, read_data_facts, read_records, read_settings, run_folder, write_json

COST = {"params": 10, "macs": 100, "activation_bytes": 4}


def record(trial: int, **more: object) -> Record:
    return Record(trial, "search", "resnet", "abc", {}, {"width": 8}, COST, "ok", accuracy=0.5, **more)  # type: ignore[arg-type]


def test_round_trip(tmp_path: Path) -> None:
    written = [record(i, curve=[{"step": 1, "loss": 0.5, "accuracy": 0.1}], error="über ✓") for i in range(3)]
    store = Store(tmp_path)
    for item in written:
        store.append(item)
    store.close()
    assert read_records(tmp_path) == written


def test_a_record_is_on_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr("alternas.results.runs.store.os.fsync", lambda file: synced.append(len(store.records)))
    store.append(record(0))
    store.close()
    assert synced == [0]


def test_every_tear_of_the_last_line_is_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "records.jsonl"
    lines = [json.dumps(record(i).to_dict()).encode() + b"\n" for i in range(2)]
    for cut in range(len(lines[1])):
        path.write_bytes(lines[0] + lines[1][:cut])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert [r.trial for r in read_records(tmp_path)] == [0]
        assert bool(caplog.records) == (cut > 0)
        store = Store(tmp_path)
        store.append(record(7))
        store.close()
        assert [r.trial for r in read_records(tmp_path)] == [0, 7]


@pytest.mark.parametrize(
    "bad",
    [b"{", b"[]", b"3", b"null", b"\xff\xfe", b'{"format": 3}', b"", b'{"format": 3, "surprise": 2}', b"x" * 1000],
)
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, bad: bytes) -> None:
    good = json.dumps(record(0).to_dict()).encode()
    (tmp_path / "records.jsonl").write_bytes(good + b"\n" + bad + b"\n" + good + b"\n")
    with pytest.raises(InputError, match="line 2 is broken"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trial", "1"),
        ("trial", True),
        ("status", "fine"),
        ("kind", 3),
        ("accuracy", "high"),
        ("cost", {}),
        ("cost", []),
    ],
)
def test_wrong_kinds_of_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError):
        Record.from_dict(record(0).to_dict() | {field: value})


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(InputError, match="unexpected keyword argument 'later'"):
        Record.from_dict(record(0).to_dict() | {"later": 1})


def test_the_format_comes_first() -> None:
    assert next(iter(record(0).to_dict().items())) == ("format", FORMAT)


@pytest.mark.parametrize("other", [{}, {"format": 1}, {"format": 2}, {"format": "3"}, {"format": 3.0}], ids=str)
def test_records_and_settings_of_another_format_are_refused(tmp_path: Path, other: dict[str, object]) -> None:
    row = {name: value for name, value in record(0).to_dict().items() if name != "format"} | other
    (tmp_path / "records.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    write_json(tmp_path / "run.json", {"settings": {}} | other)
    for read in (read_records, read_settings, find_run, Store):
        with pytest.raises(InputError, match=r"^run .*: has format .*, this alternas reads 3; train it again"):
            read(tmp_path)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "..", "a b", "x" * 101, "a\n", "-x", "ü"])
def test_names_cannot_leave_the_runs_folder(name: str) -> None:
    with pytest.raises(InputError, match="run name"):
        run_folder(name)


def test_runs_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="there are no runs"):
        find_run("mine")
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    write_json(folder / "run.json", {"format": 3, "settings": {}})
    assert find_run("mine").resolve() == find_run(folder).resolve() == folder
    with pytest.raises(InputError, match="runs: mine"):
        find_run("yours")
    (folder / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.json"):
        read_settings(folder)


def test_load_run_gives_a_frame(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"format": 3})
    assert len(load_run(tmp_path).frame()) == 0
    store = Store(tmp_path)
    for i in range(2):
        store.append(record(i, budget={"done": 5, "full": 9}, metrics={"nll": 1.5}))
    store.close()
    frame = load_run(tmp_path).frame()
    assert list(frame.index) == [0, 1]
    assert list(frame["rank"]) == [1, 1]
    assert frame.loc[1, ["macs", "steps_done", "nll"]].tolist() == [100, 5, 1.5]


def test_a_records_repr_is_one_short_line() -> None:
    whole = record(7, curve=[{"step": 1, "loss": 1.0, "accuracy": 0.5}] * 100)
    assert repr(whole) == "<Record 7: search, resnet abc, 100 MACs, ok, accuracy 0.5000>"
    failed = replace(whole, status="oom", error="no memory for two images", accuracy=None)
    assert repr(failed) == "<Record 7: search, resnet abc, 100 MACs, oom: no memory for two images>"


def test_the_kept_weights_are_the_first_seeds() -> None:
    several = record(0, accuracies={"3": 0.4, "4": 0.6}, seed=3)
    assert (several.accuracy, several.own_accuracy) == (0.5, 0.4)
    assert record(0).own_accuracy == 0.5


FACTS = {"name": "mine", "image_size": [8, 8], "in_chans": 1, "classes": ["a", "b"], "mean": [0.5], "std": [0.2]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 3},
        {"image_size": [8]},
        {"in_chans": True},
        {"in_chans": 0},
        {"classes": "ab"},
        {"classes": ["a", 3]},
        {"mean": [0.5, 0.5]},
        {"std": ["0.2"]},
        {"std": [float("inf")]},
        {"mean": [float("nan")]},
        {"mean": [10**400]},
        {"image_size": [0, 8]},
        {"image_size": [10**9, 8]},
        {"in_chans": 10**9},
        {"classes": []},
        {"split": ["a"]},
        {"notes": 3},
    ],
    ids=str,
)
def test_facts_of_the_data_have_their_forms(wrong: dict[str, object], tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"format": 3, "data": FACTS})
    assert read_data_facts(tmp_path) == FACTS
    write_json(tmp_path / "run.json", {"format": 3, "data": FACTS | wrong})
    with pytest.raises(InputError, match=f"data has no valid {next(iter(wrong))}"):
        read_data_facts(tmp_path)


@pytest.mark.parametrize("macs", ["NaN", "1e999", "1" + "0" * 400, "true", '"1"'])
def test_a_cost_is_a_number_that_can_be_reckoned_with(macs: str) -> None:
    row = json.dumps(record(0).to_dict() | {"cost": {"macs": 5, "params": 1}})
    assert Record.from_dict(json.loads(row)).cost == {"macs": 5, "params": 1}
    with pytest.raises(InputError, match="number"):
        Record.from_dict(json.loads(row.replace('"macs": 5', f'"macs": {macs}')))


POINT = {"step": 1, "loss": 0.5, "accuracy": 0.1}
UNRECKONABLE: list[dict[str, Any]] = [
    {"trial": -1}, {"trial": 10**8}, {"rung": -1}, {"seed": -1}, {"seed": 10**400}, {"seconds": -1.0},
    {"seconds": 1e300}, {"accuracy": 10**400}, {"accuracies": {"0": 1e308}},
    {"accuracies": {"0": None}}, {"cost": {"macs": 0, "params": 1}}, {"cost": {"macs": 1.5, "params": 1}},
    {"cost": {"macs": 1, "params": 0}},
    {"cost": {"macs": 1, "params": -5}}, {"cost": {"macs": 1, "params": 10**400}}, {"cost": {"params": 1}},
    {"cost": {"macs": 1}}, {"recipe": {"batch_size": None}}, {"rungs": [POINT | {"accuracy": None}]},
    {"metrics": {"nll": 1e308}}, {"metrics": {"nll": 10**400, "ece": 0.5}},
    {"constraint_violation": {"macs": float("nan")}}, {"budget": {"full": -1}}, {"budget": {"full": 2.5}},
    {"curve": [POINT | {"accuracy": 1e308}]}, {"curve": [{}]}, {"curve": [POINT, POINT | {"step": None}]},
    {"curve": [POINT | {"loss": 10**400}]}, {"rungs": [POINT | {"step": -1}]}, {"rungs": [POINT | {"step": 0.5}]},
    {"key": "x" * 5000}, {"key": "a\nb"}, {"key": "../x"}, {"training_id": "ü"}, {"error": "x" * 50_000},
    {"family": "x" * 50_000}, {"genes": {"width": [8]}}, {"genes": {"width": 10**400}}, {"genes": {"width": None}},
    {"factors": {"trial": {}}}, {"recipe": {"batch_size": "8"}}, {"lineage": {"steps": "x"}},
    {"lineage": {"trial": [1]}},
    {"lineage": {"flops": 10**400}}, {"data": {"classes": [-1]}}, {"data": {"classes": 3}}, {"data": {"fraction": 2}},
    {"data": {"split": ["x"]}}, {"finished_at": "2026-01-01"}, {"finished_at": 5},
]  # fmt: skip


@pytest.mark.parametrize("wrong", UNRECKONABLE, ids=lambda wrong: f"{wrong!r:.40}")
def test_values_that_cannot_be_reckoned_with_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))) as told:
        Record.from_dict(record(0).to_dict() | wrong)
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_is_refused_wherever_it_stands(tmp_path: Path, number: str) -> None:
    line = json.dumps(record(0, runtime={"deep": {"value": 5}}).to_dict())
    (tmp_path / "records.jsonl").write_text(line.replace('"value": 5', f'"value": {number}') + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"line 1 is broken.*{number} is no number"):
        read_records(tmp_path)


RESULT = {"metrics": {"nll": 0.5}, "curve": [], "seconds": 1.0, "device": "cpu", "runtime": {}, "lineage": {}}


def test_events_are_folded_into_what_is_under_way(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.note("strategy", 1, study={"learned": [3, [0.5]]})
        store.note("started", 1, key="a", genes={"width": 4})
        store.append(record(0))
        store.note("paused", 1, step=4, accuracy=0.5, result=RESULT)
        store.note("promoted", 1)
        store.note("started", 2, key="b", genes={"width": 8}, parent=0)
        store.note("paused", 2, step=4, accuracy=0.25, result=RESULT)
        store.note("started", 3, key="c", genes={"width": 8})
        store.append(record(3))
    assert [r.trial for r in read_records(tmp_path)] == [0, 3], "those who ask for ends see no event"
    with closing(Store(tmp_path)) as store:
        one, two = store.under_way
    assert (one.trial, one.key, one.genes, one.parent, one.accuracies, one.promoted) == (
        1,
        "a",
        {"width": 4},
        None,
        [0.5],
        1,
    )
    assert (two.trial, two.parent, two.accuracies, two.promoted) == (2, 0, [0.25], 0)
    assert two.paused is not None
    assert (two.paused.step, two.paused.result) == (4, RESULT)


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "started"}',
        '{"event": "ended", "trial": 1}',
        '{"event": "started", "trial": "1"}',
        '{"event": "started", "trial": 1, "genes": []}',
        '{"event": "started", "trial": 1, "key": "../x"}',
        '{"event": "paused", "trial": 1}',
        '{"event": "paused", "trial": 1, "accuracy": "x"}',
        '{"event": "promoted", "trial": 1, "surprise": 2}',
        '{"event": ',
    ],
)
def test_a_broken_event_is_named_where_the_run_goes_on(tmp_path: Path, line: str) -> None:
    (tmp_path / "records.jsonl").write_text(f"{line}\n", encoding="utf-8")
    assert read_records(tmp_path) == []
    with pytest.raises(InputError, match=r"line 1 is broken"):
        Store(tmp_path)
