"""The page itself: reads the run, has its sections made, and puts them into the template with plotly's library."""

from __future__ import annotations

import importlib.util
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from ...archs.errors import InputError
from ...archs.files import atomic_write
from .facts import Run, open_run
from .html import contents_html, json_html, section_html
from .parts import Plot, Section
from .progress import (
    curves_plot,
    failures_table,
    hypervolume_plots,
    hypervolumes,
    phases_table,
    seconds_plot,
    status_table,
    survival_parts,
)
from .provenance import ROOM, command_of, drawings, explained_parts, facts_of, provenance_tables
from .sections import attention_plot, common_table, front_plot, importance_plot, leaderboard_table


def write_report(folder: Path, out: Path | None = None, assets: Path | None = None) -> dict[str, Any]:
    """Write the report of a run, and say where and what is in it.

    Args:
        folder: of the run.
        out: the page; without it, report.html in the run's folder. What is there is replaced.
        assets: folder for every plot as PNG, and every plot and table as CSV and Parquet.

    Raises:
        InputError: if plotly is missing, the run cannot be read or a file cannot be written.
    """
    if importlib.util.find_spec("plotly") is None:
        raise InputError("report: needs the package 'plotly': pip install plotly")
    run, path = open_run(folder), out or folder / "report.html"
    sections = sections_of(run)
    text = page(run, sections)
    made: dict[str, Any] = {}
    if assets:  # first: of a folder that cannot be made nothing is left
        from .assets import write_assets

        made = {"assets": [str(file) for file in write_assets(assets, run, sections)]}
    _write(path, text, whole=out is None)
    return _key_numbers(run) | {"page": str(path), "bytes": path.stat().st_size} | made


def sections_of(run: Run) -> list[Section]:
    """Everything that a report says, in its order."""
    explained = explained_parts(run)
    return [
        Section("Front", (front_plot(run), leaderboard_table(run))),
        Section("Progress", (*hypervolume_plots(run), curves_plot(run))),
        Section("Rungs", survival_parts(run)),
        Section("What matters", (importance_plot(run), attention_plot(run), common_table(run))),
        *([Section("Why it wins", explained)] if explained else []),
        Section("Time and failures", (phases_table(run), seconds_plot(run), status_table(run), failures_table(run))),
        Section("Provenance", tuple(provenance_tables(run))),
    ]


def page(run: Run, sections: list[Section]) -> str:
    """The whole page as text: no request leaves it, whatever it is opened with."""
    from plotly.offline import get_plotlyjs

    from .plotly import figure

    plots = [part for section in sections for part in section.parts if isinstance(part, Plot) and part.series]
    data: dict[str, Any] = {"plots": {plot.name: figure(plot) for plot in plots}, "nets": facts_of(run)}
    _name_points(run, plots, data["plots"])
    parts = {
        "title": escape(f"{run.name}: alternas report"),
        "name": escape(run.name),
        "summary": escape(_summary(run)),
        "command": escape(command_of(run.told) or "not recorded in run.json"),
        "contents": contents_html(sections),
        "sections": "".join(section_html(section) for section in sections),
        "plotly": get_plotlyjs(),
        "style": _file("style.css"),
        "script": _file("page.js"),
    }
    fixed = sum(len(part.encode("utf-8", "replace")) for part in parts.values()) + len(json_html(data))
    data["drawings"] = drawings(run, ROOM - fixed)
    return Template(_file("template.html")).substitute(parts, data=json_html(data))


def _name_points(run: Run, plots: list[Plot], figures: dict[str, Any]) -> None:
    """Tell each point its net: place and trial."""
    for plot in plots:
        for series, trace in zip(plot.series, figures[plot.name]["data"], strict=True):
            if series.nets:
                trace["customdata"] = [[place, run.nets[place].trial] for place in series.nets]


def _key_numbers(run: Run) -> dict[str, Any]:
    found = hypervolumes(run)
    best = max(run.rows, key=lambda row: row["accuracy"], default=None)
    return {
        "run": run.name,
        "records": len(run.records),
        "trained": sum(r.status == "ok" and r.accuracy is not None for r in run.records),
        "front": len(run.front),
        "hypervolume": found[-1][2] if found else 0.0,
        "best_accuracy": best["accuracy"] if best else None,
        "seconds": round(sum(r.seconds for r in run.records), 3),
    }


def _summary(run: Run) -> str:
    numbers, settings = _key_numbers(run), run.settings
    what = f"{settings['space']} on {run.data['name']}" if "space" in settings else str(run.data["name"])
    how = ", ".join(f"{name} {settings[name]}" for name in ("strategy", "scheduler", "objective") if name in settings)
    best = "" if numbers["best_accuracy"] is None else f", best accuracy {numbers['best_accuracy']:.4f}"
    return (
        f"{what}{f' ({how})' if how else ''}. {numbers['records']} records, {numbers['trained']} nets trained to the "
        f"end, {numbers['front']} on the front{best}, hypervolume {numbers['hypervolume']:.4f}, "
        f"{numbers['seconds']:.0f} s of training."
    )


def _file(name: str) -> str:
    return (resources.files(__package__ or "") / name).read_text(encoding="utf-8")


def _write(path: Path, text: str, whole: bool) -> None:
    """Text that no file can hold (half a character of a broken record) becomes question marks."""
    content = text.encode("utf-8", "replace")
    try:
        if whole:
            atomic_write(path, lambda file: file.write(content))
        else:
            path.write_bytes(content)  # what a person named, which may be a link or a device
    except OSError as error:
        raise InputError(f"report: {path} cannot be written ({error.strerror or error})") from None
