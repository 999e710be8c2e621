"""Nothing that a record, a class, a file or an error says is obeyed by a terminal, or forges a line of ours."""

import ast
import io
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from alternas.cli import app as cli
from alternas.results.render.terminal import Console, Guarded, LogHandler, plain, visible
from alternas.search.data.load import track
from command_line import EVIL, FORGED, SIGNS, STYLE, obeyed
from image_files import noise, write
from runs import DATA, drawn_records, made_run

pytestmark = pytest.mark.usefixtures("elsewhere")

FOLDER = Path("runs") / EVIL
PACKAGE = Path(cli.__file__).parent

COMMANDS = {
    "data": (["data", EVIL], ["data", EVIL, "--skip-broken"], ["data", f"no {EVIL}"]),
    "doctor": (["doctor", "--address", EVIL], ["doctor", "--folder", EVIL]),
    "recipes": (["recipes"], ["recipes", "smoke"], ["recipes", EVIL]),
    "runs": (["runs"], ["runs", "--json"]),
    "front": (["front", str(FOLDER), "--max-macs", "7"], ["front", "runs/odd"], ["front", EVIL]),
    "leaderboard": (["leaderboard", str(FOLDER)], ["leaderboard", "runs/odd", "--family", EVIL]),
    "compare": (["compare", str(FOLDER), "runs/other"], ["compare", str(FOLDER), "runs/split"]),
    "show": (["show", str(FOLDER), "0"], ["show", str(FOLDER), "9"], ["show", "runs/odd", "3"]),
    "report": (["report", str(FOLDER)], ["report", "runs/odd"]),
    "export": (["export", str(FOLDER), "--out", EVIL],),
    "cost": (["cost", f"{EVIL}.json"], ["cost", EVIL], ["cost", f"{FOLDER}:0"]),
    "archs": (["archs"],),
    "spaces": (["spaces"], ["spaces", f"{EVIL}.py"]),
    "latency": (["latency", str(FOLDER), "--device", EVIL], ["latency", EVIL]),
    "explain": (["explain", str(FOLDER)],),
    "studies": (["studies"],),
    "dashboard": (["dashboard", EVIL], ["dashboard", str(FOLDER), "--host", EVIL]),
    "track": (["track", EVIL, "tensorboard"], ["track", str(FOLDER), EVIL]),
    "search": (["search", f"{EVIL}.py", "--name", EVIL], ["search", "--data", EVIL, "--trials", "0"]),
    "retrain": (["retrain", str(FOLDER), "--workers", "1"],),
    "train": (["train", EVIL, "--data", EVIL],),
    "finetune": (["finetune", "--from", EVIL, "--data", EVIL],),
    "buildup": (["buildup", "--from", EVIL, "--data", EVIL],),
    "few-shot": (["few-shot", "--from", EVIL, "--data", EVIL],),
    "study": (["study", EVIL], ["study", "data-size", "--data", EVIL, "--recipe", EVIL]),
    "bench": (["bench", "--strategy", EVIL], ["bench", "--plot", EVIL]),
}  # of every command such as need no training: what they print, and how they refuse


@pytest.fixture
def hostile(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, a folder of pictures, a genotype and a space that are all called and hold what terminals obey."""
    records = drawn_records(8, stops=False)
    records.append(records[3] | {"status": "error", "error": EVIL, "accuracy": None, "trial": 9, "device": EVIL})
    data = DATA | {"name": EVIL, "classes": [f"{EVIL}{i}" for i in range(10)], "split": "1"}
    settings = {"space": EVIL, "strategy": EVIL, "scheduler": EVIL, "objective": "macs", "recipe": {"epochs": EVIL}}
    made_run(FOLDER, records, data=data, versions={"python": EVIL}, command=[EVIL])
    made_run(Path("runs/other"), records, data=data, settings=settings)
    made_run(Path("runs/split"), records, data=data | {"split": EVIL})
    made_run(Path("runs/odd"), [row | {"family": EVIL, "key": f"{EVIL}{row['trial']}"} for row in records], data=data)
    for name in ("a", "b"):
        for i in range(12):
            write(Path(EVIL) / f"{EVIL}{name}" / f"{i}.png", noise(i))
        (Path(EVIL) / f"{EVIL}{name}" / f"{EVIL}.png").write_bytes(b"no picture")
    Path(f"{EVIL}.json").write_text(json.dumps({EVIL: EVIL}), encoding="utf-8")
    Path(f"{EVIL}.py").write_text(f"raise ValueError({EVIL!r})", encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "1000")
    return FOLDER


@pytest.mark.parametrize("words", [words for each in COMMANDS.values() for words in each], ids=lambda words: words[0])
@pytest.mark.usefixtures("hostile")
def test_no_command_prints_what_a_terminal_obeys(alternas: Any, words: list[str]) -> None:
    code, out, err = alternas(*words)
    assert out or err
    assert not obeyed(out + err)
    assert code in (0, 1, 2)


def test_every_command_is_tried() -> None:
    assert COMMANDS.keys() == get_command(cli.app).commands.keys()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words",
    [["show", str(FOLDER), "9"], ["compare", str(FOLDER), "runs/split/../other"], ["data", EVIL, "--skip-broken"]],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("hostile")
def test_json_holds_what_was_said(alternas: Any, words: list[str]) -> None:
    code, out, err = alternas(*words, "--json")
    assert code == 0, err
    assert out.isascii()
    assert not obeyed(out + err)
    assert EVIL in strings(json.loads(out))


def strings(value: Any) -> str:
    """All text in a JSON value."""
    if isinstance(value, dict):
        return " ".join(strings(part) for item in value.items() for part in item)
    return " ".join(map(strings, value)) if isinstance(value, list) else str(value)


def test_what_does_not_print_is_shown() -> None:
    assert visible("plain é 漢 🙂") == "plain é 漢 🙂"
    assert visible("a\x1b[31m\n\u202eb\x9b") == "a\\x1b[31m\\n\\u202eb\\x9b"
    assert visible("a\nb\t", keep="\n") == "a\nb\\t"


def test_streams_keep_their_lines_and_nothing_else() -> None:
    behind = io.StringIO()
    print(f"one{EVIL}", "two", sep="\n", file=Guarded(behind))
    assert obeyed(behind.getvalue()) == {FORGED + "[red]:smile:"}, "a stream cannot know whose line it is"
    assert behind.getvalue().endswith("\ntwo\n")


def test_the_traceback_of_a_bug_is_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = io.StringIO()
    monkeypatch.setattr(sys, "stderr", behind)
    monkeypatch.setattr(sys, "stdout", behind)
    monkeypatch.setattr(cli, "_run", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main()
    sys.excepthook(ValueError, ValueError(f"a bug {SIGNS}"), None)
    assert "ValueError: a bug \\x1b]0;" in behind.getvalue()
    assert not obeyed(behind.getvalue())


def test_a_log_message_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogHandler()
    handler.handle(logging.LogRecord("alternas", logging.WARNING, "", 0, "trial %d: %s", (3, EVIL), None))
    err = capsys.readouterr().err
    assert err.startswith("alternas: trial 3: e\\x1b]0;")
    assert err.count("\n") == 1
    assert not obeyed(err)


def drawn(what: Any, **options: Any) -> str:
    """What a console writes to a terminal."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=300, **options)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_styles_pass_and_texts_do_not() -> None:
    text = drawn(plain(EVIL, "our second line", style="bold"))
    assert "\x1b[1m" in text
    assert text.count("\n") == 2
    assert not obeyed(STYLE.sub("", text))
    assert "[red]:smile:" in STYLE.sub("", drawn(EVIL)), "no markup, no names of pictures"
    assert not obeyed(STYLE.sub("", drawn(EVIL)))


def test_bars_and_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=300)
    assert list(track([f"{EVIL}[/red]"], str, console)) == [f"{EVIL}[/red]"]
    text = re.sub(r"\x1b\[\?25[hl]|\x1b\[[0-9]*[AK]", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert "FORGED" in text
    assert not obeyed(STYLE.sub("", text).replace("\r", ""))


def test_all_is_printed_by_way_of_the_filter() -> None:
    """Nobody prints past it: one module prints and makes rich's console."""
    home = "results/render/terminal.py"
    for path in (file for part in ("archs", "spaces", "search", "results") for file in (PACKAGE / part).rglob("*.py")):
        text, place = path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix()
        if "print(" in text or "Console(" in text:
            nodes = list(ast.walk(ast.parse(text)))
            called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
            rich = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "rich.console"]
            richs = any(alias.name == "Console" for node in rich for alias in node.names)
            assert "print" not in called or place == home, place
            assert not (richs and "Console" in called) or place == home, place


@pytest.mark.parametrize("columns", ["0", "1"])
def test_no_columns_are_no_size(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "0")
    console = Console(file=io.StringIO())
    console.print("a line")
    assert console.width >= 1
    assert console.height >= 1
    assert "".join(console.file.getvalue().split()) == "aline"  # type: ignore[attr-defined]
