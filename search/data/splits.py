"""Splits: seeded, stratified, made once. Labels, what is left out of a set, and the part of it a training sees."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...archs.errors import InputError, short_repr
from .dataset import Broken, BrokenPicturesError, DataConfig, DataSet, Moments, Split, images_of_each

SEED = 0  # the split belongs to the data, not to the run: runs stay comparable
SHARES = (0.6, 0.2, 0.2)  # train, validation, test of a set in one piece
VAL_SHARE = 0.1  # of train, where a set has no validation split
LEAST = {"all": 5, "train": 2}  # images of each class, so that every split gets one
CHUNK = 1024
Places = dict[str, tuple[str, np.ndarray]]  # of each split: its part, and the places there
log = logging.getLogger("alternas")


def three_ways(y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train, validation and test places, each class split by SHARES."""
    random = np.random.default_rng(SEED)
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label in range(int(y_N.max()) + 1):
        places = random.permutation(np.flatnonzero(y_N == label))
        ends = np.rint(np.cumsum(SHARES)[:2] * len(places)).astype(int)
        for part, chunk in zip(parts, np.split(places, ends), strict=True):
            part.append(chunk)
    train, val, test = (random.permutation(np.concatenate(part)) for part in parts)
    return train, val, test


def two_ways(y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Train and validation places: VAL_SHARE of each class, at least one image, is validation."""
    random = np.random.default_rng(SEED)
    train, val = [], []
    for label in range(int(y_N.max()) + 1):
        places = random.permutation(np.flatnonzero(y_N == label))
        cut = max(1, round(VAL_SHARE * len(places)))
        val.append(places[:cut])
        train.append(places[cut:])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(val))


def iterative_three_ways(y_NK: np.ndarray) -> tuple[np.ndarray, ...]:
    """Train, validation and test places of pictures with several labels, each label split by SHARES as far as it can.

    Iterative stratification (Sechidis, Tsoumakas & Vlahavas, ECML PKDD 2011): label by label, of those that are left
    the rarest first, each picture goes where the label is missing most; at last those without any.
    """
    random, split_N = np.random.default_rng(SEED), np.full(len(y_NK), -1)
    left_K = y_NK.sum(0, dtype=np.int64)
    missing_S, missing_SK = np.multiply(SHARES, len(y_NK)), np.outer(SHARES, left_K)
    while (split_N < 0).any():
        label = int(np.where(left_K > 0, left_K, len(y_NK) + 1).argmin()) if left_K.any() else None
        now_N = (split_N < 0) & (y_NK[:, label] > 0 if label is not None else True)
        for place in random.permutation(np.flatnonzero(now_N)):
            missing = missing_S if label is None else missing_SK[:, label]
            split = max(range(len(SHARES)), key=lambda s: (missing[s], missing_S[s]))
            split_N[place] = split
            missing_S[split] -= 1
            missing_SK[split] -= y_NK[place]
        left_K -= y_NK[now_N].sum(0, dtype=np.int64)
    return tuple(random.permutation(np.flatnonzero(split_N == split)) for split in range(len(SHARES)))


def moments(x_NCHW: np.ndarray) -> Moments:
    """Mean and standard deviation of each channel, in two passes of 64-bit sums; the latter at least 1e-6."""
    channels, pixels = x_NCHW.shape[1], x_NCHW.shape[0] * x_NCHW.shape[2] * x_NCHW.shape[3]
    mean, variance = np.zeros(channels), np.zeros(channels)
    chunks = [x_NCHW[at : at + CHUNK] for at in range(0, len(x_NCHW), CHUNK)]
    for chunk in chunks:
        mean += chunk.sum(axis=(0, 2, 3), dtype=np.float64) / pixels
    for chunk in chunks:
        off = chunk.astype(np.float64) - mean[None, :, None, None]
        variance += np.square(off).sum(axis=(0, 2, 3)) / pixels
    std = np.maximum(np.sqrt(variance), 1e-6)
    return tuple(mean.tolist()), tuple(std.tolist())


def places_of(name: str, labels: dict[str, np.ndarray], classes: tuple[str, ...]) -> tuple[Places, str]:
    """Choose the images of each split, as (part, places); the second value says in words where they come from.

    `labels` has y_N by part: "all", or "train" with or without "val" and "test"; (N, K) of several labels.

    Raises:
        InputError: if there are fewer than two classes, or a class has too few images to be split.
    """
    first = "all" if "all" in labels else "train"
    counts = images_of_each(labels[first], len(classes))
    least = 1 if "val" in labels else LEAST[first]
    if len(classes) < 2:
        raise InputError(f"data: {name}: needs at least 2 classes, got {len(classes)}")
    if counts.min() < least:
        few = classes[int(counts.argmin())]
        rule = f"needs at least {least} images of each class to split them"
        hint = "" if counts.min() else "; --skip-broken leaves out classes that have none"
        raise InputError(f"data: {name}: {rule}; {few!r} has {counts.min()}{hint}")
    if labels[first].ndim == 2:
        return _places_of_labels(name, labels[first], classes)
    if first == "all":
        three = zip(("train", "val", "test"), three_ways(labels["all"]), strict=True)
        return {to: ("all", at) for to, at in three}, f"{' / '.join(f'{share:.0%}' for share in SHARES)} of each class"
    places: Places = {part: (part, np.arange(len(y_N))) for part, y_N in labels.items()}
    if "val" in labels:
        return places, "as the set has them"
    train, val = two_ways(labels["train"])
    two: Places = {"train": ("train", train), "val": ("train", val)}
    test = {part: at for part, at in places.items() if part == "test"}
    return two | test, f"validation: {VAL_SHARE:.0%} of each class of train"


def _places_of_labels(name: str, y_NK: np.ndarray, labels: tuple[str, ...]) -> tuple[Places, str]:
    """As `places_of`, of a set in one piece whose pictures have several labels."""
    places = dict(zip(("train", "val", "test"), iterative_three_ways(y_NK), strict=True))
    for split, at in places.items():
        if len(missing := np.flatnonzero(~y_NK[at].any(0))):
            few, rule = labels[missing[0]], "needs more pictures with each label to split them"
            raise InputError(f"data: {name}: {rule}; no picture of {split} has {short_repr(few)}")
    shares = " / ".join(f"{share:.0%}" for share in SHARES)
    return {to: ("all", at) for to, at in places.items()}, f"{shares} of each label, as far as they can be"


def labelled(name: str, labels: dict[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """Leave out the parts that have no labels, and log them; None and -1 count as none.

    Raises:
        InputError: if a part has labels for some of its pictures only, or train has none.
    """
    with_labels = {}
    for part, values in labels.items():
        missing = sum(value is None or value == -1 for value in values)
        if missing and (missing < len(values) or part in ("all", "train")):
            raise InputError(f"data: {name}: {missing} of {len(values)} pictures of {part} have no label")
        if missing:
            log.warning("data: %s: left aside %s: its %d pictures have no labels", name, part, len(values))
        else:
            with_labels[part] = np.asarray(values)
    return with_labels


def numbered(
    name: str, labels: dict[str, np.ndarray], names: Sequence[str] = ()
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Number the labels of each part as y_N, int64 from 0, and name the classes.

    Labels are places in `names` if the classes have names. Else they are numbered in their order, and are their names.

    Raises:
        InputError: if a label has no name, there are fewer than two classes, or a part has one that train lacks.
    """
    known = np.unique(np.concatenate(list(labels.values())))
    if len(names):
        if len(wrong := known[(known < 0) | (known >= len(names))]):
            raise InputError(f"data: {name}: {len(names)} classes are named, but there is a label {wrong[0]}")
        y, classes = {part: values.astype(np.int64) for part, values in labels.items()}, tuple(map(str, names))
    else:
        y, classes = {part: np.searchsorted(known, v) for part, v in labels.items()}, tuple(map(str, known))
    trained = np.unique(y["all"] if "all" in y else y["train"])
    if len(trained) == 1:
        raise InputError(f"data: {name}: only the class {short_repr(classes[trained[0]])}; at least two are needed")
    for part, y_N in y.items():
        if not len(y_N):
            raise InputError(f"data: {name}: no pictures in {part}")
        if len(new := np.setdiff1d(y_N, trained)):
            raise InputError(f"data: {name}: {part} has a class that train lacks: {short_repr(classes[new[0]])}")
    return y, classes


def skip_broken(config: DataConfig, broken: tuple[Broken, ...], total: int) -> dict[str, dict[str, int]]:
    """Log how many pictures are left out of a set, if any, and return the count of each part as a note.

    Raises:
        BrokenPicturesError: if they are not to be skipped.
    """
    if not broken:
        return {}
    first = f"the first: {broken[0].picture} ({broken[0].reason})"
    what = f"{len(broken)} of {total} pictures cannot be read; {first}"
    if not config.skip_broken:
        raise BrokenPicturesError(f"data: {config.name}: {what}; --skip-broken leaves them out", broken)
    log.warning("%s: %s: left out", config.name, what)
    return {"skipped": dict(Counter(one.part for one in broken))}


def warn_empty_classes(name: str, empty: Sequence[str], count: int, lost: int = 0) -> None:
    """Log which of `count` classes are left out, and how many pictures of val and test are lost with them."""
    what = f"{len(empty)} of {count} classes have no picture to train on: {short_repr(', '.join(empty))}"
    log.warning("%s: %s: left out%s", name, what, f", with {lost} pictures of val or test" if lost else "")


@dataclass(frozen=True)
class View:
    """Part of a data set that a training sees."""

    share: float = 1.0  # of the training images of each class, at least one; smaller shares lie within larger ones
    classes: tuple[int, ...] = ()  # labels that are kept and become 0, 1, ... in this order; () keeps all
    draw: int = 0  # which images the share holds

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
    train, val, test, classes = data.train, data.val, data.test, data.classes
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
    return replace(data, classes=classes, train=train, val=val, test=test, split_hash=mark)


def _of_classes(split: Split, classes: tuple[int, ...]) -> Split:
    part = split.at(np.flatnonzero(np.isin(split.y_N, classes)))
    new = np.full(max(classes) + 1, -1)
    new[list(classes)] = np.arange(len(classes))
    return Split(part.images, new[part.y_N].astype(split.y_N.dtype))
