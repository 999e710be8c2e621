"""Views of a data set: a share of its training images, or some of its classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...archs.errors import InputError
from .dataset import DataSet, Pictures, Split


@dataclass(frozen=True)
class View:
    """Part of a data set that a training sees.

    Attributes:
        share: of the training images of each class, at least one image; smaller shares lie within larger ones.
        classes: labels that are kept and become 0, 1, ... in this order, in all splits; () keeps all.
        draw: which images the share holds.
    """

    share: float = 1.0
    classes: tuple[int, ...] = ()
    draw: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"view: share must be above 0 and at most 1, got {self.share}")
        if len(set(self.classes)) < len(self.classes):
            raise InputError(f"view: classes must differ, got {self.classes}")

    def facts(self) -> dict[str, Any]:
        """The view as a record keeps it."""
        classes = {"classes": list(self.classes)} if self.classes else {}
        return {"fraction": self.share} | classes | ({"draw": self.draw} if self.share < 1 else {})


WHOLE = View()


def seen(data: DataSet, view: View) -> DataSet:
    """The part of `data` that `view` keeps; normalised as the whole is.

    Raises:
        InputError: if a class is not there.
    """
    if view == WHOLE:
        return data
    train, val, test = data.train, data.val, data.test
    classes = data.classes
    if view.classes:
        missing = [label for label in view.classes if not 0 <= label < len(classes)]
        if missing:
            raise InputError(f"view: no class {missing[0]}; {data.name} has {len(classes)}")
        train, val = _of_classes(train, view.classes), _of_classes(val, view.classes)
        test = _of_classes(test, view.classes) if test else None
        classes = tuple(classes[label] for label in view.classes)
    if view.share < 1:
        train = _at(train, _places(train.y_N, view))
    mark = f"{data.split_hash}:{view.share:g}:{view.draw}:{','.join(map(str, view.classes))}"
    return replace(data, classes=classes, train=train, val=val, test=test, split_hash=mark)


def _places(y_N: np.ndarray, view: View) -> np.ndarray:
    """Places of the images kept: the first ones of a fixed order of each class, in the order of the set."""
    chosen = []
    for label in np.unique(y_N):
        order = np.random.default_rng((view.draw, int(label))).permutation(np.flatnonzero(y_N == label))
        chosen.append(order[: max(1, round(view.share * len(order)))])
    return np.sort(np.concatenate(chosen))


def _of_classes(split: Split, classes: tuple[int, ...]) -> Split:
    part = _at(split, np.flatnonzero(np.isin(split.y_N, classes)))
    new = np.full(max(classes) + 1, -1)
    new[list(classes)] = np.arange(len(classes))
    return Split(part.images, new[part.y_N].astype(split.y_N.dtype))


def _at(split: Split, places: np.ndarray) -> Split:
    images = split.images
    if isinstance(images, Pictures):
        return Split(replace(images, places_N=images.places_N[places]), split.y_N[places])
    return Split(images[places], split.y_N[places])
