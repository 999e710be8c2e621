"""The walk of the AlterNet build-up: from a plain ResNet backwards, one MSA block a step, kept where it helps.

Park & Kim, ICLR 2022, section 4 and README: going backwards from the end of a baseline, every second conv block is
turned into an MSA block; one that does not help is left out, and the previous stage is next; later stages get more
heads. Knows no Optuna.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...archs import Genotype, InputError
from ...archs.stage import build_up
from ...results.ranking.stats import CHANGE, MeanCI, mean_ci, paired, verdict
from ...spaces import FixedChooser, Genes, RecordingChooser, options_of, plain_genes
from ...spaces.mutation import SHIFTED, neighbors
from .baselines import candidate_baselines
from .context import SamplerContext

JUDGED = {"better": "accepted", "worse": "rejected", "undecided": "undecided"}


@dataclass(frozen=True)
class NetResults:
    """What is known of a net: "ok", "pending", "stopped" at a rung or "failed"; its accuracy, and that of each seed."""

    state: str
    accuracy: float | None = None
    accuracies: dict[int, float] = field(default_factory=dict)


Asked = Callable[[str], NetResults | None]  # what is known of the net of a key; None: not in the study at all


@dataclass(frozen=True, eq=False)
class Built:
    """A net of the walk, the genes that give it, and whether it keeps the limits."""

    genes: Genes
    net: Genotype
    fits: bool

    @property
    def key(self) -> str:
        return self.net.key

    @property
    def msa(self) -> tuple[int, ...]:
        """MSA blocks by stage."""
        return tuple(len(stage.places) for stage in self.net.stages)


@dataclass(frozen=True)
class Attempt:
    """A step to be judged: `grown` is `parent` with one more MSA block in `stage`, from 0."""

    parent: Built
    stage: int
    grown: Built


@dataclass(frozen=True)
class Step:
    """A net of a walk and what became of it.

    Attributes:
        start: number of the walk, from 0.
        msa: MSA blocks by stage.
        key: of the net.
        parent_key: of the net that it is compared with; "" where a walk starts.
        accuracy: None unless trained.
        difference: accuracy minus the parent's, over the seeds that both have if these are two or more,
            otherwise of the one training of each; None unless both are trained.
        verdict: "start", "accepted", "rejected", "undecided", "pending", "stopped", "failed", or "over limit".
    """

    start: int
    msa: tuple[int, ...]
    key: str
    parent_key: str
    accuracy: float | None
    difference: MeanCI | None
    verdict: str


@dataclass(frozen=True)
class GreedyPath:
    """The steps of a walk so far, and what could be trained for it.

    Attributes:
        own: the net that the next decision waits for, if nobody trains it yet.
        ahead: of a decision that waits for a running net, the next net of either outcome.
    """

    steps: tuple[Step, ...]
    own: Built | None = None
    ahead: tuple[Built, ...] = ()


class BuildUpRules:
    """Grows nets by one MSA block, within a space: each time by a single move of it.

    Heads are the most that the space offers for each stage (later stages are offered more); windows and whatever
    else the space varies stay as the start has them.

    Raises:
        InputError: if a start is no plain ResNet, or none can take an MSA block.
    """

    def __init__(self, ground: SamplerContext, starts: Sequence[Genes] | None) -> None:
        self._ground, self._options = ground, options_of(ground.space)
        self._grown: dict[tuple[Built, int], Built | None] = {}
        given = _baseline_genes(ground) if starts is None else starts
        self.starts = [start for genes in given if self.first(start := self._start(genes))]
        if not self.starts:
            lacks = "has no start that can take an MSA block: a plain ResNet with a stage of two blocks or more"
            raise InputError(f"strategy buildup: space {ground.space.name!r} {lacks}")

    def first(self, start: Built) -> Attempt | None:
        """The first step from a start; None if there is none."""
        return self._step(start, len(start.net.stages) - 1)

    def after(self, tried: Attempt, kept: bool) -> Attempt | None:
        """The step that follows on another; None where the walk ends."""
        return self._step(tried.grown, tried.stage) if kept else self._step(tried.parent, tried.stage - 1)

    def _step(self, parent: Built, last: int) -> Attempt | None:
        """One more MSA block in stage `last`, or in the nearest before it that can take one."""
        grown = ((stage, self._grow(parent, stage)) for stage in range(last, -1, -1))
        return next((Attempt(parent, stage, net) for stage, net in grown if net), None)

    def _start(self, genes: Genes) -> Built:
        memo = RecordingChooser(FixedChooser(genes))
        net = self._ground.space.sample(memo)
        if net.encoder is not None or any(stage.places for stage in net.stages):
            raise InputError(f"strategy buildup: a start must be a plain ResNet, got one of family {net.family!r}")
        most = {name: max(found) for name, found in self._options.items() if re.fullmatch(r"heads\d+", name)}
        return Built(memo.genes | most, net, self._ground.fits(net))

    def _grow(self, parent: Built, stage: int) -> Built | None:
        """`parent` with one more MSA block in `stage`; None if the rule or the space has no room for it."""
        if (parent, stage) not in self._grown:
            self._grown[parent, stage] = self._find(parent, stage)
        return self._grown[parent, stage]

    def _find(self, parent: Built, number: int) -> Built | None:
        stage, count = parent.net.stages[number], parent.msa[number] + 1
        if stage.depth < 2 * count:
            return None
        stages = list(parent.net.stages)
        stages[number] = replace(stage, msa=build_up(stage.depth, count))
        wanted = _shape(replace(parent.net, stages=tuple(stages)))
        near = ((genes, self._ground.space.sample(FixedChooser(genes))) for genes in self._near(parent.genes, number))
        return next((Built(genes, net, self._ground.fits(net)) for genes, net in near if _shape(net) == wanted), None)

    def _near(self, genes: Genes, number: int) -> Iterator[Genes]:
        """Genes with one msa gene of stage `number` moved, as an AlterNet where the space has families."""
        families = self._options.get("family", ())
        genes = genes | {"family": "alternet"} if "alternet" in families else genes
        # Other moves can give the net too, by genes that do not say so: `all` places a first MSA block by itself.
        own = re.compile(rf"{SHIFTED}{number + 1}(_\d+)?")
        for moved in neighbors(genes, self._options):
            if all(own.fullmatch(name) for name in moved if moved[name] != genes[name]):
                yield moved


def _baseline_genes(ground: SamplerContext) -> list[Genes]:
    found = (plain_genes(ground.space, net) for net in candidate_baselines(ground))
    return [genes for genes in found if genes is not None]


def _shape(net: Genotype) -> tuple[object, ...]:
    """A net but for how its MSA blocks attend."""
    stages = tuple((s.block, s.depth, s.width, s.stride, s.places) for s in net.stages)
    return net.stem, stages, net.encoder, net.head, net.style


def judge(before: NetResults, after: NetResults) -> tuple[MeanCI, str]:
    """The change in accuracy and its verdict: by repeats, or by one training each, as the authors did."""
    if len(before.accuracies.keys() & after.accuracies.keys()) >= 2:
        difference = paired(before.accuracies, after.accuracies, CHANGE)
        return difference, JUDGED[verdict(difference)]
    assert before.accuracy is not None
    assert after.accuracy is not None
    difference = mean_ci([after.accuracy - before.accuracy])
    return difference, "accepted" if difference.mean > 0 else "rejected"


def greedy_path(growth: BuildUpRules, number: int, known: Asked) -> GreedyPath:
    """Walk `number` as far as it gets by what is `known` of nets, asked by key."""
    start = growth.starts[number]
    at, trying = known(start.key), growth.first(start)
    stands = _standing(start, at)
    if stands == "new":
        return GreedyPath((), own=start)
    said = "start" if stands == "ok" else stands
    begun = Step(number, start.msa, start.key, "", at.accuracy if at else None, None, said)
    if stands == "ok":
        return _follow(growth, begun, trying, known)
    return GreedyPath((begun,), ahead=_next_new(growth, [trying], known) if stands == "pending" else ())


def _follow(growth: BuildUpRules, begun: Step, trying: Attempt | None, known: Asked) -> GreedyPath:
    """The walk from `trying` on."""
    steps = [begun]
    while trying:
        step = _judged(begun.start, trying, known)
        if step is None:
            return GreedyPath(tuple(steps), own=trying.grown)
        steps.append(step)
        if step.verdict == "pending":
            outcomes = [growth.after(trying, kept) for kept in (True, False)]
            return GreedyPath(tuple(steps), ahead=_next_new(growth, outcomes, known))
        trying = growth.after(trying, step.verdict == "accepted")
    return GreedyPath(tuple(steps))


def _judged(number: int, trying: Attempt, known: Asked) -> Step | None:
    """A step as it stands; None if its net is yet to be trained."""
    parent, grown = trying.parent, trying.grown
    before, after = known(parent.key), known(grown.key)
    difference, said = None, _standing(grown, after)
    if said == "new":
        return None
    if said == "ok":
        assert before is not None
        assert after is not None
        difference, said = judge(before, after)
    accuracy = after.accuracy if after else None
    return Step(number, grown.msa, grown.key, parent.key, accuracy, difference, said)


def _standing(net: Built, at: NetResults | None) -> str:
    """How far a net is: "new", the state of what is known of it, or "over limit"."""
    if not net.fits and (at is None or at.state == "failed"):
        return "over limit"
    return at.state if at else "new"


def _next_new(growth: BuildUpRules, tries: Sequence[Attempt | None], known: Asked) -> tuple[Built, ...]:
    """Of each of `tries` the net, or where it is over the limits the next one that is not; those not known alone."""
    found = []
    for trying in tries:
        while trying and not trying.grown.fits:
            trying = growth.after(trying, False)
        if trying and known(trying.grown.key) is None:
            found.append(trying.grown)
    return tuple(found)
