"""One net as text for the terminal and as an SVG picture: a row for each part, a mark for each block.

The picture draws blocks as high as they have channels. It is plain text without scripts, the same bytes for the same
net; light and dark by the reader's preference. Colours: Okabe and Ito, "Color Universal Design" (2008).
"""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from ...archs import Genotype, InputError, static_cost
from ...archs.blocks.spec import BLOCKS, BlockStyle
from ...archs.layout import Block, ImageSize, Layout
from ...archs.parts import Encoder, Head, Stem
from .tables import short, text_table

CONV_STYLE, ATTENTION_STYLE = "cyan", "bold magenta"  # of blocks in the terminal

WIDTH, LEFT, RIGHT = 450, 88, 328  # of the picture; where blocks begin; where sizes begin
PITCH, BLOCK, A_LINE = 27, 21, 8  # pixels from block to block, of a block; blocks in a line
TALLEST, LEAST, SLANT = 54.0, 5.0, 5  # pixels: the widest part, the thinnest that can be seen, what a slant takes
LABEL, CAPTION, GAP = 13, 14, 16  # pixels: under blocks, of a line of text, between rows
LETTERS = 42  # of a line of text between blocks and sizes
ENDS = {"stem": BlockStyle("S", "#8a8f98", "stem"), "head": BlockStyle("H", "#8a8f98", "head")}


@dataclass(frozen=True)
class Glyph:
    """One block: its kind, the channels that it gives, and its stride."""

    kind: str
    channels: int
    stride: int = 1


@dataclass(frozen=True)
class NetPart:
    """One part of a net as both drawings show it: its blocks, what is said of them, the map that it gives."""

    name: str
    glyphs: tuple[Glyph, ...]
    label: str
    note: str
    shape: str


def net_parts(net: Genotype, plan: Layout, num_classes: int) -> list[NetPart]:
    """The parts of a net in its order."""
    parts, encoder, head = [], net.encoder, net.head
    if net.stem.kind != "none":
        style = f"{net.style.order}-activation, {net.style.norm} norm" if net.stages else ""
        stem = Glyph("stem", net.stem.width, net.stem.stride)
        parts.append(NetPart("stem", (stem,), _stem_text(net.stem), style, _shape(net.stem.width, plan.stem_map)))
    for blocks in plan.stages:
        glyphs, last = tuple(Glyph(block.kind, block.c_out, block.stride) for block in blocks), blocks[-1]
        parts.append(NetPart(last.place, glyphs, "", _stage_text(blocks), _shape(last.c_out, last.map_out)))
    if encoder is not None and plan.grid is not None:
        tokens = plan.grid[0] * plan.grid[1] + (head.pool == "token")
        glyphs = (Glyph("transformer", encoder.embed_dim),) * encoder.depth
        parts.append(NetPart("encoder", glyphs, "", _encoder_text(encoder), f"{tokens} x {encoder.embed_dim}"))
    return [*parts, NetPart("head", (Glyph("head", 0),), _head_text(head), "", str(num_classes))]


def _stem_text(stem: Stem) -> str:
    norm = "" if stem.norm == "none" else ", layer norm"
    if stem.kind == "patchify":
        kernel = f", kernel {stem.side}x{stem.side}" if stem.side != stem.patch else ""
        return f"patchify {stem.patch}x{stem.patch}{kernel}{norm}"
    if stem.kind == "conv":
        convs = ", ".join(f"{channels}/{stride}" for channels, stride in stem.convs)
        return f"conv {stem.side}x{stem.side} {convs}, {stem.act}{norm}"
    return stem.kind


def _head_text(head: Head) -> str:
    before = [f"conv {head.conv}, {head.act}"] if head.conv else []
    behind = ["layer norm"] if head.norm == "layer" else []
    hidden = [f"linear {head.hidden}"] if head.hidden else []
    more = [f"{head.hidden_norm} norm"] if head.hidden and head.hidden_norm != "none" else []
    acts = [head.act] if head.hidden else []
    hidden += [*acts, *more] if head.act_first else [*more, *acts]
    return ", ".join([*before, head.pool, *behind, *hidden, "linear"])


def _shape(channels: int, size: tuple[int, int]) -> str:
    return f"{channels} x {size[0]} x {size[1]}"


def _stage_text(blocks: Sequence[Block]) -> str:
    """Options of a stage's blocks that differ from their kinds' own; heads and window of its attention blocks."""
    first = next((block for block in blocks if block.spec.attends), None)
    said = [f"{name} {value}" for name, value in blocks[0].stage.canonical().given.items()]
    if first is not None:
        stage, ignored = first.stage, first.spec.ignores
        said += [f"{stage.heads} heads of {stage.head_dim}"] * ("heads" not in ignored)
        said += [f"window {'x'.join(map(str, first.window))}"] * ("window" not in ignored)
    return ", ".join(said)


def _encoder_text(encoder: Encoder) -> str:
    sizes = f"depth {encoder.depth}, {encoder.heads} heads, mlp x{encoder.mlp_ratio:g}, patch {encoder.patch}"
    where = "" if encoder.position == "none" else f" at {encoder.position_at}"
    local = f", local {encoder.local}x{encoder.local}" if encoder.local else ""
    local += f", block {encoder.skipless} without skips" if encoder.skipless else ""
    return f"{sizes}, position {encoder.position}{where}{local}"


def net_drawing(net: Genotype, num_classes: int, image_size: ImageSize, in_chans: int) -> RenderableType:
    """A net for the terminal: what each part is made of, its map, and its params and MACs."""
    cost = static_cost(net, num_classes, image_size, in_chans)
    places = cost.by("place")
    rows = [
        {
            "part": part.name,
            "blocks": _blocks_text(part),
            "output": part.shape,
            "params": short(places[part.name].params),
            "MACs": short(places[part.name].macs),
            "share": f"{100 * places[part.name].macs / cost.macs:.1f} %",
        }
        for part in net_parts(net, net.plan(image_size), num_classes)
    ]
    kinds = ", ".join(f"{kind} {short(of.macs)}" for kind, of in cost.by("kind").items() if of.macs)
    table = text_table(rows, left=("part", "blocks", "output"))
    return Group(table, Text(f"total: {cost.params:,} params, {cost.macs:,} MACs ({kinds})"))


def _blocks_text(part: NetPart) -> Text:
    """The blocks of a stage as [basic/2] [msa], attention in another colour than convs."""
    if part.name == "encoder":
        depth = len(part.glyphs)
        text = Text("[msa][mlp]" * min(depth, 3) + ("…" if depth > 3 else ""), ATTENTION_STYLE).append(" ")
    elif part.label:
        text = Text(part.label + " " * bool(part.note))
    else:
        text = Text()
        for glyph in part.glyphs:
            stride = f"/{glyph.stride}" if glyph.stride > 1 else ""
            text.append(f"[{glyph.kind}{stride}] ", ATTENTION_STYLE if BLOCKS[glyph.kind].attends else CONV_STYLE)
    return text.append(part.note, "dim")


@cache
def css(file: Path) -> str:
    """Style rules of a file as one line, as they stand in pictures."""
    return "".join(map(str.strip, file.read_text(encoding="utf-8").splitlines()))


def write_svg(path: Path, svg: str) -> None:
    """Write a picture; InputError if the file cannot be written."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise InputError(f"svg: {path} cannot be written ({error.strerror or error})") from None


def net_svg(net: Genotype, num_classes: int, image_size: ImageSize, in_chans: int = 3) -> str:
    """The picture of a net at an image size; InputError if the net cannot be built at `image_size`."""
    plan, cost = net.plan(image_size, in_chans), static_cost(net, num_classes, image_size, in_chans)
    parts = net_parts(net, plan, num_classes)
    body, y, places = [], 52.0, cost.by("place")
    tallest = max(glyph.channels for part in parts for glyph in part.glyphs if part.name != "head")
    for part in parts:
        text, y = _row(part, places[part.name].macs / max(1, cost.macs), y, TALLEST / tallest)
        body.append(text)
    legend, y = _legend({glyph.kind for part in parts for glyph in part.glyphs}, y)
    size = f"{in_chans} x {plan.image[0]} x {plan.image[1]}"
    name = f"{net.family} {net.key}"
    words = escape(". ".join(map(_in_words, parts)) + ".")
    heading = _text(8, 18, name, "n-t n-b") + _text(RIGHT, 18, size) + _text(RIGHT, 32, "image", "n-d")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" width="{WIDTH}" height="{y:g}" '
        f'role="img" aria-labelledby="t-{net.key} d-{net.key}">'
        f'<title id="t-{net.key}">{escape(name)}, image {size}</title><desc id="d-{net.key}">{words}</desc>'
    )
    rules = css(Path(__file__).with_name("net.css"))
    background = f'<style>{rules}</style><rect class="n-bg" width="{WIDTH}" height="{y:g}" rx="6"/>'
    return f"{opening}{background}{heading}{''.join(body)}{legend}</svg>\n"


def _style(kind: str) -> BlockStyle:
    return ENDS[kind] if kind in ENDS else BLOCKS[kind].style


def _output(part: NetPart) -> str:
    return f"{part.shape} classes" if part.name == "head" else part.shape


def _in_words(part: NetPart) -> str:
    counts = Counter(BLOCKS[glyph.kind].style.label for glyph in part.glyphs if glyph.kind in BLOCKS)
    blocks = ", ".join(f"{count} x {label}" for label, count in counts.items())
    text = ", ".join(filter(None, (part.label, part.note)))
    stride = f"stride {part.glyphs[0].stride}" if part.glyphs[0].stride > 1 else ""
    return f"{part.name}: {'; '.join(filter(None, (blocks, text, stride, f'gives {_output(part)}')))}"


def _row(part: NetPart, share: float, y: float, scale: float) -> tuple[str, float]:
    """A part from `y` on, and where the next one begins. `scale`: pixels a channel."""
    lines = [part.glyphs[i : i + A_LINE] for i in range(0, len(part.glyphs), A_LINE)]
    heights = [max(LEAST, *(glyph.channels * scale for glyph in line)) for line in lines]
    x, arrow = LEFT - 12, y + heights[0] / 2  # the arrow leads into the row
    drawn, top = [f'<path class="n-w" d="M{x} {y - 12:g}V{_tenth(arrow)}h8m-4 -3l4 3l-4 3"/>'], y
    for line, height in zip(lines, heights, strict=True):
        drawn.append(_line(line, top, height, scale))
        top += height + LABEL + 4
    middle = arrow + 4
    drawn.append(_text(8, middle, part.name, "n-t n-b"))
    if part.glyphs[0].stride > 1:
        drawn.append(_text(8, middle + CAPTION, f"stride {part.glyphs[0].stride}", "n-d"))
    drawn.append(_text(RIGHT, middle, _output(part)))
    drawn.append(_text(RIGHT, middle + CAPTION, f"{100 * share:.1f} % of MACs", "n-d"))
    for text in textwrap.wrap(", ".join(filter(None, (part.label, part.note))), LETTERS):
        drawn.append(_text(LEFT, top + 8, text, "n-d"))
        top += CAPTION
    return "".join(drawn), max(top, middle + CAPTION) + GAP


def _line(glyphs: tuple[Glyph, ...], top: float, height: float, scale: float) -> str:
    """Blocks side by side around a line, their letters under them; one path for each kind."""
    middle, paths, marks = top + height / 2, dict[str, str](), ""
    for i, glyph in enumerate(glyphs):
        x, half = LEFT + i * PITCH, max(LEAST, glyph.channels * scale) / 2
        paths[glyph.kind] = paths.get(glyph.kind, "") + outline(glyph, x, middle, half)
        if glyph.kind in BLOCKS and BLOCKS[glyph.kind].has_mlp:
            marks += f"M{x + SLANT} {_tenth(middle)}h{BLOCK - 2 * SLANT}"
    end = LEFT + len(glyphs) * PITCH - PITCH + BLOCK
    drawn = [f'<path class="n-w" d="M{LEFT} {_tenth(middle)}H{end + 6}"/>']
    drawn += [f'<path fill="{_style(kind).colour}" d="{d}"/>' for kind, d in paths.items()]
    drawn += [f'<path class="n-i" d="{marks}"/>'] if marks else []
    places = " ".join(f"{LEFT + i * PITCH + BLOCK / 2:g}" for i in range(len(glyphs)))
    letters = "".join(_style(glyph.kind).letter for glyph in glyphs)
    drawn.append(f'<text class="n-t n-l" x="{places}" y="{_tenth(top + height + LABEL - 2)}">{letters}</text>')
    return "".join(drawn)


def outline(glyph: Glyph, x: float, middle: float, half: float) -> str:
    """The path of a block: attention is pointed at both sides, convs are boxes; one that strides narrows."""
    if glyph.kind in BLOCKS and BLOCKS[glyph.kind].attends:
        point, flat = f"{SLANT}", f"{BLOCK - 2 * SLANT}"
        up, down = _tenth(-half), _tenth(half)
        return f"M{x} {_tenth(middle)}l{point} {up}h{flat}l{point} {down}l-{point} {down}h-{flat}z"
    fall = min(SLANT, half / 2) if glyph.stride > 1 else 0.0
    return f"M{x} {_tenth(middle - half)}l{BLOCK} {_tenth(fall)}v{_tenth(2 * (half - fall))}l-{BLOCK} {_tenth(fall)}z"


def _legend(kinds: set[str], y: float) -> tuple[str, float]:
    """What the shapes mean, of the kinds that are there."""
    shown = [kind for kind in BLOCKS if kind in kinds]
    drawn = [f'<path class="n-w" d="M8 {y - 6:g}H{WIDTH - 8}"/>']
    for i, kind in enumerate(shown):
        x, top = 8 + 216 * (i % 2), y + 12 + 20 * (i // 2)
        style = BLOCKS[kind].style
        drawn.append(f'<path fill="{style.colour}" d="{outline(Glyph(kind, 0), x, top, 7)}"/>')
        drawn.append(_text(x + BLOCK + 7, top + 4, f"{style.letter}  {style.label}", "n-d"))
    y += 12 + 20 * -(-len(shown) // 2)
    note = "Height: channels, to scale. Slanted: strides. Right: the map that leaves."
    return "".join(drawn) + _text(8, y + 8, note, "n-d"), y + 20


def _text(x: float, y: float, text: str, kind: str = "n-t") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{_tenth(y)}">{escape(text)}</text>'


def _tenth(number: float) -> str:
    return f"{round(number, 1):g}"
