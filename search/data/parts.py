"""Which images of which part make up train, validation and test."""

from __future__ import annotations

import numpy as np

from ...archs.errors import InputError
from .splits import SHARES, VAL_SHARE, three_ways, two_ways

LEAST = {"all": 5, "train": 2}  # images of each class, so that every split gets one
Places = dict[str, tuple[str, np.ndarray]]


def places_of(name: str, labels: dict[str, np.ndarray], classes: tuple[str, ...]) -> tuple[Places, str]:
    """(part, places) of each split, and a sentence that says where they come from.

    Args:
        name: of the set, for messages.
        labels: y_N by part: "all", or "train" with or without "val" and "test".
        classes: names by label.

    Raises:
        InputError: if there are fewer than two classes, or a class has too few images to be split.
    """
    first = "all" if "all" in labels else "train"
    _check(name, first, labels[first], classes, "val" in labels)
    if first == "all":
        three = zip(("train", "val", "test"), three_ways(labels["all"]), strict=True)
        return {to: ("all", at) for to, at in three}, f"{' / '.join(f'{share:.0%}' for share in SHARES)} of each class"
    if "val" in labels:
        whole: Places = {part: (part, np.arange(len(y))) for part, y in labels.items()}
        return whole, "as the set has them"
    train, val = two_ways(labels["train"])
    found: Places = {"train": ("train", train), "val": ("train", val)}
    if "test" in labels:
        found["test"] = ("test", np.arange(len(labels["test"])))
    return found, f"validation: {VAL_SHARE:.0%} of each class of train"


def _check(name: str, part: str, y_N: np.ndarray, classes: tuple[str, ...], has_val: bool) -> None:
    counts, least = np.bincount(y_N, minlength=len(classes)), 1 if has_val else LEAST[part]
    if len(classes) < 2:
        raise InputError(f"data: {name}: needs at least 2 classes, got {len(classes)}")
    if counts.min() < least:
        few = classes[int(counts.argmin())]
        rule = f"needs at least {least} images of each class to split them"
        hint = "" if counts.min() else "; --skip-broken leaves out classes that have none"
        raise InputError(f"data: {name}: {rule}; {few!r} has {counts.min()}{hint}")
