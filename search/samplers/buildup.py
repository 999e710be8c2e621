"""The walk of the AlterNet build-up: from a plain ResNet backwards, one MSA block a step, kept where it helps.

Park & Kim, ICLR 2022, section 4 and README: going backwards from the end of a baseline, every second conv block is
turned into an MSA block; one that does not help is left out, and the previous stage is next; later stages get more
heads. Knows no Optuna.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from rich.table import Table

from ...archs import Genotype, InputError
from ...archs.parts import build_up
from ...results.ranking.stats import CHANGE, MeanCI, mean_ci, paired, verdict
from ...spaces import FixedChooser, Genes, RecordingChooser, options_of, plain_genes
from ...spaces.base import SHIFTED, neighbors
from .context import SamplerContext, candidate_baselines
from .learning_curves import Past, parked
from .random import WholeSampler

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


class BuildUp(WholeSampler):
    """Proposes what the walks wait for, all walks side by side; depends on the study's trials alone.

    Baselines that are no trials of the study are proposed first. Draws at random if asked when not `ready`.

    Attributes:
        starts: the plain ResNets that are walked from; those that can take no MSA block are left out.

    Raises:
        InputError: if a start is no plain ResNet, or none can take an MSA block.
    """

    def __init__(self, ground: SamplerContext, starts: Sequence[Genes] | None = None, ahead: bool = True) -> None:
        """`starts`: genes, default the space's baselines. `ahead`: propose both outcomes' next while a net trains."""
        super().__init__(ground.seed, options_of(ground.space))
        self._growth, self._ahead = BuildUpRules(ground, starts), ahead
        self.starts = tuple(start.net for start in self._growth.starts)
        self._reader: _Reader | None = None
        self._found: list[GreedyPath] = []  # as the reader's last news has them

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        found = self._next(study)
        return dict(found.genes) if found else {}

    def ready(self, study: optuna.Study) -> bool:
        """Whether there is a net to propose now; if not and none runs, all walks have ended."""
        return self._next(study) is not None

    def steps(self, study: optuna.Study) -> list[Step]:
        """The walks so far, one after the other, each from its start."""
        return [step for found in self._walks(study) for step in found.steps]

    def _next(self, study: optuna.Study) -> Built | None:
        """What decisions wait for goes before what they may lead to."""
        walks = self._walks(study)
        own = [found.own for found in walks if found.own]
        ahead = [net for found in walks for net in found.ahead] if self._ahead else []
        return next(iter([*own, *ahead]), None)

    def _walks(self, study: optuna.Study) -> list[GreedyPath]:
        if self._reader is None or self._reader.study is not study:
            self._reader, self._found = _Reader(study), []
        if self._reader.read() or not self._found:
            self._found = [greedy_path(self._growth, number, self._reader.known) for number in range(len(self.starts))]
        return self._found


class _Reader:
    """What the trials of a study say of each net. A finished trial never changes, so it is read once."""

    def __init__(self, study: optuna.Study) -> None:
        self.study, self._past = study, Past()
        self._ended: dict[str, FrozenTrial] = {}
        self._running: dict[str, bool] = {}  # key, and whether it is parked

    def read(self) -> bool:
        """Whether there is news of any net."""
        ended = [trial for trial in self._past.ended(self.study) if "key" in trial.user_attrs]
        running = [trial for trial in self._past.running if "key" in trial.user_attrs]
        before, self._running = self._running, {t.user_attrs["key"]: parked(t) for t in running}
        for trial in ended:
            self._note(trial)
        return bool(ended) or self._running != before

    def known(self, key: str) -> NetResults | None:
        """A training that succeeded goes before one that runs, and that before one that failed.

        A net that a scheduler has parked did not help, unless it is sent on later.
        """
        ended = self._ended.get(key)
        if key in self._running and (ended is None or ended.state != TrialState.COMPLETE):
            return NetResults("stopped" if self._running[key] else "pending")
        return None if ended is None else _known(ended)

    def _note(self, trial: FrozenTrial) -> None:
        """Of several trials of one net keep a success, and of these the first with the most repeats."""
        old = self._ended.setdefault(trial.user_attrs["key"], trial)
        if _worth(trial) > _worth(old):
            self._ended[trial.user_attrs["key"]] = trial


def _worth(trial: FrozenTrial) -> tuple[bool, int]:
    return trial.state == TrialState.COMPLETE, len(trial.user_attrs.get("accuracies", ()))


def _known(trial: FrozenTrial) -> NetResults:
    """What a finished trial says. Pruned ones did not get to the end: they did not help."""
    if trial.state != TrialState.COMPLETE:
        return NetResults("stopped" if trial.state == TrialState.PRUNED else "failed")
    repeats = trial.user_attrs.get("accuracies", {})
    return NetResults("ok", trial.values[0], {int(seed): accuracy for seed, accuracy in repeats.items()})


def steps_table(steps: Sequence[Step], starts: Sequence[Genotype]) -> Table:
    """The steps of `BuildUp.steps`, a row each; `starts` are those of the sampler."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name in ("start", "MSA blocks by stage", "accuracy", "change in points", "verdict"):
        table.add_column(name, justify="right" if name in ("accuracy", "change in points") else "left")
    for step in steps:
        msa = " ".join(map(str, step.msa))
        accuracy = "-" if step.accuracy is None else f"{step.accuracy:.4f}"
        table.add_row(_start_text(starts[step.start]), msa, accuracy, _change_text(step.difference), step.verdict)
    return table


def _start_text(net: Genotype) -> str:
    """Block, width and depths: "bottleneck 64: 3 4 6 4"."""
    first = net.stages[0]
    return f"{first.block} {first.width}: {' '.join(str(stage.depth) for stage in net.stages)}"


def _change_text(difference: MeanCI | None) -> str:
    if difference is None:
        return "-"
    points = f"{100 * difference.mean:+.2f}"
    if difference.low is None or difference.high is None:
        return points
    return f"{points} (95 %: {100 * difference.low:+.2f} to {100 * difference.high:+.2f}, {difference.n} seeds)"
