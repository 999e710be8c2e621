"""Numbers and tables of nets for the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..ranking.metric import Metric
from ..ranking.objectives import title as objective_title
from ..ranking.quantities import QUANTITIES, quantity, short, static_values
from ..ranking.ranked_net import RankedNet
from ..runs.record import REFERENCE_KINDS
from .terminal import plain

WRAPPED = ("retrained", "note")  # columns of several words, which may take several lines
# Columns that give way on narrow terminals, the first first; the JSON has all.
WORDS, NUMBERS = ("acc/GMAC", "net", "family"), ("", "sd (seeds)", "params", "steps")
NOTE_LINES, MAX_LINES = 2, 3  # of a note; where no word is left that could give way
GAP = 2  # between columns
MAX_RUN = 20  # characters of a run's name on one line
SHOWN = 20  # values of a list, such as the classes of a data set


def costs_text(totals: Mapping[str, int]) -> str:
    """The costs in closed form of a net with these totals: "1.51 G MACs, 33 M parameters"."""
    return ", ".join(f"{short(value)} {quantity(name).unit}" for name, value in static_values(totals).items())


def duration(seconds: float) -> str:
    """A time in the unit that it is read best in: "45 s", "14 min", "3.2 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def gain_text(gain: float | None, bound: str | None) -> str:
    """A gain, or the bound that is known of it: "+2.41", ">= 13.8", "<= -0.5", "-"."""
    if gain is None:
        return "-"
    return f"{gain:+.2f}" if bound is None else f"{'>=' if bound == 'lower' else '<='} {gain:.1f}"


def nets_table(
    rows: Sequence[RankedNet],
    title: str = "",
    others: Sequence[str] = (),
    ranks: bool = False,
    none: str = "",
    metric: Metric | None = None,
) -> RenderableType:
    """Rows of a leaderboard as a table; columns that say nothing about these rows are left out.

    `others` are objectives beside accuracy, a column each; `none` is said in place of a table without rows.
    """
    metric = metric or Metric()
    if not rows:
        return Group(plain(title, style="italic"), plain(none))
    tuned = [name for name, values in tuned_columns(rows).items() if len(values) > 1]
    beside = dict.fromkeys((*(name for name, of in QUANTITIES.items() if of.is_usual), *others))
    names = {row.trial: row.label for row in rows if row.kind == "reference"}  # rather than their numbers
    cells = [_cells(row, [*beside], metric, tuned, names) for row in rows]
    budgets = {(row.weights, row.budget_steps) for row in rows if row.weights in ("alone", "inherited")}
    optional = {"gain": has_gain(rows), "steps": len(budgets) > len({weights for weights, _ in budgets}), "rank": ranks}
    filled = filled_columns(cells)
    names = [name for name in cells[0] if optional.get(name, name in filled)]
    of_reference = any(row.kind == "reference" for row in rows)  # whose name is not broken
    columns = [
        _Column(name, [row[name] for row in cells], name in (metric.name, *tuned), name not in WRAPPED or of_reference)
        for name in names
    ]
    return NetsTable(title, columns)


def filled_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns in which some row has a value, neither "" nor None; of no rows none."""
    return [name for name in rows[0] if any(row[name] not in ("", None) for row in rows)] if rows else []


def text_table(rows: Sequence[Mapping[str, str | Text]], left: Sequence[str] = (), title: str = "") -> Table:
    """Rows of text as a table, without the columns that no row fills; columns are on the right, but for those `left`.

    A cell that says nothing is "-".
    """
    heading = plain(title) if title else None
    table = Table(title=heading, title_justify="left", header_style="bold", box=None, pad_edge=False)
    names = filled_columns(rows)
    for name in names:
        table.add_column(plain(name), justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        cells = (row[name] or "-" for name in names)
        table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells))
    return table


def has_gain(rows: Sequence[RankedNet]) -> bool:
    """Whether there is something to say of gains, which cuts of pretrained nets have none of."""
    return any(not row.is_cut for row in rows)


@dataclass(frozen=True)
class _Column:
    """A column: whether its name is a field's, whether its cells stay on one line, else the most lines they take."""

    name: str
    cells: Sequence[str]
    is_field: bool
    is_whole: bool
    lines: int = 1

    @property
    def head(self) -> str:
        """The name, a word a line."""
        return self.name.replace("_" if self.is_field else " ", "\n")

    @property
    def least(self) -> int:
        """The width at which nothing of it is cut; long names of runs are folded."""
        head = max(map(len, self.head.splitlines()))
        if self.name == "run":
            return max(head, min(MAX_RUN, max(map(len, self.cells))))
        return max(head, *(len(cell) if self.is_whole else _wrapped_width(cell, self.lines) for cell in self.cells))

    @property
    def most(self) -> int:
        """The width at which each cell stands on one line."""
        return max(self.least, *map(len, self.cells))


def _wrapped_width(text: str, lines: int) -> int:
    """The least width at which a text takes no more lines."""
    words = max(map(len, text.split()), default=1)
    return next(width for width in range(words, len(text) + 2) if len(wrap(text, width)) <= lines)


class NetsTable:
    """A table of nets, of which columns are left out, the least needed first, until the terminal holds the others."""

    def __init__(self, title: str, columns: Sequence[_Column]) -> None:
        self._title, self._columns = title, columns

    def _fitting(self, width: int) -> Sequence[_Column]:
        """The columns that so many characters hold, with more lines for notes and retrainings where they hold few."""
        shown = [*self._columns]
        steps = [(NOTE_LINES, name) for name in ("", *WORDS)] + [(MAX_LINES, name) for name in NUMBERS]
        for lines, name in steps:
            own = {"retrained": lines - 1}
            shown = [replace(c, lines=own.get(c.name, lines)) for c in shown if c.name != name]
            if sum(column.least + GAP for column in shown) - GAP <= width:
                break
        return shown

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        shown = self._fitting(options.max_width)
        spare = options.max_width + GAP - sum(column.least + GAP for column in shown)
        table = Table(title=self._title, title_justify="left", header_style="bold", box=None, pad_edge=False)
        for column in shown:
            more = max(0, min(spare, column.most - column.least))
            spare -= more
            table.add_column(
                Text(column.head),
                justify="left" if column.name in ("run", "note", "family", "net") else "right",
                style="dim" * (column.name == "net"),
                width=column.least + more if spare >= 0 else None,  # rich itself may make others too wide
                no_wrap=column.is_whole and column.name != "run",
                overflow="fold" if column.name == "run" else "ellipsis",
            )
        for row in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*row)
        yield table


def tuned_columns(rows: Sequence[RankedNet]) -> dict[str, set[Any]]:
    """The fields of the recipe that rows of a leaderboard have values of, and these."""
    values: dict[str, set[Any]] = {}
    for row in rows:
        for name, value in row.recipe.items():
            values.setdefault(name, set()).add(value)
    return values


def tuned_text(value: Any) -> str:
    """A value of a recipe's field, to three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _cells(
    row: RankedNet, others: Sequence[str], metric: Metric, tuned: Sequence[str], names: Mapping[Any, str]
) -> dict[str, str]:
    """One row's text by column; `tuned` are fields of the recipe, `names` those of trials that have one."""
    again, tied = row.retrained_accuracy, row.tied_with or ()
    deviation = _deviation(row.retrained_sd, row.retrained_seeds)
    ties = (
        [f"= {names.get(tied[0], tied[0])}" + f" +{len(tied) - 1}" * (len(tied) > 1)] if tied else []
    )  # the closest net, and how many
    marks = [row.kind] * (row.kind in REFERENCE_KINDS) + ["knee"] * row.knee
    marks += ["rising"] * bool(row.rising) + [row.weights] * (row.weights != "alone")
    return {
        "run": row.run,
        "trial": names.get(row.trial, str(row.trial)),
        "rank": str(row.rank),
        metric.name: metric.text(row.accuracy),
        "nested": "" if row.nested is None else metric.text(row.nested),
        "sd (seeds)": _deviation(row.sd, row.seeds),
        **{objective_title(name): quantity(name).text(row.value(name)) for name in others},
        **{name: tuned_text(row.recipe[name]) if name in row.recipe else "" for name in tuned},
        "gain": gain_text(row.gain, row.gain_bound),
        "acc/GMAC": short(row.accuracy_per_gmac) if metric.is_accuracy else "",
        "steps": str(row.budget_steps),
        "retrained": "" if again is None else " ±".join(filter(None, (metric.text(again), deviation))),
        "family": row.family,
        "net": row.key,
        "note": ", ".join([*ties, *marks]),
    }


def _deviation(sd: float | None, seeds: int | None) -> str:
    return "" if sd is None else f"{sd:.4f} ({seeds})"


def facts_table(facts: dict[str, Any]) -> Table:
    """Facts about a data set, a line each; long lists of classes are cut."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        if isinstance(value, dict):
            for inner, what in value.items():
                table.add_row(f"{name}: {inner}", _fact(what))
        else:
            table.add_row(name, _fact(value))
    return table


def list_text(values: Sequence[Any]) -> str:
    """Values with commas between; of more than SHOWN the first ones, and how many there are."""
    shown = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values[:SHOWN])
    return f"{shown}, ... ({len(values)})" if len(values) > SHOWN else shown


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return list_text(value)
    if isinstance(value, dict):
        by_part = value.items() if value.keys() != {"all"} else [("", value["all"])]  # a set in one piece
        return ", ".join(f"{name} {what}".strip() for name, what in by_part)
    return f"{value:,}" if isinstance(value, int) else str(value)
