"""Splits: seeded, stratified, made once; groups, such as of one patient or font, stay whole. Numbers of the classes."""

import csv
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...archs.errors import InputError, short_repr
from .dataset import Moments, images_of_each

SEED = 0  # the split belongs to the data, not to the run: runs stay comparable
SHARES = (0.6, 0.2, 0.2)  # train, validation, test of a set in one piece
VAL_SHARE = 0.1  # of train, where a set has no validation split
MIN_CLASSES = 2  # that nets can tell apart
CHUNK = 1024
CHUNK_VALUES = 2**24  # of images at once, at most: 128 MiB as 64-bit numbers
# Labels, beside those below 0, that often say that there is none: the largest of a kind of numbers, or nines.
NO_LABEL = (255, *(2**bits - 1 for bits in (15, 16, 31, 32, 63)), 99, 999, 9999)
Places = dict[str, tuple[str, np.ndarray]]  # of each split: its part, and the places there
HEADER = ["file", "group"]
log = logging.getLogger("alternas")


def skip_advice(kept: int, does: str = "leaves them out") -> str:
    """Advice to skip broken pictures, where that keeps so many classes that a net can tell them apart."""
    if kept >= MIN_CLASSES:
        return f"--skip-broken {does}"
    return f"images of at least {MIN_CLASSES} classes are needed, and {kept} would be left without them"


def three_ways(y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train, validation and test places, each class split by SHARES."""
    random = np.random.default_rng(SEED)
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label in range(int(y_N.max()) + 1):
        places = random.permutation(np.flatnonzero(y_N == label))
        train_end, val_end = np.rint(np.cumsum(SHARES)[:2] * len(places)).astype(int)
        ends = (train_end, max(val_end, min(train_end + 1, len(places))))  # of few images one is for validation
        for part, chunk in zip(parts, np.split(places, ends), strict=True):
            part.append(chunk)
    train, val, test = (random.permutation(np.concatenate(part)) for part in parts)
    return train, val, test


def two_ways(y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Train and validation places: VAL_SHARE of each class, at least one image of two, is validation."""
    random = np.random.default_rng(SEED)
    train, val = [], []
    for label in range(int(y_N.max()) + 1):
        places = random.permutation(np.flatnonzero(y_N == label))
        cut = min(max(1, round(VAL_SHARE * len(places))), max(len(places) - 1, 0))
        val.append(places[:cut])
        train.append(places[cut:])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(val))


def iterative_split(
    y_NK: np.ndarray, shares: Sequence[float] = SHARES, group_N: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Places of each split, each label split by `shares` as far as it can be; images of one group stay together.

    Iterative stratification (Sechidis, Tsoumakas & Vlahavas, ECML PKDD 2011): label by label, of those that are left
    the rarest first, each group, the largest first, goes where the label is missing most; at last those without any.
    """
    group_N = np.arange(len(y_NK)) if group_N is None else group_N
    random, size_G = np.random.default_rng(SEED), np.bincount(group_N)
    y_GK = np.zeros((len(size_G), y_NK.shape[1]), np.int64)
    np.add.at(y_GK, group_N, y_NK)
    split_G, left_K = np.full(len(size_G), -1), y_GK.sum(0)
    missing_S, missing_SK = np.multiply(shares, len(y_NK)), np.outer(shares, left_K)
    while (split_G < 0).any():
        label = int(np.where(left_K > 0, left_K, len(y_NK) + 1).argmin()) if left_K.any() else None
        now_G = (split_G < 0) & (y_GK[:, label] > 0 if label is not None else True)
        order = random.permutation(np.flatnonzero(now_G))
        for group in order[np.argsort(-size_G[order], kind="stable")]:
            missing = missing_S if label is None else missing_SK[:, label]
            split = max(range(len(shares)), key=lambda s: (missing[s], missing_S[s]))
            split_G[group] = split
            missing_S[split] -= size_G[group]
            missing_SK[split] -= y_GK[group]
        left_K = left_K - y_GK[now_G].sum(0)
    return tuple(random.permutation(np.flatnonzero(split_G[group_N] == split)) for split in range(len(shares)))


def moments(x_NCHW: np.ndarray) -> Moments:
    """Mean and standard deviation of each channel, in two passes of 64-bit sums; the latter at least 1e-6."""
    channels, pixels = x_NCHW.shape[1], x_NCHW.shape[0] * x_NCHW.shape[2] * x_NCHW.shape[3]
    mean, variance = np.zeros(channels), np.zeros(channels)
    rows = min(CHUNK, max(1, CHUNK_VALUES // max(1, x_NCHW[:1].size)))
    chunks = [x_NCHW[at : at + rows] for at in range(0, len(x_NCHW), rows)]
    for chunk in chunks:
        mean += chunk.sum(axis=(0, 2, 3), dtype=np.float64) / pixels
    for chunk in chunks:
        off = chunk.astype(np.float64) - mean[None, :, None, None]
        variance += np.square(off).sum(axis=(0, 2, 3)) / pixels
    std = np.maximum(np.sqrt(variance), 1e-6)
    return tuple(mean.tolist()), tuple(std.tolist())


def places_of(
    name: str, labels: dict[str, np.ndarray], classes: tuple[str, ...], groups: dict[str, np.ndarray] | None = None
) -> tuple[Places, str]:
    """Choose the images of each split, as (part, places); the second value says in words where they come from.

    Labels are y_N by part, "all", or "train" with or without "val" and "test", (N, K) of several labels. A class of few
    images has one in train and, of two or more, one in validation; classes that a split lacks are logged. A split that
    is made here keeps each of the groups whole. InputError if there are fewer than two classes, or train has no image
    of one.
    """
    first = "all" if "all" in labels else "train"
    counts = images_of_each(labels[first], len(classes))
    if len(classes) < MIN_CLASSES:
        raise InputError(f"data: {name}: needs at least {MIN_CLASSES} classes, got {len(classes)}")
    if not counts.min():
        few = classes[int(counts.argmin())]
        hint = skip_advice(int((counts > 0).sum()), "leaves out classes that have none")
        raise InputError(f"data: {name}: needs images of each class; {few!r} has 0; {hint}")
    places: Places = {part: (part, np.arange(len(y_N))) for part, y_N in labels.items()}
    note, shares = "as the set has them", SHARES if first == "all" else (1 - VAL_SHARE, VAL_SHARE)
    if "val" not in labels:
        y_N = labels[first]
        if groups or y_N.ndim == 2:
            y_NK = y_N if y_N.ndim == 2 else np.eye(len(classes), dtype=np.uint8)[y_N]
            made = iterative_split(y_NK, shares, groups[first] if groups else None)
        else:
            made = three_ways(y_N) if first == "all" else two_ways(y_N)
        test = {part: at for part, at in places.items() if part == "test"}
        places = {to: (first, at) for to, at in zip(("train", "val", "test"), made, strict=False)} | test
        what = "label, as far as they can be" if y_N.ndim == 2 else "class"
        note = f"{' / '.join(f'{share:.0%}' for share in SHARES)} of each {what}"
        note = note if first == "all" else f"validation: {VAL_SHARE:.0%} of each {what} of train"
    for split, (part, at) in places.items():
        if not len(at):
            raise InputError(f"data: {name}: no image is left for {split}; there are too few{' groups' * bool(groups)}")
        lacking = [classes[k] for k in np.flatnonzero(images_of_each(labels[part][at], len(classes)) == 0)]
        if lacking:
            what = f"{split} has none of {len(lacking)} of {len(classes)} classes: {short_repr(', '.join(lacking))}"
            if split == "train":
                raise InputError(f"data: {name}: {what}; their groups are too few")
            log.warning("data: %s: %s", name, what)
            note += f"; {what}"
    return places, note


def labelled(name: str, labels: dict[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """The parts with labels, at least train; None and -1 count as none. InputError if part of a part has labels."""
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
    name: str, labels: dict[str, np.ndarray], names: Mapping[str, Sequence[str]]
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Number the classes alike in all parts as y_N, int64 from 0, in the order of the first part; and name them.

    Labels are places in their part's `names`; of a part without names they are the names. Without any names they are
    numbered in their order. InputError if a label has no name, there are fewer than two classes, or a part has one that
    train lacks.
    """
    if any(len(names.get(part, ())) for part in labels):
        y, classes = _by_name(name, labels, names)
    else:
        known = np.unique(np.concatenate(list(labels.values())))
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


def warn_of_no_label(name: str, count_of: Mapping[str, int]) -> None:
    """Warn of classes, by their images, named by a number that often means none; -1 and 1 alone are two classes."""
    numbers = sorted(int(label) for label in count_of if label.isascii() and label.removeprefix("-").isdigit())
    if not numbers or len(count_of) < 2 or numbers == [-1, 1]:
        return
    odd = [number for number in numbers if number < 0]
    if numbers[-1] in NO_LABEL and (len(numbers) == 1 or numbers[-1] - numbers[-2] > 1):
        odd.append(numbers[-1])
    for number in odd:
        rule = f"{count_of.get(str(number), 0):,} images have the label {number}, which becomes a class"
        log.warning("data: %s: %s: if it says that there is no label, leave them out", name, rule)


def _by_name(
    name: str, labels: dict[str, np.ndarray], names: Mapping[str, Sequence[str]]
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Labels of parts that name their classes, each part in an order of its own perhaps."""
    lists, y = dict[str, tuple[str, ...]](), dict[str, np.ndarray]()
    for part, values in labels.items():
        lists[part], y[part] = tuple(map(str, names.get(part, ()))), values
        if not lists[part] and values.dtype.kind == "U":
            known, y[part] = np.unique(values, return_inverse=True)
            lists[part] = tuple(map(str, known))
        if not lists[part]:
            raise InputError(f"data: {name}: {part} numbers its classes, and another part names them")
        wrong = y[part][(y[part] < 0) | (y[part] >= len(lists[part]))]
        if len(wrong):
            rule = f"{len(lists[part])} classes are named, but there is a label {wrong[0]}"
            raise InputError(f"data: {name}: {rule} in {part}")
    classes = next(iter(lists.values()))
    if len(set(lists.values())) == 1:  # a name may stand twice, as two of ImageNet's do
        return {part: values.astype(np.int64) for part, values in y.items()}, classes
    for part, own in lists.items():
        if len(set(own)) < len(own):
            raise InputError(f"data: {name}: parts list their classes differently, and {part} has a name twice")
    used = (own[label] for part, own in lists.items() for label in np.unique(y[part]))
    classes = tuple(dict.fromkeys((*classes, *used)))
    place = {called: label for label, called in enumerate(classes)}
    return {part: np.array([place.get(c, -1) for c in lists[part]])[values] for part, values in y.items()}, classes


def group_numbers(group_by: str, keys: dict[str, list[str]]) -> dict[str, np.ndarray]:
    """Number of each picture's group, from 0, by part; a group may lie in several parts.

    `group_by` is a CSV file with columns `file` and `group`, or a regular expression whose groups, found in a picture's
    name, are the name of its group. InputError if it is neither, or a picture has no group.
    """
    named = [key for names in keys.values() for key in names]
    if os.path.exists(group_by):
        listed = _read(group_by)
        groups = [listed.get(key) for key in named]
    else:
        try:
            pattern = re.compile(group_by)
        except re.error as error:
            raise InputError(f"group-by: no such file, and no regular expression ({error}): {group_by}") from None
        if not pattern.groups:
            rule = r"no such file; a regular expression must hold a group in parentheses, such as (patient\d+)"
            raise InputError(f"group-by: {rule}, got {short_repr(group_by)}")
        groups = [found.groups("") if (found := pattern.search(key)) else None for key in named]
    if missing := [key for key, group in zip(named, groups, strict=True) if group is None]:
        rule = f"{len(missing)} of {len(named)} pictures have no group by {short_repr(group_by)}"
        raise InputError(f"group-by: {rule}; the first: {missing[0]}")
    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    numbers = np.array([number[group] for group in groups], np.int64)
    ends = np.cumsum([len(names) for names in keys.values()])[:-1]
    return dict(zip(keys, np.split(numbers, ends), strict=True))


def _read(path: str) -> dict[str, str]:
    if not os.path.isfile(path):
        raise InputError(f"group-by: {path} is no regular file")
    header, *rows = [cells for _, cells in read_csv("group-by", path)] or [[]]
    if header != HEADER:
        raise InputError(f"group-by: {path}: columns must be {', '.join(HEADER)}, got {short_repr(header)}")
    if wrong := next((row for row in rows if len(row) != len(HEADER)), None):
        raise InputError(f"group-by: {path}: rows must have 2 columns, got {short_repr(wrong)}")
    return {file.removeprefix("./"): group for file, group in rows}


def read_csv(what: str, path: str) -> list[tuple[int, list[str]]]:
    """Line number and cells of each row that is not empty; InputError, about `what`, if it is no CSV file in UTF-8."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            return [(rows.line_num, cells) for cells in rows if cells]
    except OSError as error:
        raise InputError(f"{what}: {path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{what}: {path}: is no CSV file in UTF-8 ({error})") from None
