"""`hfds/NAME`: sets of Hugging Face's `datasets` library, from a folder or from the Hub."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from PIL import Image

from ....archs.errors import InputError
from ....archs.pictures import Shrink, decode
from ..cache import downloads
from ..dataset import DataConfig, ImageSource, RawDataset, RawSplit, missing_package
from ..images import one_line
from ..splits import labelled, numbered
from .folder import stamp
from .layout import parts_among

IMAGES = ("image", "img")
LABELS = ("label", "labels", "fine_label")

log = logging.getLogger("alternas")


@dataclass(frozen=True)
class Rows(ImageSource):
    """Pictures in a column of a `datasets.Dataset`, as encoded bytes or as paths."""

    label: str
    rows: Any
    column: str

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, place: int, shrink: Shrink | None = None) -> Image.Image:
        value = self.rows[place][self.column] or {}
        if value.get("bytes") is not None:
            return decode(BytesIO(value["bytes"]), shrink)
        if value.get("path") is not None:
            return decode(value["path"], shrink)
        raise ValueError("the row holds no picture")

    def name(self, place: int) -> str:
        return f"row {place} of {self.label}"

    def key(self, place: int) -> str:
        return (self.rows[place][self.column] or {}).get("path") or str(place)

    def identity(self) -> str:
        """Of the files that hold the rows, and of the pictures where the rows hold paths alone."""
        paths = [file["filename"] for file in self.rows.cache_files]
        for chunk in self.rows.data.column(self.column).chunks:
            paths += chunk.field("path").filter(chunk.field("bytes").is_null()).drop_null().to_pylist()
        return f"{self.rows._fingerprint} {stamp('/', paths)}"


def read_huggingface(config: DataConfig) -> RawDataset:
    """Read a folder written by `save_to_disk`, or what `load_dataset` makes of the name, kept with other downloads.

    The image column is the one of type Image, the label column the ClassLabel or else one called label. A set with one
    split is a set in one piece. InputError if `datasets` is not installed, the set cannot be loaded, or its columns or
    splits are not clear.
    """
    if find_spec("datasets") is None:
        raise missing_package(config.name, "datasets")
    import datasets  # pyright: ignore[reportMissingImports]

    splits = _load(config)
    named = {"all": next(iter(splits))} if len(splits) == 1 else parts_among(config.name, splits)
    if not named:
        raise InputError(f"data: {config.name}: no train split among {', '.join(splits)}")
    if others := splits.keys() - named.values():
        log.warning("data: %s: left aside the splits %s", config.name, ", ".join(sorted(others)))
    sets = {part: splits[name] for part, name in named.items()}
    image = {part: _column_of_images(config.name, rows) for part, rows in sets.items()}
    label = {part: _column_of_labels(config.name, rows) for part, rows in sets.items()}
    values = {part: rows.select_columns([label[part]])[:][label[part]] for part, rows in sets.items()}
    names = {part: getattr(rows.features[label[part]], "names", ()) for part, rows in sets.items()}
    y, classes = numbered(config.name, labelled(config.name, values), names)
    parts = {}
    for part, y_N in y.items():
        # Left encoded: `datasets` would decode by its own rules.
        rows = sets[part].cast_column(image[part], datasets.Image(decode=False)).select_columns([image[part]])
        parts[part] = RawSplit(Rows(f"{config.name} {part}", rows, image[part]), y_N)
    return RawDataset(parts, classes)


def _column_of_images(name: str, rows: Any) -> str:
    import datasets  # pyright: ignore[reportMissingImports]

    images = [column for column, kind in rows.features.items() if isinstance(kind, datasets.Image)]
    return _choose(name, "image", images, IMAGES, rows.features)


def _column_of_labels(name: str, rows: Any) -> str:
    import datasets  # pyright: ignore[reportMissingImports]

    labels = [column for column, kind in rows.features.items() if isinstance(kind, datasets.ClassLabel)]
    if not labels:
        kinds = {column: str(getattr(rows.features.get(column), "dtype", "")) for column in LABELS}
        labels = [column for column, kind in kinds.items() if "int" in kind or "string" in kind]
    return _choose(name, "label", labels, LABELS, rows.features)


def _load(config: DataConfig) -> dict[str, Any]:
    """The splits by their own names; "all" if there are none. The Hub is asked only for a download."""
    import datasets.config  # pyright: ignore[reportMissingImports]
    import huggingface_hub.constants  # pyright: ignore[reportMissingImports]
    from datasets.exceptions import DatasetsError  # pyright: ignore[reportMissingImports]

    name = config.name.partition("/")[2]
    saved = any(os.path.isfile(os.path.join(name, file)) for file in ("dataset_dict.json", "state.json"))
    cache = "" if saved else str(downloads())
    modules: list[Any] = [datasets.config, huggingface_hub.constants]  # each keeps what the variable said on import
    before = [module.HF_HUB_OFFLINE for module in modules]
    for module in modules:
        module.HF_HUB_OFFLINE = module.HF_HUB_OFFLINE or not config.download
    try:
        loaded = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, cache_dir=cache)
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
