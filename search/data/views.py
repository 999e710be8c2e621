"""Views: the part of a data set that a training sees, and the folds of a cross-validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...archs.errors import InputError
from .dataset import DataSet, ImageSource, Pictures, Split
from .splits import iterative_split

if TYPE_CHECKING:
    from PIL.Image import Image

    from ...archs.pictures import Shrink


@dataclass(frozen=True)
class View:
    """Part of a data set that a training sees."""

    share: float = 1.0  # of the training images of each class, at least one; smaller shares lie within larger ones
    classes: tuple[int, ...] = ()  # labels that are kept and become 0, 1, ... in this order; () keeps all
    draw: int = 0  # which images the share holds
    folds: int = 0  # of a cross-validation over training and validation images together; 0 is the split as it is
    fold: int = 0  # which of them is for validation

    def __post_init__(self) -> None:
        if self.folds and not (self.folds > 1 and 0 <= self.fold < self.folds):
            raise InputError(f"view: fold must be from 0 to below folds, of 2 or more, got {self.fold} of {self.folds}")
        if not 0 < self.share <= 1:
            raise InputError(f"view: share must be above 0 and at most 1, got {self.share}")
        if len(set(self.classes)) < len(self.classes):
            raise InputError(f"view: classes must differ, got {self.classes}")

    def facts(self) -> dict[str, Any]:
        """The view as a record keeps it."""
        classes = {"classes": list(self.classes)} if self.classes else {}
        draw = {"draw": self.draw} if self.share < 1 else {}
        fold = {"fold": self.fold, "folds": self.folds} if self.folds else {}
        return {"fraction": self.share} | classes | draw | fold


WHOLE = View()


def fold_view(folds: int, fold: int = 0) -> View:
    """The view of one training of a net: a fold, or the whole where nets are not cross-validated."""
    return View(folds=folds, fold=fold) if folds else WHOLE


def seen(data: DataSet, view: View) -> DataSet:
    """The part of `data` that `view` keeps; normalised as the whole is; InputError if a class is not there."""
    if view == WHOLE:
        return data
    train, val, test, classes = data.train, data.val, data.test, data.classes
    if view.folds:
        both = joined(train, val)
        own_N = fold_numbers(both.y_N, len(classes), view.folds, both.group_N) == view.fold
        train, val = both.at(~own_N), both.at(own_N)
    if view.classes:
        missing = [label for label in view.classes if not 0 <= label < len(classes)]
        if missing:
            raise InputError(f"view: no class {missing[0]}; {data.name} has {len(classes)}")
        train, val = _of_classes(train, view.classes), _of_classes(val, view.classes)
        test = _of_classes(test, view.classes) if test else None
        classes = tuple(classes[label] for label in view.classes)
    if view.share < 1:
        chosen = []  # the first ones of a fixed order of each class
        for label in np.unique(train.y_N):
            order = np.random.default_rng((view.draw, int(label))).permutation(np.flatnonzero(train.y_N == label))
            chosen.append(order[: max(1, round(view.share * len(order)))])
        train = train.at(np.sort(np.concatenate(chosen)))
    mark = f"{data.split_hash}:{view.share:g}:{view.draw}:{','.join(map(str, view.classes))}"
    mark += f":{view.fold}/{view.folds}" if view.folds else ""
    return replace(data, classes=classes, train=train, val=val, test=test, split_hash=mark)


def fold_numbers(y_N: np.ndarray, classes: int, folds: int, group_N: np.ndarray | None = None) -> np.ndarray:
    """The fold of each image, from 0: as many of each class, or label, in each as can be, a group in one."""
    y_NK = y_N if y_N.ndim == 2 else np.eye(classes, dtype=np.uint8)[y_N]
    fold_N = np.zeros(len(y_N), np.int64)
    own_N = None if group_N is None else np.unique(group_N, return_inverse=True)[1]  # from 0, without gaps
    for fold, places in enumerate(iterative_split(y_NK, (1 / folds,) * folds, own_N)):
        fold_N[places] = fold
    return fold_N


@dataclass(frozen=True)
class JoinedSource(ImageSource):
    """The pictures of two sources, those of the first one first."""

    one: ImageSource
    other: ImageSource

    def __len__(self) -> int:
        return len(self.one) + len(self.other)

    def open(self, place: int, shrink: Shrink | None = None) -> Image:
        source, own = self._at(place)
        return source.open(own, shrink)

    def name(self, place: int) -> str:
        source, own = self._at(place)
        return source.name(own)

    def _at(self, place: int) -> tuple[ImageSource, int]:
        first = len(self.one)
        return (self.one, place) if place < first else (self.other, place - first)


def joined(one: Split, other: Split) -> Split:
    """The images of both splits, those of the first one first."""
    y_N, group_N = np.concatenate([one.y_N, other.y_N]), None
    if one.group_N is not None and other.group_N is not None:
        group_N = np.concatenate([one.group_N, other.group_N])
    if isinstance(one.images, Pictures) and isinstance(other.images, Pictures):
        source = JoinedSource(one.images.source, other.images.source)
        places_N = np.concatenate([one.images.places_N, len(one.images.source) + other.images.places_N])
        return Split(replace(one.images, source=source, places_N=places_N), y_N, group_N)
    assert isinstance(one.images, np.ndarray)
    assert isinstance(other.images, np.ndarray)
    return Split(np.concatenate([one.images, other.images]), y_N, group_N)


def _of_classes(split: Split, classes: tuple[int, ...]) -> Split:
    part = split.at(np.flatnonzero(np.isin(split.y_N, classes)))
    new = np.full(max(classes) + 1, -1)
    new[list(classes)] = np.arange(len(classes))
    return replace(part, y_N=new[part.y_N].astype(split.y_N.dtype))
