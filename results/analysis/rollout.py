"""Attention rollout: what the output of an encoder attends to in the image, through all its layers.

Abnar & Zuidema, ACL 2020, section 3, as Dosovitskiy et al., ICLR 2021, appendix D.8 use it: of each layer the mean of
the heads' attention, half of it replaced by the identity for the skip connection, rows summing to 1; the product over
the layers. Read where the output is: the class token's row, or the mean of all rows.

B images, T tokens.
"""

from typing import Any, cast

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError
from ..analysis_tools.attention_weights import Shape, attention_sites, attention_weights, grid_of
from ..analysis_tools.findings import measured
from ..analysis_tools.hooks import entering, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.output import grid_of_images, maps

SHOWN = 6  # images in the figure


@torch.no_grad()
def rollout(net: nn.Module, x_BCHW: Tensor) -> tuple[Tensor, Tensor, Shape]:
    """(B, T) float64, how much the output draws on each token of the grid (sums to 1), the logits, and the grid.

    Class tokens are left out of the sum, and the others' shares brought to 1 again. InputError if the net has no
    transformer encoder.
    """
    sites = {site.module: site for site in attention_sites(net) if site.grid is not None}
    if not sites:
        raise InputError("rollout: needs a transformer encoder over tokens, this net has attention in windows only")
    product: Any = None
    lead, grid = next(iter(sites.values())).lead, (0, 0)

    def see(name: str, module: nn.Module, args: Any) -> None:
        nonlocal product, grid
        grid, _ = grid_of(sites[name], module, args[0])
        step = one_layer(attention_weights(module, args))
        product = step if product is None else step @ product

    with undisturbed(net), entering(net, list(sites), see):
        logits = net(x_BCHW)
    class_token = lead and getattr(net, "global_pool", "token") == "token"
    row_BT = product[:, 0] if class_token else product[:, lead:].mean(1)
    row_BT = row_BT[:, lead:]
    return row_BT / row_BT.sum(1, keepdim=True), logits, grid


def one_layer(a_BNTT: Tensor) -> Tensor:
    """(B, T, T) float64: 0.5 of the heads' mean attention and 0.5 of the identity, rows summing to 1."""
    mean_BTT = a_BNTT.double().mean(1)
    mixed = 0.5 * mean_BTT + 0.5 * torch.eye(mean_BTT.shape[1]).to(mean_BTT)
    return mixed / mixed.sum(2, keepdim=True)


def spread_of(share_T: np.ndarray) -> float:
    """Tokens that the output draws on: exp of the entropy, 1 for a single one and T for all of them evenly."""
    positive = share_T[share_T > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def analyse(subject: AnalysisInput, images: int = 64) -> AnalysisResult:
    """Attention rollout of the first images, all in one batch."""
    x_NCHW, y_N = subject.images.x_NCHW[:images], subject.images.y_N[:images]
    shares, logits, grid = rollout(subject.net, subject.images.seen(x_NCHW))
    shares_NT = shares.cpu().numpy()
    rows = [
        {
            "image": i, "label": int(y_N[i]), "guess": int(logits[i].argmax()),
            "peak_row": int(share.argmax()) // grid[1], "peak_column": int(share.argmax()) % grid[1],
            "peak": float(share.max()), "tokens": spread_of(share),
        }
        for i, share in enumerate(shares_NT)
    ]  # fmt: skip

    pictures = {f"image {i}": share.reshape(grid) for i, share in enumerate(shares_NT)}

    def draw(figure: Figure) -> None:
        """Images above, what the output draws on below."""
        above, below = cast(Any, figure.subfigures(2))
        pixels = x_NCHW[:SHOWN].cpu().numpy()
        images = [image.transpose(1, 2, 0).clip(0, 1) if len(image) == 3 else image.mean(0) for image in pixels]
        grid_of_images(above, images, [f"label {row['label']}, guess {row['guess']}" for row in rows[:SHOWN]])
        shown = dict(list(pictures.items())[:SHOWN])
        maps(below, shown, "share of what the output draws on", [f"peak {row['peak']:.1%}" for row in rows[:SHOWN]])

    apart_N = 0.5 * np.abs(shares_NT - shares_NT.mean(0)).sum(1)  # total variation, 0 for the same shares in all images
    findings = [
        measured(f"tokens drawn on, of {grid[0] * grid[1]}", [row["tokens"] for row in rows], "images"),
        measured("difference from the images' mean (total variation)", apart_N, "images"),
    ]
    return AnalysisResult(f"Attention rollout of {subject.name}", rows, findings, draw, pictures)
