"""The registry of residual blocks: fills `BLOCKS` with the entry of each kind. Torch-free.

A new block is its nn.Module in a file of this folder, and its cost formula and `BlockSpec` in a file of entries.
"""

from __future__ import annotations

from .linear_entries import DS_CONV, LEAN_MBCONV, LINEAR
from .modern_entries import CONVNEXT, MBCONV, TRANSFORMER
from .residual_entries import BASIC, BOTTLENECK, MSA, MSA_A
from .spec import BLOCKS

RESIDUAL = (BASIC, BOTTLENECK, MBCONV, CONVNEXT, MSA, MSA_A, TRANSFORMER)
ENTRIES = (*RESIDUAL, DS_CONV, LEAN_MBCONV, LINEAR)  # in the order of lists and legends
BLOCKS.update((spec.name, spec) for spec in ENTRIES)
