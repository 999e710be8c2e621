"""Which images an explanation was made on, as tables beside it: its numbers can be repeated without this code."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...archs.errors import InputError
from ...archs.files import atomic_write
from ..data.build import images_at
from ..data.dataset import DataSet, Pictures, Split
from ..data.splits import View, seen
from ..training.loaders import chosen_places, sample
from ..training.recipe import Recipe
from .trained_nets import MINIBATCHES, in_minibatches

Row = dict[str, Any]


def write_shown(folder: Path, data: DataSet, most: int, trained: Iterable[tuple[View, Recipe]]) -> None:
    """images-N.csv: the N validation images; minibatches-SHARE-DRAW.csv: those of what nets were trained on, and how.

    "index" counts from 0 in the whole split, in the order of the data; "name" is a picture's, "sha256" the digest of
    an image's raw values as little-endian float32, by channel, row and column.

    Raises:
        InputError: if the folder cannot be written to.
    """
    places = sample(len(data.val), most).numpy()
    tables = {f"images-{len(places)}": list(_rows("val", data.val, places))}
    for view, recipe in trained:
        name = f"minibatches-{view.share:g}-{view.draw}"
        if name not in tables:
            tables[name] = list(_minibatches(data, view, recipe))
    for name, rows in tables.items():
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        try:
            atomic_write(folder / f"{name}.csv", lambda file, text=text: file.write(text.getvalue().encode()))
        except OSError as error:
            raise InputError(f"explain: {folder} cannot be written to ({error.strerror or error})") from None


def _minibatches(data: DataSet, view: View, recipe: Recipe) -> Iterator[Row]:
    part = seen(replace(data, train=Split(np.arange(len(data.train)), data.train.y_N)), view).train
    assert isinstance(part.images, np.ndarray)
    few = in_minibatches(recipe, len(part))
    for step, chosen in chosen_places(few, 0, len(part), 0, MINIBATCHES):
        for row in _rows("train", data.train, part.images[chosen.numpy()]):
            yield {"minibatch": step} | row


def _rows(split: str, images: Split, places: np.ndarray) -> Iterator[Row]:
    for order, (place, x_CHW) in enumerate(zip(places.tolist(), images_at(images, places), strict=True)):
        name = ""
        if isinstance(images.images, Pictures):
            name = images.images.source.name(int(images.images.places_N[place]))
        digest = hashlib.sha256(np.ascontiguousarray(x_CHW, dtype="<f4").tobytes()).hexdigest()
        facts = {"order": order, "split": split, "index": place, "label": int(images.y_N[place])}
        yield facts | {"name": name, "sha256": digest}
