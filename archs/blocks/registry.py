"""The registry of residual blocks: fills `BLOCKS` with the entry of each kind. Torch-free.

A new block is its nn.Module in a file of this folder, and its cost formula and `BlockSpec` in a file of entries.
"""

from __future__ import annotations

from .mobile_entries import CONV, MQA, UIB
from .modern_entries import CONVNEXT, MBCONV, TRANSFORMER
from .residual_entries import BASIC, BOTTLENECK, MSA, MSA_A
from .spec import BLOCKS

# In the order of lists and legends.
ENTRIES = (BASIC, BOTTLENECK, MBCONV, CONVNEXT, UIB, CONV, MSA, MSA_A, TRANSFORMER, MQA)
BLOCKS.update((spec.name, spec) for spec in ENTRIES)
