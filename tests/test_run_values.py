"""Runs whose records and facts hold odd values, drawn from a seed: commands end with 0 or 2, none hangs."""

import copy
import io
import json
import random
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alternas.archs import InputError
from alternas.archs.json_files import parse_line
from alternas.results import load_run
from alternas.results.export.write import sample_images
from alternas.results.render.describe_net import InputSpec
from alternas.results.runs.record import Record
from alternas.results.saved_run import SavedRun
from command_line import within
from runs import DATA, add_measured, drawn_records, made_run

pytestmark = pytest.mark.usefixtures("elsewhere")

COUNT = 16  # 1,600 have been tried
HUGE = 10**400
ODD: list[Any] = [
    None, True, 0, -1, 1, 2, 0.5, -0.5, 1.5, 1e-300, 1e308, -1e308, 2**63, 10**6, 10**18, HUGE, -HUGE, float("nan"),
    float("inf"), "", "x", "x" * 5000, "\ud800", "a\nb", "../x", [], [[]], [1], ["x"], [None], {}, {"x": 1}, {"x": {}},
    {"x": None}, [{}], [{"step": 1}], [{"step": "x", "accuracy": 1}], {"accuracy": 1e308}, [0] * 3, "2026-01-01",
]  # fmt: skip
FILES = {  # and how often each is chosen
    "run.json": 4, "records.jsonl": 8, "retrain/run.json": 2, "retrain/records.jsonl": 3,
    "explain/explain.json": 1,
}  # fmt: skip
MORE: dict[str, Any] = {
    "metrics": {"nll": 0.5}, "curve": [{"step": 1, "loss": 0.5, "accuracy": 0.1}], "accuracies": {"0": 0.9},
    "rungs": [{"step": 1, "accuracy": 0.5, "promoted": True}],
    "constraint_violation": {"macs": 0.1}, "budget": {"full": 16, "done": 16},
    "recipe": {"name": "smoke", "batch_size": 64}, "data": {"name": "digits", "fraction": 1.0, "split": "x"},
    "seconds": 1.5, "started_at": "2026-01-01T00:00:00.000+00:00",
    "finished_at": "2026-01-01T00:00:01.500+00:00", "device": "cpu",
    "runtime": {"loader": "memory"}, "versions": {"torch": "2"}, "training_id": "0123456789ab", "error": "",
    "factors": {"trial": 1},
}  # fmt: skip
READERS = [
    ("front", "mine"), ("front", "mine", "--json"), ("front", "mine", "--objectives", "train_flops,memory"),
    ("front", "mine", "--objectives", "accuracy,train_seconds"),
    ("leaderboard", "mine", "--objectives", "accuracy,params,latency_ms"), ("compare", "mine", "other"),
    ("compare", "mine", "other", "--json"), ("show", "mine", "3"), ("show", "mine", "3", "--json"), ("cost", "mine:3"),
    ("report", "mine"), ("export", "mine:3", "--out", "d"), ("explain", "mine"),
    ("explain", "mine:3", "--against", "zoo"), ("front", "runs/mine/retrain"),
]  # fmt: skip


def lay_run(name: str = "mine") -> Path:
    """A run with all that commands read of one, as a search, a retraining, `latency` and `explain` leave it."""
    rows = [MORE | row | {"training_id": "", "seed": 0} for row in drawn_records(8, stops=False)]
    for i, row in enumerate(rows):
        row["accuracies"] = {"0": row["accuracy"], "1": max(0.0, row["accuracy"] - 0.01)}
        row["lineage"] = {"trial": i - 1, "steps": 3, "flops": 10**9, "weights": "x"} if i > 5 else {}
    data = DATA | {"split": "0123456789ab", "notes": {"split": "by us", "pictures": {}}}
    folder = made_run(Path("runs") / name, rows, data=data)
    again = [
        row | {"kind": "retrain", "training_id": f"{i:012x}", "factors": {"trial": row["trial"]}}
        for i, row in enumerate(rows)
    ]
    made_run(folder / "retrain", again, data=data)
    row = {"latency_ms": 1.5, "latency_spread_ms": 0.1, "device": "cpu", "batch": 1, "image_size": [8, 8]}
    add_measured(folder, [{"key": r["key"], **row} for r in rows])
    (folder / "explain").mkdir()
    files = {"png": "noise.png", "csv": "noise.csv"}
    part = {"analysis": "noise", "title": "t", "nets": ["a"], "summaries": ["r"], **files}
    (folder / "explain" / "explain.json").write_text(json.dumps({"run": name, "analyses": [part]}), encoding="utf-8")
    (folder / "explain" / "noise.png").write_bytes(b"no picture")
    return folder


def place_in(draw: random.Random, value: dict[str, Any]) -> tuple[Any, ...]:
    """The path of a value within an object: of each field as likely as of another, whatever it holds."""
    path: tuple[Any, ...] = ()
    while isinstance(value, dict | list) and value and not (path and draw.random() < 0.3):
        path += (draw.choice(list(value) if isinstance(value, dict) else range(len(value))),)
        value = value[path[-1]]
    return path


def harmed(draw: random.Random, value: dict[str, Any]) -> dict[str, Any]:
    """A copy with a value replaced by an odd one, or left out."""
    *above, last = place_in(draw, value)
    value = copy.deepcopy(value)
    holder: Any = value
    for key in above:
        holder = holder[key]
    if draw.random() < 0.15 and isinstance(last, str):
        del holder[last]
    else:
        holder[last] = draw.choice(ODD)
    return value


def harmed_row(draw: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    """A line with many odd values that pass for a record's, which commands then meet, and now and then one more."""
    for _ in range(draw.choice([3, 30, 100])):
        odd = harmed(draw, row)
        row = odd if is_taken(odd) else row
    return harmed(draw, row) if draw.random() < 0.2 else row


def is_taken(row: Any) -> bool:
    """Whether a line passes for a record, odd as it is, so that the commands meet what is in it."""
    try:
        Record.from_dict(parse_line(json.dumps(row).encode()))
    except ValueError:
        return "latency_ms" in row
    return True


def harm(draw: random.Random, folder: Path) -> str:
    """Change one file of a run; what stands there now."""
    file = draw.choices(list(FILES), list(FILES.values()))[0]
    path = folder / file
    if not file.endswith("jsonl"):
        text = json.dumps(harmed(draw, json.loads(path.read_text(encoding="utf-8"))))
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        number = draw.choice([0, 3, 3, 3, len(lines) - 1])
        every = draw.random() < 0.2  # the same odd value in all records
        value = json.loads(lines[number])
        new = harmed_row(draw, value)
        changed = {name: new[name] for name in new if new[name] != value.get(name)}
        lines = [json.dumps(json.loads(line) | changed) if every else line for line in lines]
        lines[number] = json.dumps(new)
        text = "".join(line + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return f"{file}: {text[:3000]}"


@pytest.mark.parametrize("seed", range(COUNT))
def test_odd_values_are_never_a_traceback(alternas: Any, seed: int) -> None:
    draw = random.Random(f"values {seed}")
    lay_run("other")
    what = harm(draw, lay_run())
    for words in draw.sample(READERS, 4):
        with within(300):
            code, out, err = alternas(*words)
        assert code in (0, 2), (words, what, err)
        assert "Traceback" not in err
        assert code == 0 or (err.count("\n") == 1 and not out), (words, what, out, err)
    for draw_or_read in (SavedRun.frame, SavedRun.front, SavedRun._repr_html_, SavedRun.best):
        with within(300), suppress(InputError):
            draw_or_read(load_run(Path("runs/mine")))


def packed(name: str = "val", **changed: Any) -> bytes:
    """A .npz file of a confusion of ten classes; `changed` are fields of its one entry's headers."""
    inner, outer = io.BytesIO(), io.BytesIO()
    np.save(inner, np.eye(10, dtype=np.int64))
    content = inner.getvalue()
    if "header" in changed:
        content = content[:10] + changed["header"].ljust(len(content) - 10 - 800).encode() + content[-800:]
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr(f"{name}.npy", content)
    raw = bytearray(outer.getvalue())
    for mark, flags, method in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
        at = raw.index(mark)
        raw[at + flags] |= changed.get("flags", 0)
        raw[at + method] = changed.get("method", raw[at + method])
    if "rot" in changed:
        for i in range(60, 80):
            raw[i] ^= changed["rot"]
    return bytes(raw)


FORM = "{{'descr': '<i8', 'fortran_order': False, 'shape': {}, }}"
BROKEN_NPZ = {
    "bit rot": packed(rot=0xFF), "encrypted": packed(flags=1), "an unknown method": packed(method=99),
    "one terabyte": packed(header=FORM.format("(10, 12500000000)")),
    "another shape": packed(header=FORM.format("(100,)")),
    "objects": packed(header=FORM.format("(10, 10)").replace("<i8", "|O")), "no header": packed(header="{"),
    "another name": packed("other"), "no zip": b"PK\x03\x04", "empty": b"",
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN_NPZ)
def test_confusions_that_cannot_be_read_are_named_and_done_without(
    alternas: Any, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    folder = lay_run()
    record = json.loads((folder / "records.jsonl").read_text(encoding="utf-8").splitlines()[3])
    path = folder / "weights" / f"{record['key']}.npz"
    path.parent.mkdir()
    path.write_bytes(packed())
    code, out, _ = alternas("show", "mine", "3", "--json")
    assert (code, json.loads(out)["confusion"]) == (0, np.eye(10).tolist())
    path.write_bytes(BROKEN_NPZ[what])
    (folder / "sample.npz").write_bytes(BROKEN_NPZ[what])
    code, out, _ = alternas("show", "mine", "3", "--json")
    assert (code, json.loads(out)["trial"], "confusion" in json.loads(out)) == (0, 3, False)
    assert caplog.text.count(path.name) == 1
    assert "trial 3 is shown without its classes" in caplog.text
    with pytest.raises(InputError, match="sample"):
        sample_images(folder, InputSpec((8, 8), 10, 1))
