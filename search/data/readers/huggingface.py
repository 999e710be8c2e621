"""`hfds/NAME`: sets of Hugging Face's `datasets` library, from a folder or from the Hub."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from PIL import Image

from ....archs.errors import InputError
from ..dataset import DataConfig, RawDataset, RawSplit, downloads, missing_package
from ..images import decode, one_line
from ..splits import labelled, numbered
from .folder import parts_named

IMAGES = ("image", "img")
LABELS = ("label", "labels", "fine_label")

log = logging.getLogger("alternas")


@dataclass(frozen=True)
class Rows:
    """Pictures in a column of a `datasets.Dataset`, as encoded bytes or as paths."""

    label: str
    rows: Any
    column: str

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, place: int) -> Image.Image:
        value = self.rows[place][self.column] or {}
        if value.get("bytes") is not None:
            return decode(BytesIO(value["bytes"]))
        if value.get("path") is not None:
            return decode(value["path"])
        raise ValueError("the row holds no picture")

    def name(self, place: int) -> str:
        return f"row {place} of {self.label}"


def read_huggingface(config: DataConfig) -> RawDataset:
    """Read a folder written by `save_to_disk`, or what `load_dataset` makes of the name, kept with other downloads.

    The image column is the one of type Image, the label column the ClassLabel or else one called label. A set with one
    split is a set in one piece.

    Raises:
        InputError: if `datasets` is not installed, the set cannot be loaded, or its columns or splits are not clear.
    """
    if find_spec("datasets") is None:
        raise missing_package(config.name, "datasets")
    import datasets  # pyright: ignore[reportMissingImports]

    splits = _load(config)
    if len(splits) == 1:
        sets = {"all": next(iter(splits.values()))}
    else:
        named = parts_named(splits)
        if not named["train"]:
            raise InputError(f"data: {config.name}: no train split among {', '.join(splits)}")
        for part, names in named.items():
            if len(names) > 1:
                raise InputError(f"data: {config.name}: which of the splits {', '.join(names)} is the {part} part?")
        if others := [split for split in splits if not any(split in names for names in named.values())]:
            log.warning("data: %s: left aside the splits %s", config.name, ", ".join(others))
        sets = {part: splits[names[0]] for part, names in named.items() if names}
    features = next(iter(sets.values())).features
    images = [column for column, kind in features.items() if isinstance(kind, datasets.Image)]
    image = _choose(config.name, "image", images, IMAGES, features)
    labels = [column for column, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    if not labels:
        kinds = {column: str(getattr(features[column], "dtype", "")) for column in LABELS if column in features}
        labels = [column for column, kind in kinds.items() if "int" in kind or "string" in kind]
    label = _choose(config.name, "label", labels, LABELS, features)
    values = {part: rows.select_columns([label])[:][label] for part, rows in sets.items()}
    y, classes = numbered(config.name, labelled(config.name, values), getattr(features[label], "names", ()))
    parts = {}
    for part, y_N in y.items():
        # Left encoded: `datasets` would decode by its own rules.
        rows = sets[part].cast_column(image, datasets.Image(decode=False)).select_columns([image])
        parts[part] = RawSplit(Rows(f"{config.name} {part}", rows, image), y_N)
    return RawDataset(parts, classes, " ".join(f"{part} {rows._fingerprint}" for part, rows in sets.items()))


def _load(config: DataConfig) -> dict[str, Any]:
    """The splits by their own names; "all" if there are none. The Hub is asked only for a download."""
    import datasets.config  # pyright: ignore[reportMissingImports]
    import huggingface_hub.constants  # pyright: ignore[reportMissingImports]
    from datasets.exceptions import DatasetsError  # pyright: ignore[reportMissingImports]

    name = config.name.partition("/")[2]
    saved = any(os.path.isfile(os.path.join(name, file)) for file in ("dataset_dict.json", "state.json"))
    modules: list[Any] = [datasets.config, huggingface_hub.constants]  # each keeps what the variable said on import
    before = [module.HF_HUB_OFFLINE for module in modules]
    for module in modules:
        module.HF_HUB_OFFLINE = module.HF_HUB_OFFLINE or not config.download
    try:
        loaded = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, cache_dir=str(downloads()))
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        if isinstance(error, ConnectionError) and not config.download:
            hint = "--download fetches it from the Hugging Face Hub"
            raise InputError(f"data: {config.name} is not on this machine: {hint}") from error
        reason, cause = one_line(error), one_line(error.__cause__ or error)  # the cause often says more
        raise InputError(f"data: {config.name}: {reason if cause in reason else f'{reason}: {cause}'}") from error
    finally:
        for module, was in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = was
    return {str(split): rows for split, rows in loaded.items()} if isinstance(loaded, dict) else {"all": loaded}


def _choose(name: str, what: str, columns: Sequence[str], preferred: Sequence[str], features: Any) -> str:
    """The only one of `columns`, or else the first that is preferred."""
    if len(columns) == 1:
        return columns[0]
    for column in preferred:
        if column in columns:
            return column
    count = "several columns" if columns else "no column"
    raise InputError(f"data: {name}: {count} could be the {what}: {', '.join(columns or features)}")
