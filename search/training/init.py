"""A net's first weights: fresh ones, or those of a relative with what must be new, frozen or slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...archs import Network
from ...archs.weights import read
from .inherit import Inherited, inherit, summary
from .job import FREEZE_POLICIES, FreezePolicy, InitWeights

TAKEN = ("copied", "resized", "fitted")  # how weights can come from a relative


@dataclass(frozen=True)
class InitializedNet:
    """A net as training begins.

    Attributes:
        frozen: modules that stand still.
        slow: parameters that learn at `rate` of the recipe's learning rate.
        lineage: where the weights came from, for the record.
    """

    frozen: tuple[nn.Module, ...] = ()
    slow: tuple[nn.Parameter, ...] = ()
    rate: float = 1.0
    lineage: dict[str, Any] = field(default_factory=dict)


def init_weights(net: Network, start: InitWeights | None) -> InitializedNet:
    """Give a fresh net its first weights, and settle what of it is trained.

    Raises:
        InputError: if the weights cannot be read.
    """
    if start is None:
        return InitializedNet()
    policy, rows = FREEZE_POLICIES[start.freeze], inherit(net, read(Path(start.weights)))
    if start.zero_head:
        empty_head(net)
        rows = [row if row.place != "head" else Inherited("head", "", "zero", row.params, 0) for row in rows]
    places = parts(net)
    still = {row.place for row in _standing(rows, policy)}
    for place in still:
        for part in places[place]:
            part.requires_grad_(False)
    frozen = [part for place in still for part in places[place] if isinstance(part, nn.Module)]
    slow = [p for row in rows if row.how in TAKEN for part in places[row.place] for p in _parameters(part)]
    lineage = {"weights": start.label, "steps": start.steps, "freeze": start.freeze} | summary(rows)
    return InitializedNet(tuple(frozen), tuple(slow), policy.rate, lineage)


@torch.no_grad()
def empty_head(net: Network) -> None:
    """Set the last layer to zero: all classes are equally likely then (Dosovitskiy et al., 2021, section 3.2)."""
    last = [module for module in net.head.modules() if isinstance(module, nn.Linear)][-1]
    last.weight.zero_()
    last.bias.zero_()


def parts(net: Network) -> dict[str, list[nn.Module | nn.Parameter]]:
    """What each place that `inherit` tells of is made of."""
    found: dict[str, list[nn.Module | nn.Parameter]] = {"stem": [net.stem], "head": [net.head]}
    for s, stage in enumerate(net.stages):
        found |= {f"stage {s + 1} block {i + 1}": [block] for i, block in enumerate(stage.children())}
    if net.norm is not None:
        found["last norm"] = [net.norm]
    if (encoder := net.encoder) is not None:
        token = [] if encoder.cls_token is None else [encoder.cls_token]
        found["encoder tokens"] = [encoder.proj, encoder.positions, *token]
        found |= {f"encoder block {i + 1}": [block] for i, block in enumerate(encoder.blocks)}
        found["encoder norm"] = [encoder.norm]
    return found


def _standing(rows: Sequence[Inherited], policy: FreezePolicy) -> Sequence[Inherited]:
    """The parts that are not trained; rows stand in the order from the image to the head."""
    if policy.new:
        return [row for row in rows if row.how in ("copied", "resized") and row.place != "head"]
    blocks = [i for i, row in enumerate(rows) if " block " in row.place]
    trained = round(policy.share * len(blocks))
    if policy.share == 1:
        return []
    first = blocks[len(blocks) - trained] if trained else next(i for i, r in enumerate(rows) if r.place == "head")
    return rows[:first]


def _parameters(part: nn.Module | nn.Parameter) -> list[nn.Parameter]:
    return [part] if isinstance(part, nn.Parameter) else list(part.parameters())
