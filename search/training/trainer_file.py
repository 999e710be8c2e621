"""`TrainerFile`: a training of the user's own, in one file with one function `train(context)`.

The file is read here, never run: constants and signature are read off its syntax tree. It runs at the workers, which
get its text with each job, and never from a run's folder.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...archs.errors import InputError, check_int, short_repr
from ...archs.layout import as_map
from ..data.dataset import DataSet, Split

FUNCTION = "train"
MAX_CLASSES, MAX_IMAGES = 10**6, 10**12


@dataclass(frozen=True)
class OwnImages:
    """What nets are sized by where the file brings its own images: its constants."""

    image_size: tuple[int, int]  # IMAGE_SIZE, a side or (height, width) in pixels
    classes: tuple[str, ...]  # CLASSES, how many or their names: the width of a net's logits
    images: int  # IMAGES to train on, which an epoch of the recipe is
    in_chans: int = 3  # IN_CHANS, 3 unless said


CONSTANTS = ("IMAGE_SIZE", "CLASSES", "IMAGES", "IN_CHANS")


@dataclass(frozen=True)
class TrainerFile:
    """A training of the user's own, by its text."""

    name: str  # of the file
    path: str  # as it was given, for messages
    source: str  # its text
    images: OwnImages | None = None  # its own; None where it trains on the search's data

    @property
    def identity(self) -> str:
        """The file and what stands in it, by a hash: another source is another training."""
        return f"{self.name} of source {self._hash[:16]}"

    @property
    def _hash(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    def data_set(self) -> DataSet:
        """What stands for a data set where the file brings its own: sizes and counts, and no image."""
        own = self.images
        assert own is not None
        empty = np.zeros((0, own.in_chans, *own.image_size), np.float32)
        train, val = Split(empty, np.zeros(own.images, np.int64)), Split(empty, np.zeros(0, np.int64))
        zeros, ones = (0.0,) * own.in_chans, (1.0,) * own.in_chans
        note = {"split": f"{self.name} brings its own images"}
        return DataSet(
            self.name, own.image_size, own.classes, train, val, None, zeros, ones, 255.0, self._hash[:12], note
        )


def read_trainer(file: str) -> TrainerFile:
    """Read a training of the user's own.

    Raises InputError if the file cannot be read or parsed, has not one function `train(context)`, or a constant of it
    is none.
    """
    what, path = f"trainer {file}", Path(file)
    if path.suffix != ".py":
        raise InputError(f"{what}: must be a file that ends in .py")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{what}: cannot be read ({error.strerror})") from None
    try:
        source = importlib.util.decode_source(content)
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes
        line = getattr(error, "lineno", None) or 1
        raise InputError(f"{what}: {path}:{line}: {getattr(error, 'msg', error)}") from None
    _check_function(what, path, tree)
    return TrainerFile(path.name, str(path), source, _own_images(what, path, tree))


def _check_function(what: str, path: Path, tree: ast.Module) -> None:
    """Raise InputError unless there is one function `train`, of one argument."""
    rule = f"must define one function {FUNCTION}(context)"
    found = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == FUNCTION
    ]
    if len(found) != 1:
        lines = ", ".join(str(node.lineno) for node in found)
        raise InputError(f"{what}: {rule}, got {f'{len(found)}, in lines {lines}' if found else 'none'}")
    (function,) = found
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    free = len(positional) - len(given.defaults)
    required = [argument for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if not default]
    if isinstance(function, ast.AsyncFunctionDef) or not positional or free > 1 or required:
        words = "async " * isinstance(function, ast.AsyncFunctionDef)
        raise InputError(f"{what}: {path}:{function.lineno}: {rule}, got {words}{FUNCTION}({ast.unparse(given)})")


def _own_images(what: str, path: Path, tree: ast.Module) -> OwnImages | None:
    """What the file's constants say; None if it has no IMAGE_SIZE; InputError if one is missing or of another kind."""
    values = dict[str, Any]()
    for name, node in _assigned(tree):
        try:
            values[name] = ast.literal_eval(node)
        except ValueError:
            place = f"{path}:{node.lineno}: {name}"
            raise InputError(f"{what}: {place} must be written out, for it is read without running the file") from None
    if "IMAGE_SIZE" not in values:
        return None
    missing = [name for name in ("CLASSES", "IMAGES") if name not in values]
    if missing:
        raise InputError(f"{what}: a file with IMAGE_SIZE brings its own images, and must say {' and '.join(missing)}")
    classes = values["CLASSES"]
    if isinstance(classes, tuple | list):
        names = tuple(classes)
        if not names or not all(isinstance(name, str) for name in names):
            raise InputError(f"{what}: CLASSES must be a number or names, got {short_repr(classes)}")
    else:
        names = tuple(map(str, range(check_int(what, "CLASSES", classes, 1, MAX_CLASSES))))
    images = check_int(what, "IMAGES", values["IMAGES"], 1, MAX_IMAGES)
    channels = check_int(what, "IN_CHANS", values.get("IN_CHANS", 3), 1)
    return OwnImages(as_map(values["IMAGE_SIZE"]), names, images, channels)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The constants at the top of the file, and what they are given: of `A = 1`, `A: int = 1` and `A, B = 1, 2`."""
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                each = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
                pairs = list(zip(target.elts, each, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and name.id in CONSTANTS:
                    yield name.id, value
