"""`Proposer`: where a search's new nets come from. Draws of the strategy, let through the static gate."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain

from ...archs import Genotype
from ...spaces import FeasibleNets, Genes, RecordingChooser, Space, options_of
from ..samplers.random import uniform
from .parents import SHARE, Parent
from .state import SearchState
from .trial import Trial

MOST_FREE_DRAWS = 500  # draws in a row that need no training, before the nets near known ones are looked through
FREE_DRAWS_WITHIN = 50  # the same under limits, where a draw takes longer and more of them are alike
REPEATS_BEFORE_UNIFORM_DRAW = (
    5  # such proposals in a row after which a uniform draw follows: a converged sampler repeats itself
)


class Proposer:
    """Attributes:
    exhausted: whether the strategy or the space has no new net to give.
    """

    def __init__(self, books: SearchState, space: Space) -> None:
        self.books, self.space, self.memory = books, space, books.memory
        self.settings = books.terms.settings
        self.exhausted = False
        self._within = FeasibleNets(space, books.terms.over)
        self._walk = self._within.walk()  # gone through once: what it has passed stays known

    @property
    def dry(self) -> bool:
        """Whether all nets wanted were proposed, or there are no more."""
        return self.exhausted or self.books.used_up or self.books.started >= self.books.terms.trials

    def next(self) -> Trial | None:
        """A new net to train; None if none is wanted or left."""
        candidate = None if self.dry else self._drawn()
        if candidate and self.books.heirs:
            self.endow(candidate, self.books.heirs.nearest(candidate.net))
        return candidate

    def candidate(self, trial: int, kind: str, net: Genotype, genes: Genes) -> Trial:
        """A net under way, priced."""
        return Trial(trial, kind, net, genes, self.books.terms.price(net), self.books.rungs.steps)

    def admit(self, candidate: Trial) -> bool:
        """Let a net through the static gate, or end it at once as infeasible or duplicate."""
        books = self.books
        broken, twin = self.settings.over_limit(candidate.cost), books.twin(candidate.net.key)
        if broken:
            self.memory.violates(candidate.trial, broken)
            costs = ", ".join(f"{name} {getattr(candidate.cost, name)}" for name in broken)
            books.end(candidate, "infeasible", f"over the limit: {costs}")
        elif twin is not None:
            books.end(candidate, "duplicate", f"same net as trial {twin.trial}")
        else:
            books.live[candidate.trial] = candidate
        return candidate.trial in books.live

    def endow(self, candidate: Trial, ancestor: Parent | None) -> None:
        """Have a net start from the weights of `ancestor`, and train for less."""
        if ancestor is not None:
            self.memory.inherits(candidate.trial, ancestor.trial)
            stops = self.books.rungs.scheduler.rungs(max(1, round(SHARE * self.books.terms.steps)))
            candidate.start, candidate.stops, candidate.heritage = ancestor.start, stops, ancestor.heritage

    def _drawn(self) -> Trial | None:
        """Ask the strategy until it proposes a net that is not known; None if it has none, now or at all."""
        for attempt in range(MOST_FREE_DRAWS):
            if attempt >= REPEATS_BEFORE_UNIFORM_DRAW and not self.memory.planned:
                genes = self._unknown(random.Random(f"{self.settings.seed}/{self.books.started}/{attempt}"))
                if genes is None:
                    break
                self.memory.start_with([genes])
            if not self.memory.ready:
                self.exhausted = self.books.still  # no news can come
                return None
            candidate = self._draw()
            if self.admit(candidate):
                return candidate
        self.exhausted = True
        return None

    def _unknown(self, draw: random.Random) -> Genes | None:
        """Genes of a net that is neither known nor over a limit, drawn uniformly where that hits one; None if all are.

        Where few nets are left, draws meet known ones alone: then all that changes of genes lead to are gone through.
        """
        options, key = options_of(self.space), self._within.key
        for _ in range(FREE_DRAWS_WITHIN if self.settings.limits else MOST_FREE_DRAWS):
            genes = self._within.moved(uniform(draw, options), draw)
            if genes and self.books.twin(key(genes)) is None:
                return genes
        found = chain(self._walk, self._within.walk(self._met()))
        return next((genes for genes, key in found if self.books.twin(key) is None), None)

    def _met(self) -> Iterator[Genes]:
        """The genes of all nets proposed, in their order."""
        names = options_of(self.space).keys()
        ended, live = self.books.store.records, self.books.live.values()
        return (met.genes for met in sorted([*ended, *live], key=lambda m: m.trial) if met.genes.keys() == names)

    def _draw(self) -> Trial:
        trial, chooser = self.memory.ask()
        memo = RecordingChooser(chooser)
        net = self.space.sample(memo)
        self.memory.drawn(trial, net.key)
        return self.candidate(trial, "search", net, memo.genes)
