"""What position embeddings have learned: how similar each is to all others.

Dosovitskiy et al., ICLR 2021, section 4.5 and figure 7 (1-D), appendix D.4 (2-D): cosine of the embedding of each
token with that of every other, laid out on the token grid. 2-D ones are their rows' and columns' halves together.
Relative ones belong to offsets, not to places: they have no such picture.

T tokens of the grid, C channels.
"""

from typing import Any

import numpy as np
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs import Network
from ...archs.errors import InputError
from ..analysis_tools.attention_weights import Shape
from ..analysis_tools.findings import Finding, measured
from ..analysis_tools.hooks import residual_points
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import maps, tiled

KINDS = {"neighbours": ("neighbours",), "rows and columns": ("same_row", "same_column")}


def position_tables(net: nn.Module) -> tuple[dict[str, Tensor], Shape]:
    """The position embeddings (T, C) by where they are added, without the class token's, and the token grid."""
    grid = next((site.grid for site in residual_points(net) if site.grid is not None), None)
    parts: Any = net
    if grid is None:
        raise InputError("positions: this net has no tokens, so no position embedding")
    if isinstance(net, Network):
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


def similarity_rows(name: str, cosine_TT: np.ndarray, grid: Shape) -> list[dict[str, Any]]:
    """Mean cosine of each position with its neighbours above, below and beside, its row, its column, and the rest."""
    rows_T, columns_T = (part.ravel() for part in np.indices(grid))
    rows = []
    for token, cosine_T in enumerate(cosine_TT):
        down, across = np.abs(rows_T - rows_T[token]), np.abs(columns_T - columns_T[token])
        groups = {
            "neighbours": down + across == 1,
            "same_row": (down == 0) & (across > 0),
            "same_column": (across == 0) & (down > 0),
            "elsewhere": (down > 0) & (across > 0),
        }
        means = {kind: float(cosine_T[at].mean()) if at.any() else None for kind, at in groups.items()}
        rows.append({"table": name, "row": int(rows_T[token]), "column": int(columns_T[token])} | means)
    return rows


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Similarity of the position embeddings, of each table by itself; no image is looked at."""
    tables, grid = position_tables(subject.net)
    cosines = {name: similarity(table).cpu().numpy() for name, table in tables.items()}
    pictures = {name: tiled(cosine_TT, grid) for name, cosine_TT in cosines.items()}
    rows = [row for name, cosine_TT in cosines.items() for row in similarity_rows(name, cosine_TT, grid)]

    def draw(figure: Figure) -> None:
        """Every position's map of cosines, at the position's place, as the paper's figure 7."""
        maps(figure, pictures, "cosine")

    title = f"Similarity of the position embeddings of {subject.name}"
    return AnalysisResult(title, rows, findings(rows), draw, cosines)


def findings(rows: Rows) -> list[Finding]:
    """By how much neighbours, and positions of the same row or column, are more alike than positions of neither."""
    found = []
    for name in dict.fromkeys(row["table"] for row in rows):
        mine = [row for row in rows if row["table"] == name and row["elsewhere"] is not None]
        for what, kinds in KINDS.items():
            more = [float(np.mean([row[kind] for kind in kinds])) - row["elsewhere"] for row in mine]
            words = ("more alike", "less alike")
            found.append(measured(f"{name}: cosine of {what}, above others", more, "positions", words))
    return found
