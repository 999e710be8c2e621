"""The registry of residual blocks: fills `BLOCKS` with the entry of each kind. Torch-free.

A new block is its nn.Module in a file of this folder, and its cost formula and `BlockSpec` in a file of entries.
"""

from __future__ import annotations

from .modern_entries import CONVNEXT, MBCONV, TRANSFORMER
from .residual_entries import BASIC, BOTTLENECK, MSA, MSA_A
from .single_head_entries import CONV_FFN, SINGLE_HEAD
from .spec import BLOCKS

ENTRIES = (
    BASIC,
    BOTTLENECK,
    MBCONV,
    CONVNEXT,
    MSA,
    MSA_A,
    TRANSFORMER,
    CONV_FFN,
    SINGLE_HEAD,
)  # in the order of lists and legends
BLOCKS.update((spec.name, spec) for spec in ENTRIES)
