"""`resized`: a network at another image size, position embeddings and tables interpolated.

Dosovitskiy et al., ICLR 2021, section 3.2: 2-D interpolation of the position embeddings by their
place in the image, with timm's resampling (bicubic, antialiased).
"""

from __future__ import annotations

import torch.nn.functional as F
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor

from .errors import InputError
from .layout import ImageSize, Map
from .network import Network, build


def resized(network: Network, image_size: ImageSize, dropout: float = 0.0, drop_path: float = 0.0) -> Network:
    """`network` built anew for `image_size` from its weights, with its device, dtype, mode and frozen parameters.

    Args:
        network: any network that `build` made.
        image_size: side in pixels, or (height, width).
        dropout, drop_path: as of `build`.

    Raises:
        InputError: if the net cannot be built at `image_size`, or has relative positions in its
            encoder: their 1-D offsets mean other distances on another grid.
    """
    net = network.genotype
    new = build(net, network.num_classes, image_size, network.in_chans, dropout, drop_path)
    old_grid, new_grid = (net.plan(size).grid for size in (network.image_size, image_size))
    state = network.state_dict()
    for name, wanted in new.state_dict().items():
        if name.startswith("encoder.positions.") and old_grid and new_grid and old_grid != new_grid:
            state[name] = position_table(name, state[name], old_grid, new_grid, net.head.pool == "token")
        elif name.endswith("attn.table"):
            state[name] = interpolated(state[name], (wanted.shape[-2], wanted.shape[-1]))
    new.load_state_dict(state)
    for old, moved in zip(network.parameters(), new.parameters(), strict=True):
        moved.requires_grad_(old.requires_grad)
    first = next(network.parameters())
    return new.to(first.device, first.dtype).train(network.training)


def position_table(name: str, table: Tensor, old: Map, new: Map, token: bool) -> Tensor:
    if name.endswith((".rows", ".columns")):
        side = new[0] if name.endswith(".rows") else new[1]
        return interpolated(table, (side, table.shape[1]))
    if table.dim() != 3:
        sizes = f"{old[0]}x{old[1]} to {new[0]}x{new[1]} tokens"
        raise InputError(f"encoder: relative positions do not carry over from {sizes}: their offsets are 1-D")
    return resample_abs_pos_embed(table, list(new), list(old), num_prefix_tokens=int(token))


def interpolated(table: Tensor, shape: tuple[int, int]) -> Tensor:
    """(..., H, W) to `shape`, bicubic."""
    if tuple(table.shape[-2:]) == shape:
        return table
    planes = table.detach().float().reshape(1, -1, *table.shape[-2:])
    moved = F.interpolate(planes, shape, mode="bicubic", antialias=True, align_corners=False)
    return moved.reshape(*table.shape[:-2], *shape).to(table.dtype)
