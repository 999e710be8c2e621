"""The registry of residual blocks: fills `BLOCKS` with the entry of each kind. Torch-free.

A new block is its nn.Module in a file of this folder, and its cost formula and `BlockSpec` in a file of entries.
"""

from .gated_conv_entries import DOWNSAMPLE, GATED_CONV
from .mobile_entries import CONV, MQA, UIB
from .modern_entries import CONVNEXT, LINEAR, MBCONV, TRANSFORMER
from .residual_entries import BASIC, BOTTLENECK, MSA, MSA_A
from .spec import BLOCKS

ENTRIES = (  # in the order of lists and legends
    *(BASIC, BOTTLENECK, MSA, MSA_A),
    *(MBCONV, CONVNEXT, TRANSFORMER),
    *(UIB, CONV, MQA),
    *(GATED_CONV, LINEAR, DOWNSAMPLE),
)
BLOCKS.update((spec.name, spec) for spec in ENTRIES)
