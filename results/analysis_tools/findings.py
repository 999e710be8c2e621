"""`Finding`, a number with its 95 % interval and verdict, and how findings are shown. Free of torch.

What analyses, claims, studies and comparisons come to is a list of findings: the same rows in the terminal, in JSON, in
CSV and in a report.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from rich.table import Table

from ..ranking.stats import ANY, MeanCI, mean_ci
from ..render.tables import filled_columns
from ..render.terminal import plain

UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding:
    """A number with its 95 % interval and verdict."""

    name: str  # what is measured; two nets are compared by findings of one name
    value: float | None = None  # None where it could not be measured; then the verdict says why
    low: float | None = None  # bound of the interval; None where there is none
    high: float | None = None  # likewise
    verdict: str = ""  # in a word or two; "" where nothing is judged
    unit: str = ""
    over: str = ""  # what the value is the mean of, such as "images"
    n: int = 1  # how many of these
    resolution: float = 0.0  # the smallest step that the value can make
    net: str = ""


def judged(name: str, ci: MeanCI, words: tuple[str, str] | None = None, **more: Any) -> Finding:
    """An interval as a finding; `words` are its verdicts above and below 0, "undecided" if it holds 0."""
    verdict = ""
    if words and ci.low is not None and ci.high is not None:
        verdict = words[0] if ci.low > 0 else words[1] if ci.high < 0 else UNDECIDED
    return Finding(name, ci.mean, ci.low, ci.high, verdict, n=ci.n, **more)


def measured(
    name: str,
    values: Iterable[float | None],
    over: str = "",
    words: tuple[str, str] | None = None,
    within: tuple[float, float] = ANY,
    **more: Any,
) -> Finding:
    """The mean of a sample with its t interval; None and NaN are left out, and without values there is none.

    `words` are verdicts above and below 0, `within` bounds the values, `more` are unit and resolution.
    """
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known:
        return Finding(name, verdict="not measured", over=over, n=0, **more)
    return judged(name, mean_ci(known, within, more.get("resolution", 0.0)), words, over=over, **more)


def averaged(name: str, values: Iterable[float | None], **more: Any) -> Finding:
    """The mean of values that are no random sample, such as places along a net: without an interval."""
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    return measured(name, [fmean(known)] if known else [], **more)


def of_net(net: str, findings: Sequence[Finding]) -> list[Finding]:
    """The findings labelled with a net's name."""
    return [replace(finding, net=net) for finding in findings]


def as_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as rows for JSON, CSV and Parquet, all with the same keys."""
    return [asdict(finding) for finding in findings]


def shown_rows(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Findings as rows of text: numbers to three digits, without columns that are empty."""
    rows = []
    for finding in findings:
        interval = "" if finding.low is None or finding.high is None else f"{finding.low:.3g} to {finding.high:.3g}"
        cells = {"net": finding.net, "name": finding.name}
        cells |= {"value": "" if finding.value is None else f"{finding.value:.3g}", "95 % interval": interval}
        rows.append(cells | {"unit": finding.unit, "verdict": finding.verdict})
    filled = filled_columns(rows)
    return [{name: row[name] for name in filled} for row in rows]


def findings_table(findings: Sequence[Finding], title: str = "") -> Table:
    """Table for the terminal: each net on a line of its own, and below it its numbers."""
    table = Table(title=plain(title) if title else None, title_justify="left", box=None, pad_edge=False)
    rows = shown_rows(findings)
    for name in (name for name in rows[0] if name != "net") if rows else ():
        numeric = name in ("value", "95 % interval")
        label = "" if name == "name" else name
        table.add_column(label, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    net = ""
    for row in rows:
        if row.get("net", net) != net:
            net = row["net"]
            table.add_row(plain(net, style="bold"))
        table.add_row(*(plain(text) for name, text in row.items() if name != "net"))
    return table
