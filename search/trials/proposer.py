"""`Proposer`: the source of a search's trials: the nets that it begins with, then what its strategy proposes.

It does not decide what becomes of a trial.
"""

import math
import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from ...archs import Genotype
from ...archs.candidate import candidate_key
from ...archs.timm_net import CountedCost, TimmNet
from ...results.runs.events import Event, Line
from ...results.runs.record import Record
from ...spaces import FixedChooser, Genes, RecordingChooser, options_of, plain_genes, priors_of, random_genes
from ..context import SearchContext
from ..strategies.history import History
from ..strategies.registry import PLANNED, make_strategy
from ..strategies.strategy_context import StrategyContext, fits
from .trial import LiveTrials, Trial

MAX_PROPOSALS = 500  # in a row that need no training, before the nets near known ones are looked through
MAX_DRAWS_WITHIN_LIMITS = 50  # random draws under limits, where one takes longer and more of them are alike
REPEATS_BEFORE_RANDOM_DRAW = 5  # a converged strategy repeats itself
FIRST_REFERENCE = 1_000_000  # number of a trial that a strategy will not come to: it proposes the same nets without
DRAWS = 400  # random nets that the first ones are chosen from
CHEAP = 0.6  # of the drawn nets, those of lowest cost
MAX_NETS = 7  # that are proposed before the strategy's own


class Drawn(NamedTuple):
    """A net that was drawn."""

    log_cost: float  # by parameters where the cost is a latency, not known beforehand: a resumed search begins alike
    kinds: set[str]
    genes: Genes


def first_nets(
    context: StrategyContext, baselines: Collection[Genotype] = (), trained: Collection[Genotype] = ()
) -> list[Genes]:
    """Genes of cheap nets within the limits, each of a kind of block that none before it has, far apart in cost.

    So no strategy goes on without a kind. Nets of few kinds come first: a net of two says of neither what it is worth.
    They depend on the seed alone. None where all nets have one kind. None is among the run's `baselines`, of which it
    trains those that are `trained`.
    """
    draw, plain, drawn = random.Random(f"{context.seed}/start"), {net.key for net in baselines}, list[Drawn]()
    for genes in context.draws_within_limits(draw, DRAWS):
        found = context.features_of(genes)
        cost = found.costs.objective if context.cost_is_exact else found.costs.params
        if found.is_feasible and found.net.key not in plain:
            drawn.append(Drawn(math.log(cost), kinds_of(found.net), genes))
    drawn.sort(key=lambda net: net.log_cost)
    cheap, chosen = drawn[: math.ceil(CHEAP * len(drawn))], list[Drawn]()
    seen = set[str]().union(*map(kinds_of, trained))
    while len(chosen) < MAX_NETS and (new := [net for net in cheap if net.kinds - seen]):
        fewest, costs = min(len(net.kinds) for net in new), [net.log_cost for net in chosen]
        purest = [net for net in new if len(net.kinds) == fewest]
        chosen.append(max(purest, key=lambda net: min((abs(net.log_cost - cost) for cost in costs), default=0.0)))
        seen |= chosen[-1].kinds
    return [net.genes for net in chosen] if len(seen) > 1 else []


def kinds_of(net: Genotype) -> set[str]:
    """The kinds of blocks of a net; a transformer encoder is one. The nets of tables have none."""
    return net.kinds | ({"encoder"} if net.encoder else set()) if isinstance(net, Genotype) else set()


class Proposer:
    """Proposes one net after the other.

    Attributes:
        strategy: that is asked.
        planned: whether it follows a plan of its own.
        queued: genes of the next proposals.
        exhausted: whether every net within the limits that mutations reach is known.
    """

    def __init__(
        self,
        context: SearchContext,
        history: History,
        lines: Sequence[Line],
        records: Sequence[Record],
        live: LiveTrials,
        trained: Mapping[str, Record],
    ) -> None:
        """Take the run's log, its trials under way, and the records of trained nets by what tells them apart."""
        name, numbers = context.settings.strategy, [line.trial for line in lines if line.trial < FIRST_REFERENCE]
        self.strategy = make_strategy(name, context.strategy_context(), past=1 + max(numbers, default=-1))
        self.planned, self.queued = name in PLANNED, deque[Genes]()
        self._context, self._history = context, history
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
        """Trials of those of timm's nets that have no record, under numbers that no other trial has."""
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

    def enqueue(self, genes: Sequence[Genes]) -> None:
        """Have these be the next proposals; not where the strategy follows a plan."""
        if not self.planned:
            self.queued += genes

    def enqueue_first(self, trained: Sequence[Genotype]) -> None:
        """Have the first proposals be the nets that a search begins with, but for those that have begun.

        `trained`: the baselines that the run trains.
        """
        context = self._context.strategy_context()
        if self._context.devices:  # the same nets whatever was measured before
            context = replace(context, expected_excess=context.excess)
        begun = [(record.kind, record.genes) for record in self._records if record.kind != "reference"]
        begun += [(t.kind, t.genes) for t in self._live.values() if t.kind == "search" and not t.is_finetuning]
        genes, searched = [own for _, own in begun], [own for kind, own in begun if kind == "search"]
        self.enqueue([first for first in context.first if first not in genes])
        if len(searched) < len(context.first) + MAX_NETS:  # else all of them have been proposed
            first = first_nets(context, self._context.baselines, trained)
            self.enqueue([net for net in first if net not in searched])

    @property
    def waits(self) -> bool:
        """Whether the strategy's plan has no net to propose before a result comes, if at all."""
        return self.planned and self.strategy.propose(self._history, self._history.next_number) is None

    def propose(self, started: int, repeats: int) -> Trial | None:
        """The net that the strategy proposes; None if it has none, for now or, once `exhausted`, at all.

        `started`: trials so far. `repeats`: proposals in a row before this one that needed no training.
        """
        if repeats >= REPEATS_BEFORE_RANDOM_DRAW and not self.planned:
            genes = self._unknown(random.Random(f"{self._context.settings.seed}/{started}/{repeats}"))
            if genes is None:
                self.exhausted = True
                return None
            self.enqueue([genes])
        number = self._history.next_number
        proposed = self.queued.popleft() if self.queued else self.strategy.propose(self._history, number)
        if proposed is None:
            return None
        recorder = RecordingChooser(FixedChooser(proposed))
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


def history_of(search: SearchContext, trained: int) -> History:
    """The history of a run before its first line: baselines hold the first numbers, of which so many are trained."""
    history = History(options_of(search.space), search.cost_of)
    for number, net in enumerate(search.baselines):
        genes = plain_genes(search.space, net) or {}
        history.apply(Event("started", number, key=candidate_key(net.key, genes), genes=genes))
        if number >= trained:
            history.fail(number)
    return history
