"""Malformed inputs drawn from a seed: arguments, data folders and .npz files.

Each case is what was harmed, the words of the command, and a way to lay it out in the current folder. Each is wrong
for certain: a value is replaced by one that its place can never hold.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from runs import finished_run

LONG = "x" * 5000
HUGE = "9" * 400
ODD = ["../../x", "/", "\x1b[31m", "a\nb", "é", "\u202e", LONG, "<script>", "--", "-1x"]
NO_NUMBER = ["many", "nan", "1e", "0x10", "1,5,x", "--3", "½", LONG, "\x07", "True", "None"]
FREE: dict[str, list[str]] = {  # by option: what it can never be
    "count": ["0", "-3", "1.5", "-" + HUGE, HUGE, "9" * 5000, *NO_NUMBER],
    "whole": ["-1", "1.5", "9" * 5000, *NO_NUMBER],
    "number": ["0", "-1", "-inf", *NO_NUMBER],
    "number or 0": ["-1", "-inf", *NO_NUMBER],
    "share of 1": ["-0.1", "1.5", "inf", *NO_NUMBER],
    "chance": ["inf", "-inf", *NO_NUMBER],
    "amount": ["0", "-5M", "1.2.3G", "5X", "1e3", "inf", *NO_NUMBER],
    "numbers": ["1;2", "-1", "1.5", "9" * 5000, *NO_NUMBER],
    "shares": ["0", "-1/8", "1/0", "2", "1/4,1/8", "1/8/2", "inf", *NO_NUMBER],
    "size": ["0", "-8", "8x", "x8", "8x8x8", "1.5", HUGE, "9" * 5000, "٣", *NO_NUMBER],
    "name": ["..", ".hidden", "-", "a/b", "/etc/x", "a b", "x" * 101, *ODD],
    "word": ["magic", "Pareto ", "pareto;off", "nsga2\x00"[:-1] + "3", "1", *ODD],
    "file": ["none.json", "none/none.npz", "folder.json", "/dev/null/x", "mine:99", "mine:x", ":", "timm:", *ODD],
    "storage path": ["s3:/bucket", "/shared/x", "bucket/x", "s3://[/x", "s3://", "http://x/y", "file://x/y", "s3://b?x=1", *ODD],
    "place": ["tpu/1", "cpu/0", "cpu/1/float8", "cpu/1/float32/tf", "cpu/1/float32/eager/0", "a/b/c/d/e/f/g", *(odd for odd in ODD if odd != "/"), "cpu/7"],
    "limit": ["0", "-1", "nan", "inf", "1e9", "x", "board=", "=1", "a b=1", "1k", "", *NO_NUMBER],
    "command": ["./bench", "{model}", "cpu=./bench {model}", "./bench '{model}", *(odd for odd in ODD if "{model}" not in odd)],
    "out": ["taken", "taken/x", "/dev/null/x", LONG, "none/" + LONG],
    "picture": ["taken/x", "/dev/null/x", LONG, "none/" + LONG],
    "port": ["-1", "65536", "1.5", *NO_NUMBER],
}  # fmt: skip
KINDS = {  # which it is, by the option's name; those of other commands than the first by COMMAND.NAME
    "name": "name", "run": "name", "runs": "name", "trial": "count", "trials": "count",
    "retrain.trials": "numbers", "show.trial": "count", "repeats": "count", "seeds": "count",
    "episodes": "count", "batch": "count", "classes": "count", "channels": "count", "threads": "count",
    "latency.batch": "numbers", "processes": "whole", "bench.workers": "count", "workers": "whole", "seed": "whole",
    "retrain.top": "count", "top": "whole", "eta": "number", "trial_minutes": "number",
    "max_hours": "number",
    "max_train_flops": "amount", "cpus_per_trial": "number", "gpus_per_trial": "number or 0",
    "epochs": "number", "max_latency_ms": "limit", "latency_command": "command", "latency_format": "word", "latency_timeout": "number", "max_macs": "amount", "max_params": "amount", "images": "amount",
    "msa": "numbers", "shots": "numbers", "ways": "numbers", "rungs": "shares",
    "image_size": "size", "from_size": "size", "strategy": "word", "scheduler": "word", "objective": "word",
    "objectives": "word", "loader": "word", "recipe": "file", "freeze": "word", "cnn": "word",
    "start": "file",
    "train": "word", "pick": "word", "formats": "word", "family": "word", "device": "word", "dtype": "word",
    "bench.data": "word", "study.study": "word", "recipes.recipe": "word", "spaces.space": "file", "space": "file",
    "data": "file", "data.name": "file", "weights": "file", "arch": "file", "target": "file", "latency": "place",
    "latency_of": "place", "storage_path": "storage path", "svg": "picture", "out": "out", "assets": "out", "plot": "out",
    "supernet": "place", "polish": "number or 0", "floor": "number or 0", "table": "file", "start_with": "file", "with_nets": "word", "port": "port", "samples": "count", "against": "file", "analyses": "word",
    "report.out": "picture", "metric": "word", "trainer": "file", "patience": "count", "chance": "chance", "baselines": "share of 1",
    "track": "word", "tune": "word",
}  # fmt: skip
ANY = {  # options that may hold anything, with the reason
    "config": "a file, whose faults are in test_help.py",
    "group_by": "a file, or a pattern of names: test_data_in_silence.py",
    "host": "the name of a machine",
    "doctor.data": "what cannot be loaded is a finding of the doctor's",
    "doctor.shared_folder": "likewise",
    "doctor.storage_path": "likewise",
    "address": "a cluster that is not there is said when the run is there: test_cluster.py",
}
BASE = {  # what each command needs besides
    "search": ["resnet"], "front": ["mine"], "leaderboard": ["mine"], "compare": ["mine", "other"],
    "show": ["mine", "0"], "report": ["mine"], "export": ["mine", "--out", "d"], "cost": ["alternet18"],
    "data": ["digits"], "retrain": ["mine"], "finetune": ["--from", "mine", "--data", "digits"], "train": ["resnet18", "--data", "digits"],
    "buildup": ["--from", "mine", "--data", "digits"], "few-shot": ["--from", "mine", "--data", "digits"],
    "study": ["data-size", "--data", "digits"], "latency": ["alternet18"], "dashboard": ["mine"],
    "explain": ["mine"],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What is harmed, the words of the command, and how it is laid out in the current folder."""

    what: str
    words: tuple[str, ...]
    lay: Callable[[], object] = lambda: None


def arguments(draw: random.Random, commands: dict[str, Any]) -> Iterator[Case]:
    """One argument of a command that can never be right, the others sound."""
    places = [(name, p) for name, command in commands.items() for p in command.params if kind_of(name, p.name)]
    while True:
        command, param = draw.choice(places)
        value = draw.choice(FREE[kind_of(command, param.name)])
        words = list(BASE.get(command, []))
        if param.param_type_name == "argument":
            at = next(i for i, p in enumerate(p for p in commands[command].params if p.param_type_name == "argument")
                      if p.name == param.name)  # fmt: skip
            words[at : at + 1] = [value]
            if value.startswith("-"):
                words = ["--", *words]
        else:
            words = [*words, f"{param.opts[0]}={value}"]
        yield Case(f"{command} {param.name}", (command, *words))


def kind_of(command: str, name: str) -> str:
    """The key of FREE; "" for flags and what may be anything."""
    if f"{command}.{name}" in ANY or name in ANY:
        return ""
    return KINDS.get(f"{command}.{name}", KINDS.get(name, ""))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at `path`."""
    if not path:
        return new
    whole = copy.deepcopy(value)
    at(whole, path[:-1])[path[-1]] = new
    return whole


def data(draw: random.Random) -> Iterator[Case]:
    """Folders of pictures and .npz files with one thing wrong."""
    while True:
        what, lay = draw.choice([_folder, _npz])(draw)
        path = "photos" if lay.func is _lay_folder else "data.npz"
        yield Case(
            what, draw.choice([("data", path), ("data", path, "--json"), ("search", "resnet", "--data", path)]), lay
        )


def _npz(draw: random.Random) -> tuple[str, Any]:
    x, y = np.arange(40 * 64, dtype=np.uint8).reshape(40, 8, 8), np.repeat([0, 1], 20)
    good = {"x": x, "y": y}
    wrong: dict[str, Any] = {
        "x of one dimension": good | {"x": x[:, 0, 0]}, "x of five": good | {"x": x[..., None, None]},
        "x of texts": good | {"x": x.astype(str)}, "x complex": good | {"x": x + 1j}, "x of truths": good | {"x": x > 3},
        "x of objects": good | {"x": x.astype(object)}, "no images": {"x": x[:0], "y": y[:0]},
        "no height": good | {"x": x[:, :0]}, "NaN": good | {"x": np.where(x > 3, np.nan, x)},
        "too large": good | {"x": x.astype(float) * 1e300}, "channels first": good | {"x": np.zeros((40, 3, 8, 8))},
        "y too short": good | {"y": y[:-1]}, "y too long": good | {"y": np.append(y, 1)}, "y of halves": good | {"y": y / 2},
        "y of texts": good | {"y": y.astype(str)}, "y of objects": good | {"y": y.astype(object)},
        "y a number": good | {"y": np.array(3)}, "y one-hot": good | {"y": np.eye(2, dtype=int)[y]},
        "one class": good | {"y": y * 0}, "an image a class": {"x": x, "y": np.arange(40)}, "no y": {"x": x}, "no x": {"y": y},
        "nothing": {}, "other names": {"a": x, "b": y}, "too few classes": good | {"classes": np.array(["a"])},
        "classes a number": good | {"classes": np.array(2)}, "classes objects": good | {"classes": np.array([{}, {}])},
        "labels below 0 named": good | {"y": y - 1, "classes": np.array(["a", "b"])},
        "train without labels": {"x_train": x, "y": y}, "val of another shape": {
            "x_train": x, "y_train": y, "x_val": np.zeros((4, 9, 8), np.uint8), "y_val": y[:4]},
        "val has a new label": {"x_train": x, "y_train": y, "x_val": x, "y_val": y + 1},
    }  # fmt: skip
    what, cut = draw.choice(sorted(wrong)), draw.random()
    return draw.choice([(what, partial(_lay_npz, wrong[what], 1.0))] * 4 + [("torn npz", partial(_lay_npz, good, cut))])


def _lay_npz(arrays: dict[str, Any], share: float) -> None:
    """So much of the file from its beginning."""
    path = Path("data.npz")
    np.savez(path, **arrays)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def _folder(draw: random.Random) -> tuple[str, Any]:
    ways = ("empty", "no classes", "loose", "empty class", "no pictures", "torn pictures", "one class", "one each",
            "train alone with others", "val without train", "a file", "a link to nowhere")  # fmt: skip
    way = draw.choice(ways)
    return way, partial(_lay_folder, way, draw.randbytes(100))


def _lay_folder(way: str, junk: bytes) -> None:
    root = Path("photos")
    if way == "a file":
        root.write_bytes(junk)
        return
    root.mkdir()
    names = {"empty": [], "no classes": [], "one class": ["cat"], "val without train": ["val/cat", "val/dog"]}
    for name in names.get(way, ["cat", "dog"]):
        for i in range(1 if way == "one each" else 6):
            _picture(root / name / f"{i}.png")
    if way in ("loose", "no classes"):
        _picture(root / "0.png")
    if way == "empty class":
        (root / "bird").mkdir()
    if way == "train alone with others":
        _picture(root / "train" / "cat" / "0.png")
    if way == "no pictures":
        _replace(root / "cat", lambda path: path.rename(path.with_suffix(".txt")))
    if way == "torn pictures":
        _replace(root / "cat", lambda path: path.write_bytes(path.read_bytes()[:40] + junk))
    if way == "a link to nowhere":
        _replace(root / "cat", lambda path: (path.unlink(), path.symlink_to("nowhere")))


def _replace(folder: Path, change: Callable[[Path], object]) -> None:
    for path in sorted(folder.iterdir()):
        change(path)


def _picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), 99, np.uint8)).save(path)


def lay_base() -> None:
    """A run, another, and things that are in the way."""
    Path("taken").write_text("in the way", encoding="utf-8")
    Path("folder.json").mkdir()
    finished_run()
    finished_run("other")


MORE: dict[str, Any] = {
    "metrics": {"nll": 0.5}, "curve": [{"step": 1, "loss": 0.5, "accuracy": 0.1}], "accuracies": {"0": 0.9},
    "rungs": [{"step": 1, "accuracy": 0.5, "promoted": True}], "constraint_violation": {"macs": 0.1}, "budget": {"full": 16, "done": 16},
    "recipe": {"name": "smoke", "batch_size": 64}, "data": {"name": "digits", "fraction": 1.0, "split": "x"},
    "seconds": 1.5, "started_at": "2026-01-01T00:00:00.000+00:00",
    "finished_at": "2026-01-01T00:00:01.500+00:00", "device": "cpu",
    "runtime": {"loader": "memory"}, "versions": {"torch": "2"}, "training_id": "0123456789ab", "error": "",
    "factors": {"trial": 1},
}  # fmt: skip
