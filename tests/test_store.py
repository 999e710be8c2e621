"""Records on disk: round trip, torn and broken lines, names that stay inside."""

import gc
import json
import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from alternas.archs import InputError
from alternas.results import find_run, load_run
from alternas.results.runs.events import Event
from alternas.results.runs.record import Record
from alternas.results.runs.store import Store, read_records, read_settings, run_folder, write_json

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


def test_the_garbage_collector_leaves_what_an_open_run_has_read(tmp_path: Path) -> None:
    before = gc.get_freeze_count()
    with closing(Store(tmp_path)):
        assert gc.get_freeze_count() > before
        assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_every_tear_of_the_last_line_is_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "records.jsonl"
    lines = [json.dumps(record(i).to_dict()).encode() + b"\n" for i in range(2)]
    for cut in {*range(0, len(lines[1]), 7), len(lines[1]) - 1}:
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
    [b"{", b"[]", b"3", b"null", b"\xff\xfe", b'{"format": 4}', b"", b'{"format": 4, "surprise": 2}', b"x" * 1000],
)
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, bad: bytes) -> None:
    good = json.dumps(record(0).to_dict()).encode()
    (tmp_path / "records.jsonl").write_bytes(good + b"\n" + bad + b"\n" + good + b"\n")
    with pytest.raises(InputError, match="line 2 is broken"):
        read_records(tmp_path)


@pytest.mark.parametrize("other", [{}, {"format": 1}, {"format": 3}, {"format": "4"}, {"format": 4.0}], ids=str)
def test_records_and_settings_of_another_format_are_refused(tmp_path: Path, other: dict[str, object]) -> None:
    row = {name: value for name, value in record(0).to_dict().items() if name != "format"} | other
    (tmp_path / "records.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    write_json(tmp_path / "run.json", {"settings": {}} | other)
    for read in (read_records, read_settings, find_run, Store):
        with pytest.raises(InputError, match=r"^run .*: has format .*, this alternas reads 4; train it again"):
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
    write_json(folder / "run.json", {"format": 4, "settings": {}})
    assert find_run("mine").resolve() == find_run(folder).resolve() == folder
    with pytest.raises(InputError, match="runs: mine"):
        find_run("yours")
    (folder / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.json"):
        read_settings(folder)


def test_load_run_gives_a_frame(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"format": 4})
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


RESULT = {"metrics": {"nll": 0.5}, "curve": [], "seconds": 1.0, "device": "cpu", "runtime": {}, "lineage": {}}


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = [
        Event("strategy", 1, run_notes={"learned": [3, [0.5]]}),
        Event("started", 1, key="a", genes={"width": 4}),
        record(0),
        Event("paused", 1, step=4, accuracy=0.5, result=RESULT),
        Event("promoted", 1),
        Event("started", 2, key="b", genes={"width": 8}, parent=0, weights="inherited"),
        Event("started", 3, key="c", parent=0, weights="finetuned", step=9),
        record(3),
    ]
    with closing(Store(tmp_path)) as store:
        for line in written:
            store.append(line)
    assert [r.trial for r in read_records(tmp_path)] == [0, 3], "those who ask for ends see no event"
    with closing(Store(tmp_path)) as store:
        assert store.lines == written


@pytest.mark.parametrize("line", [
    '{"event": "started"}',
    '{"event": "finished", "trial": 1}',
    '{"event": "started", "trial": 1, "key": "../x"}',
    '{"event": "paused", "trial": 1}',
    '{"event": "promoted", "trial": 1, "surprise": 2}',
    '{"event": ',
])  # fmt: skip
def test_a_broken_event_is_named_where_the_run_goes_on(tmp_path: Path, line: str) -> None:
    (tmp_path / "records.jsonl").write_text(f"{line}\n", encoding="utf-8")
    assert read_records(tmp_path) == []
    with pytest.raises(InputError, match=r"line 1 is broken"):
        Store(tmp_path)
