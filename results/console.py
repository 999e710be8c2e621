"""The console that all is drawn on with rich: what names, errors and classes hold is shown, and never obeyed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment
from rich.text import Text

from .terminal import unguarded, visible


class Console(console.Console):
    """rich's, in which a `str` is one line of plain text, without markup; a `Text` may have several lines."""

    def __init__(self, stderr: bool = False, **options: Any) -> None:
        stream = unguarded(sys.stderr if stderr else sys.stdout)
        super().__init__(**{"file": stream, "markup": False, "emoji": False} | options, stderr=stderr)
        if not (self.width and self.height):  # COLUMNS=0, on which rich draws nothing at all
            self.size = console.ConsoleDimensions(*shutil.get_terminal_size())

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text, keep="\n"), segment.style)


def plain(*lines: str, style: str = "") -> Text:
    """Lines of text, each of which stays one line whatever it holds."""
    return Text("\n".join(map(visible, lines)), style)
