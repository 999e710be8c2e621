"""Text for the terminal: numbers, tables of nets, one net stage by stage. Rich is used here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...archs import Cost, Genotype, static_cost
from ...archs.layout import Block, ImageSize, Layout, Map
from ...archs.parts import Encoder
from ..ranking.objectives import OBJECTIVES
from .terminal import plain

BASE = ("trial", "accuracy", "MACs", "params", "gain", "acc/GMAC", "family", "net")  # columns of every front
CONV_STYLE, ATTENTION_STYLE = "cyan", "bold magenta"


def short(number: float) -> str:
    """Three digits and a unit: 1509826560 -> "1.51 G"."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def gain_said(gain: float | None, bound: str | None) -> str:
    """A gain, or the bound that is known of it: "+2.41", ">= 13.8", "<= -0.5", "-"."""
    if gain is None:
        return "-"
    return f"{gain:+.2f}" if bound is None else f"{'>=' if bound == 'lower' else '<='} {gain:.1f}"


def nets_table(
    rows: Sequence[dict[str, Any]], title: str = "", costs: Sequence[str] = (), ranks: bool = False, none: str = ""
) -> RenderableType:
    """Rows of a leaderboard as a table; columns that say nothing about these rows are left out.

    Args:
        rows: as `results.front.ranked` makes them.
        title: over the table.
        costs: columns beside MACs and params.
        ranks: whether to say the rank.
        none: what is said under the title in place of a table without rows.
    """
    if not rows:
        return Group(plain(title, style="italic"), plain(none))
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    cells = [_cells(row, [name for name in costs if name not in ("macs", "params")]) for row in rows]
    budgets = {(row["inherited"], row["budget_steps"]) for row in rows}
    optional = {"steps": len(budgets) > len({heir for heir, _ in budgets}), "rank": ranks}
    names = [name for name in cells[0] if optional.get(name, any(row[name] for row in cells))]
    if not {*names} <= {*BASE, "note"}:  # 80 columns are few; the JSON has all
        names = [name for name in names if name not in ("net", "acc/GMAC")]
    for name in names:
        _add_column(table, name)
    for row in cells:
        table.add_row(*(row[name] for name in names))
    return table


def _add_column(table: Table, name: str) -> None:
    """On a narrow terminal names give way to numbers."""
    if name in ("family", "net"):
        table.add_column(name, style="dim" * (name == "net"))
    else:
        title = Text(name.replace(" ", "\n"))
        table.add_column(title, justify="left" if name in ("run", "note") else "right", no_wrap=True)


def _cells(row: dict[str, Any], costs: Sequence[str]) -> dict[str, str]:
    """One row's text by column."""
    again, sd, seeds = (row[f"retrained_{name}"] for name in ("accuracy", "sd", "seeds"))
    return {
        "run": row.get("run", ""),
        "trial": str(row["trial"]),
        "rank": str(row["rank"]),
        "accuracy": f"{row['accuracy']:.4f}",
        "sd (seeds)": _deviation(row["sd"], row["seeds"]),
        "MACs": short(row["macs"]),
        "params": short(row["params"]),
        **{OBJECTIVES[name]: short(row[name]) for name in costs},
        "gain": gain_said(row["gain"], row["gain_bound"]),
        "acc/GMAC": short(row["accuracy_per_gmac"]),
        "steps": str(row["budget_steps"]),
        "retrained": "" if again is None else f"{again:.4f} {_deviation(sd, seeds)}",
        "family": "baseline" if row["kind"] == "baseline" else row["family"],
        "net": row["key"],
        "note": _note(row),
    }


def _deviation(sd: float | None, seeds: int) -> str:
    return "" if sd is None else f"{sd:.4f} ({seeds})"


def _note(row: dict[str, Any]) -> str:
    """knee, heir, and the closest of the nets that it is tied with."""
    tied = row["tied_with"] or ()
    ties = [f"= {tied[0]}" + f" +{len(tied) - 1}" * (len(tied) > 1)] if tied else []
    return " ".join(["knee"] * row["knee"] + ["heir"] * row["inherited"] + ties)


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
    lines = {"stem": (_stem_text(net), shape_said(net.stem.width, plan.stem_map))}
    for blocks in plan.stages:
        lines[blocks[0].place] = _stage_text(blocks), shape_said(blocks[-1].c_out, blocks[-1].map_out)
    if net.encoder is not None:
        lines["encoder"] = _encoder_text(net.encoder), f"{tokens_of(net, plan)} x {net.encoder.embed_dim}"
    lines["head"] = Text(head_said(net)), str(num_classes)
    for place, part in cost.by("place").items():
        text, shape = lines[place]
        share = f"{100 * part.macs / cost.macs:.1f} %"
        table.add_row(place, text, shape, short(part.params), short(part.macs), share)
    return Group(table, _kinds_line(cost))


def shape_said(channels: int, at: Map) -> str:
    """Channels, height and width of a map."""
    return f"{channels} x {at[0]} x {at[1]}"


def stem_said(net: Genotype) -> str:
    """The kind of the stem."""
    return f"{net.stem.kind} {net.stem.patch}x{net.stem.patch}" if net.stem.kind == "patchify" else net.stem.kind


def style_said(net: Genotype) -> str:
    """How the residual blocks are made; "" without any."""
    return f"{net.style.order}-activation, {net.style.norm} norm" if net.stages else ""


def attention_said(blocks: Sequence[Block]) -> str:
    """Heads and window of a stage's attention blocks; "" without any."""
    first = next((b for b in blocks if b.spec.attends), None)
    if first is None:
        return ""
    return f"{first.stage.heads} heads of {first.stage.head_dim}, window {'x'.join(map(str, first.window))}"


def encoder_said(encoder: Encoder) -> str:
    """Sizes and positions of a transformer encoder."""
    sizes = f"depth {encoder.depth}, {encoder.heads} heads, mlp x{encoder.mlp_ratio:g}, patch {encoder.patch}"
    where = "" if encoder.position == "none" else f" at {encoder.position_at}"
    local = f", local {encoder.local}x{encoder.local}" if encoder.local else ""
    return f"{sizes}, position {encoder.position}{where}{local}"


def tokens_of(net: Genotype, plan: Layout) -> int:
    """Tokens that the encoder sees; 0 without one."""
    return 0 if plan.grid is None else plan.grid[0] * plan.grid[1] + (net.head.pool == "token")


def head_said(net: Genotype) -> str:
    """How the last map becomes logits."""
    hidden = f"linear {net.head.hidden}, tanh, " if net.head.hidden else ""
    return f"{net.head.pool}, {hidden}linear"


def _stem_text(net: Genotype) -> Text:
    style = style_said(net)
    return Text(stem_said(net)).append(f" {style}" if style else "", "dim")


def _stage_text(blocks: tuple[Block, ...]) -> Text:
    text = Text()
    for block in blocks:
        style = ATTENTION_STYLE if block.spec.attends else CONV_STYLE
        text.append(f"[{block.kind}{'/' + str(block.stride) if block.stride > 1 else ''}] ", style)
    return text.append(attention_said(blocks), "dim")


def _encoder_text(encoder: Encoder) -> Text:
    text = Text("[msa][mlp]" * min(encoder.depth, 3) + ("…" if encoder.depth > 3 else ""), ATTENTION_STYLE)
    return text.append(f" {encoder_said(encoder)}", "dim")


def _kinds_line(cost: Cost) -> Text:
    kinds = ", ".join(f"{kind} {short(part.macs)}" for kind, part in cost.by("kind").items() if part.macs)
    return Text(f"total: {cost.params:,} params, {cost.macs:,} MACs ({kinds})")
