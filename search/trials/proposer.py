"""`Proposer`: where a search's new trials come from. It asks the study's sampler and decides nothing about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import chain

from ...archs import Genotype
from ...spaces import FeasibleNets, Genes, RecordingChooser, options_of
from ..context import SearchContext
from ..samplers.random import uniform
from .study import StudyAdapter
from .trial import Trial

MAX_PROPOSALS = 500  # in a row that need no training, before the nets near known ones are looked through
MAX_DRAWS_WITHIN_LIMITS = 50  # uniform draws under limits, where one takes longer and more of them are alike
REPEATS_BEFORE_UNIFORM_DRAW = 5  # a converged sampler repeats itself


class Proposer:
    """Proposes one net after the other.

    Attributes:
        exhausted: whether every net within the limits that mutations reach is known.
    """

    def __init__(
        self,
        context: SearchContext,
        study: StudyAdapter,
        is_known: Callable[[str], bool],
        proposed: Callable[[], Iterable[Genes]],
    ) -> None:
        """`is_known` says of a key whether its net runs or has ended; `proposed` gives the genes of all trials."""
        self._context, self._study, self._is_known, self._proposed = context, study, is_known, proposed
        self._rung_steps = context.scheduler.rungs(context.steps)
        self.exhausted = False
        self._feasible = FeasibleNets(context.space, context.violation)
        self._walk = self._feasible.walk()  # gone through once: what it has passed stays known

    def trial(self, number: int, kind: str, net: Genotype, genes: Genes) -> Trial:
        """A trial that has yet to start."""
        context = self._context
        return Trial(number, kind, net, genes, context.cost_fn(net), self._rung_steps, context.record_fields)

    def propose(self, started: int, repeats: int) -> Trial | None:
        """The net that the sampler proposes; None if it has none, for now or, once `exhausted`, at all.

        Args:
            started: trials so far.
            repeats: proposals in a row before this one that needed no training.
        """
        if repeats >= REPEATS_BEFORE_UNIFORM_DRAW and not self._study.planned:
            genes = self._unknown(random.Random(f"{self._context.settings.seed}/{started}/{repeats}"))
            if genes is None:
                self.exhausted = True
                return None
            self._study.enqueue([genes])
        if not self._study.ready:
            return None
        number, chooser = self._study.ask()
        recorder = RecordingChooser(chooser)
        net = self._context.space.sample(recorder)
        self._study.drawn(number, net.key)
        return self.trial(number, "search", net, recorder.genes)

    def _unknown(self, draw: random.Random) -> Genes | None:
        """Genes of a net that is neither known nor over a limit, drawn uniformly where that hits one; None if all are.

        Where few nets are left, draws meet known ones alone: then all that mutations lead to are gone through.
        """
        options, feasible = options_of(self._context.space), self._feasible
        for _ in range(MAX_DRAWS_WITHIN_LIMITS if self._context.settings.limits else MAX_PROPOSALS):
            genes = feasible.moved(uniform(draw, options), draw)
            if genes and not self._is_known(feasible.key(genes)):
                return genes
        proposed = (genes for genes in self._proposed() if genes.keys() == options.keys())
        near = chain(self._walk, feasible.walk(proposed))
        return next((genes for genes, key in near if not self._is_known(key)), None)
