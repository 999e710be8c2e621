"""Registry of the tables that results are published over. A new one is a function of this folder and its entry."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ...archs.errors import check_choice

if TYPE_CHECKING:
    from .benchmark_table import TabularBenchmark

TABLES = {  # "module:function", which makes the table; nothing here loads one
    "cue": "trained:cue",
    "clutter": "trained:clutter",
    "cue-long": "trained:cue_long",
    "cue-short": "trained:cue_short",
    "hybrids": "trained:hybrids",
    "alike": "trained:alike",
    "cells": "synthetic:cells",
    "fifty": "synthetic:fifty",
    "unrelated": "synthetic:unrelated",
}


def load_table(name: str, objective: str = "macs", floor: float | None = None) -> TabularBenchmark:
    """A published table, above its own floor or another.

    Raises InputError if there is none of this name, or it has no such objective or floor.
    """
    module, _, made = TABLES[check_choice("data", name, TABLES)].partition(":")
    table = getattr(importlib.import_module(f".{module}", __package__), made)()
    judge = table.judge and _seen_by(table.judge, objective, floor)
    return replace(_seen_by(table, objective, floor), judge=judge)


def _seen_by(table: TabularBenchmark, objective: str, floor: float | None) -> TabularBenchmark:
    return replace(table, objective=objective, floor=table.floor if floor is None else floor)
