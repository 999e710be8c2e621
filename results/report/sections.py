"""Report sections: leaderboard and all nets, classes, analyses, provenance."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...archs.errors import InputError
from ..analysis_tools.findings import shown_rows
from ..analysis_tools.index import FOLDER, INDEX, read_index
from ..ranking.quantities import ACCURACY, cost_value, quantity, static_costs
from ..ranking.ranked_net import RankedNet
from ..ranking.verdict import recommended
from ..render.describe_net import mistakes, per_class, read_confusion
from ..render.tables import filled_columns, list_text, tuned_columns
from ..runs.record import REFERENCE_KINDS, Record
from .elements import Matrix, Picture, Table
from .front_plot import WEIGHT_NAMES
from .run import Run, thin

if TYPE_CHECKING:
    import numpy as np

MAX_ROWS = 300  # of the leaderboard that the page shows
FINDINGS = "Means with 95 % intervals over what is named in findings.csv; one training a net."
MAX_BYTES = 2**20  # of pictures: a page stays below 8 MB
MAX_DRAWINGS = 400
MAX_NETS, MAX_CLASSES, MAX_MISTAKES, MAX_CELLS = 6, 40, 4, 24  # of the parts by class
NO_CONFUSION = "No net of the front has kept its confusion."


def leaderboard_table(run: Run) -> Table:
    """The leaderboard, of which the page shows the first rows, those of the front first."""
    tuned = tuned_columns(run.rows)
    rows = [_leaderboard_row(run, row, tuned) for row in run.rows]
    filled = filled_columns(rows)
    rows = [{name: row[name] for name in filled} for row in rows]
    return Table("nets", "Leaderboard", _leaderboard_caption(run) if rows else run.why_empty, rows)


def _leaderboard_row(run: Run, row: RankedNet, tuned: Mapping[str, Any]) -> dict[str, Any]:
    metric, again = run.metric, row.retrained_accuracy
    costs = dict.fromkeys((run.objective, *run.board.query.costs, *static_costs()))
    return {
        "trial": row.trial,
        "rank": row.rank,
        metric.name: metric.value(row.accuracy),
        "±": None if row.interval is None else round(row.interval, 4),
        "nested": None if row.nested is None else round(metric.value(row.nested), 4),
        "retrained": None if again is None else round(metric.value(again), 4),
        "retrained_sd": row.retrained_sd,
        "test": None if row.retrained_test is None else round(row.retrained_test, 4),
        **{quantity(cost).unit: row.costs[cost] for cost in costs},
        "gain": row.gain,
        "gain_bound": row.gain_bound,
        "family": row.label,
        "note": note_of(row),
        "seeds": row.seeds,
        "rising": row.rising,
        "steps": row.steps_in_all,
        "seconds": row.seconds,
        "weights": "" if row.weights == "alone" else WEIGHT_NAMES[row.weights],
        **{name: row.recipe.get(name) for name in tuned},
        "net": row.key,
    }


def note_of(row: RankedNet) -> str:
    """A net's marks: the knee, its kind, and the nets it is tied with within the noise."""
    tied = row.tied_with or []
    more = f" and {len(tied) - 3} other{'s' * (len(tied) > 4)}" if len(tied) > 3 else ""
    notes = ["knee"] * row.knee + [row.kind] * (row.kind in REFERENCE_KINDS)
    notes += [f"tied with {', '.join(map(str, tied[:3]))}{more}"] if tied else []
    return "; ".join(notes)


def _leaderboard_caption(run: Run) -> str:
    metric, noise, count = run.metric, run.board.noise, len(run.rows)
    gained = f"accuracy {metric.points}" if metric.is_accuracy else metric.points
    shown = f"the first {MAX_ROWS} of {count}" if count > MAX_ROWS else f"{count}"
    doubt = f"±: 95 % interval by {noise.source}. " if noise else "The seed noise is not known. "
    again = "Retrained and test: means over other seeds (± standard deviation), which are not ranked. "
    again = again if any(row.retrained_accuracy is not None for row in run.rows) else ""
    nested = "Nested: of the best net of at most that cost, chosen without the pictures judged. "
    gain = (
        f"Gain: {gained} above the plain ResNets' curve at the same cost; >= and <= are bounds, of nets that cost "
        "less or more than all. "
    )
    rising = "Rising: whether it still rose at its end. "
    said = [(nested, "nested"), (gain, "gain"), (rising, "rising")]
    columns = "".join(text for text, name in said if any(getattr(row, name) is not None for row in run.rows))
    return (
        f"{shown.capitalize()} {run.counted_as}. Rank 1 is the front. {doubt}{again}{columns}"
        f"A heading sorts, a trial draws. {run.rising}"
    )


def net_columns() -> list[str]:
    """Names of what the page says of every net; of another metric it has that name in place of accuracy."""
    about, known = ("trial", "net", "family", "kind", "status", "accuracy"), ("gain", "gain_bound", "rank", "seconds")
    return [*about, *static_costs(), *known, "note"]


def net_row(run: Run, record: Record) -> list[Any]:
    """Values of a net by `net_columns`."""
    row = run.row_of.get(record.trial)
    gain, accuracy = row and row.gain, None if record.accuracy is None else round(run.metric.value(record.accuracy), 5)
    family = record.label + ("" if record.weights == "alone" else f" ({WEIGHT_NAMES[record.weights]})")
    about = [record.trial, record.key, family, record.kind, record.status, accuracy]
    about += [*(cost_value(name, record.cost) for name in static_costs()), None if gain is None else round(gain, 3)]
    about += [row and row.gain_bound, row and row.rank, round(record.seconds, 1)]
    return [*about, _note(run, row)]


def _note(run: Run, row: RankedNet | None) -> str | None:
    if row is None:
        return None
    notes, again = [note_of(row)] if note_of(row) else [], row.retrained_accuracy
    if again is not None:
        sd = "" if row.retrained_sd is None else f" ± {row.retrained_sd:.3f}"
        on_test = "" if row.retrained_test is None else f", {row.retrained_test:.3f} on test"
        notes.append(f"retrained {run.metric.value(again):.3f}{sd}{on_test}")
    return "; ".join(notes) or None


def drawings(run: Run, room: int) -> dict[str, str]:
    """Pictures by key, up to `room` bytes of them: of the front and the baselines, then of the others by rank."""
    front = {r.trial for r in run.front}
    first = [r for r in run.nets if r.trial in front or r.kind == "baseline"]
    drawn: dict[str, str] = {}
    for i, record in enumerate([*first, *run.nets]):
        if record.key in drawn:
            continue
        if room <= 0 or (i >= len(first) and len(drawn) >= MAX_DRAWINGS):
            break
        try:
            svg = run.spec.svg(net) if (net := run.net(record)) else ""
        except InputError:  # of another alternas: its facts are shown all the same
            svg = ""
        if not svg:
            continue
        drawn[record.key] = svg
        room -= len(svg) * 5 // 4  # in JSON, with its quotes and its < escaped
    return drawn


def class_parts(run: Run) -> tuple[Table | Matrix, ...]:
    """Accuracy by class and mistakes of nets spread over the front; confusion of the recommended net."""
    classes = [str(name) for name in run.data["classes"]]
    take = recommended(run.board).trial if run.rows and ACCURACY in run.board.query.objectives else None
    some = [r.trial for r in thin(run.front, MAX_NETS)]
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
    more = f" The {MAX_CLASSES} hardest of {len(rows)}." if len(rows) > MAX_CLASSES else ""
    caption = f"Share of a class's validation images that each net gets right, the hardest class first.{more}"
    return Table("classes", "Accuracy by class", caption if rows else NO_CONFUSION, rows[:MAX_CLASSES])


def _mistakes(known: dict[int, np.ndarray], classes: list[str]) -> Table:
    rows = []
    for trial, confusion_KK in known.items():
        for is_a, taken_for, count in mistakes(confusion_KK, MAX_MISTAKES):
            share = count / int(confusion_KK[is_a].sum())
            row = {"net": trial, "class": classes[is_a], "taken for": classes[taken_for]}
            rows.append(row | {"images": count, "share": round(share, 3)})
    caption = "The commonest mistakes of each net; share: of the class's validation images."
    return Table("mistakes", "Mistakes", caption if rows else NO_CONFUSION, rows)


def _matrix(known: dict[int, np.ndarray], trial: int | None, classes: list[str]) -> Matrix:
    title = f"Confusion of net {trial}"
    if trial is None or trial not in known:
        return Matrix("confusion", "Confusion", NO_CONFUSION, [], [])
    if len(classes) > MAX_CELLS:
        return Matrix("confusion", title, f"Of more than {MAX_CELLS} classes it is not drawn.", [], [])
    caption = "Validation images: a row is a class, a column what its images were taken for. Darker is more of the row."
    return Matrix("confusion", title, caption, classes, known[trial].tolist())


def explained_parts(run: Run) -> Iterator[Picture | Table]:
    """A picture and a table of findings for each analysis of `alternas explain`; none where nothing was explained.

    The first pictures, up to MAX_BYTES of them; of the others where they are. InputError if what is there cannot be
    read.
    """
    folder, room = run.folder / FOLDER, MAX_BYTES
    for part in read_index(folder)["analyses"] if (folder / INDEX).exists() else []:
        path, note = folder / part.png if part.png else None, ""
        if path is not None and path.is_file():
            room -= path.stat().st_size
            if room < 0:
                path, note = None, f"Picture: {path}"
            yield Picture(part.analysis, part.title, note, path)
        yield Table(f"findings_{part.analysis}", f"{part.title}: numbers", FINDINGS, shown_rows(part.findings))


def command_of(run_json: Mapping[str, Any]) -> str:
    """The command that started or last resumed a run, to be typed again; "" if run.json does not hold one."""
    words = run_json.get("command")
    if not isinstance(words, list) or not words:
        return ""
    if len(words) == 1:  # a call in Python
        return str(words[0])
    return shlex.join(["alternas", *map(str, words[1:])])


def provenance_tables(run: Run) -> list[Table]:
    """Tables of settings, versions and seeds, data and recipe."""
    settings = {name: value for name, value in run.settings.items() if name != "recipe"}
    recipe, versions = run.settings.get("recipe"), run.run_json.get("versions")
    seeds = sorted({r.seed for r in run.records} | {int(s) for r in run.records for s in r.accuracies if s.isdigit()})
    devices = sorted({r.device for r in run.records if r.device})
    place = {"seeds of trainings": seeds, "devices": devices} | (versions if isinstance(versions, dict) else {})
    tables = (
        ("settings", "Settings", "All that defines the search; other settings are another run.", settings),
        ("versions", "Versions, seeds, devices", "What a repetition needs to be the same.", place),
        ("data", "Data", "What nets were trained and validated on.", run.data),
        ("recipe", "Recipe", "How each net was trained.", recipe if isinstance(recipe, dict) else {}),
    )
    made = []
    for name, title, caption, facts in tables:
        rows = [{"name": key, "value": _value_text(value)} for key, value in _flat(facts).items()]
        made.append(Table(name, title, caption if rows else "Not recorded.", rows))
    return made


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        inner = isinstance(value, dict) and value
        flat |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat


def _value_text(value: Any) -> str:
    if value in ([], {}):
        return "none"
    if isinstance(value, list):
        return list_text(value)
    return value if isinstance(value, str) else json.dumps(value)
