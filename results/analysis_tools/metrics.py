"""What the rows of an analysis come to in one number; for claims and for nets that are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...archs.errors import InputError, check_int, short_repr
from ..analysis.cka import check_same, cka_map
from ..ranking.stats import mean_ci
from .hooks import residual_points
from .inputs import AnalysisInput

Rows = Sequence[Mapping[str, Any]]


def highest(rows: Rows) -> list[Any]:
    """Of the rows of `fourier`, that of the highest frequency of each site."""
    return list({row["place"]: row for row in rows}.values())


def varied(rows: Rows, op: str) -> float:
    """Of `variance`: mean log factor by which the blocks of a kind change it."""
    return mean_of(math.log(r["variance"] / (r["variance"] - r["change"])) for r in _changing(rows, op))


def raised(rows: Rows, op: str) -> float:
    """Of `fourier`: mean change of the log amplitude at the highest frequency over the blocks of a kind."""
    return mean_of(row["change"] for row in _changing(highest(rows), op))


def negative(rows: Rows) -> float:
    """Of `hessian`: the share of eigenvalues below 0 (NEP)."""
    return mean_of(row["eigenvalue"] < 0 for row in rows)


def positive(rows: Rows) -> float:
    """Of `hessian`: the mean of those above 0 (APE)."""
    return mean_of(row["eigenvalue"] for row in rows if row["eigenvalue"] > 0)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % t interval of the mean; of a single value everything."""
    found = mean_ci(values)
    return (-math.inf, math.inf) if found.low is None or found.high is None else (found.low, found.high)


def side_of_zero(values: Sequence[float]) -> int:
    """1 or -1 where the whole 95 % t interval of the mean is above or below 0, else 0."""
    low, high = interval(values)
    return int(low > 0) - int(high < 0)


def largest_loss(rows: Rows, named: str) -> list[str]:
    """A sentence about the row that costs most accuracy; none where its interval over images does not lie below 0.

    Args:
        rows: with "change" of accuracy, and "low" and "high" of its 95 % interval.
        named: what a row is, as a format of its columns.
    """
    worst = min(rows, key=lambda row: row["change"])
    if worst["high"] >= 0:
        return []
    change, low, high = (100 * worst[key] for key in ("change", "low", "high"))
    beside = sum(row["low"] <= worst["high"] for row in rows) - 1
    also = f"; {beside} of the others' overlap with this one" if beside else ""
    where = named.format(**worst)
    return [f"The largest loss is {where}: {change:+.1f} points (95 % {low:+.1f} to {high:+.1f} over images{also})."]


def mean_of(values: Iterable[float]) -> float:
    """The mean.

    Raises:
        ValueError: if there is nothing to average.
    """
    values = list(values)
    if not values:
        raise ValueError("nothing of the kind is there to average")
    return mean(values)


def _changing(rows: Rows, op: str) -> Rows:
    """The blocks of a kind that keep their map's shape: elsewhere a change means nothing."""
    return [row for row in rows if row["op"] == op and row["change"] is not None]


def alike(subject: AnalysisInput, other: AnalysisInput, batch: int = 256) -> list[dict[str, Any]]:
    """A row for each place of the residual stream: its CKA with the same place of the other net.

    Nets that do not have the same places have no same place: there it is the one that it is most like.

    Raises:
        InputError: if the nets do not take the same images, or there are below 4.
    """
    check_same(subject, other)
    sites, others = (residual_points(one.net) for one in (subject, other))
    batches = (x_BCHW for x_BCHW, _ in subject.images.batches(batch))
    found = cka_map(subject.net, other.net, batches, sites, others)
    same = [site.name for site in sites] == [site.name for site in others]
    best = range(len(sites)) if same else found.nan_to_num(-1.0).argmax(1).tolist()
    return [
        {"place": site.name, "match": others[k].name, "cka": found[i, k].item()}
        for i, (site, k) in enumerate(zip(sites, best, strict=True))
    ]


PENALTIES = tuple(10.0**power for power in range(-2, 5))  # of a probe on standardised features
HELD_OUT = 50  # training images a class, at most, that choose among them
STD_FLOOR = 1e-5  # added to the features' std, as Big Vision's fewshot_lsr.py does
SHOTS = 0  # stream of random numbers; episodes draw from another


@dataclass(frozen=True, eq=False)
class Labelled:
    """Features f_ND of images of the classes y_N, on one device. InputError if not all features are finite."""

    f_ND: Tensor
    y_N: Tensor

    def __post_init__(self) -> None:
        if bad := len(self.f_ND) - int(self.f_ND.isfinite().all(1).sum()):
            raise InputError(f"probe: features must be finite, those of {bad} of {len(self.f_ND)} images are not")


def ridge(f_ND: Tensor, t_NK: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """(w_DK, b_K), float64, that minimise |F w + b - T|^2 + penalty |w|^2.

    Solves the D x D system, or the N x N one of the dual form where that is smaller (Saunders et al.,
    ICML 1998). A penalty below the system's rounding error makes Cholesky fail: then by an SVD.

    Raises:
        InputError: if the penalty is no finite number above 0.
    """
    if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 < penalty < math.inf:
        raise InputError(f"ridge: penalty must be a finite number above 0, got {short_repr(penalty)}")
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
    orders = [random.permutation(places) for places in by_class(images.y_N).values()]
    held_out = [order[max(shots, len(order) - HELD_OUT) :] for order in orders]
    return at_places(images, [order[:shots] for order in orders]), at_places(images, held_out)


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
        penalty = max(reversed(PENALTIES), key=lambda each: hit_rate(drawn, held_out, each))
    return hit_rate(drawn, test, penalty)


def shot_curve(train: Labelled, test: Labelled, shots: Sequence[int], seed: int) -> dict[int, float]:
    """`shot_accuracy` by number of shots."""
    return {number: shot_accuracy(train, test, number, seed) for number in shots}


def hit_rate(known: Labelled, asked: Labelled, penalty: float) -> float:
    """Share of the asked images guessed right from the known ones."""
    hit_N = classify(known, asked.f_ND, penalty) == asked.y_N
    return hit_N.sum().item() / len(hit_N)  # counted, so that the fraction is exact


def at_places(images: Labelled, places: list[np.ndarray]) -> Labelled:
    """The images at these places."""
    at = torch.from_numpy(np.concatenate(places)).to(images.y_N.device)
    return Labelled(images.f_ND[at], images.y_N[at])


def by_class(y_N: Tensor) -> dict[int, np.ndarray]:
    """Places of each class's images, by class number."""
    labels, counts = np.unique(y := y_N.cpu().numpy(), return_counts=True)
    chunks = np.split(np.argsort(y, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(labels.tolist(), chunks, strict=True))


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


def _check_shots(train: Labelled, test: Labelled, shots: int) -> None:
    check_int("probe", "shots", shots)
    places = by_class(train.y_N)
    for label in sorted({*places, *test.y_N.unique().tolist()}):
        if (found := len(places.get(label, ()))) < shots:
            raise InputError(f"probe: {shots} shots need {shots} training images of class {label}, there are {found}")
