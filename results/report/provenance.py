"""Where a run comes from: its command, versions, seeds, data, recipe and settings, a line each."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from .facts import Run
from .parts import Table

MOST_CLASSES = 20


def command_of(told: Mapping[str, Any]) -> str:
    """The command that started or last resumed a run, to be typed again; "" if run.json does not hold one."""
    words = told.get("command")
    if not isinstance(words, list) or len(words) < 2:
        return ""
    return shlex.join(["alternas", *map(str, words[1:])])


def provenance_tables(run: Run) -> list[Table]:
    """Command and settings; versions and seeds; data; recipe."""
    settings = {name: value for name, value in run.settings.items() if name != "recipe"}
    recipe = run.settings.get("recipe")
    seeds = sorted({r.seed for r in run.records} | {int(s) for r in run.records for s in r.accuracies if s.isdigit()})
    devices = sorted({r.device for r in run.records if r.device})
    versions = run.told.get("versions")
    place = {"seeds of trainings": seeds, "devices": devices} | (versions if isinstance(versions, dict) else {})
    return [
        _facts("settings", "Settings", "All that defines the search; other settings are another run.", settings),
        _facts("versions", "Versions, seeds, devices", "What a repetition needs to be the same.", place),
        _facts("data", "Data", "What nets were trained and validated on.", run.data),
        _facts("recipe", "Recipe", "How each net was trained.", recipe if isinstance(recipe, dict) else {}),
    ]


def _facts(name: str, title: str, caption: str, facts: Mapping[str, Any]) -> Table:
    rows = [{"name": key, "value": _said(value)} for key, value in _flat(facts).items()]
    return Table(name, title, caption if rows else "Not recorded.", rows)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts with dots between the names."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        inner = isinstance(value, dict) and value
        flat |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat


def _said(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in value[:MOST_CLASSES])
        return f"{shown}, ... ({len(value)})" if len(value) > MOST_CLASSES else shown or "none"
    if value == {}:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
