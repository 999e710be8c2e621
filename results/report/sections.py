"""Report sections: leaderboard, analyses, provenance."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ..analysis_tools.findings import shown_rows
from ..analysis_tools.index import FOLDER, INDEX, read_index
from ..ranking.objectives import COSTS
from ..render.tables import list_text, tuned_columns
from ..runs.record import REFERENCE_KINDS
from .elements import Picture, Run, Table
from .front import WEIGHT_NAMES, unit

MOST_ROWS = 300  # of the leaderboard that the page shows
FINDINGS = "Means with 95 % intervals over what is named in findings.csv; one training a net."
MOST_BYTES = 2**20  # of pictures: a page stays below 8 MB


def leaderboard_table(run: Run) -> Table:
    """The leaderboard, of which the page shows the first rows, those of the front first."""
    tuned = tuned_columns(run.rows)
    rows = [_leaderboard_row(run, row, tuned) for row in run.rows]
    empty = [name for name in rows[0] if all(row[name] in (None, "") for row in rows)] if rows else []
    rows = [{name: value for name, value in row.items() if name not in empty} for row in rows]
    return Table("nets", "Leaderboard", _leaderboard_caption(run) if rows else run.why_empty, rows)


def _leaderboard_row(run: Run, row: dict[str, Any], tuned: Mapping[str, Any]) -> dict[str, Any]:
    metric, again = run.metric, row["retrained_accuracy"]
    costs = dict.fromkeys((run.objective, *run.board.query.costs, *COSTS))
    return {
        "trial": row["trial"],
        "rank": row["rank"],
        metric.name: metric.value(row["accuracy"]),
        "±": round(run.board.noise.half_width(row["accuracy"], row["seeds"]), 4) if run.board.noise else None,
        "retrained": None if again is None else round(metric.value(again), 4),
        "retrained_sd": row["retrained_sd"],
        "test": None if row["retrained_test"] is None else round(row["retrained_test"], 4),
        **{unit(cost): row[cost] for cost in costs},
        "gain": row["gain"],
        "gain_bound": row["gain_bound"],
        "family": row["label"],
        "note": note_of(row),
        "seeds": row["seeds"],
        "rising": row["rising"],
        "seconds": row["seconds"],
        "weights": "" if row["weights"] == "alone" else WEIGHT_NAMES[row["weights"]],
        **{name: row.get("recipe", {}).get(name) for name in tuned},
        "net": row["key"],
    }


def note_of(row: Mapping[str, Any]) -> str:
    """What a net is marked by: the knee, and nets that the noise does not tell from it."""
    tied = row["tied_with"] or []
    more = f" and {len(tied) - 3} more" if len(tied) > 3 else ""
    notes = ["knee"] * row["knee"] + [row["kind"]] * (row["kind"] in REFERENCE_KINDS)
    notes += [f"tied with {', '.join(map(str, tied[:3]))}{more}"] if tied else []
    return "; ".join(notes)


def _leaderboard_caption(run: Run) -> str:
    metric, noise, count = run.metric, run.board.noise, len(run.rows)
    gained = f"accuracy {metric.points}" if metric.is_accuracy else metric.points
    shown = f"the first {MOST_ROWS} of {count}" if count > MOST_ROWS else f"{count}"
    doubt = "±: 95 % interval by the seed noise. " if noise else "The seed noise is not known. "
    again = "Retrained and test: means over other seeds (± standard deviation), which are not ranked. "
    again = again if any(row["retrained_accuracy"] is not None for row in run.rows) else ""
    return (
        f"{shown.capitalize()} nets trained to the end. Rank 1 is the front. {doubt}{again}Gain: {gained} above the "
        "plain ResNets' curve at the same cost; >= and <= are bounds, of nets cheaper or dearer than all of these. "
        f"A heading sorts, a trial draws. Rising: whether it still rose at its end. {run.rising}"
    )


def explained_parts(run: Run) -> Iterator[Picture | Table]:
    """A picture and a table of findings for each analysis of `alternas explain`; none where nothing was explained.

    The first pictures, up to MOST_BYTES of them; of the others where they are.

    Raises:
        InputError: if what is there cannot be read.
    """
    folder, room = run.folder / FOLDER, MOST_BYTES
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
    """Settings; versions and seeds; data; recipe: a line each."""
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
    """Nested facts with dots between the names."""
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
