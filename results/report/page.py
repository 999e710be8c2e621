"""The report of a run: one HTML page that needs no network, its plots drawn as SVG."""

import base64
import csv
import json
import shutil
from functools import partial
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from ...archs.errors import InputError
from ...archs.files import atomic_write, read_own
from ..ranking.metric import as_shown
from ..ranking.quantities import quantity, static_costs
from ..ranking.stats import counted
from ..ranking.verdict import recommended, verdict_of
from ..render.tables import gain_text, short
from ..render.terminal import csv_cell
from ..runs.nets import trained_nets
from .elements import Matrix, Picture, Plot, Section, Table, is_empty, style
from .front_plot import front_plots
from .genes import attention_plot, common_table, importance_parts
from .run import Run, open_run
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
    MAX_ROWS,
    class_parts,
    command_of,
    drawings,
    explained_parts,
    leaderboard_table,
    net_columns,
    net_row,
    provenance_tables,
)
from .svg import matrix_svg, plot_svg

BESIDE_CELLS = ("gain_bound", "retrained_sd")  # columns that stand in the cell of another
WIDE = ("front", "nets", "failures")  # parts that stand alone in a line
ROOM = 7_800_000  # bytes of the page that drawings may fill it up to
DESK, PHONE = {"front": (748, 500)}, {"front": (358, 430)}  # pixels of plots on a wide and on a narrow page
DESK_PLOT, PHONE_PLOT = (590, 330), (358, 280)  # of the others


def write_report(folder: Path, out: Path | None = None, assets: Path | None = None) -> dict[str, Any]:
    """Write the report of a run to `out`, or report.html in its folder; return its path and key numbers.

    `assets` is a folder for the numbers of every plot and table. InputError if the run or a file is not to be read or
    written.
    """
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
    """All sections of a report in their order, empty ones too."""
    return [
        Section("Front", (*front_plots(run), leaderboard_table(run))),
        Section("Classes", class_parts(run)),
        Section("Progress", (*hypervolume_plots(run, changes), curves_plot(run))),
        Section("Rungs", survival_parts(run)),
        Section("What matters", (*importance_parts(run), attention_plot(run), common_table(run))),
        Section("Why it wins", tuple(explained_parts(run))),
        Section("Time and failures", (phases_table(run), seconds_plot(run), status_table(run), failures_table(run))),
        Section("Provenance", tuple(provenance_tables(run))),
    ]


def _key_numbers(run: Run, changes: list[Change]) -> dict[str, Any]:
    return {
        "run": run.name,
        "verdict": " ".join(verdict_of(run.board)),
        "records": len(run.records),
        "trained": len(trained_nets(run.records)),
        "front": len(run.front),
        "rising": sum(bool(run.row_of[r.trial].rising) for r in run.front),
        "hypervolume": changes[-1][2] if changes else 0.0,
        "best_accuracy": max((row.accuracy for row in run.rows), default=None),
        "seconds": round(sum(r.spent_seconds for r in run.records), 3),
    }


def _summary(run: Run, numbers: dict[str, Any]) -> str:
    settings = run.settings
    what = f"{settings['space']} on {run.data['name']}" if "space" in settings else str(run.data["name"])
    how = ", ".join(f"{name} {settings[name]}" for name in ("strategy", "scheduler", "objective") if name in settings)
    best = f", best {run.metric.name} {run.metric.text(numbers['best_accuracy'])}" if run.rows else ""
    return (
        f"{what}{f' ({how})' if how else ''}. {counted(numbers['records'], 'record')}, "
        f"{numbers['trained']} {run.counted_as}, {numbers['front']} on the front{best}, "
        f"hypervolume {numbers['hypervolume']:.4f}, "
        f"{numbers['seconds']:.0f} s of training."
    )


def _unbroken(text: str) -> str:
    """A text as HTML in which options and intervals stay whole: a browser breaks lines behind any hyphen."""
    whole = '<span class="whole">{}</span>'
    words = [whole.format(escape(word)) if word.startswith("--") else escape(word) for word in text.split(" ")]
    return " ".join(words).replace("± ", "±&nbsp;")


def _page(run: Run, sections: list[Section], numbers: dict[str, Any]) -> str:
    """The whole page as text: no request leaves it, whatever it is opened with. All text that is put in is escaped."""
    from jinja2 import Environment

    template, rules, script = (
        (resources.files(__package__ or "") / name).read_text(encoding="utf-8")
        for name in ("template.html", "style.css", "page.js")
    )
    columns = [run.metric.name if name == "accuracy" else name for name in net_columns()]
    rows = [[*net_row(run, r), [run.used(r).get(name) for name in run.genes]] for r in run.nets]
    nets = {"columns": columns, "costs": static_costs(), "genes": run.genes, "rows": rows}
    data: dict[str, Any] = {"nets": nets}
    taken = recommended(run.board).trial if run.rows else None
    data["undrawn"] = [i for i, r in enumerate(run.nets) if run.net(r) is None]
    data["take"] = next((i for i, r in enumerate(run.nets) if r.trial == taken), 0)
    verdict, shown, left_out = verdict_of(run.board), _filled(sections), _empty(sections)
    render = partial(
        Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template).render,
        name=run.name,
        verdict=verdict,
        unbroken=_unbroken,
        summary=_summary(run, numbers),
        command=command_of(run.run_json) or "not recorded in run.json",
        sections=shown,
        left_out=left_out,
        wide=WIDE,
        most_rows=MAX_ROWS,
        beside=BESIDE_CELLS,
        cell_text=partial(_cell_text, run.metric.name),
        picture=lambda path: base64.b64encode(read_own(path)).decode(),
        plot=_both_sizes,
        matrix=partial(matrix_svg, width=DESK_PLOT[0]),
        style=style() + rules,
        script=script,
    )
    room = ROOM - len(render(data=_json(data)).encode("utf-8", "replace"))
    return render(data=_json(data | {"drawings": drawings(run, room)}))


def _filled(sections: list[Section]) -> list[Section]:
    """The sections without their empty parts; sections with nothing left are dropped."""
    kept = [Section(s.title, tuple(part for part in s.parts if not is_empty(part))) for s in sections]
    return [section for section in kept if section.parts]


def _empty(sections: list[Section]) -> list[tuple[str, str]]:
    parts = [part for section in sections for part in section.parts if not isinstance(part, Picture)]
    return [(part.title, part.caption) for part in parts if is_empty(part)]


def _both_sizes(plot: Plot) -> tuple[str, str]:
    lying = 56 + 22 * len(plot.series[0].x) if plot.sideways else 0  # pixels of height
    wide, narrow = DESK.get(plot.name, DESK_PLOT), PHONE.get(plot.name, PHONE_PLOT)
    return plot_svg(plot, wide[0], lying or wide[1], False), plot_svg(plot, narrow[0], lying or narrow[1], False)


def _json(value: Any) -> str:
    """JSON that can stand in a script element whatever its strings hold; InputError if a number is not finite."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    except ValueError as error:
        raise InputError(f"report: a record holds what JSON cannot ({error})") from None


def _cell_text(metric: str, name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if name == "gain":
        return gain_text(value, row.get("gain_bound"))
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in {quantity(cost).unit for cost in static_costs()}:
        return short(value)
    if name == "retrained" and row.get("retrained_sd") is not None:
        return f"{value:.4f} ± {row['retrained_sd']:.4f}"
    if name in (metric, "±", "nested", "retrained", "test"):
        return f"{value:.4f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_assets(folder: Path, run: Run, sections: list[Section]) -> list[Path]:
    """Write NAME.csv and NAME.parquet of all plots, tables and nets; return their paths. InputError if it cannot."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in (part for section in sections for part in section.parts):
            if isinstance(part, Plot) and part.series:
                points = [(s.name, x, y) for s in part.series for x, y in zip(s.x, s.y, strict=True) if y is not None]
                written += _write_frame(folder / part.name, ["series", "x", "y"], points)
            elif isinstance(part, Matrix) and part.names:
                cells = [(name, *row) for name, row in zip(part.names, part.counts, strict=True)]
                written += _write_frame(folder / part.name, ["class", *part.names], cells)
            elif isinstance(part, Table) and part.rows:
                rows = [tuple(row.values()) for row in part.rows]
                written += _write_frame(folder / part.name, list(part.rows[0]), rows)
            elif isinstance(part, Picture) and part.path:
                written += _copy_picture(part.path, folder)
        names = [*net_columns(), *(f"gene_{name}" for name in run.genes)]
        every = [(net_row(run, r), [r.genes.get(name) for name in run.genes]) for r in run.nets]
        return written + _write_frame(folder / "all_nets", names, [(*row, *genes) for row, genes in every])
    except OSError as error:
        raise InputError(f"assets: {folder} cannot be written to ({error.strerror or error})") from None
    except csv.Error as error:
        raise InputError(f"assets: a table of explain is no CSV ({error})") from None


def _write_frame(stem: Path, names: list[str], rows: list[tuple[Any, ...]]) -> list[Path]:
    """Write a table; a column that is not all numbers becomes text, as Parquet wants one type a column."""
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
    """Copy a picture of `alternas explain` and its table, whose cells are escaped again: anyone may have written it."""
    table, copies = path.with_suffix(".csv"), [folder / f"explain_{path.name}"]
    shutil.copyfile(path, copies[0])
    if table.is_file():
        copies.append(folder / f"explain_{table.name}")
        with (
            open(table, encoding="utf-8", newline="", errors="replace") as theirs,
            open(copies[1], "w", encoding="utf-8", newline="") as ours,
        ):
            csv.writer(ours).writerows(map(csv_cell, row) for row in csv.reader(theirs))
    return copies
