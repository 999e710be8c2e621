"""Priors of modern nets: how often each kind of block and option is drawn at random, against others. Never walls.

A prior is exp(term / 0.03), from 1/2 to 2. The term is what an option adds to a net's accuracy beside its cost, as the
mean of two data sets (`cue`, `clutter`) at 16 px: 51 and 44 random nets of at most 3 M MACs, 312 steps each. It holds
at that budget. Drawn by the priors of the one set, nets of the other are 1.0 points (`clutter`; 90 %
interval 0.5 to 1.4) and 0.6 points (`cue`; -0.7 to 1.8) better than drawn evenly: `option_priors`, in
benchmarks/README.md.
"""

from collections.abc import Iterable

from ..archs.blocks.spec import BLOCKS
from .base import Gene, Priors

OPTIONS: Priors = {
    "mlp_ratio": {1.0: 0.93, 2.0: 0.96, 3.0: 0.98, 4.0: 0.99},
    "kernel": {3: 0.84, 5: 1.09, 7: 0.83},
    "expand": {2.0: 0.86, 3.0: 1.17, 4.0: 1.15, 6.0: 0.65},
    "se": {0.0: 1.27, 0.25: 1.49},
}


def modern_priors(convs: Iterable[str], attentions: Iterable[str]) -> Priors:
    """Priors of a modern net's genes: of its kinds of blocks as their entries say, where "residual" is "basic"."""
    conv: dict[Gene, float] = {kind: BLOCKS["basic" if kind == "residual" else kind].prior for kind in convs}
    attention: dict[Gene, float] = {kind: BLOCKS[kind].prior for kind in attentions}
    return {"conv": conv, "attention": attention, **OPTIONS}
