"""Windowed multi-head self-attention on maps, as AlterNet uses it.

B batch, C channels, H x W map, P positions of a window, D channels of a head, N heads.
Park & Kim, ICLR 2022, code models/attentions.py (LocalAttention): q, k, v and output as 1x1
convs, head dimension 64, windows that are never shifted, one relative-position table shared
by all heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class WindowAttention(nn.Module):
    """x_BCHW -> y_BCHW with `dim_out` channels; each window attends within itself.

    Args:
        dim: input channels.
        dim_out: output channels.
        heads: number of heads.
        head_dim: channels of a head; the scale is head_dim ** -0.5.
        window: (height, width) of a window; must divide the map.
    """

    offsets: Tensor

    def __init__(self, dim: int, dim_out: int, heads: int, head_dim: int, window: tuple[int, int]) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv = nn.Conv2d(dim, 3 * heads * head_dim, 1, bias=False)
        self.out = nn.Conv2d(heads * head_dim, dim_out, 1)
        height, width = window
        self.table = nn.Parameter(0.02 * torch.randn(2 * height - 1, 2 * width - 1))
        self.register_buffer("offsets", _offsets(window), persistent=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        batch, _, height, width = x_BCHW.shape
        q, k, v = self._split(self.qkv(x_BCHW))
        bias_PP = self.table.flatten()[self.offsets]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias_PP.to(q.dtype))
        return self.out(self._join(y, batch, height, width))

    def _split(self, qkv_BCHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """To three tensors (B x windows, N, P, D)."""
        batch, channels, height, width = qkv_BCHW.shape
        p, q = self.window
        dim = channels // (3 * self.heads)
        x = qkv_BCHW.reshape(batch, 3, self.heads, dim, height // p, p, width // q, q)
        x = x.permute(1, 0, 4, 6, 2, 5, 7, 3).reshape(3, -1, self.heads, p * q, dim)
        return x[0], x[1], x[2]

    def _join(self, y_WNPD: Tensor, batch: int, height: int, width: int) -> Tensor:
        p, q = self.window
        y = y_WNPD.reshape(batch, height // p, width // q, self.heads, p, q, -1)
        return y.permute(0, 3, 6, 1, 4, 2, 5).reshape(batch, -1, height, width)


def _offsets(window: tuple[int, int]) -> Tensor:
    """(P, P) places in the flat table: key minus query plus (side - 1) in each direction."""
    height, width = window
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    rows, columns = rows.flatten(), columns.flatten()
    down = rows[None, :] - rows[:, None] + height - 1
    right = columns[None, :] - columns[:, None] + width - 1
    return down * (2 * width - 1) + right
