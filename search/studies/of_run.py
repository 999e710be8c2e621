"""What a run was trained with: its recipe, and its data once more."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ...archs import InputError
from ...archs.errors import shown
from ...results.store import read_data_facts, read_settings
from ..data.dataset import DataSet, Request
from ..data.progress import load_showing
from ..training.recipe import Recipe


def recipe_of(run: Path) -> Recipe:
    """The recipe that a run trained with.

    Raises:
        InputError: if its run.json does not hold one.
    """
    recipe = read_settings(run).get("settings", {}).get("recipe")
    if recipe is None:
        raise InputError(f"run {run.name}: is no search, so it has no recipe; give --recipe")
    return Recipe.from_dict(recipe)


def data_of(run: Path, console: Console) -> DataSet:
    """The data that a run trained on.

    Raises:
        InputError: if they cannot be read, are others now, or are at a URL.
    """
    facts, settings = read_data_facts(run), read_settings(run).get("settings", {})
    if "://" in facts["name"]:
        raise InputError(f"data: run {run.name!r} names a URL, {shown(facts['name'])}; a run's URLs are not opened")
    notes = facts.get("notes", {})
    size = (facts["image_size"][0], facts["image_size"][1]) if "pictures" in notes else None
    skipped = bool(notes.get("skipped") or notes.get("skipped_classes"))
    request = Request(facts["name"], size, settings.get("loader", "auto"), skipped)
    data = load_showing(request, console)
    if data.split_hash != facts.get("split"):
        raise InputError(f"data: {data.name} is not what run {run.name} was trained on any more")
    return data
