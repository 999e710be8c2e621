"""Text for the terminal: numbers, tables of nets, one net stage by stage. Rich is used here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..archs import Cost, Genotype, static_cost
from ..archs.plan import Block, ImageSize, Map
from ..archs.stage import ATTENTION, EXPANSION

STYLES = dict.fromkeys(EXPANSION, "cyan") | dict.fromkeys(ATTENTION, "bold magenta")


def short(number: float) -> str:
    """Three digits and a unit: 1509826560 -> "1.51 G"."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


HEIRS = (
    "(inherited): started from another net's weights and trained less; not comparable with nets trained from scratch"
)


def nets_table(rows: Sequence[dict[str, Any]], title: str = "") -> Table:
    """Rows of a leaderboard as a table."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in ("trial", "accuracy", "MACs", "params", "gain", "acc/GMAC"):
        table.add_column(name, justify="right")
    table.add_column("family")
    table.add_column("net", style="dim")
    for row in rows:
        above = "-" if row["gain"] is None else f"{row['gain']:+.2f}"
        family = "baseline" if row["kind"] == "baseline" else row["family"]
        numbers = (f"{row['accuracy']:.4f}", short(row["macs"]), short(row["params"]), above)
        heir = " (inherited)" if row["inherited"] else ""
        table.add_row(str(row["trial"]), *numbers, short(row["accuracy_per_gmac"]), family + heir, row["key"])
    if len({row["inherited"] for row in rows}) > 1:
        table.caption = HEIRS
    return table


def listing(rows: Sequence[dict[str, Any]]) -> Table:
    """Rows of the same fields as a table; whole numbers with thousands separators."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()))
    return table


def facts_table(facts: dict[str, Any]) -> Table:
    """What is known of a data set, a line each; long lists of classes are cut."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        if isinstance(value, dict):
            for inner, what in value.items():
                table.add_row(f"{name}: {inner}", _fact(what))
        else:
            table.add_row(name, _fact(value))
    return table


def _fact(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in value[:20])
        return f"{shown}, ... ({len(value)})" if len(value) > 20 else shown
    if isinstance(value, dict):
        return ", ".join(f"{name} {what}" for name, what in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def net_drawing(net: Genotype, num_classes: int, image_size: ImageSize, in_chans: int) -> RenderableType:
    """A net stage by stage: what it is made of, its maps, and params and MACs of each part."""
    plan = net.plan(image_size)
    cost = static_cost(net, num_classes, image_size, in_chans)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name in ("part", "blocks", "output"):
        table.add_column(name, no_wrap=name != "blocks")
    for name in ("params", "MACs", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    lines = {"stem": (_stem_text(net), _shape(net.stem.width, plan.stem_map))}
    for blocks in plan.stages:
        lines[blocks[0].place] = _stage_text(blocks), _shape(blocks[-1].c_out, blocks[-1].map_out)
    if net.encoder is not None and plan.grid is not None:
        tokens = plan.grid[0] * plan.grid[1] + (net.head.pool == "token")
        lines["encoder"] = _encoder_text(net), f"{tokens} x {net.encoder.embed_dim}"
    hidden = f"linear {net.head.hidden}, tanh, " if net.head.hidden else ""
    lines["head"] = Text(f"{net.head.pool}, {hidden}linear"), str(num_classes)
    for place, part in cost.by("place").items():
        text, shape = lines[place]
        share = f"{100 * part.macs / cost.macs:.1f} %"
        table.add_row(place, text, shape, short(part.params), short(part.macs), share)
    return Group(table, _kinds_line(cost))


def _shape(channels: int, at: Map) -> str:
    return f"{channels} x {at[0]} x {at[1]}"


def _stem_text(net: Genotype) -> Text:
    patch = f" {net.stem.patch}x{net.stem.patch}" if net.stem.kind == "patchify" else ""
    text = Text(f"{net.stem.kind}{patch}")
    return text.append(f" {net.style.order}-activation, {net.style.norm} norm" if net.stages else "", "dim")


def _stage_text(blocks: tuple[Block, ...]) -> Text:
    text = Text()
    for block in blocks:
        text.append(f"[{block.kind}{'/' + str(block.stride) if block.stride > 1 else ''}] ", STYLES[block.kind])
    attention = next((b for b in blocks if b.kind in ATTENTION), None)
    if attention:
        window = "x".join(str(side) for side in attention.window)
        text.append(f"{attention.stage.heads} heads of {attention.stage.head_dim}, window {window}", "dim")
    return text


def _encoder_text(net: Genotype) -> Text:
    encoder = net.encoder
    assert encoder is not None
    text = Text("[msa][mlp]" * min(encoder.depth, 3) + ("…" if encoder.depth > 3 else ""), STYLES["msa"])
    sizes = f"depth {encoder.depth}, {encoder.heads} heads, mlp x{encoder.mlp_ratio:g}, patch {encoder.patch}"
    where = "" if encoder.position == "none" else f" at {encoder.position_at}"
    local = f", local {encoder.local}x{encoder.local}" if encoder.local else ""
    return text.append(f" {sizes}, position {encoder.position}{where}{local}", "dim")


def _kinds_line(cost: Cost) -> Text:
    kinds = ", ".join(f"{kind} {short(part.macs)}" for kind, part in cost.by("kind").items() if part.macs)
    return Text(f"total: {cost.params:,} params, {cost.macs:,} MACs ({kinds})")
