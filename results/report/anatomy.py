"""What the front's nets have in common: where their attention sits, and which genes they share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...archs import Genotype, InputError
from ..record import Record
from .facts import Run
from .parts import GREY, VERMILLION, Plot, Series, Table

MOST_GENES = 15


def attention_of(record: Record) -> tuple[str, ...]:
    """The parts of a net that hold attention: "stage 2", "encoder"."""
    try:
        net = Genotype.from_dict(record.genotype)
    except InputError:  # of another alternas
        return ()
    stages = [f"stage {i}" for i, stage in enumerate(net.stages, start=1) if stage.places]
    return (*stages, *(["encoder"] if net.encoder else []))


def attention_plot(run: Run) -> Plot:
    """Share of nets with attention in each part, on the front and in all."""
    searched = [r for r in run.ranked if r.kind != "baseline"]
    front = {r.trial for r in run.front}
    found = {r.trial: attention_of(r) for r in searched}
    parts = sorted({part for held in found.values() for part in held}, key=lambda part: (part == "encoder", part))
    best = [held for trial, held in found.items() if trial in front]
    caption = (
        f"Share of nets with attention in each part: {len(best)} of the front beside all {len(found)} that were "
        "searched and trained to the end, without baselines. Taller on the front: attention pays there, or the "
        "strategy favoured it."
    )
    if not parts or not best:
        caption = "No net of the front but baselines." if parts else "No net on the leaderboard has attention."
        return Plot("attention", "Where attention sits", "", "", caption, [])
    series = [
        Series(f"the front ({len(best)})", parts, _shares(best, parts), "bars", VERMILLION),
        Series(f"all ({len(found)})", parts, _shares(list(found.values()), parts), "bars", GREY),
    ]
    return Plot("attention", "Where attention sits", "", "share of nets", caption, series)


def _shares(nets: list[tuple[str, ...]], parts: list[str]) -> list[float]:
    counts = Counter(part for held in nets for part in held)
    return [round(counts[part] / len(nets), 4) for part in parts]


def common_table(run: Run) -> Table:
    """The genes whose commonest value on the front is rarer among all, the most telling first."""
    searched = [r for r in run.ranked if r.kind != "baseline"]
    front = [r for r in run.front if r.kind != "baseline"]
    rows = [_row(name, front, searched) for name in run.genes] if front else []
    rows = [row for row in rows if row is not None and row["difference"] > 0]
    rows.sort(key=lambda row: -row["difference"])
    caption = (
        f"Each gene's commonest value on the front ({len(front)} nets) and its share there and among all "
        f"{len(searched)}. Dormant genes count too, and few nets agree by chance."
    )
    if not rows:
        caption = "The front has no gene value that is commoner there than among all."
    return Table("common", "Genes of the front", caption, rows[:MOST_GENES])


def _row(name: str, front: list[Record], nets: list[Record]) -> dict[str, Any] | None:
    values = [str(r.genes[name]) for r in front if name in r.genes]
    if not values:
        return None
    value, count = Counter(values).most_common(1)[0]
    everywhere = [str(r.genes[name]) for r in nets if name in r.genes]
    here, there = count / len(values), everywhere.count(value) / len(everywhere)
    row = {"gene": name, "value": value, "on the front": here, "among all": there, "difference": here - there}
    return {key: round(found, 3) if isinstance(found, float) else found for key, found in row.items()}
