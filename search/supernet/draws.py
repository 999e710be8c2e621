"""The choice of nets that train the bank in each step, and how the compute is divided. No torch.

Candidates are drawn evenly over the families: drawn uniformly from the space, a family of few nets would hardly be
trained. Of a few that cost about the same, the one is taken whose loss is predicted lowest (AttentiveNAS, CVPR 2021):
in a large space most nets are poor, and a bank that is trained for all of them alike is trained well for none.

Compute is counted in FLOPs, training 6 x MACs x images and evaluation 2 x MACs x images, of everything that a search
does but the baselines. One training is a full one of the space's mean net.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...archs import Genotype
from ...archs.cost import FORWARD_FACTOR, training_flops
from ...archs.errors import InputError
from ...spaces import Space, cheapest, random_net
from ..strategies.strategy_context import features
from ..training.job import STATISTICS_IMAGES
from ..training.recipe import Recipe

POOL_DRAWS = 2000  # random draws that stand for the space: its families, its mean cost, its largest nets
OVER = 1e18  # MACs that a net over the limits is taken for, so that the cheapest and most expensive are within them
EVEN_FROM = 24  # nets of the pool from which on a family is drawn as often as any other
WINDOW = 16  # steps whose nets are drawn together, so that those of one step cost about the same
CANDIDATES = 16  # nets of about equal cost, of which the best is trained
P_ANY = 0.2  # chance that any of them is: what is never trained is never known
RIDGE = 2.0  # penalty on the squared weights, in units of the variance of a net's log loss
MIN_LOSS = 1e-6
TREND = 2  # degree of the polynomial in the log cost, which the features are not to explain
NETS_A_STEP = 2  # that share a step's batch: more steps of fewer images train a bank better (docs/log.md)
MIN_BATCH = 2 * NETS_A_STEP  # BatchNorm cannot train on one image
EVALUATION_SHARE = 0.1
MAX_WATCHES, WATCH_SHARE = 4, 0.05  # times that some fixed nets are evaluated as a bank trains; of the compute, at most
EVALUATION_IMAGES = 1000  # validation images that a net is evaluated on
DRAWS = 256  # steps that tell what a step costs
TRAININGS_A_KIND = 1.75  # of a bank: with 1.85 slices rank the nets of `bench`, with 0.5 most of `all` are at chance


@dataclass(frozen=True)
class LossPredictor:
    """Ridge regression of log losses on the features of nets, beside a trend over the log cost."""

    # what each feature adds to the log loss, by its name; empty before anything is known
    weights: dict[str, float] = field(default_factory=dict)

    @classmethod
    def fit(cls, nets: Sequence[Genotype], losses: Sequence[float], macs: Sequence[float]) -> LossPredictor:
        """Learn from the training losses of some nets, above 0, and their costs."""
        described = [_names(net) for net in nets]
        columns = {name: i for i, name in enumerate(sorted(set().union(*described)))}
        x_NF = np.zeros((len(nets), len(columns)))
        for row, names in enumerate(described):
            x_NF[row, [columns[name] for name in names]] = 1.0
        trend_NT = np.vander(_standardized(np.log(macs)), TREND + 1)
        y_N = _standardized(np.log(np.maximum(losses, MIN_LOSS)))
        both = np.hstack([x_NF, trend_NT])
        penalty = np.diag([RIDGE] * len(columns) + [1e-6] * (TREND + 1))
        solved = np.linalg.solve(both.T @ both + penalty, both.T @ y_N)
        return cls({name: round(float(solved[i]), 6) for name, i in columns.items()})

    def __call__(self, net: Genotype) -> float:
        """How far a net's log loss is above that of others of its cost, up to a factor."""
        return math.fsum(self.weights.get(name, 0.0) for name in _names(net))


def _names(net: Genotype) -> list[str]:
    """A net's features as names, which JSON can hold; its family is one of them."""
    return [*sorted(f"{' '.join(map(str, place))} = {value}" for place, value in features(net)), net.family]


def _standardized(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / max(float(values.std()), 1e-6)


class NetSampler:
    """Draws nets for a supernet; all are within the limits.

    `excess`: the shares by which a net is over the limits; see `NetLimits.excess`.
    """

    def __init__(
        self, space: Space, macs: Callable[[Genotype], float], excess: Callable[[Genotype], float], seed: int
    ) -> None:
        self._space, self.macs, self._excess, self._seed = space, macs, excess, seed
        self._losses: dict[str, float] = {}  # predicted, of the pool by key; empty before anything is known
        self._windows: dict[tuple[int, int], list[tuple[Genotype, ...]]] = {}  # the last one, by number and nets a step

    def prefer(self, predicted: LossPredictor) -> None:
        """From now on draw more of the nets with a low predicted loss."""
        self._losses = {net.key: predicted(net) for net in self.pool} if predicted.weights else {}
        self._windows.clear()

    @cached_property
    def pool(self) -> list[Genotype]:
        """Distinct nets: random draws, the cheapest and the most expensive."""
        drawn = [random_net(self._space, seed) for seed in range(POOL_DRAWS)]
        ends = [
            cheapest(self._space, lambda net, sign=sign: sign * self.macs(net) + OVER * self._excess(net))[1]
            for sign in (1, -1)
        ]
        nets = {net.key: net for net in [*drawn, *ends] if not self._excess(net)}
        return sorted(nets.values(), key=lambda net: (self.macs(net), net.key))

    @cached_property
    def _places(self) -> dict[str, int]:
        """Each net's place in the pool, by its key: of two nets the more expensive one's is the larger."""
        return {net.key: place for place, net in enumerate(self.pool)}

    @property
    def mean_macs(self) -> float:
        """MACs of the space's mean net."""
        return sum(map(self.macs, self.pool)) / len(self.pool)

    @cached_property
    def families(self) -> dict[str, list[Genotype]]:
        """The pool by family, the cheapest first."""
        families = defaultdict[str, list[Genotype]](list)
        for net in self.pool:
            families[net.family].append(net)
        return dict(sorted(families.items()))

    @property
    def kinds(self) -> int:
        """Kinds of blocks in the pool that share no weights: all but attention; an encoder is one."""
        blocks = {stage.block for net in self.pool for stage in net.stages}
        return len(blocks) + any(net.encoder for net in self.pool)

    def check_shared(self) -> None:
        """Raise InputError if no two nets of the pool have a part in common."""
        counts = Counter(part for net in self.pool for part in _parts(net))
        if len(self.pool) > 1 and max(counts.values()) < 2:
            rule = "no two nets have a stem, a block at one place or an encoder in common"
            raise InputError(f"supernet: the nets of space {self._space.name!r} share no weights: {rule}")

    def fixed(self) -> tuple[Genotype, ...]:
        """The cheapest, the median and the most expensive net of the pool: what a training is watched by."""
        return self.pool[0], self.pool[len(self.pool) // 2], self.pool[-1]

    def nets(self, step: int, count: int) -> tuple[Genotype, ...]:
        """The nets of one step, which cost about the same: workers that share a step wait for the slowest."""
        window, place = divmod(step, WINDOW)
        if (window, count) not in self._windows:
            self._windows = {(window, count): self._draw_window(window, count)}
        return self._windows[window, count][place]

    def _draw_window(self, window: int, count: int) -> list[tuple[Genotype, ...]]:
        """The nets of `WINDOW` steps: candidates sorted by cost, the best of each few of them, again by cost."""
        draw, families = random.Random(f"{self._seed}/{window}"), [*self.families.values()]
        weights = [min(len(nets), EVEN_FROM) for nets in families]
        drawn = draw.choices(families, weights, k=CANDIDATES * WINDOW * count)
        candidates = sorted((draw.choice(nets) for nets in drawn), key=lambda net: self._places[net.key])
        nets = [self._best(draw, candidates[i : i + CANDIDATES]) for i in range(0, len(candidates), CANDIDATES)]
        steps = [tuple(nets[first : first + count]) for first in range(0, len(nets), count)]
        draw.shuffle(steps)
        return steps

    def _best(self, draw: random.Random, candidates: list[Genotype]) -> Genotype:
        if not self._losses or draw.random() < P_ANY:
            return draw.choice(candidates)
        return min(candidates, key=lambda net: self._losses[net.key])


def _parts(net: Genotype) -> set[tuple[object, ...]]:
    """What nets can share weights of: the stem, the kind of block at each place, the encoder's blocks."""
    net = net.canonical()
    parts: set[tuple[object, ...]] = {("stem", net.stem.kind, net.stem.patch, net.style)}
    for number, stage in enumerate(net.stages):
        parts |= {(number, place, kind, net.style) for place, kind in enumerate(stage.kinds)}
    return parts | {("encoder", block) for block in range(net.encoder.depth if net.encoder else 0)}


@dataclass(frozen=True)
class SupernetBudget:
    """The compute of a supernet search in FLOPs, and the length of its bank's training."""

    training: float  # of one full training of the space's mean net
    total: float  # of all of it
    bank: float  # of training the bank, at most
    evaluation: float  # of evaluating nets
    finetuning: float  # of the front
    steps: int  # of the bank's training
    watches: int  # times that some fixed nets are evaluated meanwhile


def divide(trainings: float, share: float, sampler: NetSampler, recipe: Recipe, steps: int) -> SupernetBudget:
    """The budget of a search at the compute of so many full trainings of `steps` steps, `share` for finetuning."""
    images = steps * recipe.batch_size
    training = training_flops(sampler.mean_macs, steps, recipe.batch_size)
    evaluation, finetuning = EVALUATION_SHARE * trainings * training, share * trainings * training
    watch = sum(evaluation_flops(sampler.macs(net), images, EVALUATION_IMAGES) for net in sampler.fixed())
    watches = min(MAX_WATCHES, int(WATCH_SHARE * trainings * training / watch))
    bank = trainings * training - evaluation - finetuning - watches * watch
    macs = [sampler.macs(net) for step in range(DRAWS) for net in sampler.nets(step, NETS_A_STEP)]
    a_step = training_flops(sum(macs) / len(macs), 1, recipe.batch_size)
    bank_steps = max(1, int(bank / a_step))
    return SupernetBudget(training, trainings * training, bank, evaluation, finetuning, bank_steps, watches)


def trainings_needed(trainings: float, budget: SupernetBudget, kinds: int) -> float:
    """Full trainings that a search takes whose bank has enough of them for each kind of block."""
    return trainings * kinds * TRAININGS_A_KIND * budget.training / budget.bank


def evaluation_flops(macs: float, train_images: int, val_images: int) -> float:
    """FLOPs of evaluating a net from the bank once."""
    images = min(STATISTICS_IMAGES, train_images) + min(EVALUATION_IMAGES, val_images)
    return FORWARD_FACTOR * macs * images
