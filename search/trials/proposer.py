"""The source of a search's trials: `choose_baselines`, and `Proposer`, which asks the study's sampler.

Neither decides what becomes of a trial, nor changes anything but the study that it asks.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain

from ...archs import Genotype
from ...results.runs.events import UnderWay
from ...results.runs.record import Record
from ...spaces import (
    FixedChooser,
    Genes,
    RecordingChooser,
    cheapest,
    options_of,
    plain_genes,
    priors_of,
    random_genes,
    random_net,
)
from ..context import SearchContext
from .live import LiveTrials
from .study import StudyAdapter
from .trial import BASELINE_SEEDS, Trial

MAX_PROPOSALS = 500  # in a row that need no training, before the nets near known ones are looked through
MAX_DRAWS_WITHIN_LIMITS = 50  # random draws under limits, where one takes longer and more of them are alike
REPEATS_BEFORE_RANDOM_DRAW = 5  # a converged sampler repeats itself
FIRST_REFERENCE = 1_000_000  # number of a trial that the study will not come to: it proposes the same nets without
DRAWS = 100  # nets that tell what a net of the search costs
MAX_SHARE_OVER_LIMIT = 1 / 3  # of the run, for the baseline over the limits


def choose_baselines(candidates: Sequence[Genotype], context: SearchContext) -> list[Genotype]:
    """The first candidates that together cost less to train than the search; one within the limits in any case.

    The one over the limits comes last, and only if it costs less than a third of the run. A build-up walks from the
    baselines, so it has all within the limits. None where the run is to have none.
    """
    if not context.settings.run.budget.baselines:
        return []
    settings, search, spent, chosen = context.settings, search_macs(context), 0.0, list[Genotype]()
    for net in candidates:
        cost = context.cost_fn(net)
        macs, is_over = max(BASELINE_SEEDS, settings.repeats) * cost.macs, context.limits.excess(net) > 0
        is_needed = not is_over and (not chosen or settings.strategy == "buildup")
        too_expensive = spent + macs >= search and not is_needed
        if too_expensive or (is_over and macs >= MAX_SHARE_OVER_LIMIT * (search + spent)):
            break
        chosen.append(net)
        spent += macs
    return chosen


def search_macs(context: SearchContext) -> float:
    """Expected cost of a search's trials, in MACs times full trainings, if the strategy draws at random.

    A median net within the limits, trained as often as is asked for, as far as the scheduler lets nets come.
    """
    settings = context.settings
    trainings = settings.supernet.trainings if settings.supernet else settings.trials * settings.repeats
    typical = statistics.median(drawn_macs(context))
    share = 1.0  # of a full training, on average
    if settings.scheduler != "none":
        share, before = 0.0, 0.0
        for passed, rung in enumerate((*settings.rungs, 1.0)):
            share, before = share + (rung - before) / settings.eta**passed, rung
    return trainings * share * typical


def drawn_macs(context: SearchContext) -> list[float]:
    """MACs of random draws within the limits; of the cheapest net where none of them is."""
    space, limits = context.space, context.limits
    nets = [random_net(space, seed) for seed in range(DRAWS)]
    macs = [float(context.cost_fn(net).macs) for net in nets if limits.excess(net) <= 0]
    return macs or [cheapest(space, lambda net: context.cost_fn(net).macs)[0]]


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

    def references(self) -> list[Trial]:
        """Trials of timm's nets without a record, under numbers that the study does not use."""
        context, recorded = self._context, {r.key: r.trial for r in self._records if r.kind == "reference"}
        missing = [(net, cost) for net, cost in context.references.items() if net.key not in recorded]
        first = 1 + max(recorded.values(), default=FIRST_REFERENCE - 1)
        return [
            Trial(number, "reference", net, {}, cost, (context.steps,), context.record_fields)
            for number, (net, cost) in enumerate(missing, start=first)
        ]

    def resumed(self, unfinished: UnderWay) -> Trial:
        """The trial that an earlier session has begun."""
        net = self._context.space.sample(FixedChooser(unfinished.genes))
        trial = self.trial(unfinished.trial, "search", net, unfinished.genes)
        trial.restore(unfinished)
        return trial

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
        trial = self.trial(number, "search", net, recorder.genes)
        self._study.set_attrs(number, key=trial.key)
        return trial

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
