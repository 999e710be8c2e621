"""What a net is expected to reach, and to add to a front: nets as inputs of a Gaussian process, expected improvement.

Costs are known exactly, so the expected hypervolume improvement has a closed form. After BANANAS (White et al., AAAI
2021), whose predictor chooses among mutated nets.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from ...archs.candidate import recipe_genes
from ...spaces import Gene, Genes
from .gaussian_process import Data, Layout, Posterior, learn_constants
from .history import LearningCurves
from .strategy_context import NetFeatures, Observation, Traits, remember

# Mean and standard deviation of the logarithm of each constant, of accuracies and costs scaled to variance 1: priors
# that were chosen on some tables and hold on others (docs/log.md). Of a gene's relevance minus log of their number.
COST_PRIOR = (-2.0, 1.0)
GENE_PRIOR = (-1.5, 1.5)
TRAITS_PRIOR = (0.0, 1.0)  # of all traits that two nets do not share, as a share of those that a net has
TREND_PRIOR = (0.0, 1.5)
LINEAR_PRIOR = (-1.0, 1.5)  # of all genes together
NET_PRIOR = (0.7, 0.7)
RECIPE_GENE_PRIOR = (0.0, 1.5)  # however many: over a field's range, 1 long, accuracy rises and falls (docs/log.md)
NOISE_PRIOR = (-2.0, 1.0)
RUNG_SCALE_PRIOR = (-0.3, 0.5)
RUNG_OWN_PRIOR = (-1.5, 1.0)
MAX_LEARNED_FROM = 160  # observations that constants are learned from
COSTS = 2  # of each net: the objective and the parameters
MIN_SPREAD = 0.05  # decades of cost, where nets cost alike
LARGEST_GAP = 3.0  # times the median gap between the front and nets below it
MIN_READINGS = 3  # at a rung, before their mean and spread are known


class Net(NamedTuple):
    """A net by its genes and what is known of it."""

    genes: Genes
    features: NetFeatures

    @property
    def candidate(self) -> tuple[Traits, frozenset[tuple[str, Gene]]]:
        """What tells it apart: what the net is, and the genes of its recipe."""
        return self.features.traits, frozenset(recipe_genes(self.genes).items())


class Encoder:
    """Nets as rows of numbers: costs, genes, traits.

    Costs are log10. A gene of numbers is one column, its place among the options from 0 to 1; one of names has a
    column for each option, so that any two are 1 apart. Each trait has a column; those that came after `fix_columns`
    share one more, with the square root of their number, so that distances are the same.

    Attributes:
        genes: number of the genes that vary.
        recipe_genes: how many of them, the last ones, are the recipe's.
    """

    def __init__(self, options: Mapping[str, tuple[Gene, ...]]) -> None:
        self._rows_of: dict[str, dict[Gene, np.ndarray]] = {}  # by gene and option
        self._groups = [*range(COSTS)]  # of the columns before the traits
        for name, choices in options.items():
            if len(choices) > 1:
                is_named = isinstance(choices[0], str)
                rows = np.eye(len(choices)) / math.sqrt(2) if is_named else np.linspace(0, 1, len(choices))[:, None]
                self._groups += [COSTS + len(self._rows_of)] * rows.shape[1]
                self._rows_of[name] = dict(zip(choices, rows, strict=True))
        self.genes, self.recipe_genes = len(self._rows_of), len(recipe_genes(self._rows_of))
        self._column_of: dict[object, int] = {}  # by trait
        self._encoded: dict[tuple[Gene, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._traits = 0

    def fix_columns(self, nets: Sequence[Net]) -> None:
        """Give each trait of these nets a column."""
        for net in nets:
            self._encode(net)
        self._traits = len(self._column_of)

    def layout(self, fidelities: int) -> Layout:
        """What the columns are; all traits together have one relevance."""
        return Layout(
            np.array(self._groups + [COSTS + self.genes] * (self._traits + 1)),
            COSTS,
            fidelities,
            (COSTS, len(self._groups)),
        )

    def encode(self, nets: Sequence[Net]) -> np.ndarray:
        """(nets, columns)."""
        encoded = [self._encode(net) for net in nets]
        lengths = [len(traits) for _, traits in encoded]
        places, columns = np.repeat(np.arange(len(nets)), lengths), np.concatenate([traits for _, traits in encoded])
        known, first = columns < self._traits, len(self._groups)
        x = np.zeros((len(nets), first + self._traits + 1))
        x[:, :first] = [row for row, _ in encoded]
        x[places[known], first + columns[known]] = 1.0
        x[:, -1] = np.sqrt(np.bincount(places[~known], minlength=len(nets)))
        return x

    def _encode(self, net: Net) -> tuple[np.ndarray, np.ndarray]:
        """Costs and genes, and the columns of the traits, cached but for a cost that may change."""
        genes = tuple(net.genes[name] for name in self._rows_of)
        if genes not in self._encoded:
            traits = [self._column_of.setdefault(trait, len(self._column_of)) for trait in net.features.traits]
            rows = [of_option[gene] for of_option, gene in zip(self._rows_of.values(), genes, strict=True)]
            remember(self._encoded, genes, (np.concatenate([[0.0] * COSTS, *rows]), np.array(traits, dtype=int)))
        row, traits = self._encoded[genes]
        row[:COSTS] = math.log10(net.features.costs.objective), math.log10(net.features.costs.params)
        return row, traits


class Surrogate:
    """Gaussian process that expects what a net reaches at the end of its training.

    It compares log costs, genes and traits, knows which genes are the recipe's, and learns from repeats how noisy
    trainings are. Readings at rungs are observations of lower fidelity. Runs on one thread: more of them wait for each
    other where all cores train nets.
    """

    def __init__(self, options: Mapping[str, tuple[Gene, ...]]) -> None:
        self._encoder, self._threads = Encoder(options), ThreadpoolController()
        self.theta: np.ndarray | None = None  # what was learned last; None before

    def condition(
        self, observations: Sequence[Observation], pending: Sequence[Net], curves: LearningCurves, relearn: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Learn from these and forget all others. Cubic in their number: 300 take milliseconds.

        The constants are learned anew if `relearn`, or if a further rung was passed.

        Returns the accuracy expected at the end for the net of each observation, and for each pending one.
        """
        nets = [Net(observation.genes, observation.features) for observation in observations]
        self._encoder.fix_columns([*nets, *pending])
        self._layout = self._encoder.layout(curves.last_rung + 2)
        x = self._encoder.encode(nets)
        self._scale_inputs(x)
        data = self._data(self._scaled(x), observations, curves)
        with self._threads.limit(limits=1):
            if relearn or self.theta is None or len(self.theta) != sum(self._layout.sizes):
                self.theta = learn_constants(data.thinned(MAX_LEARNED_FROM), self._layout, *self._prior())
            rows = self._scaled(self._encoder.encode(pending)) if pending else np.empty((0, x.shape[1]))
            self._posterior = Posterior(data, self.theta, self._layout, rows)
        means = self._mean + self._spread * self._posterior.means
        return means[: len(nets)], means[len(nets) :]

    def predict(self, nets: Sequence[Net]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each net's accuracy at the end, without the noise of its training."""
        with self._threads.limit(limits=1):
            mean, sd = self._posterior.predict(self._scaled(self._encoder.encode(nets)))
        return self._mean + self._spread * mean, self._spread * sd

    def _prior(self) -> tuple[np.ndarray, np.ndarray]:
        tuned, rungs = self._encoder.recipe_genes, self._layout.fidelities - 1
        genes = self._encoder.genes - tuned
        gene = GENE_PRIOR[0] - math.log(max(1, genes)), GENE_PRIOR[1]
        relevance = [COST_PRIOR] * COSTS + [gene] * genes + [RECIPE_GENE_PRIOR] * tuned + [TRAITS_PRIOR]
        linear = LINEAR_PRIOR[0] - math.log(max(1, genes)), LINEAR_PRIOR[1]
        of_rungs = [RUNG_SCALE_PRIOR] * rungs + [RUNG_OWN_PRIOR] * rungs
        mean, sd = np.array([*relevance, TREND_PRIOR, linear, NET_PRIOR, *of_rungs, *[NOISE_PRIOR] * (rungs + 1)]).T
        return mean, sd

    def _scale_inputs(self, x: np.ndarray) -> None:
        """Centre costs and divide them by their spread; divide traits by the root of how many a net has."""
        of_traits = self._layout.groups == COSTS + self._encoder.genes
        self._shift, self._divisor = np.zeros(x.shape[1]), np.ones(x.shape[1])
        self._shift[:COSTS] = x[:, :COSTS].mean(0)
        self._divisor[:COSTS] = np.maximum(x[:, :COSTS].std(0), MIN_SPREAD)
        self._divisor[of_traits] = math.sqrt(max(1.0, (x[:, of_traits] ** 2).sum(1).mean()))

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return (x - self._shift) / self._divisor

    def _data(self, x: np.ndarray, observations: Sequence[Observation], curves: LearningCurves) -> Data:
        """Accuracies centred and divided by their spread, at each rung by those there."""
        full = self._layout.fidelities - 1
        fidelity = np.array([min(observation.rung, full) for observation in observations])
        accuracies = np.array([observation.accuracy for observation in observations])
        costs = np.array([observation.features.costs.objective for observation in observations])
        y, known = np.empty(len(accuracies)), (0.0, 1.0)
        for rung in range(full + 1):
            at = fidelity == rung
            values = without_far_gaps(accuracies[at], costs[at])
            if at.sum() >= MIN_READINGS:
                known = float(values.mean()), max(float(values.std()), 1e-3)
            y[at] = (values - known[0]) / known[1]
        self._mean, self._spread = known
        repeats = np.array([observation.repeats for observation in observations])
        return Data(x, y, fidelity, repeats, curves.squares / self._spread**2, curves.freedom)


def without_far_gaps(accuracies: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Accuracies, none further below the front at its cost than `LARGEST_GAP` times the median gap.

    How bad a bad net is tells nothing of good ones, but a few that learn nothing would set the scale of all others.
    """
    order = np.lexsort((-accuracies, costs))
    front = np.empty(len(accuracies))
    front[order] = np.maximum.accumulate(accuracies[order])
    gaps = front - accuracies
    if not (gaps > 0).any():
        return accuracies
    return np.maximum(accuracies, front - LARGEST_GAP * np.median(gaps[gaps > 0]))


def expected_hypervolume_improvement(
    mean: np.ndarray,
    sd: np.ndarray,
    costs: np.ndarray,
    front: Sequence[tuple[float, float]],
    reference: tuple[float, float],
) -> np.ndarray:
    """Area that each net is expected to add to a front over log10(cost) (Emmerich et al., 2006; the cost is certain).

    The area lies between the net's cost and the reference's, above the front's accuracy there, or above the
    reference's where the front has nothing so cheap.

    Args:
        mean, sd: predicted accuracy of each net.
        front: (accuracy, cost) of other nets, dominated ones included.
        reference: (accuracy, cost) of the least accuracy and the largest cost that count.
    """
    floor, max_cost = reference
    steps = [(-math.inf, floor)]
    for accuracy, cost in sorted(front, key=lambda point: (point[1], -point[0])):
        if accuracy > steps[-1][1]:
            steps.append((math.log10(cost), accuracy))
    edges = np.array([*(x for x, _ in steps), math.log10(max_cost)])
    heights = np.array([height for _, height in steps])
    left = np.maximum(edges[None, :-1], np.log10(costs)[:, None])
    widths = np.maximum(0.0, edges[None, 1:] - left)
    z = (mean[:, None] - heights[None, :]) / sd[:, None]
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return (widths * sd[:, None] * (z * ndtr(z) + density)).sum(1)
