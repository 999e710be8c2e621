"""The registry of residual blocks: fills `BLOCKS` with the entry of each kind. Torch-free.

A new block is its nn.Module in a file of this folder, and its cost formula and `BlockSpec` in a file of entries.
"""

from __future__ import annotations

from .downsample_entries import DOWNSAMPLE
from .metaformer_entries import CAFORMER, CONVFORMER, GATED_CONV, POOLFORMER
from .modern_entries import CONVNEXT, MBCONV, TRANSFORMER
from .residual_entries import BASIC, BOTTLENECK, MSA, MSA_A
from .spec import BLOCKS

METAFORMERS = (CONVFORMER, POOLFORMER, GATED_CONV, CAFORMER)
ENTRIES = (BASIC, BOTTLENECK, MBCONV, CONVNEXT, MSA, MSA_A, TRANSFORMER, DOWNSAMPLE, *METAFORMERS)  # as in legends
BLOCKS.update((spec.name, spec) for spec in ENTRIES)
