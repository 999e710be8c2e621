"""`Finetuning`: which nets of a run may be trained on and which have been, by its records; and the plan for the rest.

Nets are trained on in rounds: a round begins when all nets that were proposed have ended. What it is planned from are
the records up to then, so that it goes on unchanged when the run is resumed in its midst.

The search's nets have a share of its compute, both of its FLOPs and of its steps. Those of its front are thinned to
those that span most hypervolume; cheap ones are trained on for longest. A plain ResNet is trained on until it has had
as many steps as each net that it is compared with, those of ancestors counted: the nets between the next cheaper and
the next more expensive plain ResNet. The cheapest comes first, as far as there is compute for what is not searched.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ...archs.cost import BACKWARD_FACTOR, FORWARD_FACTOR, training_flops
from ...results.ranking.pareto import front_of, min_max, normalized_cost, useful_from
from ...results.runs.record import Record
from ...results.runs.status import Status, Weights
from ..context import SearchContext
from ..training.job import MIN_CURVE_POINTS
from .baselines import drawn_macs
from .compute import BESIDE_SHARE, Compute, finetuning_ratio, part_of, work_of
from .trial import LiveTrials, Work
from .weight_sources import has_whole_weights

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


class Finetuning:
    """The nets that may be trained on, with their best weights on validation, and the plan of this round."""

    def __init__(self, context: SearchContext, compute: Compute, live: LiveTrials, with_slices: bool) -> None:
        """Take whether the search's nets are slices of a bank, `with_slices`."""
        self._context, self._compute, self._live = context, compute, live
        self._with_slices = with_slices
        self._nets: dict[str, Candidate] = {}  # by `_name_of`
        self._name: dict[int, str] = {}  # of the net of each trial
        self._steps: dict[int, int] = {}  # of each trial, with its ancestors in the run
        self._round: list[Record] = []  # of nets trained on since the last other one ended
        self._plan: list[Share] | None = None
        self._drawn: list[float] | None = None  # MACs of random draws
        self._front = -1, list[Candidate]()  # records at the last look, and the nets chosen then
        self._foreseen = (-1, 0.0, 0.0)  # records and FLOPs of the search at the last look, what was expected then
        self._ended = 0  # nets that may be trained on

    def apply(self, record: Record) -> None:
        """Take in the next record."""
        if record.weights != Weights.FINETUNED:
            self._plan = None
        if record.kind not in ("search", "baseline"):
            return
        is_own = not record.taken_from and (record.weights == Weights.SHARED) == self._with_slices
        self._steps[record.trial] = record.budget.get("done", 0) + self._steps.get(record.lineage.get("trial", -1), 0)
        if record.weights == Weights.FINETUNED:
            self._round.append(record)
        elif record.status == Status.OK and (record.kind == "baseline" or is_own):
            self._begin_round()
            self._ended += 1
            self._name[record.trial] = name = f"{record.kind} {record.trial_key}"
            self._nets[name] = self._candidate(record)

    def record_of(self, trial: int | None) -> Record | None:
        """The record of a net's best weights, if that is the one of this trial."""
        net = self._nets.get(self._name.get(-1 if trial is None else trial, ""))
        return net.record if net and net.record and net.record.trial == trial else None

    def _begin_round(self) -> None:
        """Take in what the nets of the last round have come to: each keeps the better weights."""
        for record in self._round:
            if record.status != Status.OK:
                continue
            self._name[record.trial] = name = self._name[record.lineage["trial"]]
            before, after = self._nets[name], self._candidate(record)
            best = after if after.accuracy >= before.accuracy else before
            self._nets[name] = replace(best, steps=max(before.steps, after.steps), was_trained_on=True)
        self._round, self._plan = [], None

    def _candidate(self, record: Record) -> Candidate:
        cost = float(self._context.cost_of(record.key, record.cost))
        steps, images = self._steps[record.trial], record.recipe["batch_size"]
        is_plain = record.kind == "baseline"
        return Candidate(record.macs, cost, record.accuracy or 0.0, steps, images, is_plain, record=record)

    @property
    def under_way(self) -> list[int]:
        """The trials whose nets are being trained on."""
        live = (trial.parent for trial in self._live.values() if trial.is_finetuning)
        return [parent.trial for parent in live if parent and parent.trial is not None]

    @property
    def waits(self) -> list[Share]:
        """The nets that are still to be trained on in this round, each with its steps."""
        return self.not_begun(self.plan)

    def not_begun(self, shares: Iterable[Share]) -> list[Share]:
        """Those of a plan for this round that have not been trained on in it and are not."""
        done = {*self.under_way, *(record.lineage.get("trial") for record in self._round)}
        return [(net, steps) for net, steps in shares if not (net.record and net.record.trial in done)]

    @property
    def plan(self) -> list[Share]:
        """The nets of this round and their steps: the search's own, then plain ResNets, the longest training first.

        Else the last would be trained by one worker while all others have nothing left to do.
        """
        if self._plan is None:
            searched = [net for net in self._found(False) if self._has_weights(net)]
            plain = [net for net in self._found(True) if self._has_weights(net)]
            shares = plan_finetuning(thinned(searched, self._least), plain, self._limits(Work()))
            self._plan = sorted(shares, key=lambda share: (share[0].is_plain, -self._seconds(*share)))
        return self._plan

    def _seconds(self, net: Candidate, steps: int) -> float:
        """What so many steps of a net take, by what its training took, or evaluating its slice."""
        assert net.record is not None, "a net of a plan has ended"
        seeds, done = max(1, len(net.record.accuracies)), net.record.budget["done"]
        evaluated = FORWARD_FACTOR * len(self._context.data.val) / net.images / BACKWARD_FACTOR
        return net.record.seconds / seeds * steps / (done or max(1.0, evaluated))

    def expected(self, to_come: Work, plain: Iterable[Candidate] = ()) -> list[Share]:
        """The plan that this round is likely to have, once the search's nets take so much more.

        `plain`: plain ResNets that have not ended.
        """
        if self._front[0] != self._ended:
            searched = [replace(net, cost=net.macs) for net in self._found(False)]
            self._front = self._ended, thinned(searched or self._usual(), self._least)
        known, chosen = [replace(net, cost=net.macs) for net in self._found(True)], self._front[1]
        if to_come.steps and all(net.was_trained_on for net in chosen):
            chosen = [*chosen, self._usual()[MAX_NETS // 2]]  # one of the nets to come
        return plan_finetuning(chosen, [*known, *plain], self._limits(to_come))

    @property
    def _least(self) -> float:
        """How far from the worst accuracy to the best nets must have come that are trained on."""
        return 0.0 if self._with_slices else HOPEFUL

    @property
    def expected_flops(self) -> float:
        """FLOPs that training nets on is likely to take from this round on, if no net is begun any more."""
        at = self._ended, self._compute.searched
        if self._foreseen[:2] != at:
            self._foreseen = *at, sum(net.flops(steps) for net, steps in self.expected(Work()))
        return self._foreseen[2]

    def _limits(self, to_come: Work) -> FinetuningLimits:
        """What this round may take, once the search's nets take so much more."""
        compute, settings = self._compute, self._context.settings
        before = {part: self._before(part) for part in ("finetuning", "beside")}
        searched, unspent = compute.searched + to_come.flops, compute.limit - compute.searched - to_come.flops
        unspent -= before["finetuning"].flops + before["beside"].flops
        share = compute.finetuning + to_come * finetuning_ratio(settings.polish) - before["finetuning"]
        share = replace(share, flops=max(0.0, min(share.flops, unspent)))

        def beside(own: float) -> float:
            most = (searched + before["finetuning"].flops + own) * BESIDE_SHARE / (1 - BESIDE_SHARE)
            return min(most - before["beside"].flops, unspent - own)

        trainings = MAX_TRAININGS_OF_SLICES if self._with_slices else MAX_TRAININGS
        return FinetuningLimits(share, beside, trainings * self._context.steps, len(self._context.data.val))

    def _before(self, part: str) -> Work:
        spent = self._compute.spent[part]
        for record in self._round:
            if part_of(record) == part:
                spent -= work_of(record)
        return spent

    def _found(self, is_plain: bool) -> list[Candidate]:
        """Nets of the search, or plain ResNets, which are trained on as such and not from slices."""
        plain = {net.record.trial_key for net in self._nets.values() if net.is_plain and net.record}
        nets = (net for net in self._nets.values() if net.is_plain == is_plain and net.record)
        return [net for net in nets if is_plain or (net.record and net.record.trial_key not in plain)]

    def _has_weights(self, net: Candidate) -> bool:
        return net.record is not None and has_whole_weights(self._context.folder, net.record)

    def _usual(self) -> list[Candidate]:
        """Nets as the front is likely to have, before any has ended: random draws, evenly by their MACs."""
        if self._drawn is None:
            self._drawn = sorted(drawn_macs(self._context))
        steps, images = 0 if self._with_slices else self._context.steps, self._context.settings.recipe.batch_size
        places = [(2 * n + 1) * len(self._drawn) // (2 * MAX_NETS) for n in range(MAX_NETS)]
        drawn = [self._drawn[place] for place in places]
        return [Candidate(macs, macs, 1.0 + n, steps, images) for n, macs in enumerate(drawn)]
