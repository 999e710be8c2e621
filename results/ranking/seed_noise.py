"""The seed noise of a run, from all that was trained in it with several seeds, and the nets that it leaves tied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..runs.record import Record
from ..runs.retrained import by_net
from .stats import half_width, pooled_sd

Row = dict[str, Any]
UNKNOWN = "seed noise: unknown: every net was trained once; `--repeats` or `alternas retrain` would tell"


@dataclass(frozen=True)
class Noise:
    """What another seed does to an accuracy.

    Attributes:
        sd: standard deviation within nets, pooled over them; a fraction, as accuracies are.
        degrees: of freedom that it is known from.
        trainings: that it is worked out from.
        nets: that they are of.
    """

    sd: float
    degrees: int
    trainings: int
    nets: int

    def __str__(self) -> str:
        return f"seed noise: {100 * self.sd:.2g} points (sd over {self.trainings} trainings of {nets(self.nets)})"


def nets(count: int) -> str:
    """So many nets."""
    return f"{count} net{'s' * (count != 1)}"


def noise_of(records: Iterable[Record], again: Iterable[Record] = ()) -> Noise | None:
    """The noise of a run; None where every net was trained once.

    Args:
        records: of the search; those with `accuracies` were trained with several seeds, baselines or not.
        again: retrainings of its nets. Those of another recipe or budget make a group of their own.
    """
    groups = [(r.key, list(r.accuracies.values())) for r in records if r.status == "ok" and len(r.accuracies) > 1]
    groups += [(g[0].key, [r.accuracy for r in g if r.accuracy is not None]) for g in by_net(again) if len(g) > 1]
    sd = pooled_sd([found for _, found in groups])
    if sd is None:
        return None
    trainings = sum(len(found) for _, found in groups)
    return Noise(sd, trainings - len(groups), trainings, len({key for key, _ in groups}))


def mark_ties(rows: Sequence[Row], costs: Sequence[str], noise: Noise, name: Callable[[Row], Any]) -> None:
    """Put into `tied_with` of each row the names of those that the noise does not tell from it, the closest first.

    Accuracies of nets on the front and near it are compared, and one of a pair is always on it. Near it is a net that
    no net of the front, costing no more, leads by more than the noise: with other seeds it might be on the front.
    """
    import numpy as np  # is loaded for the interval anyway

    front = [i for i, row in enumerate(rows) if row["rank"] == 1]
    accuracy_R = np.array([row["accuracy"] for row in rows])
    costs_RC = np.array([[row[cost] for cost in costs] for row in rows], dtype=float)
    lead_RF = accuracy_R[None, front] - accuracy_R[:, None]
    within_RF = np.abs(lead_RF) <= _widths(rows, front, noise)
    no_dearer_RF = np.all([c_R[None, front] <= c_R[:, None] for c_R in costs_RC.T], axis=0)
    near_R = ~((lead_RF > 0) & ~within_RF & no_dearer_RF).any(1)
    tied_RF = within_RF & near_R[:, None]
    tied_RF[front, range(len(front))] = False
    _name_ties(rows, front, (tied_RF, np.abs(lead_RF)), name)


def _widths(rows: Sequence[Row], front: Sequence[int], noise: Noise) -> Any:
    """How far apart the accuracies of each row and each of the front may be, (rows, front)."""
    import numpy as np

    counts, at_R = np.unique([row["seeds"] for row in rows], return_inverse=True)
    widths = np.array([[half_width(noise.sd, noise.degrees, int(n), int(m)) for m in counts] for n in counts])
    return widths[at_R][:, at_R[front]]


def _name_ties(rows: Sequence[Row], front: Sequence[int], found: tuple[Any, Any], name: Callable[[Row], Any]) -> None:
    """`found`: which rows are tied with which of the front, (rows, front), and how far their accuracies are apart."""
    tied_RF, apart_RF = found
    ties: list[list[tuple[float, int]]] = [[] for _ in rows]
    for i, j in zip(*(at.tolist() for at in tied_RF.nonzero()), strict=True):
        ties[i].append((float(apart_RF[i, j]), front[j]))
        if rows[i]["rank"] > 1:
            ties[front[j]].append((float(apart_RF[i, j]), i))
    for row, own in zip(rows, ties, strict=True):
        row["tied_with"] = [name(rows[other]) for _, other in sorted(own)]
