"""Windowed multi-head self-attention on maps, as AlterNet uses it.

B batch, C channels, H x W map, W windows of all images, P positions of a window, D channels of a
head, N heads. Park & Kim, ICLR 2022, code models/alternet.py (LocalAttention): windows that are
never shifted, a relative-position table shared by all heads. Their q, k, v and output are 1x1
convs; on windows those are linear layers, which cost one copy of the input instead of one of
q, k and v.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError


def check_sides(what: str, built: Sequence[int], got: Sequence[int], unit: str = "") -> None:
    """Raise InputError if a map has other sides than `what` was built for."""
    if tuple(got) != tuple(built):
        need = "`resized` makes the net for another image"
        raise InputError(f"{what} {built[0]}x{built[1]}{unit}, got {got[0]}x{got[1]}; {need}")


class WindowAttention(nn.Module):
    """x_BCHW -> y_BCHW with `dim_out` channels; each window, (height, width), of the map attends within itself.

    `whole` says that the window is the whole map, whatever its size: another map is then refused. `per_head` is a
    relative-position table for each head instead of one for all. The scale is head_dim ** -0.5.
    """

    def __init__(
        self,
        dim: int,
        dim_out: int,
        heads: int,
        head_dim: int,
        window: tuple[int, int],
        per_head: bool = False,
        whole: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.window, self.whole = heads, window, whole
        self.qkv = nn.Linear(dim, 3 * heads * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, dim_out)
        height, width = window
        shape = (heads,) * per_head + (2 * height - 1, 2 * width - 1)
        self.table = nn.Parameter(0.02 * torch.randn(shape))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        batch, _, height, width = x_BCHW.shape
        p, q = self.window
        if self.whole:
            check_sides("attention: built for a whole map of", self.window, (height, width))
        if height % p or width % q:
            raise InputError(f"attention: window {p}x{q} does not divide a {height}x{width} map")
        queries, keys, values = self.projected(x_BCHW)
        bias = relative_bias(self.table).to(queries.dtype)
        y_WNPD = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
        return from_windows(self.out(y_WNPD.transpose(1, 2).flatten(2)), self.window, (batch, height, width))

    def projected(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (W, N, P, D) each."""
        qkv = self.qkv(to_windows(x_BCHW, self.window)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys, values = qkv.unbind(0)
        return queries, keys, values


def to_windows(x_BCHW: Tensor, window: tuple[int, int]) -> Tensor:
    """x_WPC: one copy, or none where a channels-last map is one window."""
    p, q = window
    x = x_BCHW.unflatten(2, (-1, p)).unflatten(4, (-1, q))  # B, C, rows, p, columns, q
    return x.permute(0, 2, 4, 3, 5, 1).flatten(3, 4).flatten(0, 2)


def from_windows(x_WPC: Tensor, window: tuple[int, int], shape: tuple[int, int, int]) -> Tensor:
    """x_BCHW of `shape` (B, H, W): the inverse of `to_windows`."""
    (p, q), (batch, height, width) = window, shape
    x = x_WPC.reshape(batch, height // p, width // q, p, q, -1)
    return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, -1, height, width)


def relative_bias(table: Tensor) -> Tensor:
    """(..., P, P) of a (..., 2h-1, 2w-1) table: entry [i, k] is at key k minus query i plus side - 1.

    Views instead of an index, so that a net built on the meta device has nothing to lose.
    """
    height, width = (table.shape[-2] + 1) // 2, (table.shape[-1] + 1) // 2
    rows = table.unfold(-2, height, 1).unfold(-2, width, 1)  # ..., start row, start column, key row, key column
    return rows.flip(-4, -3).flatten(-4, -3).flatten(-2)
