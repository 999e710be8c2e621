"""The README's picture of how well strategies search, drawn from the published figures of strategies.py.

python benchmarks/strategies_plot.py

Full trainings until 95 % of a table's hypervolume is found: medians and quartiles of 30 searches, one row a strategy,
one panel a table. A search on shared weights has no such moment: its mark stands at all that it spent, where what it
found in the end is worth more than 95 %. One SVG for light and dark pages, docs/pictures/strategies.svg.
"""

import json
import statistics
from pathlib import Path
from typing import Any

from machine import TINY, keep, options, sized

PUBLISHED = Path(__file__).parent / "results"
OUT = Path() if TINY else Path(__file__).parents[1] / "docs" / "pictures"
PANELS = sized(
    {
        "cue": "cue: 424 nets",
        "clutter": "clutter: 160 nets",
        "hybrids": "hybrids: 144 nets of one family",
        "cue-long": "cue-long: 103 nets, 4 x the steps",
    },
    {"clutter": "clutter: 160 nets"},
)
STRATEGIES = {
    ("oracle", "none"): ("oracle (knows the front)", "known"),
    ("evolution", "mo-asha"): ("alternas evolution, mo-asha", "ours"),
    ("optuna.samplers:TPESampler", "none"): ("Optuna's TPE", "others"),
    ("random", "none"): ("random", "others"),
}
SUPERNET = "alternas --supernet 8"
LEFT, WIDTH, ROW, TOP, GAP = 190, 760, 18, 22, 14  # px
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .head { font-weight: 600 } .small { font-size: 10px }
.grid { stroke: #d0d7de } .ours { fill: #0a6fd6; stroke: #0a6fd6 } .others { fill: #6e7781; stroke: #6e7781 }
.known { fill: none; stroke: #6e7781 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #30363d }
.ours { fill: #58a6ff; stroke: #58a6ff } .others { fill: #8d96a0; stroke: #8d96a0 } .known { stroke: #8d96a0 } }
"""


def main() -> None:
    options(__doc__).parse_args()
    figures = json.loads((PUBLISHED / "strategies.json").read_text(encoding="utf-8"))
    banks = json.loads((PUBLISHED / "supernet_search.json").read_text(encoding="utf-8"))
    drawn, y = list[str](), 4.0
    for table, title in PANELS.items():
        panel = rows_of(figures[table]) | shared(banks, table)
        drawn += panel_svg(title, panel, y)
        y += TOP + ROW * (len(panel) + 1) + GAP
    (OUT / "strategies.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0f}" role="img">'
        f"<title>Full trainings until 95 % of the hypervolume is found</title><style>{STYLE}</style>"
        + "\n".join(drawn)
        + "</svg>\n",
        encoding="utf-8",
    )
    if TINY:
        keep("strategies_plot", {"panels": list(PANELS)})


def rows_of(rows: list[dict[str, Any]]) -> dict[str, tuple[str, float, float, float]]:
    """Class of the mark, quartile, median and quartile of each strategy."""
    found = {(row["strategy"], row["scheduler"]): row for row in rows}
    spent = "spent_to_95_low", "spent_to_95_median", "spent_to_95_high"
    return {label: (kind, *(found[name][key] for key in spent)) for name, (label, kind) in STRATEGIES.items()}


def shared(banks: dict[str, Any], table: str) -> dict[str, tuple[str, float, float, float]]:
    """The searches on shared weights at the compute of 8 trainings, where there are any of this table."""
    runs = [run for name, run in banks.items() if name.startswith(f"{table}, 8 trainings")]
    if not runs or statistics.median(run["finetuned"] for run in runs) < 0.95:
        return {}
    spent = max(run["trainings"] for run in runs)
    return {SUPERNET: ("ours", spent, spent, spent)}


def panel_svg(title: str, rows: dict[str, tuple[str, float, float, float]], top: float) -> list[str]:
    most = max(high for _, _, _, high in rows.values())
    step = next(step for step in (5, 10, 20, 40) if most / step <= 6)
    scale = (WIDTH - LEFT - 40) / most
    bottom = top + TOP + ROW * len(rows)
    parts = [f'<text class="head" x="4" y="{top + 13:.0f}">{title}</text>']
    for tick in range(0, int(most) + 1, step):
        x = LEFT + tick * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top + TOP - 4:.0f}" y2="{bottom:.0f}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{bottom + 12:.0f}" text-anchor="middle">{tick}</text>')
    for place, (label, (kind, low, median, high)) in enumerate(rows.items()):
        y, x = top + TOP + ROW * (place + 0.5), LEFT + median * scale
        ends = f'x1="{LEFT + low * scale:.1f}" x2="{LEFT + high * scale:.1f}"'
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        parts.append(f'<line class="{kind}" stroke-width="2" {ends} y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
        at_most = "at most " if label == SUPERNET else ""
        end = LEFT + high * scale + 9
        parts.append(f'<text class="small" x="{end:.1f}" y="{y + 3.5:.1f}">{at_most}{median:.0f}</text>')
    return parts


if __name__ == "__main__":
    main()
