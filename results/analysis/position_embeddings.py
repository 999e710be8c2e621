"""What position embeddings have learned: how similar each is to all others.

Dosovitskiy et al., ICLR 2021, section 4.5 and figure 7 (1-D), appendix D.4 (2-D): cosine of the embedding of each
token with that of every other, laid out on the token grid. 2-D ones are their rows' and columns' halves together.
Relative ones belong to offsets, not to places: they have no such picture.

T tokens of the grid, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs import Network
from ...archs.errors import InputError
from ..analysis_tools.attention_weights import Shape
from ..analysis_tools.hooks import residual_points
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.metrics import side_of_zero
from ..analysis_tools.plots import maps

APART = 0.1  # of a cosine: from here on a kind of position is said to stand out


def position_tables(net: nn.Module) -> tuple[dict[str, Tensor], Shape]:
    """The position embeddings (T, C) by where they are added, without the class token's, and the token grid.

    Raises:
        InputError: if the net has none, or relative ones.
    """
    tokens = [site for site in residual_points(net) if site.grid is not None]
    parts: Any = net
    if not tokens:
        raise InputError("positions: this net has no tokens, so no position embedding")
    grid = tokens[0].grid
    assert grid is not None
    if isinstance(net, Network):
        assert parts.encoder is not None
        if parts.encoder.spec.position == "relative":
            raise InputError("positions: this net's are relative: they belong to offsets between tokens, not to places")
        tables = [position()[0].detach() for position in parts.encoder.positions]
    else:
        tables = [] if parts.pos_embed is None else [parts.pos_embed[0].detach()]
    if not tables:
        raise InputError("positions: this net has no position embedding")
    names = ["encoder"] if len(tables) == 1 else [f"encoder {i + 1}" for i in range(len(tables))]
    return {name: table[-grid[0] * grid[1] :] for name, table in zip(names, tables, strict=True)}, grid


def similarity(table_TC: Tensor) -> Tensor:
    """(T, T) cosine of each embedding with each."""
    unit_TC = F.normalize(table_TC.double(), dim=1)
    return unit_TC @ unit_TC.T


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Similarity of the position embeddings, of each table by itself; no image is looked at.

    Raises:
        InputError: as of `position_tables`.
    """
    tables, grid = position_tables(subject.net)
    found = {name: similarity(table).cpu().numpy() for name, table in tables.items()}
    rows = [row for name, cosine_TT in found.items() for row in similarity_rows(name, cosine_TT, grid)]
    title = f"Similarity of the position embeddings of {subject.name}"
    return AnalysisResult("positions", title, rows, _reading(rows), lambda figure: _draw(figure, found, grid))


def similarity_rows(name: str, cosine_TT: np.ndarray, grid: Shape) -> list[dict[str, Any]]:
    """Of each position: mean cosine with its neighbours above, below and beside, its row, its column, and the rest."""
    rows_T, columns_T = (part.ravel() for part in np.indices(grid))
    found = []
    for token, cosine_T in enumerate(cosine_TT):
        down, across = np.abs(rows_T - rows_T[token]), np.abs(columns_T - columns_T[token])
        groups = {
            "neighbours": down + across == 1,
            "same_row": (down == 0) & (across > 0),
            "same_column": (across == 0) & (down > 0),
            "elsewhere": (down > 0) & (across > 0),
        }
        means = {key: float(cosine_T[at].mean()) if at.any() else None for key, at in groups.items()}
        found.append({"table": name, "row": int(rows_T[token]), "column": int(columns_T[token])} | means)
    return found


def _reading(rows: Sequence[dict[str, Any]]) -> str:
    text = []
    for name in dict.fromkeys(row["table"] for row in rows):
        kinds = ("neighbours", "same_row", "same_column", "elsewhere")
        cells = {kind: [row[kind] for row in rows if row["table"] == name and row[kind] is not None] for kind in kinds}
        means = {kind: float(np.mean(cell)) for kind, cell in cells.items() if cell}
        if "neighbours" not in means or "elsewhere" not in means:
            text.append(f"{name}: the grid is a single row, column or place: there is nothing to compare.")
            continue
        near, rest = means["neighbours"], means["elsewhere"]
        line = (means["same_row"] + means["same_column"]) / 2
        mine = [row for row in rows if row["table"] == name]
        told = [
            f"{what} are more alike than others"
            for what, kinds in (("neighbours", ("neighbours",)), ("rows and columns", ("same_row", "same_column")))
            if _stands_out(mine, kinds)
        ]
        text.append(
            f"{name}: neighbours have a cosine of {near:.2f}, positions of the same row or column {line:.2f}, others "
            f"{rest:.2f}: {' and '.join(told) or 'neither neighbours nor rows and columns stand out'} (by {APART:g}, "
            f"and 95 % over {len(mine)} positions)."
        )
    return " ".join(text)


def _stands_out(rows: Sequence[dict[str, Any]], kinds: Sequence[str]) -> bool:
    """Whether positions of these kinds have cosines clearly above those of neither the same row nor column."""
    more = [float(np.mean([row[kind] for kind in kinds])) - row["elsewhere"] for row in rows]
    return float(np.mean(more)) > APART and side_of_zero(more) > 0


def _draw(figure: Figure, found: dict[str, np.ndarray], grid: Shape) -> None:
    """Every position's map of cosines, at the position's place, as the paper's figure 7."""
    height, width = grid
    tiles = [
        cosine.reshape(height, width, height, width).transpose(0, 2, 1, 3).reshape(height * height, width * width)
        for cosine in found.values()
    ]
    maps(figure, tiles, list(found))
