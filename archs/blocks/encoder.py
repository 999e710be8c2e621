"""The transformer encoder over an image (ViT) or the last map of a conv net (hybrid).

B batch, T tokens (the class token first, where there is one), C channels of a token, D channels of
a head, N heads, or patches in x_BNC. Dosovitskiy et al., ICLR 2021; parameters, MACs and outputs are
those of timm's vision_transformer.py and vision_transformer_hybrid.py. Average pooling is the original
code's: of all tokens, after the last norm, and without a class token.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..parts import LAYER_EPS, Encoder
from .attention import check_sides

LN_EPS = LAYER_EPS


class TransformerEncoder(nn.Module):
    """x_BCHW -> z_BC: patches of the map become tokens on a grid (height, width); z is the class token or their mean.

    Dropout follows the position embedding, the attention and each layer of the MLP.
    """

    def __init__(self, encoder: Encoder, channels: int, grid: tuple[int, int], token: bool, dropout: float) -> None:
        super().__init__()
        self.spec, self.grid, dim = encoder, grid, encoder.embed_dim
        self.proj = nn.Conv2d(channels, dim, encoder.patch, stride=encoder.patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if token else None
        tables = encoder.depth if encoder.position_at == "layers" else 1
        self.positions = nn.ModuleList(
            _positions(encoder, grid, token) for _ in range(tables) if encoder.position != "none"
        )
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(encoder, dropout, n == encoder.skipless) for n in range(1, encoder.depth + 1)
        )
        self.norm = nn.LayerNorm(dim, eps=LN_EPS)
        self.apply(_init)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        grid = self.grid_of(x_BCHW)
        return self.pool(self.encode(self.embed(x_BCHW), grid))

    def grid_of(self, x_BCHW: Tensor) -> tuple[int, int]:
        """(height, width) of the token grid over a map; InputError if patches or positions do not fit it."""
        (height, width), patch = x_BCHW.shape[2:], self.spec.patch
        if height % patch or width % patch:
            raise InputError(f"encoder: patch {patch} does not divide a {height}x{width} map")
        grid = (height // patch, width // patch)
        if self.spec.position != "none":
            check_sides("encoder: built for", self.grid, grid, " tokens")
        return grid

    def embed(self, x_BCHW: Tensor) -> Tensor:
        """The map's N patches row by row, x_BNC: before class token and positions."""
        return self.proj(x_BCHW).flatten(2).transpose(1, 2)

    def encode(self, x_BTC: Tensor, grid: tuple[int, int], outputs: list[Tensor] | None = None) -> Tensor:
        """Patches x_BNC, as `embed` gives them, of a token grid (`grid_of`) -> x_BTC after the last norm.

        One name for all that passes: another would keep a tensor alive through all layers. What each block gives is
        added to `outputs`.
        """
        mask_TT = self._mask(grid, x_BTC.device)
        if self.cls_token is not None:
            x_BTC = torch.cat([self.cls_token.expand(x_BTC.shape[0], -1, -1), x_BTC], dim=1)
        relative, tables = self.spec.position == "relative", [position() for position in self.positions]
        for i, block in enumerate(self.blocks):
            table = tables[i % len(tables)] if tables else None
            if table is not None and not relative and (i == 0 or self.spec.position_at != "stem"):
                x_BTC = x_BTC + table
            if i == 0:
                x_BTC = self.drop(x_BTC)
            x_BTC = block(x_BTC, mask_TT, table if relative else None)
            if outputs is not None:
                outputs.append(x_BTC)
        return self.norm(x_BTC)

    def maps(self, x_BCHW: Tensor) -> list[Tensor]:
        """Maps x_BCHW of the patches' tokens after each block, at last after the norm."""
        grid, outputs = self.grid_of(x_BCHW), list[Tensor]()
        outputs.append(self.encode(self.embed(x_BCHW), grid, outputs))
        return [x_BTC[:, -grid[0] * grid[1] :].mT.unflatten(2, grid).contiguous() for x_BTC in outputs]

    def prune(self, keep: int) -> None:
        """Drop, in place, all that the first so many of its `maps` do not need."""
        if keep <= len(self.blocks):
            self.norm = nn.Identity()
        del self.blocks[keep:]
        del self.positions[max(1, keep) :]

    def pool(self, x_BTC: Tensor) -> Tensor:
        """z_BC: the class token, or the mean of the tokens where there is none."""
        return x_BTC[:, 0] if self.cls_token is not None else x_BTC.mean(dim=1)

    def _mask(self, grid: tuple[int, int], device: torch.device) -> Tensor | None:
        """(T, T), true where a query may look at a key; None where everywhere."""
        if not self.spec.local:
            return None
        near = [_near(side, self.spec.local // 2, device) for side in grid]
        tokens = grid[0] * grid[1]
        mask = (near[0][:, None, :, None] & near[1][None, :, None, :]).reshape(tokens, tokens)
        return mask if self.cls_token is None else F.pad(mask, (1, 0, 1, 0), value=True)


class EncoderBlock(nn.Module):
    """x_BTC -> x_BTC: LayerNorm, MSA, add; LayerNorm, MLP, add; nothing is added where it is `skipless`."""

    def __init__(self, encoder: Encoder, dropout: float, skipless: bool) -> None:
        super().__init__()
        self.skipless = skipless
        dim = encoder.embed_dim
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=LN_EPS), nn.LayerNorm(dim, eps=LN_EPS)
        self.attn = TokenAttention(dim, encoder.heads, encoder.qkv_bias, dropout)
        self.mlp = nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(dim, encoder.hidden),
                act=nn.GELU(),
                drop1=nn.Dropout(dropout),
                fc2=nn.Linear(encoder.hidden, dim),
                drop2=nn.Dropout(dropout),
            )
        )
        self.drop_path = nn.Identity()

    def forward(self, x_BTC: Tensor, mask_TT: Tensor | None, offsets_OD: Tensor | None) -> Tensor:
        if self.skipless:  # nothing passes but the branches, which are never dropped
            return self.mlp(self.norm2(self.attn(self.norm1(x_BTC), mask_TT, offsets_OD)))
        x_BTC = x_BTC + self.drop_path(self.attn(self.norm1(x_BTC), mask_TT, offsets_OD))
        return x_BTC + self.drop_path(self.mlp(self.norm2(x_BTC)))


class TokenAttention(nn.Module):
    """x_BTC -> x_BTC: multi-head self-attention, with relative keys where it is given `offsets_OD`."""

    def __init__(self, dim: int, heads: int, qkv_bias: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, mask_TT: Tensor | None, offsets_OD: Tensor | None) -> Tensor:
        qkv = self.qkv(x_BTC).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys, values = qkv.unbind(0)
        if offsets_OD is not None:
            mask_TT = _relative_logits(queries, offsets_OD, mask_TT)
        y_BNTD = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask_TT)
        return self.drop(self.proj(y_BNTD.transpose(1, 2).flatten(2)))


class TokenPositions(nn.Module):
    """One vector for each token: a 1-D position embedding."""

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(1, tokens, dim))

    def forward(self) -> Tensor:
        return self.table


class GridPositions(nn.Module):
    """Half a vector for the row and half for the column: a 2-D position embedding; none for a class token."""

    def __init__(self, grid: tuple[int, int], token: bool, dim: int) -> None:
        super().__init__()
        self.token = token
        self.rows = nn.Parameter(0.02 * torch.randn(grid[0], dim // 2))
        self.columns = nn.Parameter(0.02 * torch.randn(grid[1], dim // 2))

    def forward(self) -> Tensor:
        shape = (len(self.rows), len(self.columns), -1)
        both = [self.rows[:, None].expand(shape), self.columns[None].expand(shape)]
        table = torch.cat(both, dim=2).flatten(0, 1)
        return F.pad(table, (0, 0, int(self.token), 0))[None]


class OffsetKeys(nn.Module):
    """A key for each 1-D offset between tokens, from -(T - 1) to T - 1 (Shaw et al., NAACL 2018)."""

    def __init__(self, tokens: int, head_dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(2 * tokens - 1, head_dim))

    def forward(self) -> Tensor:
        return self.table


def _positions(encoder: Encoder, grid: tuple[int, int], token: bool) -> nn.Module:
    tokens = grid[0] * grid[1] + token
    if encoder.position == "2d":
        return GridPositions(grid, token, encoder.embed_dim)
    if encoder.position == "relative":
        return OffsetKeys(tokens, encoder.embed_dim // encoder.heads)
    return TokenPositions(tokens, encoder.embed_dim)


def _relative_logits(queries_BNTD: Tensor, offsets_OD: Tensor, mask_TT: Tensor | None) -> Tensor:
    """(B, N, T, T): queries . key of the offset (key minus query), scaled as the content's; masked."""
    tokens = queries_BNTD.shape[2]
    by_offset = (queries_BNTD * queries_BNTD.shape[3] ** -0.5) @ offsets_OD.t()  # B, N, T, 2T - 1
    # Row i wants entries T - 1 - i onwards: one zero more a row, and the rows slide by one each.
    slid = F.pad(by_offset, (0, 1)).flatten(2)[..., : tokens * (2 * tokens - 1)]
    logits = slid.unflatten(2, (tokens, 2 * tokens - 1))[..., tokens - 1 :]
    return logits if mask_TT is None else logits.masked_fill(~mask_TT, float("-inf"))


def _near(side: int, reach: int, device: torch.device) -> Tensor:
    at = torch.arange(side, device=device)
    return (at[:, None] - at[None, :]).abs() <= reach


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
