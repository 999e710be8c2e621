"""A report's plot as an SVG picture: for its page, for a notebook's cell, and as a file of its own.

Plain text without scripts, the same bytes for the same plot; light and dark by the reader's preference.
"""

from collections.abc import Sequence
from html import escape

from .axes import Axis, linear_axis, log_axis, placed_labels
from .elements import Matrix, Plot, Series, bars_path, line_path, marks_path, style

LETTER, LEGEND, LINE = 6.5, 6.9, 16  # pixels of a digit, of a letter, of a line of text
WIDTH, HEIGHT = 720, 400  # of a picture for which nobody says
CROWD = 500  # points, from which on they are small
RADIUS, SMALL, RING = 4.0, 2.5, 7.0  # pixels of marks
TALL_LEGEND = 90  # pixels: what is above that is added to the height, so that the plot is not squeezed
LONGEST = 26  # letters of a name on an axis
LONGEST_CLASS, ABOVE_CELLS = 14, 24  # of a matrix: letters of a class, pixels above the cells
RIGHT, TOP = 14, 6


def plot_svg(plot: Plot, width: int = WIDTH, height: int = HEIGHT, alone: bool = True) -> str:
    """The picture of a plot that has series; a long legend adds to its height.

    One that is `alone` needs its style and leaves hidden series out; else it is part of a page that has
    `elements.style`, and a script that shows them.
    """
    shown = [series for series in plot.series if not (alone and series.hidden)]
    legend, top = (
        _legend(shown, width, TOP + LINE * bool(plot.y)) if len(shown) > 1 else ([], TOP + LINE * bool(plot.y))
    )
    height += max(0, round(top) - TALL_LEGEND)
    draw = _draw_bars if any(series.kind == "bars" for series in shown) else _draw_points
    body = draw(plot, shown, (width, height, top + 8))
    name = escape(plot.title, quote=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="p" viewBox="0 0 {width} {height}" role="img"'
    head += f' aria-label="{name}"'
    head += f' width="{width}" height="{height}">' if alone else f' data-plot="{escape(plot.name, quote=True)}">'
    title = _text(TOP, TOP + 8, plot.y, "p-dim")
    rules = f"<style>{style()}</style>" if alone else ""
    ground = f'<rect class="p-bg p-ground" width="{width}" height="{height}"/>' if alone else ""
    return "".join([head, rules, ground, title * bool(plot.y), *legend, *body, "</svg>"])


def _text(x: float, y: float, text: str, look: str) -> str:
    """A line of text; `look` is its further classes."""
    return f'<text class="p-t {look}" x="{x:.1f}" y="{y:.1f}">{escape(text, quote=False)}</text>'


def _cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _legend(shown: Sequence[Series], width: int, y: float) -> tuple[list[str], float]:
    """A sample and a name for each series, in as many lines as it takes; where the last one ends."""
    pieces, x = list[str](), float(TOP)
    for i, series in enumerate(shown):
        name = _cut(series.name)
        wide = 30 + LEGEND * len(name)
        if x > TOP and x + wide > width - RIGHT:
            x, y = float(TOP), y + LINE + 2
        off = " p-off" * series.hidden
        sample = _sample(series, x + 7, y + 7)
        text = _text(x + 18, y + 11, name, "p-text")
        pieces.append(f'<g class="p-k{off}" data-s="{i}"><g class="p-{series.colour}">{sample}</g>{text}</g>')
        x += wide
    return pieces, y + LINE + 2


def _sample(series: Series, x: float, y: float) -> str:
    if series.kind == "bars":
        return f'<rect class="p-b" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    if series.kind in ("line", "steps"):
        return f'<path class="p-line{_look(series)}" d="M{x - 7:.1f} {y:.1f}h14"/>'
    radius = 5.5 if series.kind == "rings" else RADIUS
    marks = f'<path class="{_look(series)}" d="{marks_path([(x, y)], series.symbol, radius)}"/>'
    return marks + (f'<path d="{bars_path([(x, y - 7, y + 7)], 2)}"/>' if series.bars else "")


def _look(series: Series) -> str:
    if series.kind in ("line", "steps"):
        return " p-dash" * (series.look == "dotted") + " p-quiet" * series.quiet
    return "p-dotted" * (series.look == "dotted") if series.kind == "rings" else f"p-{series.look}"


def _frame(x: Axis, y: Axis, title: str) -> list[str]:
    lines = "".join(f"M{x.start:.1f} {y.at(tick):.1f}H{x.end:.1f}" for tick in y.ticks)
    lines += "".join(f"M{x.at(tick):.1f} {y.end:.1f}V{y.start:.1f}" for tick in x.ticks)
    pieces = [f'<path class="p-g p-grid" d="{lines}"/>']
    pieces += [_text(x.start - 6, y.at(tick) + 4, y.label(tick), "p-e p-dim") for tick in y.ticks]
    pieces += [_text(x.at(tick), y.start + 16, x.label(tick), "p-m p-dim") for tick in x.ticks]
    return [*pieces, _text((x.start + x.end) / 2, y.start + 33, title, "p-m p-dim")] if title else pieces


def _draw_points(plot: Plot, shown: Sequence[Series], size: tuple[int, int, float]) -> list[str]:
    width, height, top = size
    seen = [series for series in shown if not series.hidden] or shown
    xs = [x for series in seen for x, y in zip(series.x, series.y, strict=True) if y is not None]
    ys = [y for series in seen for y in (*series.y, *(end for bar in series.bars for end in bar)) if y is not None]
    bottom = height - (40 if plot.x else 22)
    y = linear_axis(ys, bottom, top, within=plot.within)
    left = 12 + LETTER * max(len(y.label(tick)) for tick in y.ticks)
    x = (log_axis if plot.log_x else linear_axis)(xs, left, width - RIGHT, room=64)
    crowd = sum(len(series.x) for series in shown if series.kind == "points") > CROWD
    pieces = _frame(x, y, plot.x)
    for i, series in enumerate(shown):
        off = " p-off" * series.hidden
        pieces.append(f'<g class="p-s p-{series.colour}{off}" data-s="{i}">{_drawn(series, x, y, crowd)}</g>')
    return [*pieces, *placed_labels(shown, x, y)]


def _drawn(series: Series, x: Axis, y: Axis, crowd: bool) -> str:
    if series.kind in ("line", "steps"):
        line = line_path(
            (None if b is None else (x.at(a), y.at(b)) for a, b in zip(series.x, series.y, strict=True)),
            steps=series.kind == "steps",
        )
        return (
            f'<path class="p-line{_look(series)}" d="{line}"><title>{escape(series.name, quote=False)}</title></path>'
        )
    inside = [i for i, (a, b) in enumerate(zip(series.x, series.y, strict=True)) if x.holds(a) and y.holds(b)]
    at = [(x.at(series.x[i]), y.at(series.y[i])) for i in inside]
    radius = RING if series.kind == "rings" else SMALL if crowd else RADIUS
    nets = f' data-nets="{" ".join(str(series.nets[i]) for i in inside)}"' if series.nets else ""
    classes = _look(series) + " p-crowd" * (crowd and bool(series.nets))
    path = f'<path class="{classes}"{nets} d="{marks_path(at, series.symbol, radius)}"/>'
    bars = [(x.at(a), y.at(low), y.at(high)) for a, (low, high) in zip(series.x, series.bars, strict=False)]
    return path + (f'<path d="{bars_path(bars)}"/>' if bars else "")


def _draw_bars(plot: Plot, shown: Sequence[Series], size: tuple[int, int, float]) -> list[str]:
    """Bars over names, beside each other or stacked, standing or lying."""
    width, height, top = size
    names = list(dict.fromkeys(name for series in shown for name in series.x))
    tops = [sum(series.y[i] for series in shown) for i in range(len(names))] if plot.stacked else []
    most = max([0.0, *tops, *(value for series in shown for value in series.y)]) or 1.0
    labels = [_cut(str(name)) for name in names]
    if plot.sideways:
        left = 12 + LETTER * max(map(len, labels))
        x, y = linear_axis([0.0, most], left, width - RIGHT, room=52), Axis(0, len(names), top, height - 40, ())
        pieces = [*_frame(x, Axis(0, 1, height - 40, top, ()), plot.x)]
        pieces += [_text(left - 6, y.at(i + 0.5) + 4, label, "p-e p-text") for i, label in enumerate(labels)]
    else:
        y = linear_axis([0.0, most], height - 30, top)
        left = 12 + LETTER * max(len(y.label(tick)) for tick in y.ticks)
        x = Axis(0, len(names), left, width - RIGHT, ())
        pieces = [*_frame(x, y, ""), *_names_below(labels, x, y.start)]
    return [*pieces, *_bars(plot, shown, x, y, len(names))]


def _names_below(labels: Sequence[str], x: Axis, bottom: float) -> list[str]:
    band = (x.end - x.start) / len(labels)
    turns = LETTER * max(map(len, labels)) > band
    fit = max(3, int((2 if turns else 1) * band / LETTER))
    return [
        _text(x.at(i + 0.5), bottom + 15 + 13 * (turns and i % 2), _cut(label, fit), "p-m p-text")
        for i, label in enumerate(labels)
    ]


def _bars(plot: Plot, shown: Sequence[Series], x: Axis, y: Axis, count: int) -> list[str]:
    pieces, base = [], [0.0] * count
    share = 0.7 / (1 if plot.stacked else len(shown))  # of a band
    for number, series in enumerate(shown):
        rects = []
        for i, value in enumerate(series.y):
            start = i + 0.15 + (0 if plot.stacked else number * share)
            low, high = (base[i], base[i] + value)
            across, along = (y, x) if plot.sideways else (x, y)
            a, b = sorted((along.at(low), along.at(high)))
            c, d = sorted((across.at(start), across.at(start + share)))
            box = (a, c, b - a, d - c) if plot.sideways else (c, a, d - c, b - a)
            said = f"{series.x[i]}, {series.name}: {value:g}"
            place = 'x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*box)
            rects.append(f'<rect class="p-b" {place}><title>{escape(said, quote=False)}</title></rect>' * (value > 0))
            base[i] += value if plot.stacked else 0.0
        pieces.append(f'<g class="p-s p-{series.colour}" data-s="{number}">{"".join(rects)}</g>')
    return pieces


def matrix_svg(matrix: Matrix, width: int) -> str:
    """The picture of a matrix that has names, at most `width` wide, as part of a page that has `elements.style`.

    Columns are as wide as their names; where there is no room for that, names stand upright.
    """
    names = [_cut(name, LONGEST_CLASS) for name in matrix.names]
    longest, count = LETTER * max(map(len, names)), len(names)
    left = 10 + longest
    room = (width - left - 4) / count
    cell, upright = min(30.0, room), longest + 6 > room
    wide = cell if upright else max(cell, longest + 6)
    top = longest + 10 if upright else ABOVE_CELLS
    width, height = round(left + wide * count + 4), top + cell * count + 6
    pieces = [f'<svg class="p" viewBox="0 0 {width} {height:.0f}" role="img" width="{width}">']
    for i, (name, row) in enumerate(zip(names, matrix.counts, strict=True)):
        middle, y = left + (i + 0.5) * wide, top + i * cell
        pieces.append(_text(left - 6, y + cell / 2 + 4, name, "p-text p-e"))
        head = _text(0, 0, name, "p-text") if upright else _text(middle, top - 6, name, "p-text p-m")
        turned = f'<g transform="translate({middle + 4:.1f} {top - 6:.1f}) rotate(-90)">{head}</g>'
        pieces.append(turned if upright else head)
        for j, images in enumerate(row):
            if images:
                said = f"{matrix.names[i]} as {matrix.names[j]}: {images}"
                box = (left + j * wide, y, wide, cell)
                pieces.append(_cell(box, images / sum(row), said, "sky" if i == j else "vermillion"))
                number = _text(left + (j + 0.5) * wide, y + cell / 2 + 4, str(images), "p-text p-m")
                pieces.append(number * (cell >= 22))
    return "".join([*pieces, "</svg>"])


def _cell(box: tuple[float, float, float, float], share: float, said: str, colour: str) -> str:
    """One cell: left, top, width, height."""
    x, y, wide, tall = box
    place = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{wide - 1:.1f}" height="{tall - 1:.1f}"'
    title = f"<title>{escape(said, quote=False)}</title>"
    return f'<rect class="p-b p-{colour}" fill-opacity="{max(0.08, share):.2f}" {place}>{title}</rect>'
