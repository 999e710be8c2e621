"""What every reader does with labels: whole numbers from 0, and the names of their classes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...archs.errors import InputError, shown

log = logging.getLogger("alternas")


def labelled(name: str, labels: dict[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """The labels of the parts that have any; None and -1 are none. The parts left out are logged.

    Raises:
        InputError: if a part has labels for some of its pictures only, or train has none.
    """
    missing = {part: sum(value is None or value == -1 for value in values) for part, values in labels.items()}
    for part, values in labels.items():
        if missing[part] and (missing[part] < len(values) or part in ("all", "train")):
            raise InputError(f"data: {name}: {missing[part]} of {len(values)} pictures of {part} have no label")
        if missing[part]:
            log.warning("data: %s: left aside %s: its %d pictures have no labels", name, part, len(values))
    return {part: np.asarray(values) for part, values in labels.items() if not missing[part]}


def numbered(
    name: str, labels: dict[str, np.ndarray], names: Sequence[str] = ()
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """The labels of each part as y_N, int64 from 0, and the names of the classes.

    Args:
        name: of the set, for messages.
        labels: by part, whole numbers or text.
        names: of the classes, if they are known: the labels are then places in it and stay as they are.
            Else the labels are numbered in their order, and are their own names.

    Raises:
        InputError: if a label has no name, there are fewer than two classes, or a part has one that train lacks.
    """
    known = np.unique(np.concatenate(list(labels.values())))
    if len(names):
        _refuse_nameless(name, known, len(names))
        y, classes = {part: values.astype(np.int64) for part, values in labels.items()}, tuple(map(str, names))
    else:
        y, classes = {part: np.searchsorted(known, v) for part, v in labels.items()}, tuple(map(str, known))
    _refuse_new(name, y, classes)
    return y, classes


def _refuse_nameless(name: str, known: np.ndarray, count: int) -> None:
    if len(wrong := known[(known < 0) | (known >= count)]):
        raise InputError(f"data: {name}: {count} classes are named, but there is a label {wrong[0]}")


def _refuse_new(name: str, y: dict[str, np.ndarray], classes: tuple[str, ...]) -> None:
    trained = np.unique(y["all"] if "all" in y else y["train"])
    if len(trained) == 1:
        raise InputError(f"data: {name}: only the class {shown(classes[trained[0]])}; at least two are needed")
    for part, y_N in y.items():
        if not len(y_N):
            raise InputError(f"data: {name}: no pictures in {part}")
        if len(new := np.setdiff1d(y_N, trained)):
            raise InputError(f"data: {name}: {part} has a class that train lacks: {shown(classes[new[0]])}")
