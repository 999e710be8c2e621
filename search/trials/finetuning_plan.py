"""Which nets are trained on in the end, and for how long: `FinetuningPlan`, made of what is known of them.

The search's nets have a share of its compute, both of its FLOPs and of its steps. Those of its front are thinned to
those that span most hypervolume; cheap ones are trained on for longest. A plain ResNet is trained on until it has had
as many steps as each net that it is compared with, those of ancestors counted: the nets between the next cheaper and
the next more expensive plain ResNet. The cheapest comes first, as far as there is compute for what is not searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...archs.cost import FORWARD_FACTOR, training_flops
from ...results.ranking.pareto import front_of, min_max, normalized_cost, useful_from
from ...results.runs.record import Record
from ..training.job import MIN_CURVE_POINTS
from .trial import Work

MAX_NETS = 4  # of the front: more of them would each be trained for less
MAX_TRAININGS = 4.0  # full trainings that a net is trained on for, at most,
MAX_TRAININGS_OF_SLICES = 16.0  # and one that had none of its own
COST_POWER = 0.5  # compute of a net goes by its MACs to this power: 1 would be equal steps, 0 equal compute
HOPEFUL = 0.25  # of the way from the worst to the best accuracy, from which on nets are trained on


@dataclass(frozen=True)
class Candidate:
    """A net that may be trained on."""

    macs: float  # of a forward pass while it is trained
    cost: float  # that accuracy is weighed against
    accuracy: float
    steps: int  # optimiser steps that it has had in this run, with its ancestors there
    images: int  # of a step
    is_plain: bool = False  # whether it is a plain ResNet trained for comparison
    was_trained_on: bool = False  # whether it was trained on already: then it is not again, unless it is plain
    record: Record | None = None  # of its best weights; None of a net to come

    def flops(self, steps: float) -> float:
        """FLOPs of training it for so many steps."""
        return training_flops(self.macs, steps, self.images)


@dataclass(frozen=True)
class FinetuningLimits:
    """What finetuning may take."""

    share: Work  # of the search's nets
    beside: Callable[[float], float]  # FLOPs of the plain ResNets, where the search's nets take so many
    most_steps: float  # of one net
    val_images: int  # that a net is evaluated on


Share = tuple[Candidate, int]  # a net, and the steps that it is trained on for


def plan_finetuning(chosen: Sequence[Candidate], plain: Sequence[Candidate], limits: FinetuningLimits) -> list[Share]:
    """The nets to train on and the steps of each: the search's own, then the ResNets.

    `chosen`: nets of the front, as `thinned` leaves them. `plain`: all plain ResNets.
    """
    own = _own_shares([net for net in chosen if not net.was_trained_on], limits)
    lengths = [(net.cost, net.steps) for net in chosen] + [(net.cost, net.steps + steps) for net, steps in own]
    flops = limits.beside(sum(net.flops(steps) for net, steps in own))
    return [*own, *_plain_shares(sorted(plain, key=lambda net: net.cost), lengths, flops)]


def _own_shares(nets: Sequence[Candidate], limits: FinetuningLimits) -> list[Share]:
    """Nets of the search and their steps: FLOPs by the root of their MACs, fewer where the steps would be too many."""
    if not nets:
        return []
    unit = limits.share.flops / sum(net.macs**COST_POWER for net in nets)
    evaluated = FORWARD_FACTOR * (MIN_CURVE_POINTS + 1) * limits.val_images  # as many training images at the end
    steps = [max(0.0, unit * net.macs**COST_POWER - evaluated * net.macs) / net.flops(1) for net in nets]
    steps = [min(limits.most_steps, each) for each in steps]
    scale = min(1.0, limits.share.steps / max(1.0, sum(steps)))
    shares = [(net, round(scale * each)) for net, each in zip(nets, steps, strict=True)]
    return [(net, steps) for net, steps in shares if steps > 0]


def _plain_shares(plain: Sequence[Candidate], lengths: Sequence[tuple[float, int]], flops: float) -> list[Share]:
    """Plain ResNets, the cheapest first, and the steps that they lack beside nets of these costs and steps."""
    shares = list[Share]()
    for number, net in enumerate(plain):
        above = plain[number - 1].cost if number else 0.0
        below = plain[number + 1].cost if number + 1 < len(plain) else float("inf")
        longest = max((steps for cost, steps in lengths if above < cost < below), default=0)
        lacking = longest - net.steps
        if lacking > 0 and net.flops(lacking) <= flops:
            flops -= net.flops(lacking)
            shares.append((net, lacking))
    return shares


def thinned(nets: Sequence[Candidate], least: float) -> list[Candidate]:
    """The nets of the front that together span most hypervolume, `MAX_NETS` at most, the cheapest first.

    Above the worst of all nets and up to the largest cost, in its logarithm, as fronts are measured. The net goes
    whose loss is least, until few enough are left. Nets that are not this share of the way from the worst accuracy to
    the best are left out: they stay far below, and a step of a small net is no quicker.
    """
    if not nets:
        return []
    accuracies, costs = [net.accuracy for net in nets], min_max([net.cost for net in nets])
    floor, worthwhile = min(accuracies), useful_from(accuracies, least)
    on_front = front_of(nets, [(net.accuracy, net.cost) for net in nets])
    front = sorted((net for net in on_front if net.accuracy >= worthwhile), key=lambda net: net.cost)

    def lost(number: int) -> float:
        """What the front spans less without a net: between its neighbours' cost and accuracy."""
        before = front[number - 1].accuracy - floor if number else 0.0
        after = normalized_cost(front[number + 1].cost, costs) if number + 1 < len(front) else 0.0
        net = front[number]
        return (normalized_cost(net.cost, costs) - after) * (net.accuracy - floor - before)

    while len(front) > MAX_NETS:
        del front[min(range(len(front)), key=lost)]
    return front
