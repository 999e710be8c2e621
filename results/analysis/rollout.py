"""What the output of an encoder attends to in the image, through all its layers: attention rollout.

Abnar & Zuidema, ACL 2020, section 3, as Dosovitskiy et al., ICLR 2021, appendix D.8 use it: of each layer the mean of
the heads' attention, half of it replaced by the identity for the skip connection, rows summing to 1; the product over
the layers. Read where the output is: the class token's row, or the mean of all rows.

B images, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError
from ..analysis_tools.attention_weights import Shape, attention_sites, attention_weights, grid_of
from ..analysis_tools.hooks import HookPoint, entering, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.plots import maps

SHOWN = 6  # images in the figure


@torch.no_grad()
def rollout(net: nn.Module, x_BCHW: Tensor) -> tuple[Tensor, Tensor, Shape]:
    """(B, T) float64, how much the output draws on each token of the grid (sums to 1), the logits, and the grid.

    Class tokens are left out of the sum, and the others' shares brought to 1 again.

    Raises:
        InputError: if the net has no transformer encoder.
    """
    sites = {site.module: site for site in attention_sites(net) if site.grid is not None}
    if not sites:
        raise InputError("rollout: needs a transformer encoder over tokens, this net has attention in windows only")
    product: Any = None
    site, grid = next(iter(sites.values())), (0, 0)

    def see(name: str, module: nn.Module, args: Any) -> None:
        nonlocal product, grid
        grid, _ = grid_of(sites[name], module, args[0])
        step = one_layer(attention_weights(module, args))
        product = step if product is None else step @ product

    with undisturbed(net), entering(net, list(sites), see):
        logits = net(x_BCHW)
    row_BT = product[:, 0] if _reads_class_token(net, site) else product[:, site.lead :].mean(1)
    row_BT = row_BT[:, site.lead :]
    return row_BT / row_BT.sum(1, keepdim=True), logits, grid


def one_layer(a_BNTT: Tensor) -> Tensor:
    """(B, T, T) float64: 0.5 of the heads' mean attention and 0.5 of the identity, rows summing to 1."""
    mean_BTT = a_BNTT.double().mean(1)
    mixed = 0.5 * mean_BTT + 0.5 * torch.eye(mean_BTT.shape[1]).to(mean_BTT)
    return mixed / mixed.sum(2, keepdim=True)


def analyse(subject: AnalysisInput, images: int = 64) -> AnalysisResult:
    """Attention rollout of the first images, all in one batch.

    Raises:
        InputError: as of `rollout`.
    """
    shown = subject.images.first(images)
    found, logits, grid = rollout(subject.net, shown.seen(shown.x_NCHW))
    shares = found.cpu().numpy()
    rows = [
        {
            "image": i, "label": int(shown.y_N[i]), "guess": int(logits[i].argmax()),
            "peak_row": int(share.argmax()) // grid[1], "peak_column": int(share.argmax()) % grid[1],
            "peak": float(share.max()), "tokens": spread_of(share),
        }
        for i, share in enumerate(shares)
    ]  # fmt: skip
    title = f"Attention rollout of {subject.name}"
    pictures, labels = shown.x_NCHW[:SHOWN].cpu().numpy(), [_label(row) for row in rows[:SHOWN]]
    tiles = [share.reshape(grid) for share in shares[:SHOWN]]
    reading = _reading(rows, shares)
    return AnalysisResult("rollout", title, rows, reading, lambda figure: _draw(figure, pictures, tiles, labels))


def spread_of(share_T: np.ndarray) -> float:
    """Tokens that the output draws on: exp of the entropy, 1 for a single one and T for all of them evenly."""
    kept = share_T[share_T > 0]
    return float(np.exp(-(kept * np.log(kept)).sum()))


def _reads_class_token(net: nn.Module, site: HookPoint) -> bool:
    return bool(site.lead) and getattr(net, "global_pool", "token") == "token"


def _label(row: dict[str, Any]) -> str:
    return f"label {row['label']}, guess {row['guess']}"


def _reading(rows: Sequence[dict[str, Any]], shares: np.ndarray) -> str:
    tokens, spread = shares.shape[1], float(np.mean([row["tokens"] for row in rows]))
    apart = float(0.5 * np.abs(shares - shares.mean(0)).sum(1).mean())
    between = (
        f" From their common mean an image's shares differ by {apart:.1%} (total variation: 0 % for the same shares in "
        "each image, 100 % for none in common)."
    )
    return (
        f"Over {len(rows)} images the output draws on {spread:.1f} of {tokens} tokens on average (as many as would "
        f"have equal shares with the same entropy).{between if len(rows) > 1 else ''}"
    )


def _draw(figure: Figure, pictures: np.ndarray, tiles: Sequence[np.ndarray], labels: Sequence[str]) -> None:
    """Images above, what the output draws on below."""
    above = [image.transpose(1, 2, 0).clip(0, 1) if len(image) == 3 else image.mean(0) for image in pictures]
    maps(figure, [*above, *tiles], [*labels, *[f"peak {tile.max():.1%}" for tile in tiles]], columns=len(above))
