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
from ...archs.errors import check_choice
from ...results.ranking.stats import CHANGE, MeanCI, paired, resolution_of, verdict
from ...results.render.experiment import PlotSpec, study_json, study_rows, study_table
from ...results.render.terminal import plain
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder
from ...results.runs.weights_spec import WeightsSpec
from ..data.load import load_classes
from ..pretrained import saved_start
from .finetune import headless
from .plan import ExperimentConfig, ExperimentContext, Training
from .run_plan import run_experiment
from .study_nets import swapped

FREEZE = {"all": "none", "new": "inherited"}  # what --train freezes
PLOT = PlotSpec("build-up from trained weights", "net", metrics=("accuracy", "test_accuracy", "macs"))
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class SwapAttention(ExperimentConfig):
    """What is built up.

    Attributes:
        weights: of the trained ResNet.
        msa: MSA blocks at the end of each stage; () takes those of `rule`.
        train: "all", or "new": the head and what was swapped in, alone; of the net before, then, the head.
    """

    weights: WeightsSpec
    msa: tuple[int, ...]
    train: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("train", self.train, FREEZE)


def swap_attention(config: SwapAttention, console: Console) -> tuple[dict[str, Any], RenderableType]:
    """Build up, or resume it.

    Returns:
        The rows before and after, their paired difference over seeds in accuracy, and what was inherited: as JSON,
        and for the terminal.

    Raises:
        InputError: if weights or data cannot be read, or the net has no blocks to swap.
        OperationError: if workers do not start or everything fails.
    """
    weights, data, recipe = config.weights.find(), load_classes(config.data, console), config.recipe
    before = headless(weights.network.genotype)
    before.check(data.image_size)
    after = swapped(before, config.msa or rule(before), data.image_size)
    if after.key == before.key:
        raise InputError(f"msa: {config.msa} swaps nothing in {weights.label}")
    differs = "".join(map(str, config.msa)), config.train.replace("all", "")  # from the usual build-up of these
    folder = run_folder(config.name or plain_name("buildup", config.weights.text, data.name, *differs))
    other_classes = weights.network.num_classes != len(data.classes)
    origin, start = saved_start(weights, folder, other_classes, FREEZE[config.train])
    steps, test = recipe.steps(len(data.train)), data.test is not None
    plan = [
        Training(net, recipe, steps, seed, {"net": name}, start=start, origin=origin, test=test)
        for seed in range(config.seeds)
        for name, net in ((BEFORE, before), (AFTER, after))
    ]
    settings = {"from": weights.label, "msa": [s.msa for s in after.stages], "train": config.train}
    starts = {Path(start.weights): weights.network}
    experiment = ExperimentContext(folder, "study", data, config.run, settings, starts)
    return _compared(folder, run_experiment(plan, experiment, console), data.facts()["images"])


def _compared(folder: Path, records: Sequence[Record], images: dict[str, int]) -> tuple[dict[str, Any], RenderableType]:
    ended = [r for r in records if r.status == "ok"]
    accuracies = {
        name: {r.seed: r.accuracy for r in ended if r.factors["net"] == name and r.accuracy is not None}
        for name in (BEFORE, AFTER)
    }
    change = None  # no seed has ended in both
    if accuracies[BEFORE].keys() & accuracies[AFTER].keys():
        change = paired(accuracies[BEFORE], accuracies[AFTER], CHANGE, resolution_of("accuracy", images))
    lineage = next((r.lineage for r in ended if r.factors["net"] == AFTER), {"share": 0.0, "parts": []})
    inherited = {name: lineage[name] for name in ("share", "parts")}
    rows = study_rows(records, PLOT.metrics, images)
    result = {"folder": str(folder), "difference": vars(change) if change else None}
    result |= {"verdict": verdict(change) if change else "undecided", "inherited": inherited, "rows": study_json(rows)}
    new = ", ".join(part["place"] for part in inherited["parts"] if part["how"] == "identity") or "nothing"
    lines = [
        f"after minus before, validation: {_in_points(change) if change else 'unknown yet'}",
        f"swapped in: {new}; {inherited['share']:.1%} of the weights inherited",
    ]
    return result, Group(study_table(rows, PLOT), plain(*lines))


def _in_points(change: MeanCI) -> str:
    low, high = change.low, change.high
    interval = "" if low is None or high is None else f" (95 %: {100 * low:+.2f} to {100 * high:+.2f})"
    return f"{100 * change.mean:+.2f} points{interval}, {change.n} seeds: {verdict(change)}"


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
