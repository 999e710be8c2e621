"""Few-shot accuracy of a trained net's features, in closed form: linear probes and class-disjoint episodes.

N images, D features, K classes. Both tasks fit a ridge regression to targets of -1 and +1, one column a
class, and guess the largest output. Nothing touches the global random state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...archs import InputError, Network
from ...archs.errors import shown
from ...archs.parts import whole
from .job import QUERIES

PENALTIES = tuple(10.0**power for power in range(-2, 5))  # of a probe on standardised features
HELD_OUT = 50  # training images a class, at most, that choose among them
EPISODE_PENALTY = 1.0  # on features of length 1
STD_FLOOR = 1e-5  # added to the features' std, as Big Vision's fewshot_lsr.py does
SHOTS, EPISODES = range(2)  # streams of random numbers


@dataclass(frozen=True, eq=False)
class Labelled:
    """Features f_ND of images of the classes y_N, on one device. InputError if not all features are finite."""

    f_ND: Tensor
    y_N: Tensor

    def __post_init__(self) -> None:
        if bad := len(self.f_ND) - int(self.f_ND.isfinite().all(1).sum()):
            raise InputError(f"probe: features must be finite, those of {bad} of {len(self.f_ND)} images are not")


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
            whole("episodes", name, getattr(self, name), least, 2**32 - 1)


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


def ridge(f_ND: Tensor, t_NK: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """(w_DK, b_K), float64, that minimise |F w + b - T|^2 + penalty |w|^2.

    Solves the D x D system, or the N x N one of the dual form where that is smaller (Saunders et al.,
    ICML 1998). A penalty below the system's rounding error makes Cholesky fail: then by an SVD.

    Raises:
        InputError: if the penalty is no finite number above 0.
    """
    if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 < penalty < math.inf:
        raise InputError(f"ridge: penalty must be a finite number above 0, got {shown(penalty)}")
    f_ND, t_NK = f_ND.double(), t_NK.double()
    f_D, t_K = f_ND.mean(0), t_NK.mean(0)
    w_DK = _slopes(f_ND - f_D, t_NK - t_K, penalty)
    return w_DK, t_K - f_D @ w_DK


def classify(known: Labelled, f_ND: Tensor, penalty: float) -> Tensor:
    """Guesses y_N for features f_ND, by a ridge regression from the known images to {-1, +1}^K."""
    classes_K = known.y_N.unique()
    w_DK, b_K = ridge(known.f_ND, 2.0 * (known.y_N[:, None] == classes_K) - 1, penalty)
    return classes_K[(f_ND.double() @ w_DK + b_K).argmax(1)]


def draw(images: Labelled, shots: int, seed: int) -> tuple[Labelled, Labelled]:
    """`shots` images of each class, and up to HELD_OUT others of each.

    They are the front and the end of one random order of each class, which depends on the labels and the
    seed alone: fewer shots are among more, and the held-out images stay the same while they last.
    """
    random = np.random.default_rng((SHOTS, seed))
    orders = [random.permutation(places) for places in _by_class(images.y_N).values()]
    held_out = [order[max(shots, len(order) - HELD_OUT) :] for order in orders]
    return _at(images, [order[:shots] for order in orders]), _at(images, held_out)


def shot_accuracy(train: Labelled, test: Labelled, shots: int, seed: int) -> float:
    """Test accuracy of a linear probe on `shots` training images of each class.

    Regularised least squares to {-1, +1}^K (Dosovitskiy et al., ICLR 2021, section 4.1) on features
    standardised by the shots' mean and std. The penalty of PENALTIES is the one that is most accurate on
    held-out training images (as Raghu et al., NeurIPS 2021, tune it), of equals the largest; where no
    training image is left to hold out it is the middle one. The probe itself sees the shots only.

    Raises:
        InputError: if a class of train or test has fewer than `shots` training images.
    """
    _check_shots(train, test, shots)
    drawn, held_out = draw(train, shots, seed)
    mean_D, std_D = drawn.f_ND.double().mean(0), drawn.f_ND.double().std(0, correction=0) + STD_FLOOR
    drawn, held_out, test = (Labelled((part.f_ND - mean_D) / std_D, part.y_N) for part in (drawn, held_out, test))
    penalty = PENALTIES[len(PENALTIES) // 2]
    if len(held_out.y_N):
        penalty = max(reversed(PENALTIES), key=lambda each: _accuracy(drawn, held_out, each))
    return _accuracy(drawn, test, penalty)


def shot_curve(train: Labelled, test: Labelled, shots: Sequence[int], seed: int) -> dict[int, float]:
    """`shot_accuracy` by number of shots."""
    return {number: shot_accuracy(train, test, number, seed) for number in shots}


def episode_accuracies(pool: Labelled, how: Episodes) -> Tensor:
    """(count,) float64: accuracy of each episode, on the CPU.

    The classes of the pool should be ones that the net was not trained on. An episode's classifier is a
    ridge regression (Bertinetto et al., ICLR 2019) with EPISODE_PENALTY, on features centred by the
    support's mean and then brought to length 1 (Wang et al., 2019, "SimpleShot", who centre by the base
    classes' mean): neither an offset nor the scale of a net's features matters.

    Raises:
        InputError: if the pool has fewer classes than ways, or a class too few images.
    """
    places = _by_class(pool.y_N)
    _check_pool(places, how)
    found = [_episode(pool, list(places.values()), how, number) for number in range(how.count)]
    return torch.tensor(found, dtype=torch.double)


def episode_table(
    pool: Labelled, ways: Sequence[int], shots: Sequence[int], count: int, seed: int, queries: int = QUERIES
) -> list[dict[str, Any]]:
    """A row for each pair of ways and shots: mean accuracy and its 95 % interval, mean +- 1.96 sd / sqrt(count)."""
    return [_row(pool, Episodes(way, shot, queries, count, seed)) for way in ways for shot in shots]


def _row(pool: Labelled, how: Episodes) -> dict[str, Any]:
    found = episode_accuracies(pool, how)
    mean, reach = found.mean().item(), 1.96 * found.std().item() / math.sqrt(how.count)
    row = {"ways": how.ways, "shots": how.shots, "accuracy": mean, "low": mean - reach, "high": mean + reach}
    return row | {"episodes": how.count}


def _episode(pool: Labelled, places: list[np.ndarray], how: Episodes, number: int) -> float:
    """One accuracy. Support is the front and queries are the end of a random order of each class."""
    random = np.random.default_rng((EPISODES, how.seed, number))
    orders = [random.permutation(places[label]) for label in random.permutation(len(places))[: how.ways]]
    support = _at(pool, [order[: how.shots] for order in orders])
    query = _at(pool, [order[-how.queries :] for order in orders])
    mean_D = support.f_ND.double().mean(0)
    support, query = (Labelled(F.normalize(part.f_ND - mean_D), part.y_N) for part in (support, query))
    return _accuracy(support, query, EPISODE_PENALTY)


def _accuracy(known: Labelled, asked: Labelled, penalty: float) -> float:
    hit_N = classify(known, asked.f_ND, penalty) == asked.y_N
    return hit_N.sum().item() / len(hit_N)  # counted, so that the fraction is exact


def _slopes(f_ND: Tensor, t_NK: Tensor, penalty: float) -> Tensor:
    """w_DK of a ridge regression of centred targets on centred features."""
    images, width = f_ND.shape
    dual = images < width
    gram = f_ND @ f_ND.T if dual else f_ND.T @ f_ND
    factor, failed = torch.linalg.cholesky_ex(gram + penalty * torch.eye(len(gram)).to(gram))
    if failed.item():
        u_NR, s_R, v_RD = torch.linalg.svd(f_ND, full_matrices=False)
        return v_RD.T @ ((s_R / (s_R**2 + penalty))[:, None] * (u_NR.T @ t_NK))
    if dual:
        return f_ND.T @ torch.cholesky_solve(t_NK, factor)
    return torch.cholesky_solve(f_ND.T @ t_NK, factor)


def _at(images: Labelled, places: list[np.ndarray]) -> Labelled:
    at = torch.from_numpy(np.concatenate(places)).to(images.y_N.device)
    return Labelled(images.f_ND[at], images.y_N[at])


def _by_class(y_N: Tensor) -> dict[int, np.ndarray]:
    """Places of each class's images, by class number."""
    labels, counts = np.unique(y := y_N.cpu().numpy(), return_counts=True)
    chunks = np.split(np.argsort(y, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(labels.tolist(), chunks, strict=True))


def _check_shots(train: Labelled, test: Labelled, shots: int) -> None:
    whole("probe", "shots", shots)
    places = _by_class(train.y_N)
    for label in sorted({*places, *test.y_N.unique().tolist()}):
        if (found := len(places.get(label, ()))) < shots:
            raise InputError(f"probe: {shots} shots need {shots} training images of class {label}, there are {found}")


def _check_pool(places: dict[int, np.ndarray], how: Episodes) -> None:
    if len(places) < how.ways:
        raise InputError(f"episodes: ways must be at most the pool's classes, got {how.ways} of {len(places)}")
    for label, at in places.items():
        if len(at) < how.shots + how.queries:
            what = f"{how.shots} shots and {how.queries} queries need {how.shots + how.queries} images"
            raise InputError(f"episodes: {what} of class {label}, there are {len(at)}")
