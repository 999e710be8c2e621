"""Whether the last tokens still know where they are: CKA of each with every patch of the image.

Raghu et al., NeurIPS 2021, section 4, "Preserving Spatial Location": over images, one token of the last block is
compared with each non-overlapping patch of the input, pixels as they are; in a CNN a token is all channels at one
place of the map. A token that kept its place is most like its own patch.

N images, T tokens, P patches, as many as there are tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError
from ..analysis_tools.hooks import HookPoint, as_map, captured, residual_points
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.plots import heatmap
from .cka import LEAST, CkaSums, centred

KEPT = 0.5  # of the tokens: above, places are said to be kept
RARE, NEAR = 0.05, -1.96  # chance of so many, and standard deviations nearer, from which on it is no chance


def patches(x_BCHW: Tensor, grid: tuple[int, int]) -> Tensor:
    """x_PND: the pixels of each cell of a grid over the image, row by row.

    Raises:
        InputError: if the grid does not divide the image.
    """
    (height, width), (rows, columns) = x_BCHW.shape[2:], grid
    if height % rows or width % columns:
        raise InputError(f"tokens: a map of {rows}x{columns} does not divide an image of {height}x{width}")
    size = (height // rows, width // columns)
    return F.unfold(x_BCHW, size, stride=size).permute(2, 0, 1)


def token_map(net: nn.Module, site: HookPoint, batches: Iterable[Tensor]) -> tuple[Tensor, tuple[int, int]]:
    """CKA of each token at `site` with each patch, (T, P) float64, and the token grid (rows, columns).

    Batches of fewer than 4 images are left out.

    Raises:
        InputError: if the map is a single place or does not divide the image, or no batch has 4 images.
    """
    sums, grid = CkaSums(), (0, 0)
    for x_BCHW in batches:
        if len(x_BCHW) < LEAST:
            continue
        map_BCHW = as_map(site, captured(net, [site], x_BCHW)[site.name])
        grid = (map_BCHW.shape[2], map_BCHW.shape[3])
        if grid == (1, 1):
            raise InputError(f"tokens: the map at {site.name} is a single place")
        sums.add(_grams(map_BCHW.flatten(2).permute(2, 0, 1)), _grams(patches(x_BCHW, grid)))
    if not sums.images:
        raise InputError(f"tokens: needs a batch of at least {LEAST} images, there is none")
    return sums.cka(), grid


def analyse(subject: AnalysisInput, batch: int = 128) -> AnalysisResult:
    """CKA of the tokens behind the last block with the patches of the image.

    Raises:
        InputError: as of `token_map`.
    """
    site = residual_points(subject.net)[-1]
    found, grid = token_map(subject.net, site, (x_BCHW for x_BCHW, _ in subject.images.batches(batch)))
    rows = token_rows(found.numpy(), grid)
    title = f"Tokens of {subject.name} at {site.name}: CKA with patches of the image"
    reading = _reading(rows, site, grid, len(subject.images))
    return AnalysisResult("tokens", title, rows, reading, lambda figure: _draw(figure, found.numpy(), grid))


def token_rows(found_TP: np.ndarray, grid: tuple[int, int]) -> list[dict[str, Any]]:
    """Of each token: CKA with its own patch, its rank among all (1 is highest), the best patch and how far it is."""
    found_TP = np.nan_to_num(found_TP, nan=-1.0)  # of patches that are the same in all images
    rows = []
    for token, cka_P in enumerate(found_TP):
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


def _grams(x_LND: Tensor) -> Tensor:
    x_LND = x_LND.double()
    x_LND = x_LND - x_LND.mean(1, keepdim=True)
    return centred(x_LND @ x_LND.transpose(1, 2))


def _reading(rows: Sequence[dict[str, Any]], site: HookPoint, grid: tuple[int, int], images: int) -> str:
    right = sum(row["rank"] == 1 for row in rows)
    off = float(np.mean([row["cells_off"] for row in rows]))
    own, nearer = at_least(right, len(rows)) <= RARE, nearness(rows) < NEAR
    if own and right / len(rows) > KEPT:
        kind = "most tokens kept their place"
    elif own or nearer:
        kind = "more than chance would give, were tokens independent: places are blurred, but not lost"
    else:
        kind = "no more than chance would give"
    mean_own = float(np.mean([row["own"] for row in rows]))
    return (
        f"At {site.name} {right} of {len(rows)} tokens are most like their own patch over {images} images, where "
        f"chance would give 1; the most similar patch is {off:.1f} cells off on average on a grid of "
        f"{grid[0]}x{grid[1]}: {kind}. A token is like its own patch with a CKA of {mean_own:.2f} on average."
    )


def at_least(right: int, tokens: int) -> float:
    """Chance that so many independent tokens are most like their own patch, each with a chance of 1 / tokens."""
    p = 1 / tokens
    return 1 - sum(math.comb(tokens, k) * p**k * (1 - p) ** (tokens - k) for k in range(right))


def nearness(rows: Sequence[dict[str, Any]]) -> float:
    """How far the tokens are from their best patches, in standard deviations of the same patches dealt out at random.

    Below 0: nearer than that. Mean and variance over all permutations in closed form (Hoeffding, Annals of Mathematical
    Statistics 1951), 0 where all have the same best patch.
    """
    at_T2, best_T2 = (
        np.array([[row[key] for key in keys] for row in rows], dtype=float)
        for keys in (("row", "column"), ("best_row", "best_column"))
    )
    d_TT = np.hypot(*(at_T2[:, None] - best_T2).transpose(2, 0, 1))
    rest_TT = d_TT - d_TT.mean(0) - d_TT.mean(1, keepdims=True) + d_TT.mean()
    deviation = math.sqrt(np.square(rest_TT).sum() / (len(rows) - 1))
    return float((np.trace(d_TT) - d_TT.sum() / len(rows)) / deviation) if deviation > 1e-9 else 0.0


def _draw(figure: Figure, found_TP: np.ndarray, grid: tuple[int, int]) -> None:
    """Every token's map of patches, at the token's place."""
    rows, columns = grid
    tiles = found_TP.reshape(rows, columns, rows, columns).transpose(0, 2, 1, 3).reshape(rows * rows, columns * columns)
    axes = figure.add_subplot()
    heatmap(figure, axes, tiles, "unbiased linear CKA", None, None)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.set_xticks([i * columns - 0.5 for i in range(columns + 1)], [])
    axes.set_yticks([i * rows - 0.5 for i in range(rows + 1)], [])
    axes.grid(visible=True, color="white", linewidth=1)
    axes.set_xlabel("tokens, each with its map over the patches of the image")
