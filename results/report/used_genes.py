"""Which of its genes a net uses: a space draws all of them for every net. Told by their names in our spaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ...archs import Genotype, InputError
from ...archs.blocks.spec import BLOCKS
from ..runs.record import Record

OF_STAGE = re.compile(r"(depth|conv|msa|heads|window|attention)(\d+)(_\d+)?")
OF_ENCODER = ("trunk", "patch", "embed_dim", "encoder_depth", "vit_patch", "pool")
OF_ATTENTION = ("heads", "window", "attention")


def known_net(record: Record) -> Genotype | None:
    """The net of a record; None for one of timm's, and for one of another alternas."""
    try:
        return Genotype.from_dict(record.genotype)
    except InputError:
        return None


def used_genes(record: Record, net: Genotype | None) -> dict[str, Any]:
    """The genes that a net's genotype depends on, as far as their names tell.

    Args:
        record: of the net.
        net: of the record; None where names tell nothing, as those of a user's space: all genes are taken as used.
    """
    if net is None:
        return dict(record.genes)
    return {name: value for name, value in record.genes.items() if not _is_dormant(name, net, record.genes)}


@cache
def _option_names() -> frozenset[str]:
    """Of all kinds of blocks."""
    return frozenset(name for spec in BLOCKS.values() for name in spec.options)


def _is_dormant(name: str, net: Genotype, genes: Mapping[str, Any]) -> bool:
    """Whether a gene of one of our spaces surely makes no difference to a net; where names do not tell, it may."""
    kinds = {stage.block for stage in net.stages if len(stage.places) < stage.depth}
    kinds |= {stage.attention for stage in net.stages if stage.places}
    attends = any(stage.places for stage in net.stages)
    if found := OF_STAGE.fullmatch(name):
        return _is_dormant_in_stage(found[1], int(found[2]), net, genes)
    if name in OF_ENCODER:
        return net.encoder is None
    if name in _option_names():
        return not any(name in BLOCKS[kind].options for kind in kinds)
    if name == "mlp_ratio":
        return net.encoder is None and not any(BLOCKS[kind].has_mlp for kind in kinds)
    family = genes.get("family", "modern" if "conv" in genes else "")
    if name in ("conv", "attention"):
        return family != "modern" or (name == "attention" and not attends)
    return (name == "block" and family == "modern") or (name in ("block", "width") and not net.stages)


def _is_dormant_in_stage(what: str, number: int, net: Genotype, genes: Mapping[str, Any]) -> bool:
    shared = what == "window" and "window2" not in genes  # one for all stages
    if what in OF_ATTENTION:
        stages = net.stages if shared else net.stages[number - 1 : number]
        return not any(stage.places for stage in stages)
    if what == "msa" and genes.get("family") in ("resnet", "hybrid", "vit"):
        return True
    return number > len(net.stages)
