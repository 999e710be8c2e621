"""The registry of residual blocks: fills `BLOCKS` with the entry of each kind. Torch-free.

A new block is its nn.Module in a file of this folder, and its cost formula and `BlockSpec` in a file of entries.
"""

from __future__ import annotations

from .coatnet_entries import COATNET, COATNET_MBCONV
from .downsample_entries import DOWNSAMPLE
from .efficientformer_entries import EFFICIENTFORMER, EFFICIENTFORMER_ATTENTION, EFFICIENTFORMER_DOWN
from .linear_entries import LINEAR
from .metaformer_entries import CAFORMER, CONVFORMER, GATED_CONV, POOLFORMER
from .mobile_entries import CONV, MQA, UIB
from .modern_entries import CONVNEXT, MBCONV, TRANSFORMER
from .reparam_entries import REPVGG, REPVIT
from .residual_entries import BASIC, BOTTLENECK, MSA, MSA_A
from .single_head_entries import CONV_FFN, SINGLE_HEAD
from .spec import BLOCKS

ENTRIES = (  # in the order of lists and legends
    *(BASIC, BOTTLENECK, MSA, MSA_A),
    *(MBCONV, CONVNEXT, TRANSFORMER),
    *(UIB, CONV, MQA),
    *(CONVFORMER, POOLFORMER, GATED_CONV, CAFORMER),
    *(REPVIT, REPVGG),
    *(COATNET_MBCONV, COATNET),
    *(EFFICIENTFORMER, EFFICIENTFORMER_ATTENTION, EFFICIENTFORMER_DOWN),
    LINEAR,
    *(CONV_FFN, SINGLE_HEAD),
    DOWNSAMPLE,
)
BLOCKS.update((spec.name, spec) for spec in ENTRIES)
