"""The tokens of one transformer encoder from those of another: patch projection, class token, positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...archs.encoder import GridPositions, OffsetKeys, TokenPositions, TransformerEncoder
from .fit import Tally, plain, put_repeated, repeated, take_linear


def take_tokens(
    child: TransformerEncoder,
    parent: TransformerEncoder,
    image: tuple[bool, bool],
    pairs: list[int | None],
    tally: Tally,
) -> None:
    """Fill what makes the tokens.

    Args:
        image: whether child and parent see the image itself instead of a map.
        pairs: the parent's block of each block of the child.
    """
    if image[0] == image[1]:  # a patch of the image has nothing in common with a patch of a map
        take_linear(child.proj, parent.proj, tally, image=image[0])
    if child.cls_token is not None and parent.cls_token is not None:
        put_repeated(child.cls_token, parent.cls_token, tally)
    if child.positions and parent.positions and type(child.positions[0]) is type(parent.positions[0]):
        _take_positions(child, parent, pairs, tally)


def _take_positions(
    child: TransformerEncoder, parent: TransformerEncoder, pairs: list[int | None], tally: Tally
) -> None:
    for i, table in enumerate(child.positions):
        at = _table_of(child, parent, pairs, i)
        if at is not None:
            _take_position(table, parent.positions[at], (child, parent), tally)
        elif not isinstance(table, OffsetKeys):  # in front of a new block: nothing is added, yet gradients arrive
            for vectors in table.parameters():
                vectors.zero_()


def _table_of(child: TransformerEncoder, parent: TransformerEncoder, pairs: list[int | None], i: int) -> int | None:
    """The parent's place of the child's position table `i`."""
    if child.spec.position_at == "layers" and parent.spec.position_at == "layers":
        return pairs[i]
    return None if i and parent.spec.position_at == "stem" else 0


def _take_position(
    table: nn.Module, source: nn.Module, encoders: tuple[TransformerEncoder, TransformerEncoder], tally: Tally
) -> None:
    child, parent = encoders
    moved, as_wide = child.grid != parent.grid, child.spec.embed_dim == parent.spec.embed_dim
    alike = _tokens(child) == _tokens(parent)
    if isinstance(table, TokenPositions) and isinstance(source, TokenPositions):
        had, target = plain(source.table), table.table
        value = repeated(_on_grid("table", had, child, parent), target.shape[-1])
        tally.put(target, _for_tokens(value, target, child, parent), had, resized=moved and as_wide and alike)
        tally.taken -= target.shape[-1] if _tokens(child) > _tokens(parent) else 0
    elif isinstance(table, GridPositions) and isinstance(source, GridPositions):
        for name in ("rows", "columns"):
            target, had = getattr(table, name), plain(getattr(source, name))
            value = repeated(_on_grid(f".{name}", had, child, parent), target.shape[1])
            tally.put(target, value, had, resized=as_wide and len(target) != len(had))
    elif isinstance(table, OffsetKeys) and isinstance(source, OffsetKeys) and not moved and alike:
        put_repeated(table.table, source.table, tally)  # on another grid its 1-D offsets mean other distances


def _on_grid(name: str, table: Tensor, child: TransformerEncoder, parent: TransformerEncoder) -> Tensor:
    if child.grid == parent.grid:
        return table
    from ...archs.resize import position_table  # needs timm, which takes seconds to import

    return position_table(name, table, parent.grid, child.grid, parent.cls_token is not None)


def _for_tokens(value: Tensor, fresh: Tensor, child: TransformerEncoder, parent: TransformerEncoder) -> Tensor:
    """With or without the class token's vector, as the child wants it."""
    prefix, had = _tokens(child), _tokens(parent)
    if prefix and not had:
        return torch.cat([plain(fresh)[:, :1], value], dim=1)
    return value if prefix == had else value[:, 1:]


def _tokens(encoder: TransformerEncoder) -> int:
    """Class tokens."""
    return int(encoder.cls_token is not None)
