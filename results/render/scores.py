"""How good one trained net is, in full: on training and validation images, class by class, and what it confuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from ..runs.record import Record
from ..runs.store import read_array, weights_file
from .terminal import plain

SHOWN = 8  # classes, and pairs of classes
COLUMNS = (("accuracy", "accuracy"), ("top5", "top 5"), ("nll", "NLL"), ("ece", "calibration error"))


def confusion_of(folder: Path, record: Record, classes: int) -> np.ndarray | None:
    """Validation images of class (row) taken for class (column), (K, K); None where the net was not trained to the end.

    Raises:
        InputError: if the file cannot be read as that.
    """
    path = weights_file(folder, record).with_suffix(".npz")
    if not path.exists():
        return None
    wanted = f"a confusion of classes, {classes}x{classes} whole numbers"
    return read_array(path, "val", lambda shape, dtype: shape == (classes, classes) and dtype.kind in "iu", wanted)


def per_class(confusion_KK: np.ndarray, classes: list[str]) -> list[dict[str, Any]]:
    """Images and accuracy of each class; None for one without images."""
    counts, right = confusion_KK.sum(1).tolist(), confusion_KK.diagonal().tolist()
    return [
        {"class": name, "images": n, "accuracy": hit / n if n else None}
        for name, n, hit in zip(classes, counts, right, strict=True)
    ]


def scores_drawing(record: Record, confusion_KK: np.ndarray | None, classes: list[str]) -> RenderableType:
    """Scores on validation and training images, the worst classes, the commonest mistakes."""
    parts: list[RenderableType] = [_splits(record)]
    if confusion_KK is not None:
        parts += [plain(_worst(confusion_KK, classes), _mistakes(confusion_KK, classes))]
    how = ", ".join(f"{name} {value}" for name, value in record.runtime.items())
    return Group(*parts, plain(f"trained on {record.device} ({how}), {record.seconds:.1f} s", style="dim"))


def _splits(record: Record) -> Table:
    """Side by side: a large gap is overfitting, two bad ones underfitting."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name in ("images", *(title for _, title in COLUMNS)):
        table.add_column(name, justify="left" if name == "images" else "right")
    scores = {"validation": record.metrics | {"accuracy": record.own_accuracy}}
    train = {name.removeprefix("train_"): v for name, v in record.metrics.items() if name.startswith("train_")}
    for split, found in (scores | ({"training": train} if train else {})).items():
        cells = [found.get(name) for name, _ in COLUMNS]
        table.add_row(split, *("-" if v is None else f"{v:.4f}" for v in cells))
    return table


def _worst(confusion_KK: np.ndarray, classes: list[str]) -> str:
    rows = [row for row in per_class(confusion_KK, classes) if row["images"]]
    rows.sort(key=lambda row: row["accuracy"])
    return "weakest classes: " + ", ".join(f"{row['class']} {row['accuracy']:.2f}" for row in rows[:SHOWN])


def _mistakes(confusion_KK: np.ndarray, classes: list[str]) -> str:
    wrong = confusion_KK - np.diag(confusion_KK.diagonal())
    at = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN]
    pairs = [(int(i // len(classes)), int(i % len(classes))) for i in at if wrong.flat[i]]
    said = ", ".join(f"{classes[a]} as {classes[b]} ({wrong[a, b]})" for a, b in pairs)
    return f"commonest mistakes: {said or 'none'}"
