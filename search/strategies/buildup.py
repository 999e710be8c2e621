"""The AlterNet build-up as a greedy search: from a plain ResNet backwards, one MSA block a step, kept if it helps.

Park & Kim, ICLR 2022, section 4 and README: going backwards from the end of a baseline, every second conv block is
turned into an MSA block; one that does not help is left out, and the previous stage is next; later stages get more
heads.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rich.table import Table

from ...archs import Genotype, InputError
from ...archs.stage import build_up
from ...results.ranking.metric import Metric
from ...results.ranking.stats import CHANGE, MeanCI, paired, verdict
from ...spaces import FixedChooser, Genes, RecordingChooser, options_of, plain_genes
from ...spaces.base import SHIFTED, neighbors
from .history import History, PastTrial, State, TrialReader
from .strategy import Strategy
from .strategy_context import StrategyContext, candidate_baselines

N = TypeVar("N")
VERDICTS = {"better": "accepted", "worse": "rejected", "undecided": "undecided"}


@dataclass(frozen=True, eq=False)
class Node:
    """A net on a path, and the genes that give it."""

    genes: Genes
    net: Genotype
    is_feasible: bool

    @property
    def key(self) -> str:
        return self.net.key

    @property
    def msa(self) -> tuple[int, ...]:
        """MSA blocks by stage."""
        return tuple(len(stage.places) for stage in self.net.stages)


@dataclass(frozen=True)
class Step:
    """A net of a path and what became of it."""

    start: int  # number of the path, from 0
    msa: tuple[int, ...]  # MSA blocks by stage
    key: str
    parent_key: str  # of the net that it is compared with; "" where a path starts
    accuracy: float | None  # None unless trained
    # accuracy minus the parent's, over the seeds that both have; None unless both are trained
    difference: MeanCI | None
    verdict: str  # "start", "accepted", "rejected", "undecided", "pending", "stopped", "failed", or "over limit"


class BuildUpRules:
    """How a net of a space grows by one MSA block, each time by changing one gene.

    Heads are the most that the space offers for each stage (later stages are offered more); windows and whatever
    else the space varies stay as the start has them.
    """

    def __init__(self, context: StrategyContext) -> None:
        self._context, self._options = context, options_of(context.space)
        self._grown: dict[tuple[Node, int], Node | None] = {}

    def start(self, genes: Genes) -> Node:
        """A plain ResNet as the start of a path; InputError if it is none."""
        recorder = RecordingChooser(FixedChooser(genes))
        net = self._context.space.sample(recorder)
        if net.encoder is not None or any(stage.places for stage in net.stages):
            raise InputError(f"strategy buildup: a start must be a plain ResNet, got one of family {net.family!r}")
        heads = {name: max(choices) for name, choices in self._options.items() if re.fullmatch(r"heads\d+", name)}
        return Node(recorder.genes | heads, net, self._context.is_feasible(net))

    def grow(self, node: Node, stage: int) -> Node | None:
        """`node` with one more MSA block in a stage, from 0; None if the rule or the space has no room for it."""
        if (node, stage) not in self._grown:
            self._grown[node, stage] = self._find(node, stage)
        return self._grown[node, stage]

    def _find(self, node: Node, number: int) -> Node | None:
        stage, count = node.net.stages[number], node.msa[number] + 1
        if stage.depth < 2 * count:
            return None
        stages = list(node.net.stages)
        stages[number] = replace(stage, msa=build_up(stage.depth, count))
        target = _shape(replace(node.net, stages=tuple(stages)))
        # As an AlterNet, where the space has families.
        genes = node.genes | ({"family": "alternet"} if "alternet" in self._options.get("family", ()) else {})
        # Other genes can give the net too, without saying so: `all` places a first MSA block by itself.
        own = re.compile(rf"{SHIFTED}{number + 1}(_\d+)?")
        for moved in neighbors(genes, self._options):
            if all(own.fullmatch(name) for name in moved if moved[name] != genes[name]):
                net = self._context.space.sample(FixedChooser(moved))
                if _shape(net) == target:
                    return Node(moved, net, self._context.is_feasible(net))
        return None


def _shape(net: Genotype) -> tuple[object, ...]:
    """A net but for how its MSA blocks attend."""
    stages = tuple((s.block, s.depth, s.width, s.stride, s.places) for s in net.stages)
    return net.stem, stages, net.encoder, net.head, net.style


class BuildUp(Strategy):
    """One greedy path from each baseline, all side by side; depends on the history's trials alone.

    Baselines that are no trials of it are proposed first.

    Attributes:
        starts: the plain ResNets that paths start from; those that can take no MSA block are left out.

    Raises:
        InputError: if a start is no plain ResNet, or none can take an MSA block.
    """

    def __init__(self, context: StrategyContext, starts: Sequence[Genes] | None = None) -> None:
        """`starts`: genes, by default the space's baselines."""
        self._context = context
        self._rules = BuildUpRules(context)
        if starts is None:
            baselines = (plain_genes(context.space, net) for net in candidate_baselines(context))
            starts = [genes for genes in baselines if genes is not None]
        nodes = [self._rules.start(genes) for genes in starts]
        self._starts = [node for node in nodes if any(self._rules.grow(node, i) for i in range(len(node.net.stages)))]
        if not self._starts:
            reason = "has no start that can take an MSA block: a plain ResNet with a stage of two blocks or more"
            raise InputError(f"strategy buildup: space {context.space.name!r} {reason}")
        self.starts = tuple(node.net for node in self._starts)
        self._reader = TrialReader()
        self._ended: dict[str, PastTrial] = {}
        self._running: dict[str, PastTrial] = {}

    def propose(self, history: History, number: int) -> Genes | None:
        self._read(history)
        waiting = (self._greedy_path(number)[1] for number in range(len(self._starts)))
        return next((node.genes for node in waiting if node), None)

    def left(self, history: History) -> int:
        """The most nets that it has yet to propose: as if all that is not known helped."""
        self._read(history)
        new = {node.key for node in self._starts if self._status(node) == "new"}

        def look(node: Node, grown: Node) -> tuple[MeanCI | None, str]:
            if (status := self._status(grown)) == "ok" and self._status(node) == "ok":
                return self._judge(node, grown)
            if status == "new":
                new.add(grown.key)
            return None, "accepted" if status in ("ok", "new", "pending") else status

        for node in self._starts:
            if self._status(node) in ("ok", "new", "pending"):
                greedy_path(node, len(node.msa), self._rules.grow, look)
        return len(new)

    def steps(self, history: History) -> list[Step]:
        """The paths so far, one after the other, each from its start."""
        self._read(history)
        return [step for number in range(len(self._starts)) for step in self._greedy_path(number)[0]]

    def _greedy_path(self, number: int) -> tuple[list[Step], Node | None]:
        """A path as far as the trials lead, and the net to train next; None while one runs, and at the end."""
        node = self._starts[number]
        status, trial = self._status(node), self._ended.get(node.key)
        if status == "new":
            return [], node
        start = Step(number, node.msa, node.key, "", _accuracy(trial), None, "start" if status == "ok" else status)
        if status != "ok":
            return [start], None
        taken, waiting = greedy_path(node, len(node.msa), self._rules.grow, self._judge)
        steps = [
            Step(number, grown.msa, grown.key, node.key, _accuracy(self._ended.get(grown.key)), difference, verdict)
            for node, grown, difference, verdict in taken
        ]
        return [start, *steps], waiting

    def _judge(self, node: Node, grown: Node) -> tuple[MeanCI | None, str]:
        status = self._status(grown)
        return (None, status) if status != "ok" else judge(self._ended[node.key], self._ended[grown.key], self._context)

    def _read(self, history: History) -> None:
        for trial in self._reader.newly_ended(history):
            if trial.key:
                both = self._ended.get(trial.key, trial), trial  # a success counts, and the first with the most repeats
                self._ended[trial.key] = max(both, key=lambda t: (t.state == State.COMPLETE, len(t.accuracies)))
        self._running = {trial.key: trial for trial in self._reader.running}

    def _status(self, node: Node) -> str:
        """A training that succeeded goes before one that runs, and that before one that failed.

        A net that was pruned, or that a scheduler has paused, did not help, unless it is promoted later.
        """
        ended, running = self._ended.get(node.key), self._running.get(node.key)
        if ended and ended.state == State.COMPLETE:
            return "ok"
        if running:
            return "stopped" if running.is_paused else "pending"
        if ended and ended.state == State.PRUNED:
            return "stopped"
        if not node.is_feasible:
            return "over limit"
        return "failed" if ended else "new"


def greedy_path(
    start: N, stages: int, grow: Callable[[N, int], N | None], look: Callable[[N, N], tuple[MeanCI | None, str]]
) -> tuple[list[tuple[N, N, MeanCI | None, str]], N | None]:
    """The build-up rule: one MSA block at a time, from the last stage backwards; one that does not help is left out.

    Args:
        start: a net without MSA blocks.
        stages: how many it has.
        grow: a net with one more MSA block at the end of a stage, from 0; None where there is no room for it.
        look: the difference of the second net to the first, and what became of it: "accepted", "new", "pending", or
            anything else, upon which the stage before is next.

    Returns:
        The steps so far, each with both nets, and the net to train next; None while one is pending, and at the end.
    """
    steps, node, stage = list[tuple[N, N, MeanCI | None, str]](), start, stages - 1
    while stage >= 0:
        grown = grow(node, stage)
        if grown is None:
            stage -= 1
            continue
        difference, verdict = look(node, grown)
        if verdict == "new":
            return steps, grown
        steps.append((node, grown, difference, verdict))
        if verdict == "pending":
            break
        if verdict == "accepted":
            node = grown
        else:
            stage -= 1
    return steps, None


def judge(before: PastTrial, after: PastTrial, context: StrategyContext) -> tuple[MeanCI, str]:
    """The change in accuracy over the seeds that both have, and its verdict; of one seed its sign, as the authors did.

    Baselines are trained with more seeds than the nets grown from them: means over all seeds do not compare.
    """
    old, new = (
        {int(seed): accuracy for seed, accuracy in trial.accuracies.items()}
        or {context.seed: trial.accuracy or 0.0}  # one training is of the search's seed
        for trial in (before, after)
    )
    if not old.keys() & new.keys():  # taken over from a search with another seed
        old, new = ({context.seed: trial.accuracy or 0.0} for trial in (before, after))
    difference = paired(old, new, CHANGE, context.resolution)
    if difference.n > 1:
        return difference, VERDICTS[verdict(difference)]
    return difference, "accepted" if difference.mean > 0 else "rejected"


def _accuracy(trial: PastTrial | None) -> float | None:
    return trial.accuracy if trial else None


def steps_table(steps: Sequence[Step], starts: Sequence[Genotype], metric: Metric) -> Table:
    """`BuildUp.steps` as a table; `starts` are those of the strategy. Changes above 0 are better by any metric."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    changes = f"change in {metric.points}"
    for name in ("start", "MSA blocks by stage", metric.name, changes, "verdict"):
        table.add_column(name, justify="right" if name in (metric.name, changes) else "left")
    for step in steps:
        net, change = starts[step.start], step.difference
        start = f"{net.stages[0].block} {net.stages[0].width}: {' '.join(str(stage.depth) for stage in net.stages)}"
        points = "-" if change is None else f"{100 * change.mean:+.2f}"
        if change and change.low is not None and change.high is not None:
            points += f" (95 %: {100 * change.low:+.2f} to {100 * change.high:+.2f}, {change.n} seeds)"
        elif change:
            points += " (1 seed)"
        table.add_row(start, " ".join(map(str, step.msa)), metric.text(step.accuracy), points, step.verdict)
    return table
