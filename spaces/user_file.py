"""`FileSpace`: a user-defined space from a file, and the contract checks for all spaces.

The file holds one class, made with the image size, (height, width) in pixels. It has a method `sample(chooser)` that
returns a `Genotype`; `baselines()` if it wants others than ours. Whatever it does wrong is one line.

The contract, checked on random nets before a search stands on a space, and on every net of a user's own: a gene has a
name and options that never change, every gene is chosen for every net, and the genes alone decide which net it is.
Without that, no strategy learns from the nets before, and no search resumes.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..archs import Genotype, InputError, static_cost
from ..archs.errors import short_repr
from ..archs.json_files import Integer, Number, Text, convert
from ..archs.layout import ImageSize, as_map
from ..archs.user_code import time_limit, user_code_errors
from .base import Chooser, FixedChooser, Gene, Genes, Option, RandomChooser, RecordingChooser
from .families import ResNetSpace
from .user_modules import UserModules

COUNTED = 10_000  # combinations of genes that are tried to count the distinct nets
DRAWS = 1000
CLASSES = 10  # to compare baselines by what they cost
Options = dict[str, tuple[Gene, ...]]


class FileSpace:
    """The space in a file, with `options` of every gene, checked when it is made, and again with every net drawn.

    InputError if the file does not load, holds no space or several, breaks the contract, or takes for ever.
    """

    def __init__(self, file: str, image_size: ImageSize) -> None:
        self._what, self._image_size, path = f"space {file}", as_map(image_size), Path(file)
        if path.suffix != ".py":
            raise InputError(f"{self._what}: must be a file that ends in .py")
        try:
            self.name, content = path.name, path.read_bytes()
        except OSError as error:
            raise InputError(f"{self._what}: cannot be read ({error.strerror})") from None
        with time_limit(self._what):
            with user_code_errors(self._what):
                modules = UserModules(path, content)
                self.source, self.neighbours = modules.source, modules.neighbours
                module = modules.run()
            kind = _only_class(self._what, module)
            with user_code_errors(f"{self._what}: {kind.__name__}({self._image_size})"):
                self._own: Any = kind(self._image_size)
            self.options = check(self._own, self._what, self._image_size)
            self._baselines = ResNetSpace(self._image_size).baselines()
            if hasattr(self._own, "baselines"):
                with user_code_errors(self._what):
                    nets = self._own.baselines()
                self._baselines = check_baselines(nets, self._what, self._image_size)

    @property
    def identity(self) -> str:
        """The file and what stands in it and its neighbours, by a hash: another source is another space."""
        text = json.dumps([self.source, self.neighbours]) if self.neighbours else self.source
        return f"{self.name} of source {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def sample(self, chooser: Chooser) -> Genotype:
        genes = {name: chooser.choose(name, options) for name, options in self.options.items()}
        with time_limit(self._what):
            net, memo = draw(self._own, self._what, FixedChooser(genes), self._image_size)
        check_options(self._what, self.options, memo.options)
        return net

    def baselines(self) -> tuple[Genotype, ...]:
        """The file's own, or those of the resnet space."""
        return self._baselines


def is_file(space: str) -> bool:
    """Whether what was typed for a space is a file rather than a name."""
    return space.endswith(".py") or os.sep in space


def _only_class(what: str, module: ModuleType) -> Any:
    """The class of the file that has a method `sample`; those with a leading underscore are helpers."""
    classes = {value for value in vars(module).values() if isinstance(value, type)}
    own = [kind for kind in classes if kind.__module__ == module.__name__ and not kind.__name__.startswith("_")]
    spaces = sorted((kind for kind in own if callable(getattr(kind, "sample", None))), key=lambda kind: kind.__name__)
    if len(spaces) == 1:
        return spaces[0]
    got = f"got {', '.join(kind.__name__ for kind in spaces)}" if spaces else "got none"
    raise InputError(f"{what}: must define one class with a method sample(chooser), a space, {got}")


def check(space: Any, what: str, image_size: ImageSize, draws: int = DRAWS) -> Options:
    """Draw random nets, each twice, and return the genes' options, in the order they are chosen.

    `space` is anything with a method `sample(chooser)`; InputError names the gene or the rule that a net breaks.
    """
    chooser = RandomChooser(0)
    _, first = draw(space, what, chooser, image_size)
    for _ in range(draws):
        net, memo = draw(space, what, chooser, image_size)
        check_options(what, first.options, memo.options)
        again, _ = draw(space, what, FixedChooser(memo.genes), image_size)
        if again != net:
            raise InputError(f"{what}: sample() goes by more than its genes: {_text(memo.genes)} gave two nets")
    return first.options


def draw(space: Any, what: str, chooser: Chooser, image_size: ImageSize) -> tuple[Genotype, RecordingChooser]:
    """A net, its genes and their options; InputError if `sample` fails, or gives no net for such images."""
    memo = RecordingChooser(chooser)
    with user_code_errors(what):
        net = space.sample(_GeneCheck(memo))
    if not isinstance(net, Genotype):
        raise InputError(f"{what}: sample() must return a Genotype, got {short_repr(net)}")
    if not memo.options:
        raise InputError(f"{what}: sample() chooses no gene, so there is one net alone")
    _check_fits(f"{what}: the net of {_text(memo.genes)}", net, image_size)
    return net, memo


def check_options(what: str, before: Options, now: Options) -> None:
    """Raise InputError if the genes or their options differ between two nets."""
    for name in before.keys() ^ now.keys():
        rule = "chosen for some nets and not for others; choose it for each, and leave it aside where it is not used"
        raise InputError(f"{what}: gene {name}: {rule}")
    for name, options in before.items():
        if now[name] != options:
            rule = f"its options change from net to net, {list(options)} and {list(now[name])}"
            raise InputError(f"{what}: gene {name}: {rule}")


def check_baselines(nets: Any, what: str, image_size: ImageSize) -> tuple[Genotype, ...]:
    """The baselines, if they are plain ResNets for such images, cheapest first; InputError otherwise."""
    if not isinstance(nets, (tuple, list)) or not all(isinstance(net, Genotype) for net in nets):
        raise InputError(f"{what}: baselines() must return a tuple of Genotypes, got {short_repr(nets)}")
    macs = 0
    for number, net in enumerate(nets, start=1):
        place = f"{what}: baseline {number}"
        _check_fits(place, net, image_size)
        if net.family != "resnet":
            raise InputError(f"{place}: must be a plain ResNet, got one of family {net.family!r}")
        before, macs = macs, static_cost(net, CLASSES, image_size).macs
        if macs <= before:
            raise InputError(f"{place}: must cost more than the one before, got {macs} MACs after {before}")
    return tuple(nets)


class _GeneCheck:
    """Passes on what a space asks for, if it is a gene."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def choose(self, name: str, options: Sequence[Option]) -> Option:
        if not isinstance(name, str) or not name:
            raise InputError(f"a gene's name must be a text, got {short_repr(name)}")
        if not isinstance(options, (tuple, list)) or not options:
            raise InputError(f"gene {name}: options must be a tuple of one or more, got {short_repr(options)}")
        kind = list[Text] if isinstance(options[0], str) else list[bool | Integer | Number]
        convert(list(options), kind, f"gene {name}: options are texts alone or numbers alone")
        if len(set(options)) < len(options):
            raise InputError(f"gene {name}: an option is listed twice, got {short_repr(options)}")
        return self._chooser.choose(name, tuple(options))


def _check_fits(place: str, net: Genotype, image_size: ImageSize) -> None:
    try:
        net.check(image_size)
    except InputError as error:
        height, width = as_map(image_size)
        raise InputError(f"{place} does not fit images of {height}x{width} px: {error}") from None


def _text(genes: Genes) -> str:
    return ", ".join(f"{name} {value}" for name, value in genes.items())
