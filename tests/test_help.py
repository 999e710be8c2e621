"""Help: groups of options, examples that parse, pages of all commands and fields, the version, the shell."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from alternas.archs import Encoder, Head, Stage, Stem, Style, zoo
from alternas.archs import grammar as grammar_page
from alternas.archs.blocks.spec import BLOCKS
from alternas.archs.grammar import field_rows, grammar, stem_kinds
from alternas.archs.parts import ACTS, HEAD_NORMS, STEMS
from alternas.archs.stage import OPTIONS
from alternas.cli.app import app
from alternas.cli.command import COMMANDS
from alternas.cli.help import FIRST, GROUPS, SECTIONS, option_groups, option_name
from alternas.cli.reference import page
from alternas.search.training.recipes import RECIPES
from command_line import run_here
from runs import finished_run

pytestmark = pytest.mark.usefixtures("elsewhere")
PARSED: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def options_of(command: str) -> list[Any]:
    return [p for p in PARSED[command].params if p.param_type_name == "option"]


def test_the_page_of_all_commands_has_every_option() -> None:
    text = page()
    for command in PARSED:
        assert f"alternas {command}" in text
        assert all(option.hidden or option.opts[0] in text for option in options_of(command)), command


def test_every_command_has_a_section_and_examples_that_parse(alternas: Any) -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(PARSED)
    listed = alternas("--help")[1]
    assert all(f"\n  {name} " in listed for name in PARSED)
    for command in COMMANDS.values():
        text = alternas(command.name, "-h")[1]
        assert all(len(line) <= 80 and not re.search(r"\w-$", line) for line in text.splitlines()), "no word is broken"
        assert command.examples
        for example in command.examples:
            program, name, *words = shlex.split(example)
            assert (program, name) == ("alternas", command.name)
            PARSED[name].make_context(name, words)
            assert f"\n  {example}\n" in text


def test_groups_have_each_option_once_and_no_other() -> None:
    groups = option_groups(options_of("search"))
    assert [option_name(option) for option in groups["Options"]] == [*FIRST], "a new option goes into a group"
    assert [*groups] == ["Options", *GROUPS]
    known = {option_name(option) for command in PARSED for option in options_of(command)} | {"help"}
    shown = [name for names in GROUPS.values() for name in names]
    assert (set(shown) <= known, len(shown)) == (True, len(set(shown)))
    for command in PARSED:
        options = options_of(command)
        assert sorted(map(id, options)) == sorted(id(o) for group in option_groups(options).values() for o in group)


def test_the_help_of_a_search_is_one_screen_and_all_of_it_is_there_too(alternas: Any) -> None:
    brief, whole = alternas("search", "-h")[1], alternas("search", "--help-all")[1]
    assert len(brief.splitlines()) <= 24
    assert max(map(len, brief.splitlines())) <= 80
    assert "inf]" not in whole, "no help speaks of infinity"
    for option in options_of("search"):
        assert option.opts[0] in whole
        assert (f"  {option.opts[0]}" in brief) == (option_name(option) in FIRST)


@pytest.mark.usefixtures("fake_pool")
@pytest.mark.parametrize("kind", ["toml", "json"])
def test_options_may_stand_in_a_file(alternas: Any, kind: str) -> None:
    told = {"space": "resnet", "data": "digits", "trials": 3, "epochs": 1, "max-macs": "1M", "repeats": 2, "name": "a"}
    told |= {"objective": ["macs", "params"], "skip-broken": False, "rungs": [0.25, 0.5], "scheduler": "mo-asha"}
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in told.items())
    Path(f"mine.{kind}").write_text(text if kind == "toml" else json.dumps(told), encoding="utf-8")
    code, _, err = alternas("search", "--config", f"mine.{kind}", "--trials", "2")
    assert code == 0, err
    facts = json.loads(Path("runs/a/run.json").read_text(encoding="utf-8"))
    settings = facts["settings"]
    assert (facts["trials"], settings["repeats"], settings["limits"]) == (2, 2, {"macs": 1_000_000})
    assert (settings["other_costs"], settings["rungs"]) == (["params"], [0.25, 0.5])


@pytest.mark.whole
@pytest.mark.parametrize(("text", "said"), [
    ("trails = 3", "config: mine.toml: option: unknown value 'trails' (did you mean 'trials'?)"),
    ("trials = [", "config: mine.toml is no TOML"),
    ("compile = 3", "config: mine.toml: compile must be true or false, got 3"),
    ("data = {a = 1}", "config: mine.toml: data must be a text, got {'a': 1}"),
    ("trials = 'many'", "config: mine.toml: trials must be a whole number, got 'many'"),
    ("max-macs = 'lots'", "config: mine.toml: max-macs: must be a positive amount"),
    ("objective = 5", "config: mine.toml: objective: must be a text or a list of texts, got 5"),
    ("config = 'x'", "config: mine.toml: option: unknown value 'config'"),
])  # fmt: skip
def test_what_is_wrong_in_such_a_file_is_one_line(alternas: Any, text: str, said: str) -> None:
    Path("mine.toml").write_text(text, encoding="utf-8")
    code, _, err = alternas("search", "--config", "mine.toml")
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert "cannot be read" in alternas("search", "--config", "none.toml")[2]


def test_version_and_short_help(alternas: Any) -> None:
    assert alternas("--version") == (0, f"alternas {metadata.version('alternas')}\n", "")
    for words in ((), ("search",), ("runs",)):
        assert alternas(*words, "-h") == alternas(*words, "--help")


def test_the_shell_completes_names_without_loading_torch() -> None:
    finished_run()
    code = """
import os, sys
sys.argv, given = ["alternas"], sys.argv[1:]
os.environ["_ALTERNAS_COMPLETE"] = "complete_bash"
from alternas.cli.app import main
for words in given:
    os.environ |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    try:
        main()
    except SystemExit:
        assert "torch" not in sys.modules, words
    print("-")
"""
    expected = {
        "alternas sho": ["show"],
        "alternas search alt": ["alternet"],
        "alternas search --recipe ": [*RECIPES],
        "alternas cost resnet1": [name for name in zoo.names() if name.startswith("resnet1")],
        "alternas show mi": ["mine"],
        "alternas retrain m": ["mine"],
    }
    done = subprocess.run([sys.executable, "-c", code, *expected], capture_output=True, text=True)
    assert [names.split() for names in done.stdout.split("-\n")] == [*expected.values(), []], done.stderr
    assert done.stderr == ""


def test_without_a_command_the_help_is_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "alternas"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")
    assert len(done.stdout.splitlines()) > 20


PARTS: tuple[Any, ...] = (Stem, Stage, Encoder, Head, Style)


def rows_of(part: Any) -> dict[str, dict[str, str]]:
    return {row["field"].strip("`"): row for row in field_rows(part)}


def test_the_command_prints_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_here(monkeypatch, capsys, "archs", "--grammar")
    assert (code, out) == (0, grammar_page.page() + "\n")


@pytest.mark.parametrize("part", PARTS)
def test_every_field_has_a_meaning_and_a_rule(part: Any) -> None:
    rows = rows_of(part)
    assert [*rows] == [f.name for f in fields(part)]
    assert all(row["meaning"] and row["allowed"] for row in rows.values())


def test_every_kind_is_explained() -> None:
    assert sorted(stem_kinds()) == sorted(STEMS)
    assert all(stem_kinds().values())
    blocks = {row["kind"].strip("`"): row for row in grammar()["blocks"]}
    assert [*blocks] == [*BLOCKS]
    assert all(row["block"] and row["made as"] for row in blocks.values())
    assert {row["file"] for row in blocks.values()} == {row["file"] for row in grammar()["files"] if row["holds"]}


def test_what_stands_in_the_rows() -> None:
    stem, stage, head = rows_of(Stem), rows_of(Stage), rows_of(Head)
    assert stem["act"]["allowed"] == ", ".join(f"`{act}`" for act in ACTS)
    assert head["norm"]["allowed"] == ", ".join(f"`{norm}`" for norm in HEAD_NORMS)
    assert stem["before"]["allowed"] == "up to 16 widths, each a whole number from 1 to 65536"
    assert stage["msa"]["allowed"] == "a whole number from 0 to 1024 or a list, each a whole number from 0 to 1023"
    assert stage["kernel"]["meaning"] == OPTIONS["kernel"].about
    for kind, spec in BLOCKS.items():
        for name, own in spec.options.items():
            assert f"{kind} `{own!r}`" in stage[name]["default"]
