"""The report of a run: one HTML page that needs no network, its plots drawn by plotly in the page."""

from __future__ import annotations

import base64
import csv
import importlib.util
import json
import shutil
from functools import partial
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from ...archs import Genotype
from ...archs.errors import InputError
from ...archs.files import atomic_write, read_own
from ..ranking.metric import as_shown
from ..render.tables import gain_text, short
from ..render.terminal import csv_cell
from .elements import Picture, Plot, Run, Section, Series, Table, open_run
from .search_progress import (
    Change,
    curves_plot,
    failures_table,
    hypervolume_plots,
    hypervolumes,
    phases_table,
    seconds_plot,
    status_table,
    survival_parts,
)
from .sections import (
    MOST_ROWS,
    attention_plot,
    command_of,
    common_table,
    explained_parts,
    front_plots,
    importance_parts,
    leaderboard_table,
    provenance_tables,
)

COLUMNS = (
    "trial",
    "net",
    "family",
    "kind",
    "status",
    "accuracy",
    "macs",
    "params",
    "gain",
    "gain_bound",
    "rank",
    "seconds",
)  # fmt: skip; of another metric the page has its name in place of accuracy
WIDE = ("front", "nets", "curves", "failures")  # parts that stand alone in a line
MOST_DRAWINGS = 400
ROOM = 7_800_000  # bytes of the page that drawings may fill it up to
CROWD = 500  # points, from which on they are small


def write_report(folder: Path, out: Path | None = None, assets: Path | None = None) -> dict[str, Any]:
    """Write the report of a run, and say where and what is in it.

    Args:
        folder: of the run.
        out: the page; without it, report.html in the run's folder. What is there is replaced.
        assets: folder for the numbers behind every plot and table as CSV and Parquet.

    Raises:
        InputError: if plotly is missing, the run cannot be read or a file cannot be written.
    """
    if importlib.util.find_spec("plotly") is None:
        raise InputError("report: needs the package 'plotly': pip install plotly")
    run, path = open_run(folder), out or folder / "report.html"
    changes = hypervolumes(run)
    sections, numbers = sections_of(run, changes), _key_numbers(run, changes)
    content = _page(run, sections, numbers).encode("utf-8", "replace")  # half a character of a broken record: "?"
    made: dict[str, Any] = {}
    if assets:  # first: of a folder that cannot be made nothing is left
        made = {"assets": [str(file) for file in write_assets(assets, run, sections)]}
    try:
        if out is None:
            atomic_write(path, lambda file: file.write(content))
        else:
            path.write_bytes(content)  # what a person named, which may be a link or a device
    except OSError as error:
        raise InputError(f"report: {path} cannot be written ({error.strerror or error})") from None
    return as_shown(numbers, run.metric) | {"page": str(path), "bytes": path.stat().st_size} | made


def sections_of(run: Run, changes: list[Change]) -> list[Section]:
    """Everything that a report says, in its order."""
    explained = tuple(explained_parts(run))
    return [
        Section("Front", (*front_plots(run), leaderboard_table(run))),
        Section("Progress", (*hypervolume_plots(run, changes), curves_plot(run))),
        Section("Rungs", survival_parts(run)),
        Section("What matters", (*importance_parts(run), attention_plot(run), common_table(run))),
        *([Section("Why it wins", explained)] if explained else []),
        Section("Time and failures", (phases_table(run), seconds_plot(run), status_table(run), failures_table(run))),
        Section("Provenance", tuple(provenance_tables(run))),
    ]


def _key_numbers(run: Run, changes: list[Change]) -> dict[str, Any]:
    return {
        "run": run.name,
        "records": len(run.records),
        "trained": sum(r.status == "ok" and r.accuracy is not None for r in run.records),
        "front": len(run.front),
        "rising": sum(bool(run.row_of[r.trial]["rising"]) for r in run.front),
        "hypervolume": changes[-1][2] if changes else 0.0,
        "best_accuracy": max((row["accuracy"] for row in run.rows), default=None),
        "seconds": round(sum(r.spent_seconds for r in run.records), 3),
    }


def _summary(run: Run, numbers: dict[str, Any]) -> str:
    settings = run.settings
    what = f"{settings['space']} on {run.data['name']}" if "space" in settings else str(run.data["name"])
    how = ", ".join(f"{name} {settings[name]}" for name in ("strategy", "scheduler", "objective") if name in settings)
    best = f", best {run.metric.name} {run.metric.text(numbers['best_accuracy'])}" if run.rows else ""
    return (
        f"{what}{f' ({how})' if how else ''}. {numbers['records']} records, {numbers['trained']} nets trained to the "
        f"end, {numbers['front']} on the front{best}, hypervolume {numbers['hypervolume']:.4f}, "
        f"{numbers['seconds']:.0f} s of training."
    )


def _page(run: Run, sections: list[Section], numbers: dict[str, Any]) -> str:
    """The whole page as text: no request leaves it, whatever it is opened with. All text that is put in is escaped."""
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    template, style, script = (
        (resources.files(__package__ or "") / name).read_text(encoding="utf-8")
        for name in ("template.html", "style.css", "page.js")
    )
    plots = [part for section in sections for part in section.parts if isinstance(part, Plot) and part.series]
    columns = [run.metric.name if name == "accuracy" else name for name in COLUMNS]
    nets = {"columns": columns, "genes": run.genes, "rows": net_rows(run)}
    data: dict[str, Any] = {"plots": {plot.name: _figure(run, plot) for plot in plots}, "nets": nets}
    render = partial(
        Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template).render,
        name=run.name,
        summary=_summary(run, numbers),
        command=command_of(run.run_json) or "not recorded in run.json",
        sections=sections,
        wide=WIDE,
        most_rows=MOST_ROWS,
        cell_text=partial(_cell_text, run.metric.name),
        picture=lambda path: base64.b64encode(read_own(path)).decode(),
        plotly=get_plotlyjs(),
        style=style,
        script=script,
    )
    room = ROOM - len(render(data=_json(data)).encode("utf-8", "replace"))
    return render(data=_json(data | {"drawings": drawings(run, room)}))


def _json(value: Any) -> str:
    """JSON that can stand in a script element whatever its strings hold.

    Raises:
        InputError: if a number is not finite, which no record of a search holds.
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    except ValueError as error:
        raise InputError(f"report: a record holds what JSON cannot ({error})") from None


def _cell_text(metric: str, name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if name == "gain":
        return gain_text(value, row["gain_bound"])
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in ("MACs", "parameters"):
        return short(value)
    if name == metric:
        return f"{value:.4f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def net_rows(run: Run) -> list[list[Any]]:
    """Every net of the run's list in short: values by COLUMNS, then its genes in the order of `genes`."""
    rows = []
    for r in run.nets:
        row = run.row_of.get(r.trial, {})
        gain, accuracy = row.get("gain"), None if r.accuracy is None else round(run.metric.value(r.accuracy), 5)
        family = r.label + ("" if r.weights == "alone" else f" ({r.weights})")
        about = [r.trial, r.key, family, r.kind, r.status, accuracy, r.cost["macs"], r.cost["params"]]
        about += [None if gain is None else round(gain, 3), row.get("gain_bound"), row.get("rank"), round(r.seconds, 1)]
        rows.append([*about, [r.genes.get(name) for name in run.genes]])
    return rows


def drawings(run: Run, room: int) -> dict[str, str]:
    """Pictures by key: of the front and the baselines in any case, then of the others by rank, up to `room` bytes."""
    front = {r.trial for r in run.front}
    needed = [r for r in run.nets if r.trial in front or r.kind == "baseline"]
    drawn: dict[str, str] = {}
    for i, record in enumerate([*needed, *run.nets]):
        if record.key in drawn:
            continue
        if i >= len(needed) and (room <= 0 or len(drawn) >= MOST_DRAWINGS):
            break
        try:
            svg = run.spec.svg(Genotype.from_dict(record.genotype))
        except InputError:  # of another alternas: its facts are shown all the same
            continue
        drawn[record.key] = svg
        room -= len(svg) * 5 // 4  # in JSON, with its quotes and its < escaped
    return drawn


def _figure(run: Run, plot: Plot) -> dict[str, Any]:
    """Data and layout for Plotly.newPlot; colours of text and grid are the page's."""
    height = 90 + 22 * len(plot.series[0].x) if plot.sideways else 580 if plot.name == "front" else 380
    names = any(series.kind == "bars" for series in plot.series)
    xaxis, yaxis = _axis(plot.x, names and not plot.sideways), _axis(plot.y, plot.sideways)
    if plot.log_x:  # 1, 2 and 5 of each power of ten, as 200k
        xaxis = {key: xaxis[key] for key in ("title", "automargin")} | {
            "type": "log",
            "dtick": "D2",
            "tickformat": "~s",
        }
    layout = {
        "template": {},
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 12, "b": 48},
        "barmode": "stack" if plot.stacked else "group",
        "bargap": 0.4,
        "showlegend": len(plot.series) > 1,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "hovermode": "closest",
        "xaxis": xaxis,
        "yaxis": yaxis | ({"autorange": "reversed"} if plot.sideways else {}),
    }
    crowd = sum(len(series.nets) for series in plot.series) > CROWD
    return {"data": [_trace(run, plot, series, crowd) for series in plot.series], "layout": layout}


def _axis(title: str, names: bool) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": _no_tags(title)}, "automargin": True}
    return axis | ({"type": "category", "showgrid": False} if names else {"type": "linear", "exponentformat": "SI"})


def _trace(run: Run, plot: Plot, series: Series, crowd: bool) -> dict[str, Any]:
    trace: dict[str, Any] = {"name": _no_tags(series.name), "x": [_no_tags(x) for x in series.x], "y": series.y}
    trace |= {"visible": "legendonly"} if series.hidden else {}
    if series.nets:  # each point's net: place and trial
        trace["customdata"] = [[place, run.nets[place].trial] for place in series.nets]
    if series.kind == "bars":
        lying = {"orientation": "h", "x": series.y, "y": trace["x"]} if plot.sideways else {}
        return trace | {"type": "bar", "marker": {"color": series.colour}} | lying
    if series.kind == "rings":
        ring = {"color": series.colour, "symbol": "circle-open", "size": 17, "line": {"width": 2}}
        return trace | {
            "type": "scatter", "mode": "markers", "marker": ring, "hoverinfo": "skip", "showlegend": False,
        }  # fmt: skip
    if series.kind == "points":
        marker = {"color": series.colour, "symbol": series.symbol}
        marker |= {"size": 6, "opacity": 0.5} if crowd else {"size": 9, "opacity": 0.85}
        marker |= {"line": {"width": 2}} if series.symbol.endswith("-open") else {}
        hover = "%{y:.4f} at %{x:.4s}<br>trial %{customdata[1]}, %{fullData.name}<extra></extra>"
        return trace | {"type": "scatter", "mode": "markers", "marker": marker, "hovertemplate": hover}
    dash = "dash" if plot.name == "front" and series.kind == "line" else "solid"
    line = {"color": series.colour, "width": 1 if series.quiet else 2, "dash": dash}
    line |= {"shape": "hv"} if series.kind == "steps" else {}
    still = {"hoverinfo": "skip"} if series.quiet or plot.name == "front" else {}
    return trace | {"type": "scatter", "mode": "lines", "line": line, "opacity": 0.45 if series.quiet else 1.0} | still


def _no_tags(value: Any) -> Any:
    """Text without markup, which plotly reads in any text."""
    return escape(value, quote=False) if isinstance(value, str) else value


def write_assets(folder: Path, run: Run, sections: list[Section]) -> list[Path]:
    """Write NAME.csv and NAME.parquet of all that a report shows, and of all nets; return what was written.

    Raises:
        InputError: if the folder cannot be written to.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in (part for section in sections for part in section.parts):
            if isinstance(part, Plot) and part.series:
                points = [(s.name, x, y) for s in part.series for x, y in zip(s.x, s.y, strict=True) if y is not None]
                written += _write_frame(folder / part.name, ["series", "x", "y"], points)
            elif isinstance(part, Table) and part.rows:
                rows = [tuple(row.values()) for row in part.rows]
                written += _write_frame(folder / part.name, list(part.rows[0]), rows)
            elif isinstance(part, Picture) and part.path:
                written += _copy_picture(part.path, folder)
        names = [*COLUMNS, *(f"gene_{name}" for name in run.genes)]
        return written + _write_frame(folder / "all_nets", names, [(*row[:-1], *row[-1]) for row in net_rows(run)])
    except OSError as error:
        raise InputError(f"assets: {folder} cannot be written to ({error.strerror or error})") from None
    except csv.Error as error:
        raise InputError(f"assets: a table of explain is no CSV ({error})") from None


def _write_frame(stem: Path, names: list[str], rows: list[tuple[Any, ...]]) -> list[Path]:
    """Columns of numbers, or of text where not all are numbers: Parquet wants one kind of value in each."""
    import pandas as pd

    from ..runs.frame import as_text

    columns: dict[str, list[Any]] = {}
    for i, name in enumerate(names):
        values = [row[i] for row in rows]
        if not all(value is None or isinstance(value, int | float) for value in values):
            values = [None if value is None else as_text(value) for value in values]
        columns[as_text(name)] = values
    frame, table, parquet = pd.DataFrame(columns), Path(f"{stem}.csv"), Path(f"{stem}.parquet")
    frame.map(csv_cell).rename(columns=csv_cell).to_csv(table, index=False)
    frame.to_parquet(parquet)
    return [table, parquet]


def _copy_picture(path: Path, folder: Path) -> list[Path]:
    """A picture of `alternas explain` and its table, which may be another's: its cells are made text again."""
    table, copies = path.with_suffix(".csv"), [folder / f"explain_{path.name}"]
    shutil.copyfile(path, copies[0])
    if table.is_file():
        copies.append(folder / f"explain_{table.name}")
        with open(table, newline="", errors="replace") as theirs, open(copies[1], "w", newline="") as ours:
            csv.writer(ours).writerows(map(csv_cell, row) for row in csv.reader(theirs))
    return copies
