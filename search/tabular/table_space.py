"""`TableSpace`: the combinations of a table's genes as a search space. Its nets are known by their genes alone."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...archs import Genotype
from ...spaces import Chooser, FeasibleNets, Gene, Genes

Values = tuple[Gene, ...]


@dataclass(frozen=True)
class TableNet:
    """A combination of genes, where a search has a genotype."""

    family: ClassVar[str] = "table"
    key: str
    genes: tuple[tuple[str, Gene], ...]
    distance: float  # share of the genes that must change to make a net of the table of it; 0 if it is one

    def to_dict(self) -> dict[str, Any]:
        return dict(self.genes)

    def traits(self) -> frozenset[tuple[tuple[str | int, ...], Any]]:
        """Features that strategies compare nets by, as `strategy_context.features` of a genotype."""
        return frozenset(((name,), value) for name, value in self.genes)


class TableSpace:
    """Genes: the table's, with the values that it has; numbers in order, texts in none.

    Attributes:
        rows: the genes of each net of the table; () where every combination is one.
    """

    def __init__(
        self, name: str, options: Mapping[str, tuple[Gene, ...]], rows: Sequence[Values], matter: Sequence[str] = ()
    ) -> None:
        """`matter`: genes that make a difference where not all do; see `TabularBenchmark.entry`."""
        self.name, self.rows, self._options, self._matter = name, rows, dict(options), frozenset(matter or options)
        self._places = [{value: place for place, value in enumerate(choices)} for choices in options.values()]
        self._codes = np.array([self._code(row) for row in rows], dtype=np.int32)
        self._listed, self._nets = frozenset(rows), dict[Values, TableNet]()

    def sample(self, chooser: Chooser) -> Genotype:
        return self.net(tuple(chooser.choose(name, choices) for name, choices in self._options.items()))

    def net(self, values: Values) -> Any:
        """The net of these genes: a `TableNet`, which stands where the searches of users have a `Genotype`."""
        if values not in self._nets:
            genes = tuple(zip(self._options, values, strict=True))
            key = entry_key(tuple(value for name, value in genes if name in self._matter))
            if len(self._matter) < len(genes):
                key += "." + entry_key(values)
            self._nets[values] = TableNet(key, genes, self._distance(values))
        return self._nets[values]

    def _distance(self, values: Values) -> float:
        if values in self._listed or not self.rows:
            return 0.0
        return int((self._codes != self._code(values)).sum(axis=1).min()) / len(values)

    def baselines(self) -> tuple[Genotype, ...]:
        return ()

    def genes(self, row: Values) -> Genes:
        """The genes of a net by name."""
        return dict(zip(self._options, row, strict=True))

    def _code(self, values: Values) -> list[int]:
        return [places[value] for places, value in zip(self._places, values, strict=True)]


def entry_key(values: Values) -> str:
    """Key of a table's entry, by the genes that make a difference."""
    return hashlib.sha1(repr(values).encode(), usedforsecurity=False).hexdigest()[:16]


class TableNets(FeasibleNets):
    """The nets of a table that are listed, so that none has to be looked for: uniform draws, and all in a row."""

    def __init__(self, space: TableSpace, over: Callable[[Genotype], float]) -> None:
        super().__init__(space, over)
        self._table = space

    def moved(self, genes: Genes, draw: random.Random) -> Genes:
        """`genes`, or a uniform draw from the table where it has no such net."""
        return genes if self.key(genes) else self._table.genes(draw.choice(self._table.rows))

    def walk(self, starts: Iterable[Genes] = ()) -> Iterator[tuple[Genes, str]]:
        """Every net of the table, with its key."""
        return ((self._table.genes(row), self._table.net(row).key) for row in self._table.rows)
