"""The page of `archs --grammar` says something of every field and every kind."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from alternas.archs import Encoder, Head, Stage, Stem, Style
from alternas.archs.blocks.spec import BLOCKS
from alternas.archs.grammar import field_rows, grammar, page, stem_kinds
from alternas.archs.parts import ACTS, HEAD_NORMS, STEMS
from alternas.archs.stage import OPTIONS
from command_line import run_here

PARTS: tuple[Any, ...] = (Stem, Stage, Encoder, Head, Style)


def rows_of(part: Any) -> dict[str, dict[str, str]]:
    return {row["field"].strip("`"): row for row in field_rows(part)}


def test_the_command_prints_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_here(monkeypatch, capsys, "archs", "--grammar")
    assert (code, out) == (0, page() + "\n")


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
