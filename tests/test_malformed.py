"""Malformed arguments, drawn from a seed: each is one line and exit code 2, and writes nothing.

What is wrong within JSON files: test_json_files.py; within data: test_data.py and test_readers.py.
"""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from alternas.cli import app as cli
from alternas.results.ranking.quantities import static_costs
from runs import finished_run

pytestmark = pytest.mark.usefixtures("elsewhere")

COMMANDS: dict[str, Any] = get_command(cli.app).commands  # type: ignore[attr-defined]
COUNT = 40

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
    "word": ["magic", "Pareto ", "pareto;off", "nsga23", "1", *ODD],
    "file": ["none.json", "none/none.npz", "folder.json", "/dev/null/x", "mine:99", "mine:x", ":", "timm:", *ODD],
    "place": ["tpu/1", "cpu/0", "cpu/1/float8", "cpu/1/float32/tf", "cpu/1/float32/eager/0", "a/b/c/d/e/f/g", "cpu/7"],
    "limit": ["0", "-1", "nan", "inf", "1e9", "x", "board=", "=1", "a b=1", "1k", "", *NO_NUMBER],
    "command": ["./bench", "{model}", "cpu=./bench {model}", "./bench '{model}", *ODD],
    "out": ["taken", "taken/x", "/dev/null/x", LONG, "none/" + LONG],
    "picture": ["taken/x", "/dev/null/x", LONG, "none/" + LONG],
    "port": ["-1", "65536", "1.5", *NO_NUMBER],
}  # fmt: skip
NAMES = {  # of options and arguments by kind; those of other commands than the first by COMMAND.NAME
    "name": "name run runs",
    "count": "trial trials show.trial repeats folds seeds episodes batch classes channels threads bench.workers "
             "samples patience retrain.top",
    "numbers": "retrain.trials latency.batch msa shots ways",
    "whole": "processes workers seed top",
    "number": "eta trial_minutes max_hours cpus_per_trial epochs latency_timeout",
    "amount": " ".join(["max_train_flops", "images", *(f"max_{cost}" for cost in static_costs())]),
    "number or 0": "gpus_per_trial polish floor",
    "limit": "max_latency_ms",
    "command": "latency_command",
    "word": "latency_format strategy scheduler objective objectives loader freeze cnn train pick formats family device "
             "dtype tool bench.data study.study recipes.recipe with_nets analyses metric track tune",
    "shares": "rungs",
    "size": "image_size from_size",
    "file": "recipe start spaces.space space data data.name weights arch target table start_with against trainer",
    "place": "latency latency_of supernet",
    "picture": "svg report.out",
    "out": "out assets plot",
    "port": "port",
    "chance": "chance min_accuracy",
    "share of 1": "baselines",
}  # fmt: skip
KINDS = {name: kind for kind, names in NAMES.items() for name in names.split()}
ANY = {  # options that may hold anything, with the reason
    "config": "a file, whose faults are in test_help.py",
    "group_by": "a file, or a pattern of names: test_data_in_silence.py",
    "host": "the name of a machine",
    "nets": "names with patterns, of space pretrained alone: test_probe_job.py",
    "weights_dir": "a folder, of space pretrained alone: test_probe_job.py",
    "doctor.data": "what cannot be loaded is a finding of the doctor's",
    "doctor.folder": "likewise",
    "address": "a cluster that is not there is said when the run is there: test_cluster.py",
}
BASE = {  # what each command needs besides
    "search": "resnet", "front": "mine", "leaderboard": "mine", "compare": "mine other", "show": "mine 0",
    "report": "mine", "export": "mine --out d", "cost": "alternet18", "data": "digits", "retrain": "mine",
    "finetune": "--from mine --data digits", "train": "resnet18 --data digits", "latency": "alternet18",
    "buildup": "--from mine --data digits", "few-shot": "--from mine --data digits", "dashboard": "mine",
    "study": "data-size --data digits", "explain": "mine", "track": "mine tensorboard",
}  # fmt: skip


def kind_of(command: str, name: str) -> str:
    """The key of FREE; "" for flags and what may be anything."""
    if f"{command}.{name}" in ANY or name in ANY:
        return ""
    return KINDS.get(f"{command}.{name}", KINDS.get(name, ""))


def malformed(draw: random.Random) -> list[str]:
    """A command with one argument that can never be right, the others sound."""
    command, param = draw.choice([(name, p) for name, c in COMMANDS.items() for p in c.params if kind_of(name, p.name)])
    value, words = draw.choice(FREE[kind_of(command, param.name)]), BASE.get(command, "").split()
    if param.param_type_name == "option":
        return [command, *words, f"{param.opts[0]}={value}"]
    arguments = [p.name for p in COMMANDS[command].params if p.param_type_name == "argument"]
    at = arguments.index(param.name)
    words[at : at + 1] = [value]
    return [command, *["--"] * value.startswith("-"), *words]


def drawn() -> list[Any]:
    draw = random.Random("arguments")
    cases = [malformed(draw) for _ in range(COUNT)]
    return [pytest.param(words, id=f"{n}-{' '.join(words)!r:.40}") for n, words in enumerate(cases)]


def listing() -> dict[str, tuple[int, int]]:
    """Every file below the current folder, with its size and time of change; the cache of pictures is apart."""
    files = [path for path in Path().rglob("*") if path.parts[0] != "home"]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in files}


def test_no_option_is_forgotten() -> None:
    """A new option says here what it can never hold, or why it may hold anything."""
    for name, command in COMMANDS.items():
        for param in command.params:
            free = param.name in ANY or f"{name}.{param.name}" in ANY or getattr(param, "is_flag", False)
            assert bool(kind_of(name, param.name)) != free, f"{name} {param.name}"


@pytest.mark.parametrize("words", drawn())
def test_malformed_input_is_one_line_and_nothing_is_written(
    words: list[str], alternas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Path("taken").write_text("in the way", encoding="utf-8")
    Path("folder.json").mkdir()
    finished_run()
    finished_run("other")
    before = listing()
    code, out, err = alternas(*words)
    assert (code, out) == (2, ""), err
    assert err.startswith("alternas: ")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert len(err) < 1100
    assert listing() == before
