"""The AlterNet build-up as an Optuna sampler: greedy walks from plain ResNets, read anew from a study each time.

Park & Kim, ICLR 2022; the rule is in `walk`. Another thing than the study of that name, which starts from trained
weights: here every net is trained from scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from rich.table import Table

from ...archs import Genotype
from ...results.ranking.stats import MeanCI
from ...spaces import Genes, options_of
from .context import SamplerContext
from .greedy import BuildUpRules, Built, GreedyPath, NetResults, Step, greedy_path
from .learning_curves import Past, parked
from .random import WholeSampler


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
