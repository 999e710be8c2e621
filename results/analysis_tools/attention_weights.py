"""Attention weights and the heads' outputs, recomputed from what enters a net's attention modules.

No net stores its weights: its products are fused. B images (or their windows), N heads, T tokens (or positions of
a window), D channels of a head.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...archs.blocks.attention import WindowAttention, relative_bias
from ...archs.blocks.encoder import TokenAttention
from ...archs.errors import InputError
from .hooks import HookPoint, residual_points

Shape = tuple[int, int]


def attention_sites(net: nn.Module) -> list[HookPoint]:
    """The inputs of a net's attention modules, ours or timm's `Attention`, in order; InputError if there are none."""
    sites = [site for site in residual_points(net) if site.op == "msa"]
    if not sites:
        raise InputError("attention: this net has no attention")
    for site in sites:
        kind = type(net.get_submodule(f"{site.block}.attn"))
        if not issubclass(kind, WindowAttention | TokenAttention) and kind.__name__ != "Attention":
            raise InputError(f"attention: knows the attention of alternas and timm's Attention, got {kind.__name__}")
    return [replace(site, module=f"{site.block}.attn", side="in") for site in sites]


def grid_of(site: HookPoint, module: Any, x: Tensor) -> tuple[Shape, Shape]:
    """Rows and columns of tokens that look at each other, and of all of them over the image."""
    if isinstance(module, WindowAttention):
        return module.window, (x.shape[2], x.shape[3])
    assert site.grid is not None
    rows, columns = site.grid
    if x.shape[1] != site.lead + rows * columns:
        raise InputError(f"attention: {site.name} has {rows}x{columns} tokens, not {x.shape[1] - site.lead}")
    return site.grid, site.grid


def attention_logits(module: Any, args: tuple[Any, ...]) -> Tensor:
    """(B, N, T, T), queries by keys, before the softmax; minus infinity where a query may not look."""
    queries, keys, _ = _queries_keys_values(module, args)
    queries = queries * queries.shape[3] ** -0.5
    logits = queries @ keys.transpose(2, 3)
    if isinstance(module, WindowAttention):
        return logits + relative_bias(module.table)
    mask_TT, offsets_OD = (*args[1:], None, None)[:2]
    if offsets_OD is not None:
        at = torch.arange(logits.shape[3], device=logits.device)
        keys_TTD = offsets_OD[at - at[:, None] + len(at) - 1]
        logits = logits + torch.einsum("bnid,ikd->bnik", queries, keys_TTD)
    return logits if mask_TT is None else logits.masked_fill(~mask_TT, float("-inf"))


def attention_weights(module: Any, args: tuple[Any, ...]) -> Tensor:
    """(B, N, T, T) attention weights: each query's row sums to 1."""
    return attention_logits(module, args).softmax(3)


def head_outputs(module: Any, args: tuple[Any, ...]) -> Tensor:
    """(B, N, T, D): what each head gives, before the projection that mixes them."""
    return attention_weights(module, args) @ _queries_keys_values(module, args)[2]


def _queries_keys_values(module: Any, args: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """(B, N, T, D) each."""
    if isinstance(module, WindowAttention):
        return module.projected(args[0])
    x, parts = args[0], module
    heads = parts.num_heads if hasattr(parts, "num_heads") else parts.heads
    # split the projection and make heads a batch dim: (B, T, 3 N D) -> 3 x (B, N, T, D)
    queries, keys, values = parts.qkv(x).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    if hasattr(parts, "q_norm"):
        queries, keys = parts.q_norm(queries), parts.k_norm(keys)
    return queries, keys, values
