"""Summary of a data set, as `alternas data` prints it: facts, pictures by class, and those that are broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.table import Table

from ...results.render.tables import facts_table
from .dataset import BrokenPicturesError, DataSet

UNEVEN = 10  # times the smallest class: a larger one is reported
LISTED = 10  # broken pictures on the screen


def summary(data: DataSet) -> dict[str, Any]:
    """As JSON: the set's facts, its images by class and split, whether the classes are uneven, what was skipped."""
    splits = {"train": data.train, "val": data.val} | ({"test": data.test} if data.test else {})
    counts = {name: np.bincount(split.y_N, minlength=len(data.classes)).tolist() for name, split in splits.items()}
    by_class = [
        {"class": name, "images": sum(of_one)} | dict(zip(counts, of_one, strict=True))
        for name, *of_one in zip(data.classes, *counts.values(), strict=True)
    ]
    broken = [asdict(one) for one in data.broken]
    return data.facts() | {"by_class": by_class, "uneven": _uneven(by_class), "broken": broken}


def broken_summary(name: str, error: BrokenPicturesError) -> dict[str, Any]:
    """As JSON: the broken pictures that a set is refused for."""
    return {"name": name, "broken": [asdict(one) for one in error.broken]}


def _uneven(by_class: list[dict[str, Any]]) -> str:
    """That the largest class has more than ten times the images of the smallest; "" if it has not."""
    ranked = sorted(by_class, key=lambda row: row["images"])
    (least, fewest), (most, largest) = ((row["class"], row["images"]) for row in (ranked[0], ranked[-1]))
    if largest <= UNEVEN * fewest:
        return ""
    times = f"{largest / fewest:.3g} times as many as the smallest, {least} with {fewest:,}"
    return f"the largest class, {most}, has {largest:,} images, {times}"


def summary_table(facts: dict[str, Any]) -> Table:
    """The summary for the terminal, without the pictures that were skipped."""
    by_class = [f"{row['class']} {row['images']:,}" for row in facts["by_class"]]
    lines: dict[str, Any] = {name: value for name, value in facts.items() if name not in ("by_class", "broken")}
    lines["uneven"] = facts["uneven"] or "no"
    return facts_table(lines | {"images: by class": by_class})


def broken_lines(broken: Sequence[dict[str, Any]]) -> list[str]:
    """The first of the broken pictures, a line each, and how many more there are; none if there are none."""
    lines = [f"{len(broken):,} pictures cannot be read:"] if broken else []
    lines += [f"  {one['picture']} ({one['reason']})" for one in broken[:LISTED]]
    if len(broken) > LISTED:
        lines.append(f"  and {len(broken) - LISTED:,} more; --json lists all")
    return lines
