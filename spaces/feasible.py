"""Feasible nets under cost limits, and a space's cheapest net."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property

from ..archs import Genotype
from ..archs.candidate import candidate_key, recipe_genes
from .base import SHIFTED, FixedChooser, Gene, Genes, Space, first_genes, options_of

Options = Mapping[str, tuple[Gene, ...]]


FEW = 4  # options of a gene, each of which `ends` tries
STARTS = 100  # random ones, from which genes of a net are looked for


def cheapest(space: Space, cost: Callable[[Genotype], float], enough: float = float("-inf")) -> tuple[float, Genotype]:
    """The lowest `cost` found by coordinate descent from each option of the first gene, and its net."""
    least, genes = min(_descents(space, cost, enough), key=lambda start: start[0])
    return least, space.sample(FixedChooser(genes))


def ends(space: Space, cost: Callable[[Genotype], float]) -> tuple[float, float]:
    """The least and the most `cost` of a space's nets, as far as a quick descent finds them.

    For each option of the first gene, from all genes at their first option, from all at their last, and from those
    without attention blocks. Genes of the same name but for their numbers move together, numbers to their ends; a kind
    of attention is tried with attention blocks everywhere as well, without which it makes no difference.
    """
    options, price = options_of(space), _priced(space, cost)
    first, *others = options
    groups: dict[str, list[str]] = {}
    for name in others:
        groups.setdefault(name.rstrip("0123456789_"), []).append(name)
    plain, full = first_genes(space), {name: choices[-1] for name, choices in options.items()}
    without = full | {name: options[name][0] for name in groups.get(SHIFTED, ())}
    everywhere = {name: full[name] for name in groups.get(SHIFTED, ())}
    moves = [_together(names, options) for names in groups.values()]
    if "attention" in groups:
        moves.append([kind | everywhere for kind in _together(groups["attention"], options)])

    def least(sign: int, *starts: Genes) -> float:
        begun = (start | {first: value} for value in options[first] for start in starts)
        return sign * min(_descend(lambda genes: sign * price(genes), start, moves)[0] for start in begun)

    return least(1, plain), least(-1, full, without)


def _together(names: list[str], options: Options) -> list[Genes]:
    """Changes of genes that move together: names, and one gene of few options, to any; other numbers to their ends."""
    choices = options[names[0]]
    if isinstance(choices[0], str) or (len(names) == 1 and len(choices) <= FEW):
        return [dict.fromkeys(names, value) for value in choices]
    return [{name: options[name][end] for name in names} for end in (0, -1)]


def find_genes(space: Space, distance: Callable[[Genotype], float]) -> Genes | None:
    """Genes of a net at `distance` 0, by coordinate descent from random starts; None if none is found."""
    options, price = options_of(space), _priced(space, distance)
    for start in range(STARTS):
        draw = random.Random(start)
        genes = {name: draw.choice(choices) for name, choices in options.items()}
        least, genes = _descend(price, genes, _each(options), 0)
        if least <= 0:
            return genes
    return None


def _descents(space: Space, cost: Callable[[Genotype], float], enough: float) -> Iterator[tuple[float, Genes]]:
    """The lowest cost found for each option of the first gene, and genes that have it; or one that is enough."""
    options, price = options_of(space), _priced(space, cost)
    first, plain = next(iter(options)), first_genes(space)
    rest = {name: choices for name, choices in options.items() if name != first}
    for value in options[first]:
        yield _descend(price, plain | {first: value}, _each(rest), enough)


def _priced(space: Space, cost: Callable[[Genotype], float]) -> Callable[[Genes], float]:
    names = [*options_of(space)]
    price = cache(lambda values: cost(space.sample(FixedChooser(dict(zip(names, values, strict=True))))))
    return lambda genes: price(tuple(genes[name] for name in names))


def _each(options: Options) -> list[list[Genes]]:
    return [[{name: value} for value in choices] for name, choices in options.items()]


def _descend(
    cost: Callable[[Genes], float], genes: Genes, moves: list[list[Genes]], enough: float = float("-inf")
) -> tuple[float, Genes]:
    """Take from each group of changes the one that costs least, until that is enough or none helps."""
    least, before = cost(genes), float("inf")
    while enough < least < before:
        before = least
        for changes in moves:
            genes = min([genes, *(genes | change for change in changes)], key=cost)
        least = cost(genes)
    return least, genes


class FeasibleNets:
    """The nets of a space within limits: those whose excess, `over(net)`, is 0. Results are cached."""

    def __init__(self, space: Space, over: Callable[[Genotype], float]) -> None:
        self._space, self._over, self._options = space, over, options_of(space)
        self._results: dict[tuple[Gene, ...], tuple[float, str]] = {}

    def key(self, genes: Genes) -> str:
        """Key of the candidate that these genes give; "" if its net is over the limits."""
        return self._evaluate(genes)[1]

    def _evaluate(self, genes: Genes) -> tuple[float, str]:
        """Excess of the net of these genes over the limits, and its key, or "" if it is over them."""
        name = tuple(map(genes.__getitem__, self._options))
        if name not in self._results:
            net = self._space.sample(FixedChooser(genes))
            over = self._over(net)
            self._results[name] = over, "" if over > 0 else candidate_key(net.key, genes)
        return self._results[name]

    def moved(self, genes: Genes, draw: random.Random) -> Genes | None:
        """`genes` moved within the limits, if they are not: near to where they come in. None if no net is found there.

        One after the other, in a random order, the genes of a cheap net take their places, of the same first gene if
        that has one. How many must is halved in on: more of them seldom cost more.
        """
        if self.key(genes):
            return genes
        if not self._cheap:
            return None
        first = next(iter(self._options))
        cheap = next((net for net in self._cheap if net[first] == genes[first]), None) or draw.choice(self._cheap)
        names = [name for name in self._options if name not in recipe_genes(self._options)]
        order = draw.sample(names, len(names))
        out, within = 0, len(order)
        while within - out > 1:
            middle = (out + within) // 2
            out, within = (out, middle) if self.key(_mixed(genes, cheap, order[:middle])) else (middle, within)
        return _mixed(genes, cheap, order[:within])

    def walk(self, starts: Iterable[Genes] = ()) -> Iterator[tuple[Genes, str]]:
        """Each net within the limits that changes of one gene lead to, with its key, in a fixed order: nearest first.

        Begins at the cheapest net for each option of the first gene, and at `starts`. A change may make others count,
        which the net before does not use: where it leads out of the limits, these take whatever costs less.
        """
        seen: set[str] = {""}
        near, far = deque(self._new([*self._cheap, *starts], seen)), deque[Genes]()
        while near or far:
            if near:
                genes = near.popleft()
                yield genes, self.key(genes)
                near.extend(self._new((other for _, other in self._beside(genes)), seen))
                far.append(genes)
            else:
                near.extend(self._new(self._after(far.popleft()), seen))

    def _beside(self, genes: Genes) -> Iterator[tuple[str, Genes]]:
        """The genes that one change leads to, and which is changed."""
        changes = ((name, value) for name, choices in self._options.items() for value in choices)
        return ((name, genes | {name: value}) for name, value in changes if value != genes[name])

    def _after(self, genes: Genes) -> Iterator[Genes]:
        """Genes that a change leads to once others, which the net does not use, are changed too."""
        own, beside = self.key(genes), list(self._beside(genes))
        unused = {name: self._options[name] for name, other in beside if self.key(other) == own}
        for name, other in beside:
            if not self.key(other):
                free = {gene: choices for gene, choices in unused.items() if gene != name}
                yield _descend(lambda changed: self._evaluate(changed)[0], other, _each(free), 0)[1]
            elif name in unused and isinstance(other[name], str):  # by another family or kind other genes count
                yield from (more for _, more in self._beside(other))

    def _new(self, candidates: Iterable[Genes], seen: set[str]) -> Iterator[Genes]:
        """Candidates within the limits whose nets were not seen before."""
        for genes in candidates:
            if (key := self.key(genes)) not in seen:
                seen.add(key)
                yield genes

    @cached_property
    def _cheap(self) -> list[Genes]:
        """The net with the least over the limits for each option of the first gene, where that is nothing."""
        return [genes for over, genes in _descents(self._space, self._over, 0) if over <= 0]


def _mixed(genes: Genes, others: Genes, names: Iterable[str]) -> Genes:
    return genes | {name: others[name] for name in names}
