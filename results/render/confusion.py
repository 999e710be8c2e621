"""A trained net's confusion of classes, as its training has left it beside the weights: read, by class, in words."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.record import Record
from ..runs.store import weights_file

if TYPE_CHECKING:
    import numpy as np

SHOWN = 8  # classes, and pairs of classes


def read_confusion(folder: Path, record: Record, classes: int) -> np.ndarray | None:
    """Validation images of class (row) taken for class (column), (K, K); None where there is no whole file of them."""
    path = weights_file(folder, record).with_suffix(".npz")
    if not path.exists():
        return None
    from ..runs.arrays import read_array, unless_damaged

    def fits(shape: tuple[int, ...], dtype: np.dtype) -> bool:
        return shape == (classes, classes) and dtype.kind in "iu"

    expected = f"a confusion of classes, {classes}x{classes} whole numbers"
    return unless_damaged(
        partial(read_array, path, "val", fits, expected), f"{record.name} is shown without its classes"
    )


def per_class(confusion_KK: np.ndarray, classes: list[str]) -> list[dict[str, Any]]:
    """Images and accuracy of each class; None for one without images."""
    counts, right = confusion_KK.sum(1).tolist(), confusion_KK.diagonal().tolist()
    return [
        {"class": name, "images": n, "accuracy": hit / n if n else None}
        for name, n, hit in zip(classes, counts, right, strict=True)
    ]


def mistakes(confusion_KK: np.ndarray, most: int) -> list[tuple[int, int, int]]:
    """The commonest mistakes: the class, what it was taken for, and how many images."""
    wrong_KK = confusion_KK.astype("int64")
    wrong_KK.flat[:: len(wrong_KK) + 1] = 0  # the diagonal
    order = (-wrong_KK).argsort(axis=None, kind="stable")[:most].tolist()
    pairs = [divmod(at, len(wrong_KK)) for at in order if wrong_KK.flat[at]]
    return [(a, b, int(wrong_KK[a, b])) for a, b in pairs]


def confusion_lines(confusion_KK: np.ndarray, classes: list[str]) -> list[str]:
    """The worst classes, and the commonest mistakes."""
    rows = [row for row in per_class(confusion_KK, classes) if row["images"]]
    rows.sort(key=lambda row: row["accuracy"])
    weakest = ", ".join(f"{row['class']} {row['accuracy']:.2f}" for row in rows[:SHOWN])
    confused = ", ".join(f"{classes[a]} as {classes[b]} ({n})" for a, b, n in mistakes(confusion_KK, SHOWN))
    return [f"weakest classes: {weakest}", f"commonest mistakes: {confused or 'none'}"]
