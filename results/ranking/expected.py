"""What nets are expected to have on new pictures: their scores, less the luck that a run's choices have piled up.

Nets that were cross-validated are chosen and judged on pictures of their own (`nested_scores`). Of others, the best of
many on the same pictures is in part the luckiest, and luck is inherited: what a net has right by luck, a child that
begins with its weights may have right too. All trainings of a run are counted, in the order of descent, so that it does
not matter which were chosen to go on from. A net's score v is compared with

    base = e + kept (v of its parent - e),    e = what is expected of its parent

and both are 0 of nets from nothing. Of nets that began alike x = v - base differ by a variance s^2, c of it by chance,
and what is expected of a net is more than of its parent by

    mean + max(0, 1 - c / s^2) (x - mean)

(James & Stein, 1961; Efron & Morris, Journal of the American Statistical Association 70, 1975). `kept` and c are known
picture by picture: two nets from nothing differ by a variance a, a child and its parent by b, from one set of pictures
to another; kept = 1 - b / a, c = a / 2 (1 - kept^2). That pictures are easy or hard for all nets alike is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from ..runs.record import Record
from ..runs.status import Status
from .noise import Noise
from .ties import RightOf

MAX_PAIRS = 64  # of nets that are compared picture by picture, of those that began alike
ROUNDS, EXACT = 100, 1e-4
Pair = tuple[Record, Record]


@dataclass
class Group:
    """Nets that began alike, each with its parent, and what is known of them all."""

    kept: float = 0.0  # share of a parent's luck that a child has
    chance: float = 0.0  # c above
    mean: float = 0.0
    share: float = 0.0  # of a difference to the mean that is true
    differences: list[float] = field(default_factory=list)  # x above, of each net

    @classmethod
    def of(cls, pairs: Sequence[Pair], apart: float, by_chance: Callable[[Sequence[Pair]], float]) -> Group:
        """The group of these children and parents, none of nets from nothing, which differ by so much by chance."""
        kept = max(0.0, 1 - by_chance(pairs) / apart) if pairs and apart else 0.0
        return cls(kept, apart / 2 * (1 - kept**2))

    @property
    def squares(self) -> float:
        """Sum of squares of the differences about their mean."""
        middle = fmean(self.differences)
        return math.fsum((x - middle) ** 2 for x in self.differences)


def expected_scores(records: Sequence[Record], noise: Noise, right_of: RightOf) -> dict[int, float]:
    """The expected score on new pictures of each training of a run, by trial.

    None where no pictures are counted, and of nets that were cross-validated, which have a `nested` score.
    """
    trained = [r for r in records if r.status == Status.OK and r.accuracy is not None and not (r.folds or r.is_cut)]

    def by_chance(pairs: Sequence[Pair]) -> float:
        """Mean variance of the difference of two nets from one set of pictures to another; 0 of no pairs."""
        some = pairs[:: 1 + len(pairs) // MAX_PAIRS]
        found = [noise.pictures_variance(*((_score(r), right_of(r)) for r in pair)) for pair in some]
        return fmean(found or [0.0])

    return shrunk_scores(trained, by_chance) if trained and noise.images else {}


def shrunk_scores(trained: Sequence[Record], by_chance: Callable[[Sequence[Pair]], float]) -> dict[int, float]:
    """The expected score of each of these trainings, parents before children; see above."""
    parents = parents_of(trained)
    by_kind, generation = groups_of(trained, parents, by_chance), list[int]()
    groups = [by_kind[record.weights, parent is None] for record, parent in zip(trained, parents, strict=True)]
    alike = [[group for (_, first), group in by_kind.items() if first == asked] for asked in (True, False)]
    for parent in parents:
        generation.append(1 if parent is None else 1 + generation[parent])
    scores, expected = [*map(_score, trained)], [0.0] * len(trained)
    for _ in range(ROUNDS):
        for at, (score, parent, group) in enumerate(zip(scores, parents, groups, strict=True)):
            before, luck = (0.0, 0.0) if parent is None else (expected[parent], scores[parent] - expected[parent])
            x = score - before - group.kept * luck
            group.differences.append(x)
            expected[at] = before + group.mean + group.share * (x - group.mean)
        if max(settled(each, max(generation)) for each in alike if each) < EXACT:
            break
    return {r.trial: min(1.0, max(0.0, score)) for r, score in zip(trained, expected, strict=True)}


def parents_of(trained: Sequence[Record]) -> list[int | None]:
    """The place of each training's parent; None of a net from nothing, or from what is not among them."""
    place, parents = dict[int, int](), list[int | None]()
    for at, record in enumerate(trained):
        parents.append(place.get(record.lineage.get("trial", -1)))
        place[record.trial] = at
    return parents


def groups_of(
    trained: Sequence[Record], parents: Sequence[int | None], by_chance: Callable[[Sequence[Pair]], float]
) -> dict[tuple[str, bool], Group]:
    """The groups of nets that began alike: by how their weights came about, and whether from nothing."""
    pairs = [(r, None if parent is None else trained[parent]) for r, parent in zip(trained, parents, strict=True)]
    apart = by_chance([*pairwise(r for r, parent in pairs if parent is None)] or [*pairwise(trained)])
    members = dict[tuple[str, bool], list[Pair]]()
    for record, parent in pairs:
        members.setdefault((record.weights, parent is None), []).extend([(record, parent)] if parent else [])
    return {kind: Group.of(own, apart, by_chance) for kind, own in members.items()}


def settled(groups: Sequence[Group], slowness: int) -> float:
    """Give groups their means and share by the differences that came of the last ones; how far a mean moved.

    Through its ancestors a net's difference falls as the mean rises, so that it moves by a part at a time.
    """
    squares = math.fsum(group.squares for group in groups)
    by_chance = math.fsum((len(group.differences) - 1) * group.chance for group in groups)
    moved = [(fmean(group.differences) - group.mean) / slowness for group in groups]
    for group, by in zip(groups, moved, strict=True):
        group.mean += by
        group.share = max(0.0, 1 - by_chance / squares) if squares else 1.0
        group.differences = []
    return max(map(abs, moved))


def _score(record: Record) -> float:
    return record.accuracy or 0.0


def nested_scores(nets: Sequence[tuple[float, int, Sequence[float]]]) -> list[float | None]:
    """The nested score of the best net of at most the cost of each net; None where it is unknown.

    The best of many is in part the luckiest, and its own score says what its luck adds. Here the best is chosen by all
    folds but one and judged on that one, each fold in turn (Varma & Simon, BMC Bioinformatics 7, 2006; the folds'
    classifiers are those of one cross-validation, as in Tibshirani & Tibshirani, Annals of Applied Statistics 3, 2009).
    Of equal ones the cheapest is chosen, then the first trial.

    `nets`: cost, trial, and score in each fold, none where a net was not cross-validated.
    """
    found: list[float | None] = [None] * len(nets)
    judged = sorted((at for at, (_, _, folds) in enumerate(nets) if folds), key=lambda at: nets[at][:2])
    if len({len(nets[at][2]) for at in judged}) != 1:
        return found
    for at, score in zip(judged, _left_out_scores([nets[at][2] for at in judged]), strict=True):
        found[at] = score
    for before, at in zip(judged[-2::-1], judged[:0:-1], strict=True):
        if nets[before][0] == nets[at][0]:
            found[before] = found[at]
    return found


def nested_choice(nets: Sequence[tuple[float, Sequence[float]]], error: Callable[[float], float]) -> float:
    """What the cheapest net within a standard error of the best has on pictures that had no part in that choice.

    In each fold in turn the choice is made by the others. The cost is chosen too, so this is less than `nested_scores`
    say at the cost of the net: of 12 draws of 103 stamps the net chosen has .921 on the pictures left, where its own
    score says .969, the nested one of its cost .956 and this .937 (within 60 M MACs .872, .932, .910 and .884).

    `nets`: cost, and score in each fold, as many for all. `error`: standard error of a score.
    """
    judged = sorted(nets, key=lambda net: net[0])
    found = list[float]()
    for fold in range(len(judged[0][1])):
        others = [fmean([*scores[:fold], *scores[fold + 1 :]]) for _, scores in judged]
        least = max(others) - error(max(others))
        found.append(next(scores[fold] for (_, scores), other in zip(judged, others, strict=True) if other >= least))
    return fmean(found)


def _left_out_scores(folds: Sequence[Sequence[float]]) -> list[float]:
    """Of the first net, the first two, ...: the mean over folds of the score there of the one best on the others."""
    chosen: list[Sequence[float]] = [folds[0]] * len(folds[0])
    means = list[float]()
    for scores in folds:
        for fold, best in enumerate(chosen):
            if sum(scores) - scores[fold] > sum(best) - best[fold]:
                chosen[fold] = scores
        means.append(sum(best[fold] for fold, best in enumerate(chosen)) / len(chosen))
    return means
