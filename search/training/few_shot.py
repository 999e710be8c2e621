"""Few-shot accuracy of a trained net's features, in closed form: the features, and class-disjoint episodes.

N images, D features. Ridge regression and linear probes are those of `results/analysis/linear_probe.py`. Nothing
touches the global random state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...archs import InputError, Network
from ...archs.errors import check_int
from ...archs.weights import read
from ...results.analysis.linear_probe import Labelled, at_places, by_class, hit_rate
from .job import QUERIES, FewShot, TrainJob
from .preprocess import DeviceLoader

EPISODE_PENALTY = 1.0  # on features of length 1
EPISODES = 1  # stream of random numbers; shots draw from another


@dataclass(frozen=True)
class Episodes:
    """How few-shot episodes are drawn.

    Attributes:
        ways: classes an episode.
        shots: support images a class.
        queries: images a class to be guessed.
        count: episodes; at least 2, for an interval.
        seed: episode i is a function of the pool's labels, (seed, i) and the three sizes.
    """

    ways: int
    shots: int
    queries: int = QUERIES
    count: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in {"ways": 2, "shots": 1, "queries": 1, "count": 2, "seed": 0}.items():
            check_int("episodes", name, getattr(self, name), least, 2**32 - 1)


@torch.no_grad()
def features(net: Network, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(f_ND, y_N): what the last Linear of the head sees in eval mode, float32 and where the net is.

    Afterwards every module is in the mode that it was in.
    """
    seen, y = [], []
    last = [module for module in net.head.modules() if isinstance(module, nn.Linear)][-1]
    modes = [(module, module.training) for module in net.modules()]
    hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].float()))
    net.eval()
    try:
        for x_BCHW, y_B in batches:
            net(x_BCHW)
            y.append(y_B)
    finally:
        hook.remove()
        for module, mode in modes:
            module.training = mode
    return torch.cat(seen), torch.cat(y)


def episode_accuracies(pool: Labelled, how: Episodes) -> Tensor:
    """(count,) float64: accuracy of each episode, on the CPU.

    The classes of the pool should be ones that the net was not trained on. An episode's classifier is a
    ridge regression (Bertinetto et al., ICLR 2019) with EPISODE_PENALTY, on features centred by the
    support's mean and then brought to length 1 (Wang et al., 2019, "SimpleShot", who centre by the base
    classes' mean): neither an offset nor the scale of a net's features matters.

    Raises:
        InputError: if the pool has fewer classes than ways, or a class too few images.
    """
    places = by_class(pool.y_N)
    _check_pool(places, how)
    found = [_episode(pool, list(places.values()), how, number) for number in range(how.count)]
    return torch.tensor(found, dtype=torch.double)


def episode_table(
    pool: Labelled, ways: Sequence[int], shots: Sequence[int], count: int, seed: int, queries: int = QUERIES
) -> list[dict[str, Any]]:
    """A row for each pair of ways and shots: mean accuracy and its 95 % interval.

    That is mean +- 1.96 sd / sqrt(count), cut to [0, 1].
    """
    return [_row(pool, Episodes(way, shot, queries, count, seed)) for way in ways for shot in shots]


def _row(pool: Labelled, how: Episodes) -> dict[str, Any]:
    found = episode_accuracies(pool, how)
    mean, reach = found.mean().item(), 1.96 * found.std().item() / math.sqrt(how.count)
    low, high = max(0.0, mean - reach), min(1.0, mean + reach)
    row = {"ways": how.ways, "shots": how.shots, "accuracy": mean, "low": low, "high": high}
    return row | {"episodes": how.count}


def _episode(pool: Labelled, places: list[np.ndarray], how: Episodes, number: int) -> float:
    """One accuracy. Support is the front and queries are the end of a random order of each class."""
    random = np.random.default_rng((EPISODES, how.seed, number))
    orders = [random.permutation(places[label]) for label in random.permutation(len(places))[: how.ways]]
    support = at_places(pool, [order[: how.shots] for order in orders])
    query = at_places(pool, [order[-how.queries :] for order in orders])
    mean_D = support.f_ND.double().mean(0)
    support, query = (Labelled(F.normalize(part.f_ND - mean_D), part.y_N) for part in (support, query))
    return hit_rate(support, query, EPISODE_PENALTY)


def _check_pool(places: dict[int, np.ndarray], how: Episodes) -> None:
    if len(places) < how.ways:
        raise InputError(f"episodes: ways must be at most the pool's classes, got {how.ways} of {len(places)}")
    for label, at in places.items():
        if len(at) < how.shots + how.queries:
            what = f"{how.shots} shots and {how.queries} queries need {how.shots + how.queries} images"
            raise InputError(f"episodes: {what} of class {label}, there are {len(at)}")


BATCH = 500


def few_shots(job: TrainJob, few: FewShot, novel: DeviceLoader) -> dict[str, float]:
    """Mean accuracy of `few`'s episodes on the validation images of `novel`, by "WAYSway_SHOTSshot"."""
    net = read(Path(job.weights)).to(novel.device)
    pool = Labelled(*features(net, novel.images("val", BATCH)))
    rows = episode_table(pool, few.ways, few.shots, few.episodes, job.seed)
    return {name_of(row["ways"], row["shots"]): row["accuracy"] for row in rows}


def name_of(ways: int, shots: int) -> str:
    """The metric of K-way N-shot episodes."""
    return f"{ways}way_{shots}shot"
