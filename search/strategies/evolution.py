"""Pareto evolution: of nets near the front and of nets anywhere, the one that a surrogate expects to add most to it.

Mutations of good nets are what beats TPE on tabular benchmarks (regularised evolution, Real et al., AAAI 2019);
here the good ones are those on the front of accuracy and cost. The one is chosen that has the largest expected
hypervolume improvement (BANANAS, White et al., AAAI 2021), or a better one of its neighbours.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from ...results.ranking.pareto import front_of, useful_from
from ...spaces import Genes, options_of
from ...spaces.base import mutations
from .history import History, LearningCurves, PastTrial, TrialReader
from .random import RandomDraws
from .strategy import Strategy
from .strategy_context import StrategyContext, remember
from .surrogate import Net, Surrogate, expected_hypervolume_improvement

MIN_OBSERVATIONS = 5  # before the surrogate proposes
FIRST_DRAWS = 32  # of which each net before is one
MAX_OBSERVATIONS = 160  # that the surrogate keeps in mind
MAX_PENDING = 160  # nets in training, the last begun, that it takes at their mean
GROWTH = 1.15  # of the number of readings, until it learns them anew
N_PARENTS = 4  # of the front, whose neighbours are candidates of one proposal
N_TWO_AWAY = 8  # nets two moves from each of them
N_CROSSINGS = 3  # in each proposal
N_RANDOM = 2  # draws in each proposal
RANDOM_KEPT = 64  # proposals that these draws stay candidates for
NEAR_KEPT = 64  # parents whose neighbours are kept
N_NEIGHBORS = 4  # mutations of the one chosen, of which one may take its place
REFRESH = 0.01  # readings, as a share of the nets that train or wait, after which these are predicted anew
COST_POWER = 0.5  # by the cost itself, nets would be left out where prices differ by hundreds
USEFUL = 0.5  # of the way from the worst to the best accuracy, where nets begin to be of use
LEARNED = "surrogate"  # note of the history: what was learned last, from how many readings


class Evolution(Strategy):
    """Proposals depend on (seed, trial number), the trials so far, and the constants that the surrogate learned last.

    These are noted in the history, so that a resumed search goes on as if unbroken.
    """

    cost_power = 0.0  # what a net is expected to add is divided by the cost of its training to this power

    def __init__(self, context: StrategyContext) -> None:
        self._context, self._seed, self._options = context, context.seed, options_of(context.space)
        self._draws, self._reader, self._surrogate = RandomDraws(context), TrialReader(), Surrogate(self._options)
        self._curves = LearningCurves(context.features_of, MAX_OBSERVATIONS)
        self._running: list[PastTrial] = []  # train or wait
        self._proposed: set[int] = set()  # hashes of candidates, see `Net.candidate`
        self._noted: set[int] = set()  # the trials whose candidates these are
        self._readings = 0  # when the constants were learned
        self._count, self._pending = 0, tuple[int, ...]()  # readings and trials that the surrogate was conditioned on
        self._expected: dict[int, tuple[float, Net]] = {}  # by trial
        self._ended: dict[int, float] = {}  # accuracies at the end, by trial
        self._accuracies: Mapping[int, float] | None = None
        self._near: dict[tuple[object, ...], list[Genes]] = {}  # candidates around a net, by its genes
        self._random: dict[int, list[Genes]] = {}  # draws by number of the trial

    def propose(self, history: History, number: int) -> Genes | None:
        self._update(history)
        learned = self._curves.count >= MIN_OBSERVATIONS
        found = self._expected_best(history, number) if learned else self._far_in_cost(history, number)
        return found or self._draws.propose(history, number)

    def _expected_best(self, history: History, number: int) -> Genes | None:
        """Of the nets around the front and some others the most promising; None if all are known."""
        self._condition(history)
        points = [(mean, net.features.costs.objective) for mean, net in self._expected.values()]
        floor = self._floor(points, number)
        draw = random.Random(f"{self._seed}/{number}")
        candidates = self._candidates(self._predicted_front(points, floor), number, draw)
        if not candidates:
            return None
        best = self._most_promising(candidates, points, floor)
        steps = mutations(best.genes, self._options)
        neighbors = [self._net(best.genes | step) for step in draw.sample(steps, min(N_NEIGHBORS, len(steps)))]
        return self._most_promising([best, *filter(self._is_new, neighbors)], points, floor).genes

    def _far_in_cost(self, history: History, number: int) -> Genes | None:
        """Of random draws within the limits the one whose cost is furthest from all before; None without any."""
        first = [self._context.features_of(trial.genes) for trial in history.trials if trial.genes]
        known = [features.costs.objective for features in first if features.is_feasible]
        draw = random.Random(f"{self._seed}/{number}")
        drawn = [self._net(genes) for genes in self._context.draws_within_limits(draw, FIRST_DRAWS)]
        new = [net for net in drawn if self._is_new(net) and net.features.is_feasible]
        if not known or not new:
            return None
        nearest = [np.abs(np.log(known) - math.log(net.features.costs.objective)).min() for net in new]
        return new[int(np.argmax(nearest))].genes

    def expected(self, history: History) -> Mapping[int, float]:
        """What each trial is expected to reach, by number: all that have passed a rung or ended.

        Empty before the surrogate has learned; the same object again while nothing new has come.
        """
        self._update(history)
        new_readings = self._curves.count - self._count
        if new_readings >= max(1, REFRESH * len(self._running)) and self._curves.count >= MIN_OBSERVATIONS:
            self._condition(history)  # what is in training changes no mean
        if not self._expected:
            return {}
        if self._accuracies is None:
            self._accuracies = self._ended | {number: mean for number, (mean, _) in self._expected.items()}
        waiting = [t for t in self._running if t.number not in self._accuracies and t.rungs]
        if waiting:
            means = self._surrogate.predict([self._net(t.genes) for t in waiting])[0].tolist()
            self._accuracies = {**self._accuracies, **dict(zip((t.number for t in waiting), means, strict=True))}
        return self._accuracies

    def _update(self, history: History) -> None:
        ended = [trial for trial in self._reader.newly_ended(history) if trial.genes]
        self._running = self._reader.running
        new = [t for t in (*ended, *self._running) if t.number not in self._noted]
        self._proposed |= {hash(self._net(t.genes).candidate) for t in new}
        self._noted |= {t.number for t in new}
        self._ended |= {trial.number: trial.accuracy for trial in ended if trial.accuracy is not None}
        self._curves.update(ended, self._running)

    def _condition(self, history: History) -> None:
        """Fit the surrogate to what is new, and expect what all nets will reach."""
        training = [trial for trial in self._running if not trial.is_paused][-MAX_PENDING:]
        numbers = tuple(trial.number for trial in training)
        if (self._count, self._pending) == (self._curves.count, numbers):
            return
        self._count, self._pending = self._curves.count, numbers
        observations = self._curves.observations()
        pending, is_due = [self._net(trial.genes) for trial in training], self._is_due(history)
        learned = self._surrogate.theta
        of_observed, of_pending = self._surrogate.condition(observations, pending, self._curves, is_due)
        if self._surrogate.theta is not learned:
            self._keep(history)
        self._accuracies = None
        self._expected = {
            o.trial: (float(mean), Net(o.genes, o.features)) for o, mean in zip(observations, of_observed, strict=True)
        } | {t.number: (float(mean), net) for t, mean, net in zip(training, of_pending, pending, strict=True)}

    def _floor(self, points: Sequence[tuple[float, float]], number: int) -> float:
        """The accuracy that improvement counts from, of nets with these expected accuracies and costs.

        By turns the lowest, and one that is of use: nets that are just good enough may be among those expected not to
        be.
        """
        accuracies = [accuracy for accuracy, _ in points]
        return max(useful_from(accuracies, USEFUL), self._context.min_accuracy) if number % 2 else min(accuracies)

    def _predicted_front(self, points: Sequence[tuple[float, float]], floor: float) -> list[Net]:
        """The front, from this accuracy on, of all nets that were trained or are in training.

        Measured accuracy is partly luck: a front of lucky nets would hide those that are as good as it looks.
        """
        front = front_of(self._expected.values(), points)
        return [net for mean, net in front if mean >= floor] or [net for _, net in front]

    def _is_due(self, history: History) -> bool:
        """Whether the surrogate's constants should be learned anew."""
        if self._surrogate.theta is None and LEARNED in history.notes:
            self._readings, theta = history.notes[LEARNED]
            self._surrogate.theta = np.array(theta)
        return self._surrogate.theta is None or self._curves.count >= max(self._readings + 1, GROWTH * self._readings)

    def _keep(self, history: History) -> None:
        assert self._surrogate.theta is not None
        self._readings = self._curves.count
        history.note({LEARNED: [self._readings, self._surrogate.theta.tolist()]})

    def _candidates(self, front: Sequence[Net], number: int, draw: random.Random) -> list[Net]:
        """Feasible nets that were never proposed, each once."""
        found: dict[object, Net] = {}
        parents = draw.sample(front, min(N_PARENTS, len(front)))
        genes = chain(self._near_parents(parents), self._crossings(front, draw), self._random_draws(number))
        for net in map(self._net, genes):
            if net.candidate not in found and self._is_new(net):
                found[net.candidate] = net
        return list(found.values())

    def _near_parents(self, parents: Sequence[Net]) -> Iterator[Genes]:
        """All nets one move from these, and some that are two moves away."""
        for net in parents:
            name = tuple(net.genes[gene] for gene in self._options)
            if name not in self._near:
                draw, steps = random.Random(f"{self._seed}/{name}"), mutations(net.genes, self._options)
                near = [net.genes | step for step in steps]
                for _ in range(N_TWO_AWAY if steps else 0):
                    genes = net.genes | draw.choice(steps)
                    near.append(genes | draw.choice(mutations(genes, self._options)))
                remember(self._near, name, near, most=NEAR_KEPT)
            yield from self._near[name]

    def _crossings(self, front: Sequence[Net], draw: random.Random) -> Iterator[Genes]:
        for _ in range(N_CROSSINGS):
            a, b = draw.choice(front).genes, draw.choice(front).genes
            yield {name: draw.choice((a[name], b[name])) for name in self._options}

    def _random_draws(self, number: int) -> Iterator[Genes]:
        """Random draws of this proposal and of those before it, so that few are new to each."""
        self._random.pop(number - RANDOM_KEPT - 1, None)
        for past in range(max(0, number - RANDOM_KEPT), number + 1):
            if past not in self._random:
                draw = random.Random(f"{self._seed}/uniform/{past}")
                self._random[past] = [self._context.random_genes(draw) for _ in range(N_RANDOM)]
            yield from self._random[past]

    def _net(self, genes: Genes) -> Net:
        return Net(genes, self._context.features_of(genes))

    def _is_new(self, net: Net) -> bool:
        """Whether a net is feasible and was never proposed, or never with this recipe."""
        return hash(net.candidate) not in self._proposed and net.features.is_feasible

    def _most_promising(self, nets: Sequence[Net], points: Sequence[tuple[float, float]], floor: float) -> Net:
        """The net that is expected to add most to the front above `floor`, or most for what its training costs."""
        costs = np.array([net.features.costs.objective for net in nets])
        reference = floor, max(*costs, *(cost for _, cost in points))
        mean, sd = self._surrogate.predict(nets)
        gains = expected_hypervolume_improvement(mean, sd, costs, points, reference)
        prices = np.array([net.features.costs.training for net in nets])
        return nets[int(np.argmax(gains / prices**self.cost_power))]


class EvolutionPerCost(Evolution):
    """Pareto evolution by expected improvement per cost of training (Snoek et al., NeurIPS 2012: per second)."""

    cost_power = COST_POWER
