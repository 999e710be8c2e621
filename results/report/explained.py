"""The section on why nets win: what `alternas explain` left in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..probes.index import FOLDER, INDEX, Explained, read_index
from .facts import Run
from .parts import Picture

MOST_BYTES = 2**20  # of pictures: a page stays below 8 MB


def explained_parts(run: Run) -> tuple[Picture, ...]:
    """A picture for each analysis; none where nothing was explained.

    Raises:
        InputError: if what is there cannot be read.
    """
    folder = run.folder / FOLDER
    if not (folder / INDEX).exists():
        return ()
    return tuple(_pictures(folder, read_index(folder)["analyses"]))


def _pictures(folder: Path, parts: list[Explained]) -> Iterator[Picture]:
    """The first ones, up to MOST_BYTES of them; of the others the words alone, and where the picture is."""
    room = MOST_BYTES
    for part in parts:
        texts = [f"{net}: {text}" for net, text in zip(part.nets, part.readings, strict=True)]
        path = folder / part.png if part.png else None
        if path is None or not path.is_file():
            yield Picture(part.analysis, part.title, texts, None)
            continue
        room -= path.stat().st_size
        shown = room >= 0
        yield Picture(
            part.analysis, part.title, texts if shown else [*texts, f"Picture: {path}"], path if shown else None
        )
