"""CoAtNet (Dai et al., NeurIPS 2021; timm maxxvit.py)."""

from __future__ import annotations

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry

HEAD_DIM = 32


def coatnet(depths: tuple[int, ...] = (2, 3, 7, 2), width: int = 96) -> Genotype:
    """A CoAtNet as timm's "rw" nets: two stages of MBConv, two of attention, widths doubling from `width`."""
    stages = [Stage("coatnet_mbconv", depth, width * 2**i, 2) for i, depth in enumerate(depths[:2])]
    for i, depth in enumerate(depths[2:], start=2):
        stages += attention(depth, width * 2**i)
    stem = Stem("conv", 64, before=(32,), act="silu", ends_with="conv")
    return Genotype(stem, tuple(stages), head=Head(norm="map_layer"))


def attention(depth: int, width: int) -> list[Stage]:
    """A stage of attention, whose first block has the heads of its input, half as wide."""
    first = Stage("coatnet_mbconv", 1, width, 2, (0,), width // 2 // HEAD_DIM, HEAD_DIM, attention="coatnet")
    rest = range(depth - 1)
    more = Stage("coatnet_mbconv", len(rest), width, 1, tuple(rest), width // HEAD_DIM, HEAD_DIM, attention="coatnet")
    return [first, more]


def coatnets() -> dict[str, Entry]:
    about = "CoAtNet-0 (Dai et al., NeurIPS 2021) as timm changed and trained it: deeper, pooled downsampling, SiLU."
    return {"coatnet_0_rw": Entry(lambda _: coatnet(), about, "coatnet_0_rw_224", by_order=True)}
