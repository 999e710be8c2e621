"""`Proposer`: the source of a search's trials, which asks the study's sampler.

It does not decide what becomes of a trial, nor change anything but the study that it asks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import chain

from ...archs import Genotype
from ...archs.timm_net import CountedCost, TimmNet
from ...results.runs.record import Record
from ...spaces import (
    FixedChooser,
    Genes,
    RecordingChooser,
    options_of,
    plain_genes,
    priors_of,
    random_genes,
)
from ..context import SearchContext
from ..samplers.sampler_context import fits
from .live import LiveTrials
from .study import StudyAdapter
from .trial import Trial

MAX_PROPOSALS = 500  # in a row that need no training, before the nets near known ones are looked through
MAX_DRAWS_WITHIN_LIMITS = 50  # random draws under limits, where one takes longer and more of them are alike
REPEATS_BEFORE_RANDOM_DRAW = 5  # a converged sampler repeats itself
FIRST_REFERENCE = 1_000_000  # number of a trial that the study will not come to: it proposes the same nets without


class Proposer:
    """Proposes one net after the other.

    Attributes:
        exhausted: whether every net within the limits that mutations reach is known.
    """

    def __init__(
        self,
        context: SearchContext,
        study: StudyAdapter,
        records: Sequence[Record],
        live: LiveTrials,
        trained: Mapping[str, Record],
    ) -> None:
        """Take the run's records, its trials under way, and the records of trained nets by what tells them apart."""
        self._context, self._study = context, study
        self._records, self._live, self._trained = records, live, trained
        self._rung_steps = context.scheduler.rungs(context.steps)
        self.exhausted = False
        self._feasible = context.feasible_nets()
        self._walk = self._feasible.walk()  # gone through once: what it has passed stays known

    def trial(self, number: int, kind: str, net: Genotype, genes: Genes) -> Trial:
        """Make a trial that has yet to start."""
        context = self._context
        fields = context.trained_as(net, genes)
        return Trial(number, kind, net, genes, context.cost_fn(net), self._rung_steps, fields)

    def baselines(self, nets: Sequence[Genotype]) -> list[Trial]:
        """Trials of the baselines without a record; they hold the first numbers."""
        recorded = {record.trial for record in self._records}
        return [
            self.trial(number, "baseline", net, plain_genes(self._context.space, net) or {})
            for number, net in enumerate(nets)
            if number not in recorded
        ]

    def references(self, nets: Mapping[TimmNet, CountedCost]) -> list[Trial]:
        """Trials of those of timm's nets that have no record, under numbers that the study does not use."""
        context, recorded = self._context, {r.key: r.trial for r in self._records if r.kind == "reference"}
        missing = [(net, cost) for net, cost in nets.items() if net.key not in recorded]
        first = 1 + max(recorded.values(), default=FIRST_REFERENCE - 1)
        return [
            Trial(number, "reference", net, {}, cost, (context.steps,), context.record_fields)
            for number, (net, cost) in enumerate(missing, start=first)
        ]

    def again(self, number: int, genes: Genes) -> Trial | None:
        """The trial that an earlier session has begun with these genes; None if they are none of the space."""
        if not fits(genes, options_of(self._context.space)):
            return None
        return self.trial(number, "search", self._context.space.sample(FixedChooser(genes)), genes)

    def propose(self, started: int, repeats: int) -> Trial | None:
        """The net that the sampler proposes; None if it has none, for now or, once `exhausted`, at all.

        Args:
            started: trials so far.
            repeats: proposals in a row before this one that needed no training.
        """
        if repeats >= REPEATS_BEFORE_RANDOM_DRAW and not self._study.planned:
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
        return self.trial(number, "search", net, recorder.genes)

    def twin(self, key: str) -> Record | Trial | None:
        """The finished or running trial of the same net, trained alike."""
        return self._trained.get(key) or self._live.by_key.get(key)

    def _unknown(self, draw: random.Random) -> Genes | None:
        """Genes of a net that is neither known nor over a limit, drawn at random where that hits one; None if all are.

        Where few nets are left, draws meet known ones alone: then all that mutations lead to are gone through.
        """
        space, feasible = self._context.space, self._feasible
        options, priors = options_of(space), priors_of(space)
        for _ in range(MAX_DRAWS_WITHIN_LIMITS if self._context.limits else MAX_PROPOSALS):
            genes = feasible.moved(random_genes(draw, options, priors), draw)
            if genes and not self.twin(feasible.key(genes)):
                return genes
        proposed = {record.trial: record.genes for record in self._records}
        proposed |= {trial.number: trial.genes for trial in self._live.values()}
        starts = (genes for _, genes in sorted(proposed.items()) if genes.keys() == options.keys())
        near = chain(self._walk, feasible.walk(starts))
        return next((genes for genes, key in near if not self.twin(key)), None)
