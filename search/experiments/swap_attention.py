"""The AlterNet build-up from trained weights: swap blocks of a ResNet for attention, inherit the rest, train.

Park & Kim, ICLR 2022, section 4: going backwards from the end of each stage, conv blocks are swapped for MSA
blocks. Here the net is trained already, which is the practical form for one GPU: before and after
have the same start and the same training, so that the swap alone makes the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType

from ...archs import Genotype, InputError
from ...archs.errors import MOST_SEEDS, check_choice, check_count
from ...results.ranking.stats import CHANGE, MeanCI, paired, verdict
from ...results.render.experiment import PlotSpec, study_json, study_rows, study_table
from ...results.render.terminal import plain
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder
from ...results.runs.weights import WeightsSpec
from ..data.dataset import DataConfig
from ..data.load import load_showing
from ..engine.pool import Resources
from ..training.recipe import Recipe
from .finetune import headless, origin_of
from .nets import swapped
from .plan import ExperimentContext, Training
from .run import run_experiment

TRAINED = {"all": "none", "new": "inherited"}  # what --train freezes
SIGHT = PlotSpec("build-up from trained weights", "net", metrics=("accuracy", "test_accuracy", "macs"))
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class SwapAttention:
    """What is built up.

    Attributes:
        weights: of the trained ResNet.
        msa: MSA blocks at the end of each stage; () takes what the rule says.
        train: "all", or "new": the head and what was swapped in, alone; of the net before, then, the head.
        data, recipe, seeds, folder, resources: as of `Finetune`.
    """

    weights: WeightsSpec
    msa: tuple[int, ...]
    train: str
    data: DataConfig
    recipe: Recipe
    seeds: int
    folder: str
    resources: Resources

    def __post_init__(self) -> None:
        check_choice("train", self.train, TRAINED)
        check_count("seeds", self.seeds, most=MOST_SEEDS)


@dataclass(frozen=True)
class SwapResult:
    """What came of it: the rows before and after, and their paired difference over seeds in accuracy."""

    folder: Path
    rows: list[dict[str, Any]]
    difference: MeanCI
    inherited: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        found = {"folder": str(self.folder), "difference": vars(self.difference), "verdict": verdict(self.difference)}
        return found | {"inherited": self.inherited, "rows": study_json(self.rows)}

    def drawing(self) -> RenderableType:
        d = self.difference
        interval = "" if d.low is None or d.high is None else f" (95 %: {100 * d.low:+.2f} to {100 * d.high:+.2f})"
        parts = self.inherited["parts"]
        new = ", ".join(part["place"] for part in parts if part["how"] == "identity") or "nothing"
        lines = [
            f"after minus before, validation: {100 * d.mean:+.2f} points{interval}, {d.n} seeds: {verdict(d)}",
            f"swapped in: {new}; {self.inherited['share']:.1%} of the weights inherited",
        ]
        return Group(study_table(self.rows, SIGHT), plain(*lines))


def swap_attention(asked: SwapAttention, console: Console) -> SwapResult:
    """Build up, or go on with it.

    Raises:
        InputError: if weights or data cannot be read, or the net has no blocks to swap.
        OperationError: if workers do not start or everything fails.
    """
    found = asked.weights.find()
    data = load_showing(asked.data, console)
    before = headless(found.network.genotype)
    before.check(data.image_size)
    after = swapped(before, asked.msa or rule(before), data.image_size)
    if after.key == before.key:
        raise InputError(f"msa: {asked.msa} swaps nothing in {found.label}")
    folder = run_folder(asked.folder or plain_name("buildup", asked.weights.text, data.name, *_kind(asked)))
    other = found.network.num_classes != len(data.classes)
    nets, freeze = ((BEFORE, before), (AFTER, after)), TRAINED[asked.train]
    steps, test = asked.recipe.steps(len(data.train)), data.test is not None
    origin = origin_of(found, folder, other, freeze)
    plan = [
        Training(
            net, asked.recipe, steps, seed, {"net": name},
            origin=origin, test=test,
        )
        for seed in range(asked.seeds)
        for name, net in nets
    ]  # fmt: skip
    settings = {"from": found.label, "msa": [s.msa for s in after.stages], "train": asked.train}
    room = ExperimentContext(folder, "study", data, asked.resources, settings, test, {Path(origin.file): found.network})
    records = run_experiment(plan, room, console)
    return _compared(folder, records)


def rule(net: Genotype) -> tuple[int, ...]:
    """MSA blocks a stage by the build-up rule: none in the first stage, one in the second, all that fit in later ones.

    The defaults of Park & Kim's code, (0, 1, 3, 2) for depths (3, 4, 6, 4), as a rule for any depths.

    Raises:
        InputError: if no block can be swapped.
    """
    most = [len(s.kinds) // 2 for s in net.stages]
    counts = tuple(0 if i == 0 else min(1, m) if i == 1 else m for i, m in enumerate(most))
    if any(s.places for s in net.stages):
        raise InputError("buildup: starts from a ResNet; this net has attention blocks already")
    if not any(counts):
        depths = ", ".join(str(s.depth) for s in net.stages) or "no"
        raise InputError(
            f"buildup: needs a second or later stage of two blocks or more to swap one; got {depths} blocks"
        )
    return counts


def _kind(asked: SwapAttention) -> tuple[str, str]:
    """What tells this build-up from the usual one of the same weights and data."""
    return "".join(map(str, asked.msa)), asked.train.replace("all", "")


def _compared(folder: Path, records: Sequence[Record]) -> SwapResult:
    scores = {
        name: {r.seed: r.accuracy for r in _ok(records, name) if r.accuracy is not None} for name in (BEFORE, AFTER)
    }
    after = _ok(records, AFTER)
    inherited = {name: after[0].lineage[name] for name in ("share", "parts")} if after else {"share": 0.0, "parts": []}
    rows = study_rows(records, SIGHT.metrics)
    return SwapResult(folder, rows, paired(scores[BEFORE], scores[AFTER], CHANGE), inherited)


def _ok(records: Sequence[Record], name: str) -> list[Record]:
    return [r for r in records if r.factors["net"] == name and r.status == "ok"]
