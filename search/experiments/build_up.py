"""The AlterNet build-up of one net: from a plain ResNet backwards, one block swapped for attention at a time.

Park & Kim, ICLR 2022, section 4: going backwards from the end of the last stage, a conv block becomes an MSA block; it
stays if the net is better beyond the noise of seeds, else it is undone and the stage before is next. Every net starts
from the same weights and has the same training and seeds, so that the swap alone makes the difference: a trained
ResNet's, which all other blocks inherit (the practical form for one GPU), or fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType

from ...archs import Genotype, InputError, zoo
from ...archs.errors import check_choice
from ...archs.layout import Map
from ...results.ranking.metric import Metric
from ...results.ranking.stats import CHANGE, MeanCI, paired, resolution_of, verdict
from ...results.render.describe_net import find_arch
from ...results.render.experiment import PlotSpec, study_json, study_rows, study_table
from ...results.render.terminal import plain
from ...results.runs.record import Record
from ...results.runs.retrained import best_of
from ...results.runs.status import Status
from ...results.runs.store import as_argument, plain_name, run_folder
from ...results.runs.weights_spec import WeightsSpec
from ..pretrained import starting_from
from ..samplers.buildup import VERDICTS, Step, greedy_path, steps_table
from .plan import ExperimentContext, Training, repeated
from .run_plan import ExperimentConfig, run_experiment
from .study_nets import swapped
from .train import headless

FREEZE = {"all": "none", "new": "inherited"}  # what --train freezes
PLOT = PlotSpec("nets of the build-up", "msa", metrics=("accuracy", "test_accuracy", "macs"))


@dataclass(frozen=True)
class BuildUp(ExperimentConfig):
    """Settings of a build-up.

    Attributes:
        start: the plain ResNet: trained weights, or by a zoo name or a genotype's .json file one without.
        msa: MSA blocks at the end of each stage, swapped in at once; () goes by the rule.
        train: "all", or "new": the head and what was swapped in, alone; of the ResNet itself, then, the head.
    """

    start: WeightsSpec
    msa: tuple[int, ...]
    train: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("train", self.train, FREEZE)
        if self.seeds < 2 and not self.msa:
            raise InputError("seeds: the rule keeps what is better beyond the noise, which takes 2 or more, got 1")

    @property
    def is_fresh(self) -> bool:
        """Whether the start has no weights."""
        return self.start.text in zoo.names() or self.start.text.endswith(".json")


def build_up(config: BuildUp, console: Console) -> tuple[dict[str, Any], RenderableType]:
    """Build up, or resume it.

    Returns:
        The steps with their paired differences over seeds in accuracy, the net that came of them, and the rows of all
        nets: as JSON, and for the terminal.

    Raises:
        InputError: if weights or data cannot be read, or the net has no blocks to swap.
        OperationError: if workers do not start or everything fails.
    """
    data, recipe = config.opened(console)
    differs = "".join(map(str, config.msa)), config.train.replace("all", "")  # from the usual build-up of these
    folder = run_folder(config.name or plain_name("buildup", config.start.text, data.name, *differs))
    pretrained, label = None, config.start.text
    if config.is_fresh:
        net, _ = find_arch(label, "x".join(map(str, data.image_size)))
        if config.train != "all":
            raise InputError(f"train: {config.train} is for trained weights; {label} has none")
    else:
        weights = config.start.find()
        net, label = headless(weights.network.genotype), weights.label
        other_classes = weights.network.num_classes != len(data.classes)
        pretrained = starting_from(weights, folder, other_classes, FREEZE[config.train])
    _check_start(net, label)
    grow = partial(_grown, net, data.image_size)
    if config.msa:
        grow = _all_at_once(net, config.msa, data.image_size, label)

    resolution = resolution_of("accuracy", data.facts()["images"])

    def walk(records: Sequence[Record]) -> Walk:
        return greedy_path(
            net, 1 if config.msa else len(net.stages), grow, partial(_judged, records, config.seeds, resolution)
        )

    def trainings(of: Genotype) -> list[Training]:
        factors = {"msa": " ".join(map(str, _counts(of)))}
        return repeated(of, recipe, data, range(config.seeds), factors, pretrained, test=data.test is not None)

    def following(records: Sequence[Record]) -> list[Training]:
        _, waiting = walk(records)
        return trainings(waiting) if waiting else []

    settings = {"from": label, "key": net.key, "msa": list(config.msa), "train": config.train}
    context = ExperimentContext(folder, "study", data, config.run, settings, pretrained)
    records = run_experiment(trainings(net), context, console, following)
    return _told(folder, net, walk(records)[0], records, data.facts()["images"])


# --- The rule

Taken = tuple[Genotype, Genotype, MeanCI | None, str]  # a step: the net before, the net behind, difference, verdict
Walk = tuple[list[Taken], Genotype | None]


def _check_start(net: Genotype, label: str) -> None:
    if any(stage.places for stage in net.stages):
        raise InputError(f"buildup: starts from a ResNet; {label} has attention blocks already")
    if not any(stage.depth >= 2 for stage in net.stages):
        depths = ", ".join(str(s.depth) for s in net.stages) or "no"
        raise InputError(f"buildup: needs a stage of two blocks or more to swap one; {label} has {depths} blocks")


def _counts(net: Genotype) -> tuple[int, ...]:
    """MSA blocks by stage."""
    return tuple(len(stage.places) for stage in net.stages)


def _grown(start: Genotype, image: Map, net: Genotype, stage: int) -> Genotype | None:
    """`start` with the MSA blocks of `net` and one more at the end of a stage; None if the stage has no room."""
    counts = list(_counts(net))
    counts[stage] += 1
    return swapped(start, tuple(counts), image) if net.stages[stage].depth >= 2 * counts[stage] else None


def _all_at_once(start: Genotype, msa: tuple[int, ...], image: Map, label: str) -> Callable[..., Genotype | None]:
    """A single step, to the net with `msa` blocks a stage."""
    end = swapped(start, msa, image)
    if end.key == start.key:
        raise InputError(f"msa: {msa} swaps nothing in {label}")
    return lambda net, _: end if net.key == start.key else None


def _judged(
    records: Sequence[Record], seeds: int, resolution: float, before: Genotype, after: Genotype
) -> tuple[MeanCI | None, str]:
    """Paired difference of two nets over seeds, and what it says; see `greedy_path`."""
    ended = [[r for r in records if r.key == net.key] for net in (before, after)]
    if len(ended[1]) < seeds:
        return None, "new"
    if len(ended[0]) < seeds:
        return None, "pending"
    old, new = ({r.seed: r.accuracy for r in of if r.status == Status.OK and r.accuracy is not None} for of in ended)
    if not old.keys() & new.keys():
        return None, "failed"
    difference = paired(old, new, CHANGE, resolution)
    return difference, VERDICTS[verdict(difference)]


# --- What came of it


def _told(
    folder: Path, start: Genotype, taken: Sequence[Taken], records: Sequence[Record], images: Mapping[str, int]
) -> tuple[dict[str, Any], RenderableType]:
    rows = study_rows(records, PLOT.metrics, images)
    means = {row["msa"]: row["accuracy"]["mean"] for row in rows}
    nets = [("", start, None, "start"), *((before.key, *rest) for before, *rest in taken)]
    steps = [
        Step(0, _counts(net), net.key, parent, means.get(" ".join(map(str, _counts(net)))), difference, said)
        for parent, net, difference, said in nets
    ]
    chosen = [step for step in steps if step.verdict in ("start", "accepted")][-1]
    trained = [r for r in records if r.key == chosen.key and r.status == Status.OK]
    lines, best = list[str](), best_of(trained) if trained else None
    if best:
        lines.append(f"MSA blocks by stage that stay: {' '.join(map(str, chosen.msa))}")
        if "share" in best.lineage:
            lines.append(f"{best.lineage['share']:.1%} of its weights were inherited")
        lines.append(f"export it:  alternas export {as_argument(folder)}:{best.trial} --out {folder.name}-best")
    result = {
        "folder": str(folder),
        "steps": [asdict(step) for step in steps],
        "chosen": best and {"trial": best.trial, "key": best.key, "msa": chosen.msa, "lineage": best.lineage},
        "rows": study_json(rows),
    }
    return result, Group(steps_table(steps, [start], Metric()), study_table(rows, PLOT), plain(*lines))
