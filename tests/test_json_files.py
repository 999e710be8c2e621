"""JSON of others: one check for reading and writing, whose errors are one line with place, rule and value."""

import json
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_store import record

from alternas.archs import Genotype, InputError, static_cost, zoo
from alternas.archs.json_files import convert, parse_json, parse_line, read_json
from alternas.results.analysis_tools.index import read_index
from alternas.results.ranking.metric import run_metric
from alternas.results.runs.bank_progress import read_progress
from alternas.results.runs.events import measured_event
from alternas.results.runs.record import Record
from alternas.results.runs.status import RECORDED
from alternas.results.runs.store import Store, read_data_facts, read_records, read_settings
from alternas.search.known_nets import nets_of_file
from alternas.search.tracking.tracker import Notes
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, Point
from alternas.search.trials.trial import Trial
from runs import add_bank

FACTS = {"name": "mine", "image_size": [8, 8], "in_chans": 1, "classes": ["a", "b"], "mean": [0.5], "std": [0.2]}
POINT = {"step": 1, "loss": 0.5, "accuracy": 0.1}

NO_JSON = {
    b"": "Expecting value", b"{": "Expecting property name", b"\xff{}": "utf-8", b"[NaN]": "NaN is no number",
    b"[-Infinity]": "-Infinity is no number", b"[1e999]": "'1e999' is too large", b"[" * 100_000: "nested too deep",
    b'{"a":' * 50_000: "nested too deep", b'{"a": 1, "a": 2}': "field 'a' is there twice", b"9" * 5000: "4300 digits",
}  # fmt: skip


@pytest.mark.parametrize("text", NO_JSON, ids=lambda text: repr(text[:20]))
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(ValueError, match=NO_JSON[text]):
        parse_json(text)
    if b'"a": 2' not in text:  # lines are ours, and read in half the time
        with pytest.raises(ValueError, match=NO_JSON[text]):
            parse_line(text)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    net = zoo.get("alternet18", 32)
    (tmp_path / "net.json").write_bytes(b"\xef\xbb\xbf" + net.to_json().encode())
    assert read_json(tmp_path / "net.json", Genotype) == net
    (tmp_path / "mine.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(recipes.fast().to_dict()).encode())
    assert recipes.get(str(tmp_path / "mine.json")) == recipes.fast()


def test_half_a_character_of_a_files_name_is_kept() -> None:
    """As Python has names of files that are no UTF-8."""
    assert parse_line(json.dumps("caf\udce9").encode()) == "caf\udce9"


# A field of a record, and what it is told: a rule each.
UNRECORDABLE: list[tuple[dict[str, Any], str]] = [
    ({"later": 1}, "field: unknown value 'later'"),
    ({"trial": True}, "trial must be a whole number from 0 to 10000000, got True"),
    ({"seed": 10**400}, "seed must be a whole number from 0, got a whole number of 1329 bits"),
    ({"seconds": 1e300}, r"seconds must be a number from 0 to 1e\+10, got 1e\+300"),
    ({"accuracy": "high"}, r"accuracy must be a number from -1e\+150 to 1e\+150, got 'high'"),
    ({"status": "fine"}, "status must be one of ok, pruned"),
    ({"weights": "borrowed"}, "weights: unknown value 'borrowed'"),
    ({"key": "../x"}, "key must be a name of at most 64 letters and digits, got '../x'"),
    ({"training_id": "../x"}, "training_id must be a name"),
    ({"error": "x" * 50_000}, "error must be a text of at most 20,000 characters"),
    ({"finished_at": "2026-01-01"}, "finished_at must be a time with its zone"),
    ({"genes": {"width": [8]}}, "genes must hold a text, a number, true or false"),
    ({"cost": {"macs": 0, "params": 1}}, "cost must hold a whole number from 1, got {'macs': 0, 'params': 1}"),
    ({"cost": {"params": 1}}, "cost: macs is missing"),
    ({"accuracies": {"0": None}}, "accuracies must hold a number"),
    ({"curve": [POINT, {}]}, r"curve\[1\]: step is missing"),
    ({"curve": [POINT | {"loss": 10**400}]}, r"curve\[0\] must hold a number"),
    ({"rungs": [POINT | {"accuracy": None, "promoted": True}]}, r"rungs\[0\].accuracy must be a number"),
    ({"recipe": {"batch_size": None}}, "recipe.batch_size must be a whole number"),
    ({"data": {"fraction": 2}}, "data.fraction must be a number from 0 to 1, got 2"),
    ({"data": {"classes": [-1]}}, r"data.classes\[0\] must be a whole number"),
]


@pytest.mark.whole
@pytest.mark.parametrize(("wrong", "words"), UNRECORDABLE, ids=lambda value: f"{value!r:.30}")
def test_a_record_that_cannot_be_read_is_not_written(tmp_path: Path, wrong: dict[str, Any], words: str) -> None:
    line = json.dumps(record(0).to_dict() | wrong).encode() + b"\n"
    (tmp_path / "records.jsonl").write_bytes(line)
    with pytest.raises(InputError, match=rf"records.jsonl: line 1 is broken \({words}") as told:
        read_records(tmp_path)
    assert len(str(told.value)) < 500 + len(str(tmp_path))
    if "later" in wrong:
        return
    (tmp_path / "records.jsonl").unlink()
    store = Store(tmp_path)
    with pytest.raises(InputError, match=f"the record of trial .* cannot be kept: {words}"):
        store.append(Record(**record(0).to_dict() | wrong))
    assert (store.records, (tmp_path / "records.jsonl").read_bytes()) == ([], b"")
    store.close()


@pytest.mark.parametrize("status", RECORDED)
def test_what_trials_end_with_can_be_read(status: str) -> None:
    """Whatever a training or a device reports: no numbers, long errors, files whose names are no UTF-8."""
    net = zoo.get("resnet18", 32)
    trial = Trial(0, "search", net, {"depth": 2}, static_cost(net, 10, 32), (4, 8), {"recipe": {}, "seed": 0})
    curve = (Point(1, math.nan, math.inf), Point(2, 1e9, 0.5))
    result = JobResult(0, "ok", 4, 0.5, {"nll": math.nan, "top5": -math.inf, "ece": 0}, curve, 1e-9, "cpu\udce9")
    trial.last_result, trial.rung_accuracies = result, [0.5]
    ended = trial.finish(status, "no memory for \udce9\n" * 100, constraint_violation={"latency_ms": 1e21})
    assert Record.from_line(ended.to_line()) == ended


RUN = {"format": 4, "settings": {"objective": "macs"}, "trials": 2, "data": FACTS}
WRONG_RUNS: list[tuple[dict[str, Any], str]] = [
    ({"settings": []}, "settings must be an object"),
    ({"settings": {"other_costs": 5}}, "settings.other_costs must be a list, each a text, got 5"),
    ({"settings": {"space": 5}}, "settings.space must be a text, got 5"),
    ({"settings": {"limits": {"macs": "x"}}}, "settings.limits must hold a number from 0"),
    ({"trials": True}, "trials must be a whole number from 0, got True"),
    ({"start_with": [1]}, r"start_with\[0\] must be an object"),
    ({"data": {}}, "data: name is missing"),
    ({"data": FACTS | {"image_size": [10**9, 8]}}, r"data: image_size\[0\] must be a whole number from 1 to 16384"),
    ({"data": FACTS | {"classes": ["a", 3]}}, r"data: classes\[1\] must be a text, got 3"),
    ({"data": FACTS | {"mean": [0.5, 0.5]}}, "data: mean must hold 1 numbers, got 2"),
    ({"data": FACTS | {"std": [10**400]}}, r"data: std\[0\] must be a number from 0"),
    ({"settings": {"metric": {"name": 3}}}, "settings.metric: name must be a text of 1 to 200 characters, got 3"),
]


@pytest.mark.whole
@pytest.mark.parametrize(("wrong", "words"), WRONG_RUNS, ids=lambda value: f"{value!r:.40}")
def test_a_run_json_says_what_it_must(tmp_path: Path, wrong: dict[str, Any], words: str) -> None:
    for facts in (RUN, RUN | wrong):
        (tmp_path / "run.json").write_text(json.dumps(facts), encoding="utf-8")
        if facts is RUN:
            assert (read_settings(tmp_path), read_data_facts(tmp_path)) == (RUN, FACTS)
            continue
        with pytest.raises(InputError, match=rf"run\.json: {words}"):
            _ = read_settings(tmp_path), run_metric(tmp_path), read_data_facts(tmp_path)


READERS: dict[str, Callable[[Path], Any]] = {
    "run.json": read_settings,
    "records.jsonl": read_records,
    "explain.json": read_index,
    "tracking/mlflow.jsonl": lambda folder: Notes(folder / "tracking" / "mlflow.jsonl", "here"),
    "net.json": lambda folder: read_json(folder / "net.json", Genotype),
    "recipe.json": lambda folder: recipes.get(str(folder / "recipe.json")),
    "nets.json": lambda folder: nets_of_file(folder / "nets.json"),
}


@pytest.mark.whole
@pytest.mark.parametrize("file", READERS)
def test_every_reader_names_its_file(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON of another kind, values of another kind, no JSON, nested deep."""
    monkeypatch.chdir(tmp_path)
    Path(file).parent.mkdir(exist_ok=True)
    other = b'{"format": 4, "settings": 5, "step": "x", "key": 5, "where": 5}'
    for content in (b"[3]", b"3", other, b"\xff", b"[" * 100_000):
        if file == "nets.json" and content.startswith(b"{"):
            continue  # which may be genes
        Path(file).write_bytes(content + b"\n")
        with pytest.raises(InputError, match=file.rpartition("/")[2]) as told:
            READERS[file](Path())
        assert len(str(told.value).splitlines()) == 1


def test_odd_values_of_a_supernet_are_one_line(tmp_path: Path) -> None:
    whole = {"total_steps": 8, "curve": [POINT], "predicted": {"x": 0.5}, "attempts": 0}
    add_bank(tmp_path, 4, **whole)
    assert read_progress(tmp_path) == {"step": 4} | whole
    odd_values = {"step": -1, "total_steps": 0, "curve": 3, "predicted": {"x": "y"}, "facts": [], "attempts": None}
    for name, odd in odd_values.items():
        (tmp_path / "records.jsonl").unlink()
        add_bank(tmp_path, **{"step": 4, name: odd})
        with pytest.raises(InputError, match=rf"records\.jsonl: line 1 is broken \(.*{name} must"):
            read_progress(tmp_path)


def test_a_measurement_that_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    for wrong in ({"latency_ms": 1e300}, {"latency_ms": 1e-320}, {"latency_ms": 1.0, "numbers": {"energy_mj": 1e200}}):
        with closing(Store(tmp_path)) as store, pytest.raises(InputError, match=r"kept: (latency_ms|numbers)"):
            store.append(measured_event(0, "ab", (8, 8), wrong))
    assert (tmp_path / "records.jsonl").read_bytes() == b""


def test_dataclasses_are_named_by_field() -> None:
    with pytest.raises(InputError, match=r"net: stages\[1\].depth must be a whole number from 1 to 1024, got 0"):
        convert({"stem": {}, "stages": [{}, {"depth": 0}]}, Genotype, "net")
