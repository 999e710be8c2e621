"""Token localization by CKA: each of the last tokens compared with every patch of the image.

Raghu et al., NeurIPS 2021, section 4, "Preserving Spatial Location": over images, one token of the last block is
compared with each non-overlapping patch of the input, pixels as they are; in a CNN a token is all channels at one
place of the map. A token that kept its place is most like its own patch.

N images, T tokens, P patches, as many as there are tokens.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError
from ..analysis_tools.findings import Finding, measured
from ..analysis_tools.hooks import HookPoint, as_map, captured, residual_points
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import heatmap, tiled
from .cka import MIN_IMAGES, CkaSums, centred

OWN = "CKA of a token with its own patch"
KEPT = 0.5  # of the tokens: above, places are said to be kept
RARE, NEAR = 0.05, -1.96  # chance of so many, and standard deviations nearer, from which on it is no chance


def patches(x_BCHW: Tensor, grid: tuple[int, int]) -> Tensor:
    """x_PND: the pixels of each cell of a grid over the image, row by row; InputError if it does not divide it."""
    (height, width), (rows, columns) = x_BCHW.shape[2:], grid
    if height % rows or width % columns:
        raise InputError(f"tokens: a map of {rows}x{columns} does not divide an image of {height}x{width}")
    size = (height // rows, width // columns)
    return F.unfold(x_BCHW, size, stride=size).permute(2, 0, 1)


def token_map(net: nn.Module, site: HookPoint, batches: Iterable[Tensor]) -> tuple[Tensor, tuple[int, int]]:
    """CKA of each token at `site` with each patch, (T, P) float64, and the token grid (rows, columns).

    Batches of fewer than 4 images are left out. InputError if the map is a single place or does not divide the image,
    or no batch has 4 images.
    """
    sums, grid = CkaSums(), (0, 0)
    for x_BCHW in batches:
        if len(x_BCHW) < MIN_IMAGES:
            continue
        map_BCHW = as_map(site, captured(net, [site], x_BCHW)[site.name])
        grid = (map_BCHW.shape[2], map_BCHW.shape[3])
        if grid == (1, 1):
            raise InputError(f"tokens: the map at {site.name} is a single place")
        sums.add(_grams(map_BCHW.flatten(2).permute(2, 0, 1)), _grams(patches(x_BCHW, grid)))
    return sums.cka("tokens"), grid


def _grams(x_LND: Tensor) -> Tensor:
    x_LND = x_LND.double()
    x_LND = x_LND - x_LND.mean(1, keepdim=True)
    return centred(x_LND @ x_LND.transpose(1, 2))


def token_rows(cka_TP: np.ndarray, grid: tuple[int, int]) -> list[dict[str, Any]]:
    """A row for each token: CKA with its own patch and its rank (1 is highest), the best patch and how far it is."""
    cka_TP = np.nan_to_num(cka_TP, nan=-1.0)  # of patches that are the same in all images
    rows = []
    for token, cka_P in enumerate(cka_TP):
        at, best = divmod(token, grid[1]), divmod(int(cka_P.argmax()), grid[1])
        rows.append(
            {
                "row": at[0], "column": at[1], "own": float(cka_P[token]),
                "rank": int((cka_P > cka_P[token]).sum()) + 1, "best": float(cka_P.max()),
                "best_row": best[0], "best_column": best[1],
                "cells_off": float(np.hypot(best[0] - at[0], best[1] - at[1])),
            }
        )  # fmt: skip
    return rows


def analyse(subject: AnalysisInput, batch: int = 128) -> AnalysisResult:
    """CKA of the tokens after the last block with the patches of the image."""
    site = residual_points(subject.net)[-1]
    cka_TP, grid = token_map(subject.net, site, subject.images.inputs(batch))
    rows, columns = grid

    def draw(figure: Figure) -> None:
        """Every token's map of patches, at the token's place."""
        axes = figure.add_subplot()
        heatmap(figure, axes, tiled(cka_TP.numpy(), grid), "unbiased linear CKA", None, None)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.set_xticks([i * columns - 0.5 for i in range(columns + 1)], [])
        axes.set_yticks([i * rows - 0.5 for i in range(rows + 1)], [])
        axes.grid(visible=True, color="white", linewidth=1)
        axes.set_xlabel("tokens, each with its map over the patches of the image")

    table = token_rows(cka_TP.numpy(), grid)
    title = f"Tokens of {subject.name} at {site.name}: CKA with patches of the image"
    return AnalysisResult(title, table, findings(table), draw, {site.name: cka_TP.numpy()})


def findings(rows: Rows) -> list[Finding]:
    """How many tokens are most like their own patch, beside what chance gives, and how like it they are."""
    tokens, count = len(rows), sum(row["rank"] == 1 for row in rows)
    # so many or more of independent tokens, each most like its own patch with a chance of 1 / tokens
    p = 1 / tokens
    chance = 1 - sum(math.comb(tokens, k) * p**k * (1 - p) ** (tokens - k) for k in range(count))
    if chance <= RARE and count / tokens > KEPT:
        verdict = "places kept"
    elif chance <= RARE or _nearness(rows) < NEAR:
        verdict = "places blurred"
    else:
        verdict = "as chance would give"
    most = f"tokens most like their own patch, of {tokens}"
    return [
        Finding(most, count, verdict=verdict, over="tokens", n=tokens, resolution=1),
        measured("cells to the most similar patch", [row["cells_off"] for row in rows], "tokens"),
        measured(OWN, [row["own"] for row in rows], "tokens"),
    ]


def _nearness(rows: Rows) -> float:
    """How far the tokens are from their best patches, in standard deviations of the same patches dealt out at random.

    Below 0: nearer than that. Mean and variance over all permutations in closed form (Hoeffding, Annals of Mathematical
    Statistics 1951), 0 where all have the same best patch.
    """
    at_T2 = np.array([(row["row"], row["column"]) for row in rows], dtype=float)
    best_T2 = np.array([(row["best_row"], row["best_column"]) for row in rows], dtype=float)
    d_TT = np.hypot(*(at_T2[:, None] - best_T2).transpose(2, 0, 1))
    rest_TT = d_TT - d_TT.mean(0) - d_TT.mean(1, keepdims=True) + d_TT.mean()
    deviation = math.sqrt(np.square(rest_TT).sum() / (len(rows) - 1))
    return float((np.trace(d_TT) - d_TT.sum() / len(rows)) / deviation) if deviation > 1e-9 else 0.0
