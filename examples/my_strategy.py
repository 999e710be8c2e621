"""A strategy of your own: simulated annealing on the gain in accuracy per tenfold of cost.

alternas search resnet --strategy my_strategy:Annealing --trials 8
"""

import math
import random

from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState


class Annealing(BaseSampler):
    """Changes some genes of a net it stands on, fewer and fewer; goes to a worse one now and then."""

    def __init__(self, seed=0):  # one that takes a seed gets the search's
        self.random = random.Random(seed)

    def infer_relative_search_space(self, study, trial):
        return {}  # every gene is asked for by itself, below

    def sample_relative(self, study, trial, search_space):
        return {}

    def before_trial(self, study, trial):
        trained = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))  # baselines among them
        worth = {t.number: t.values[0] - 0.1 * math.log10(t.values[1]) for t in trained}  # values: accuracy, cost
        heat = 0.9 ** len(trained)
        self.rate = 0.1 + heat / 2
        ranked = sorted((t for t in trained if t.params), key=lambda t: worth[t.number], reverse=True)
        self.at = ranked[int(self.random.random() * heat * len(ranked))].params if ranked else {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        if param_name in self.at and self.random.random() > self.rate:
            return self.at[param_name]
        assert isinstance(param_distribution, CategoricalDistribution)  # as every gene is
        return self.random.choice(param_distribution.choices)
