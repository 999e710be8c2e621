"""Choosers: whoever answers a space's questions. `choose(name, options) -> one of options`.

A space draws every gene every time and ignores the dormant ones, so the names and options of its
genes never change. Optuna's chooser lives with the strategies; these need no library.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Protocol

from ..archs.errors import InputError

Gene = int | float | str
Genes = dict[str, Gene]


class Chooser(Protocol):
    """Answers one gene at a time."""

    def choose(self, name: str, options: tuple[Gene, ...]) -> Gene: ...


class RandomChooser:
    """Uniform and independent draws from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, name: str, options: tuple[Gene, ...]) -> Gene:
        return self._random.choice(options)


class Replay:
    """Gives back recorded genes; one that is not recorded takes its first option.

    Raises:
        InputError: if a recorded value is not among the options.
    """

    def __init__(self, genes: Mapping[str, Gene]) -> None:
        self._genes = genes

    def choose(self, name: str, options: tuple[Gene, ...]) -> Gene:
        value = self._genes.get(name, options[0])
        if value not in options:
            raise InputError(f"gene {name}: must be one of {list(options)}, got {value!r}")
        return value


class Memo:
    """Asks another chooser, each gene once, and remembers the answers and the options.

    Raises:
        InputError: if a gene is chosen twice with other options.
    """

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self.genes: Genes = {}
        self.options: dict[str, tuple[Gene, ...]] = {}

    def choose(self, name: str, options: tuple[Gene, ...]) -> Gene:
        if self.options.setdefault(name, options) != options:
            known = list(self.options[name])
            raise InputError(f"gene {name}: chosen twice with other options, {known} and {list(options)}")
        if name not in self.genes:
            self.genes[name] = self._chooser.choose(name, options)
        return self.genes[name]
