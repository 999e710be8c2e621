"""Few-shot episodes: accuracy of a trained net's features on new classes, in closed form.

N images, D features. Ridge regression and linear probes are those of `results/analysis/linear_probe.py`. Nothing
touches the global random state.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...archs import InputError
from ...archs.errors import check_int
from ...archs.weights import read
from ...results.analysis.linear_probe import Labelled, at_places, by_class, hit_rate
from ...results.ranking.stats import SHARE, mean_ci
from .job import QUERIES, FewShot, TrainJob
from .loaders import DeviceLoader
from .refit import features

BATCH = 500
EPISODE_PENALTY = 1.0  # on features of length 1
EPISODES = 1  # stream of random numbers; shots draw from another


def episode_accuracies(
    pool: Labelled, ways: int, shots: int, queries: int = QUERIES, count: int = 200, seed: int = 0
) -> Tensor:
    """(count,) float64: accuracy of each episode, on the CPU.

    The classes of the pool should be ones that the net was not trained on. An episode's classifier is a
    ridge regression (Bertinetto et al., ICLR 2019) with EPISODE_PENALTY, on features centred by the
    support's mean and then brought to length 1 (Wang et al., 2019, "SimpleShot", who centre by the base
    classes' mean): neither an offset nor the scale of a net's features matters.

    Args:
        pool: what classes and images are drawn from.
        ways: classes an episode.
        shots: support images a class.
        queries: images a class to be guessed.
        count: episodes; at least 2, for an interval.
        seed: episode i is a function of the pool's labels, (seed, i) and the three sizes.

    Raises:
        InputError: if a number is out of range, the pool has fewer classes than ways, or a class too few images.
    """
    given = {"ways": (ways, 2), "shots": (shots, 1), "queries": (queries, 1), "count": (count, 2), "seed": (seed, 0)}
    for name, (value, least) in given.items():
        check_int("episodes", name, value, least, 2**32 - 1)
    places = by_class(pool.y_N)
    if len(places) < ways:
        raise InputError(f"episodes: ways must be at most the pool's classes, got {ways} of {len(places)}")
    for label, at in places.items():
        if len(at) < shots + queries:
            rule = f"{shots} shots and {queries} queries need {shots + queries} images"
            raise InputError(f"episodes: {rule} of class {label}, there are {len(at)}")
    accuracies, labels = [], list(places)
    for number in range(count):
        random = np.random.default_rng((EPISODES, seed, number))
        # support is the front and queries are the end of a random order of each class
        orders = [random.permutation(places[labels[i]]) for i in random.permutation(len(labels))[:ways]]
        support = at_places(pool, [order[:shots] for order in orders])
        query = at_places(pool, [order[-queries:] for order in orders])
        mean_D = support.f_ND.double().mean(0)
        support, query = (Labelled(F.normalize(part.f_ND - mean_D), part.y_N) for part in (support, query))
        accuracies.append(hit_rate(support, query, EPISODE_PENALTY))
    return torch.tensor(accuracies, dtype=torch.double)


def episode_table(
    pool: Labelled, ways: Sequence[int], shots: Sequence[int], count: int, seed: int, queries: int = QUERIES
) -> list[dict[str, Any]]:
    """A row for each pair of ways and shots: ways, shots, and the fields of a `MeanCI` over the episodes."""
    return [
        {"ways": way, "shots": shot}
        | vars(mean_ci(episode_accuracies(pool, way, shot, queries, count, seed).tolist(), SHARE, 1 / (way * queries)))
        for way, shot in itertools.product(ways, shots)
    ]


def few_shots(job: TrainJob, few: FewShot, novel: DeviceLoader) -> dict[str, float]:
    """Mean accuracy of `few`'s episodes on the validation images of `novel`, by `metric_name`."""
    net = read(Path(job.weights)).to(novel.device)
    pool = Labelled(*features(net, net.classifier, novel.images("val", BATCH)))
    rows = episode_table(pool, few.ways, few.shots, few.episodes, job.seed)
    return {metric_name(row["ways"], row["shots"]): row["mean"] for row in rows}


def metric_name(ways: int, shots: int) -> str:
    """The metric of K-way N-shot episodes."""
    return f"{ways}way_{shots}shot"
