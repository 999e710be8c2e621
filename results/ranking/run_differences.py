"""What makes a comparison of runs less than fair, in a few plain words: other recipes, seeds, or sizes of pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...archs.candidate import tuned_values
from ...archs.errors import InputError
from ..runs.store import read_data_facts, read_records, read_settings

MAX_TOLD = 4  # settings that differ
SHOWN = 40  # characters of a value
WORDS = {  # of settings that people know by another name; those that count most first
    "epochs": "epochs",
    "seed": "seed",
    "folds": "folds",
    "repeats": "trainings of each net",
    "from": "weights that nets begin with",
    "tune": "tuned settings",
    "lr": "learning rate",
    "batch_size": "batch size",
}


def differing(folders: Mapping[str, Path]) -> list[str]:
    """Lines on what makes a comparison unfair: pictures, recipe, seed, start; InputError if images or split differ."""
    facts = {name: read_data_facts(folder) for name, folder in folders.items()}
    sizes = {name: "x".join(map(str, of["image_size"])) for name, of in facts.items()}
    notes = [*_unknown_splits(facts)]
    if len({*sizes.values()}) > 1:
        notes.append(f"no fair comparison, pictures are read at {_each(sizes)}: larger ones cost more and show more")
    settings = {name: _settings(folder) for name, folder in folders.items()}
    if unknown := [name for name, own in settings.items() if "epochs" not in own]:
        notes.append(f"whether recipes are the same is unknown: {', '.join(unknown)} do not say")
    known = set.intersection(*({*own} for own in settings.values()))
    differ = [key for key in known if len({json.dumps(own[key]) for own in settings.values()}) > 1]
    order = [*WORDS]
    differ.sort(key=lambda key: (order.index(key) if key in order else len(order), key))
    told = [f"{_title(key)} ({_each({name: _text(own[key]) for name, own in settings.items()})})" for key in differ]
    if told:
        more = f", and {len(told) - MAX_TOLD} more settings of the recipe" if len(told) > MAX_TOLD else ""
        notes.append(f"no fair comparison, runs differ in {'; '.join(told[:MAX_TOLD])}{more}")
    return notes


def _unknown_splits(facts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line where it is not known whether splits are the same; InputError where they are not."""
    splits = {name: of.get("split") or "" for name, of in facts.items()}
    pictures = {of.get("pictures") or "" for of in facts.values()}  # the same at whatever size they are read
    if (len({*splits.values()}) == 1 and all(splits.values())) or (len(pictures) == 1 and all(pictures)):
        return
    if len({split for split in splits.values() if split}) > 1 or len({of["name"] for of in facts.values()}) > 1:
        each = ", ".join(f"{name} {of['name']} ({splits[name] or 'unknown'})" for name, of in facts.items())
        raise InputError(f"compare: runs must have the same images and validation split, got {each}")
    unknown = ", ".join(name for name, split in splits.items() if not split)
    yield f"whether the splits are the same is unknown: {unknown} do not say"


def _settings(folder: Path) -> dict[str, Any]:
    """Settings that accuracies depend on apart from the nets, as far as the run says them; of a plan its nets' own."""
    own = read_settings(folder).get("settings", {})
    recipe = own.get("recipe") or next((record.recipe for record in read_records(folder) if record.recipe), {})
    flat = {key: value for key, value in recipe.items() if key not in ("name", "augment")} | recipe.get("augment", {})
    tuned = {"tune": ", ".join(tuned_values(own["tune"]))} if "tune" in own else {}
    return (
        flat | {key: own[key] for key in ("seed", "repeats", "folds") if key in own} | {"from": own.get("from")} | tuned
    )


def _each(values: Mapping[str, str]) -> str:
    return ", ".join(f"{value} in {name}" for name, value in values.items())


def _title(key: str) -> str:
    return WORDS.get(key, key.replace("_", " "))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else f"{value or 'none':.{SHOWN}}"
