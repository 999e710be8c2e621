"""How the nets of the front do class by class: accuracies, the commonest mistakes, the confusion of the net to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ranking.objectives import ACCURACY
from ..ranking.verdict import recommended
from ..render.confusion import mistakes, per_class, read_confusion
from .elements import Matrix, Run, Table, thin

if TYPE_CHECKING:
    import numpy as np

MOST_NETS, MOST_CLASSES, MOST_MISTAKES, MOST_CELLS = 6, 40, 4, 24
NONE = "No net of the front has kept its confusion."


def class_parts(run: Run) -> tuple[Table | Matrix, ...]:
    """Tables by class and of mistakes, of nets evenly drawn from the front, and the confusion of the net to take.

    Raises:
        InputError: if the file of a confusion cannot be read as one.
    """
    classes = [str(name) for name in run.data["classes"]]
    take = recommended(run.board)["trial"] if run.rows and ACCURACY in run.board.query.objectives else None
    some = [r.trial for r in thin(run.front, MOST_NETS)]
    read = {r.trial: read_confusion(run.folder, r, len(classes)) for r in run.front if r.trial in (*some, take)}
    known = {trial: confusion_KK for trial, confusion_KK in read.items() if confusion_KK is not None}
    return _by_class(known, classes), _mistakes(known, classes), _matrix(known, take, classes)


def _by_class(known: dict[int, np.ndarray], classes: list[str]) -> Table:
    """Validation accuracy of each class, the hardest for these nets first."""
    nets = {trial: per_class(confusion_KK, classes) for trial, confusion_KK in known.items()}
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(classes):
        each = {f"net {trial}": by_class[i]["accuracy"] for trial, by_class in nets.items()}
        if None not in each.values():
            images = next((by_class[i]["images"] for by_class in nets.values()), 0)
            rows.append({"class": name, "images": images} | {net: round(share, 3) for net, share in each.items()})
    rows = [row for row in rows if len(row) > 2]
    rows.sort(key=lambda row: sum(list(row.values())[2:]))
    more = f" The {MOST_CLASSES} hardest of {len(rows)}." if len(rows) > MOST_CLASSES else ""
    caption = f"Share of a class's validation images that each net gets right, the hardest class first.{more}"
    return Table("classes", "Accuracy by class", caption if rows else NONE, rows[:MOST_CLASSES])


def _mistakes(known: dict[int, np.ndarray], classes: list[str]) -> Table:
    rows = []
    for trial, confusion_KK in known.items():
        for is_a, taken_for, count in mistakes(confusion_KK, MOST_MISTAKES):
            share = count / int(confusion_KK[is_a].sum())
            row = {"net": trial, "class": classes[is_a], "taken for": classes[taken_for]}
            rows.append(row | {"images": count, "share": round(share, 3)})
    caption = "The commonest mistakes of each net; share: of the class's validation images."
    return Table("mistakes", "Mistakes", caption if rows else NONE, rows)


def _matrix(known: dict[int, np.ndarray], trial: int | None, classes: list[str]) -> Matrix:
    title = f"Confusion of net {trial}"
    if trial is None or trial not in known:
        return Matrix("confusion", "Confusion", NONE, [], [])
    if len(classes) > MOST_CELLS:
        return Matrix("confusion", title, f"Of more than {MOST_CELLS} classes it is not drawn.", [], [])
    caption = "Validation images: a row is a class, a column what its images were taken for. Darker is more of the row."
    return Matrix("confusion", title, caption, classes, known[trial].tolist())
