"""A space of the user's own: one file with one class, loaded because its name was typed, from nowhere else.

The class is made with the image size, (height, width) in pixels, and has a method `sample(chooser)` that returns a
`Genotype`; `baselines()` and `size()` if it wants others than ours. Whatever it does wrong is one line.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

from ..archs import Genotype, InputError
from ..archs.errors import short_repr
from ..archs.layout import ImageSize, as_map
from ..archs.user_code import time_limit, user_code_errors
from .base import Chooser, FixedChooser, members
from .families import plain_resnets
from .presets import preset_for
from .validate import check, check_baselines, check_options, draw

COUNTED = 10_000  # combinations of genes that are tried to count the distinct nets


class FileSpace:
    """The space in a file, checked when it is made, and again with every net drawn.

    Attributes:
        name: of the file.
        source: its text.
        options: of every gene.

    Raises:
        InputError: if the file does not load, holds no space or several, breaks the contract, or takes for ever.
    """

    def __init__(self, file: str, image_size: ImageSize) -> None:
        self._what, self._image_size, path = f"space {file}", as_map(image_size), Path(file)
        self.name, content = path.name, _read(file, path)
        with time_limit(self._what):
            with user_code_errors(self._what):
                self.source = importlib.util.decode_source(content)
                module = _run(content, path)
            kind = _only_class(self._what, module)
            with user_code_errors(f"{self._what}: {kind.__name__}({self._image_size})"):
                self._own: Any = kind(self._image_size)
            self.options = check(self._own, self._what, self._image_size)
            self._baselines = self._checked_baselines()

    @property
    def identity(self) -> str:
        """The file and what stands in it, by a hash: another source is another space."""
        return f"{self.name} of source {hashlib.sha256(self.source.encode()).hexdigest()[:16]}"

    def sample(self, chooser: Chooser) -> Genotype:
        genes = {name: chooser.choose(name, options) for name, options in self.options.items()}
        with time_limit(self._what):
            net, memo = draw(self._own, self._what, FixedChooser(genes), self._image_size)
        check_options(self._what, self.options, memo.options)
        return net

    def size(self) -> int | None:
        """Distinct nets: counted where that takes seconds, else as the class says, or None."""
        with time_limit(self._what):
            if prod(len(choices) for choices in self.options.values()) <= COUNTED:
                return sum(1 for _ in members(self))
            if not hasattr(self._own, "size"):
                return None
            with user_code_errors(self._what):
                size = self._own.size()
        if not isinstance(size, int):
            raise InputError(f"{self._what}: size() must return a whole number, got {short_repr(size)}")
        return size

    def baselines(self) -> tuple[Genotype, ...]:
        """The file's own, or those of the resnet space."""
        return self._baselines

    def _checked_baselines(self) -> tuple[Genotype, ...]:
        if not hasattr(self._own, "baselines"):
            return plain_resnets(preset_for(self._image_size))
        with user_code_errors(self._what):
            nets = self._own.baselines()
        return check_baselines(nets, self._what, self._image_size)


def is_file(space: str) -> bool:
    """Whether what was typed for a space is a file rather than a name."""
    return space.endswith(".py") or os.sep in space


def _read(file: str, path: Path) -> bytes:
    if path.suffix != ".py":
        raise InputError(f"space {file}: must be a file that ends in .py")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"space {file}: cannot be read ({error.strerror})") from None


def _run(content: bytes, path: Path) -> ModuleType:
    """Run just these bytes: an import could take an older compiled copy, and leaves one beside the file."""
    module = ModuleType(f"space_file_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look their types up
    exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def _only_class(what: str, module: ModuleType) -> Any:
    """The class of the file that has a method `sample`; those with a leading underscore are helpers."""
    classes = {value for value in vars(module).values() if isinstance(value, type)}
    own = [kind for kind in classes if kind.__module__ == module.__name__ and not kind.__name__.startswith("_")]
    spaces = sorted((kind for kind in own if callable(getattr(kind, "sample", None))), key=lambda kind: kind.__name__)
    if len(spaces) == 1:
        return spaces[0]
    found = f"got {', '.join(kind.__name__ for kind in spaces)}" if spaces else "got none"
    raise InputError(f"{what}: must define one class with a method sample(chooser), a space, {found}")
