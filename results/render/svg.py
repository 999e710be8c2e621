"""One net as an SVG picture: a row for each part, a shape for each block, as high as it has channels.

The same reading of the plan as the text drawing of tables.py. Plain text without scripts, the same bytes for the
same net; light and dark by the reader's preference. Colours: Okabe and Ito, "Color Universal Design" (2008).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...archs import Cost, Genotype, InputError, static_cost
from ...archs.blocks.spec import BLOCKS, BlockStyle
from ...archs.layout import Block, ImageSize, Layout
from .tables import attention_said, encoder_said, head_said, shape_said, stem_said, style_said, tokens_of

WIDTH, LEFT, RIGHT = 450, 88, 328  # of the picture; where blocks begin; where sizes begin
PITCH, BLOCK, A_LINE = 27, 21, 8  # pixels from block to block, of a block; blocks in a line
TALLEST, LEAST, SLANT = 54.0, 5.0, 5  # pixels: the widest part, the thinnest that can be seen, what a slant takes
LABEL, CAPTION, GAP = 13, 14, 16  # pixels: under blocks, of a line of text, between rows
LETTERS = 42  # of a line of text between blocks and sizes


ENDS = {"stem": BlockStyle("S", "#8a8f98", "stem"), "head": BlockStyle("H", "#8a8f98", "head")}
STYLE = (
    ".n-bg{fill:#fff}.n-t,.n-d{font:12px system-ui,sans-serif;fill:#1b1f24}.n-d{font-size:11px;fill:#5a626c}"
    ".n-b{font-weight:600}.n-l{font-size:10px;text-anchor:middle}.n-w{fill:none;stroke:#a4abb4}"
    ".n-i{fill:none;stroke:#fff;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){.n-bg{fill:#1b1f24}.n-t{fill:#e8eaed}.n-d{fill:#a4abb4}.n-w{stroke:#5a626c}}"
)


@dataclass(frozen=True)
class Glyph:
    """One block: its kind, the channels that it gives, and its stride."""

    kind: str
    channels: int
    stride: int = 1


@dataclass(frozen=True)
class Row:
    """One part of a net: its name, its blocks, what is said under them, the map that it gives, its share of MACs."""

    name: str
    glyphs: tuple[Glyph, ...]
    said: str
    shape: str
    share: float

    @property
    def stride(self) -> int:
        return self.glyphs[0].stride


def net_svg(net: Genotype, num_classes: int, image_size: ImageSize, in_chans: int = 3) -> str:
    """The picture of a net at an image size.

    Raises:
        InputError: if the net cannot be built at `image_size`.
    """
    plan = net.plan(image_size, in_chans)
    rows = rows_of(net, plan, static_cost(net, num_classes, image_size, in_chans), num_classes)
    body, y = [], 52.0
    tallest = max(glyph.channels for row in rows for glyph in row.glyphs if row.name != "head")
    for row in rows:
        text, y = _row(row, y, TALLEST / tallest)
        body.append(text)
    legend, y = _legend([glyph.kind for row in rows for glyph in row.glyphs], y)
    size = f"{in_chans} x {plan.image[0]} x {plan.image[1]}"
    name = f"{net.family} {net.key}"
    heading = _text(8, 18, name, "n-t n-b") + _text(RIGHT, 18, size) + _text(RIGHT, 32, "image", "n-d")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" width="{WIDTH}" height="{y:g}" '
        f'role="img" aria-labelledby="t-{net.key} d-{net.key}">'
        f'<title id="t-{net.key}">{escape(name)}, image {size}</title><desc id="d-{net.key}">{_desc(rows)}</desc>'
    )
    ground = f'<style>{STYLE}</style><rect class="n-bg" width="{WIDTH}" height="{y:g}" rx="6"/>'
    return f"{opening}{ground}{heading}{''.join(body)}{legend}</svg>\n"


def write_svg(path: Path, svg: str) -> None:
    """Write a picture.

    Raises:
        InputError: if the file cannot be written.
    """
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise InputError(f"svg: {path} cannot be written ({error.strerror or error})") from None


def rows_of(net: Genotype, plan: Layout, cost: Cost, num_classes: int) -> list[Row]:
    """The parts of a net in its order, as they are drawn."""
    shares = {place: part.macs / max(1, cost.macs) for place, part in cost.by("place").items()}
    rows = []
    if net.stem.kind != "none":
        stem = Glyph("stem", net.stem.width, net.stem.stride)
        said = ", ".join(filter(None, (stem_said(net), style_said(net))))
        rows.append(Row("stem", (stem,), said, shape_said(net.stem.width, plan.stem_map), shares["stem"]))
    for blocks in plan.stages:
        glyphs, last = tuple(_glyph(block) for block in blocks), blocks[-1]
        shape = shape_said(last.c_out, last.map_out)
        rows.append(Row(last.place, glyphs, attention_said(blocks), shape, shares[last.place]))
    if net.encoder is not None:
        layers = (Glyph("transformer", net.encoder.embed_dim),) * net.encoder.depth
        shape = f"{tokens_of(net, plan)} x {net.encoder.embed_dim}"
        rows.append(Row("encoder", layers, encoder_said(net.encoder), shape, shares["encoder"]))
    return [*rows, Row("head", (Glyph("head", 0),), head_said(net), f"{num_classes} classes", shares["head"])]


def _style(kind: str) -> BlockStyle:
    return ENDS[kind] if kind in ENDS else BLOCKS[kind].style


def _glyph(block: Block) -> Glyph:
    return Glyph(block.kind, block.c_out, block.stride)


def _row(row: Row, y: float, scale: float) -> tuple[str, float]:
    """A row from `y` on, and where the next one begins. `scale`: pixels a channel."""
    lines = [row.glyphs[i : i + A_LINE] for i in range(0, len(row.glyphs), A_LINE)]
    high = [max(LEAST, *(glyph.channels * scale for glyph in line)) for line in lines]
    parts, top = [_feed(y, high[0])], y
    for line, tall in zip(lines, high, strict=True):
        parts.append(_line(line, top, tall, scale))
        top += tall + LABEL + 4
    middle = y + high[0] / 2 + 4
    parts.append(_text(8, middle, row.name, "n-t n-b"))
    if row.stride > 1:
        parts.append(_text(8, middle + CAPTION, f"stride {row.stride}", "n-d"))
    parts.append(_text(RIGHT, middle, row.shape))
    parts.append(_text(RIGHT, middle + CAPTION, f"{100 * row.share:.1f} % of MACs", "n-d"))
    for said in textwrap.wrap(row.said, LETTERS):
        parts.append(_text(LEFT, top + 8, said, "n-d"))
        top += CAPTION
    return "".join(parts), max(top, middle + CAPTION) + GAP


def _feed(y: float, tall: float) -> str:
    """The arrow that leads into a row."""
    x, middle = LEFT - 12, y + tall / 2
    return f'<path class="n-w" d="M{x} {y - 12:g}V{_n(middle)}h8m-4 -3l4 3l-4 3"/>'


def _line(glyphs: tuple[Glyph, ...], top: float, tall: float, scale: float) -> str:
    """Blocks side by side around a line, their letters under them; one path for each kind."""
    middle, paths, marks = top + tall / 2, dict[str, str](), ""
    for i, glyph in enumerate(glyphs):
        x, half = LEFT + i * PITCH, max(LEAST, glyph.channels * scale) / 2
        paths[glyph.kind] = paths.get(glyph.kind, "") + outline(glyph, x, middle, half)
        if glyph.kind in BLOCKS and BLOCKS[glyph.kind].has_mlp:
            marks += f"M{x + SLANT} {_n(middle)}h{BLOCK - 2 * SLANT}"
    end = LEFT + len(glyphs) * PITCH - PITCH + BLOCK
    parts = [f'<path class="n-w" d="M{LEFT} {_n(middle)}H{end + 6}"/>']
    parts += [f'<path fill="{_style(kind).colour}" d="{d}"/>' for kind, d in paths.items()]
    parts += [f'<path class="n-i" d="{marks}"/>'] if marks else []
    at = " ".join(f"{LEFT + i * PITCH + BLOCK / 2:g}" for i in range(len(glyphs)))
    letters = "".join(_style(glyph.kind).letter for glyph in glyphs)
    parts.append(f'<text class="n-t n-l" x="{at}" y="{_n(top + tall + LABEL - 2)}">{letters}</text>')
    return "".join(parts)


def outline(glyph: Glyph, x: float, middle: float, half: float) -> str:
    """The path of a block: attention is pointed at both sides, convs are boxes; one that strides narrows."""
    if glyph.kind in BLOCKS and BLOCKS[glyph.kind].attends:
        point, flat = f"{SLANT}", f"{BLOCK - 2 * SLANT}"
        up, down = _n(-half), _n(half)
        return f"M{x} {_n(middle)}l{point} {up}h{flat}l{point} {down}l-{point} {down}h-{flat}z"
    fall = min(SLANT, half / 2) if glyph.stride > 1 else 0.0
    return f"M{x} {_n(middle - half)}l{BLOCK} {_n(fall)}v{_n(2 * (half - fall))}l-{BLOCK} {_n(fall)}z"


def _legend(kinds: list[str], y: float) -> tuple[str, float]:
    """What the shapes mean, of the kinds that are there."""
    shown = [kind for kind in BLOCKS if kind in kinds]
    parts = [f'<path class="n-w" d="M8 {y - 6:g}H{WIDTH - 8}"/>']
    for i, kind in enumerate(shown):
        x, top = 8 + 216 * (i % 2), y + 12 + 20 * (i // 2)
        style = BLOCKS[kind].style
        parts.append(f'<path fill="{style.colour}" d="{outline(Glyph(kind, 0), x, top, 7)}"/>')
        parts.append(_text(x + BLOCK + 7, top + 4, f"{style.letter}  {style.label}", "n-d"))
    y += 12 + 20 * -(-len(shown) // 2)
    note = "Height: channels, to scale. Slanted: strides. Right: the map that leaves."
    return "".join(parts) + _text(8, y + 8, note, "n-d"), y + 20


def _desc(rows: list[Row]) -> str:
    """The picture in words."""
    return escape(". ".join(_row_said(row) for row in rows) + ".")


def _row_said(row: Row) -> str:
    counts = Counter(BLOCKS[glyph.kind].style.label for glyph in row.glyphs if glyph.kind in BLOCKS)
    blocks = ", ".join(f"{count} x {said}" for said, count in counts.items())
    stride = f"stride {row.stride}" if row.stride > 1 else ""
    return f"{row.name}: {'; '.join(filter(None, (blocks, row.said, stride, f'gives {row.shape}')))}"


def _text(x: float, y: float, said: str, kind: str = "n-t") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{_n(y)}">{escape(said)}</text>'


def _n(number: float) -> str:
    """A coordinate to a tenth of a pixel."""
    return f"{round(number, 1):g}"
