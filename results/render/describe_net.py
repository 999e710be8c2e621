"""One net as the commands show and cost print it: looked up, drawn, with its costs and its scores.

Our nets' costs come from closed formulas, timm's from counting. Reads records; no torch, no Ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...archs import Cost, Genotype, InputError, zoo
from ...archs.errors import is_whole, short_repr
from ...archs.json_files import read_json
from ...archs.layout import as_map
from ...archs.timm_net import TIMM, CountedCost, CutNet, Net, TimmNet, net_cost, net_from_dict
from ..ranking.front import still_rose
from ..ranking.metric import Metric, as_shown, run_metric, validation_metrics, value_text
from ..ranking.noise import noise_of
from ..ranking.quantities import metrics, quantity
from ..ranking.run_leaderboard import validation_images
from ..runs.nets import better_weights, run_and_trial
from ..runs.record import Record
from ..runs.retrained import retrained, summary_line
from ..runs.status import Status
from ..runs.store import find_run, read_data_facts, read_records, weights_file
from .drawing import net_drawing, net_svg, write_svg
from .tables import costs_text, text_table
from .terminal import plain

if TYPE_CHECKING:
    import numpy as np


SHOWN = 8  # classes, and pairs of classes
IMAGENET = ((224, 224), 1000, 3)
SCORES_WIDTH = 80  # characters: more scores are a row each


def read_confusion(folder: Path, record: Record, classes: int) -> np.ndarray | None:
    """Validation images of class (row) taken for class (column), (K, K); None where there is no whole file of them."""
    path = weights_file(folder, record).with_suffix(".npz")
    if not path.exists():
        return None
    from ..runs.arrays import read_array, unless_damaged

    def fits(shape: tuple[int, ...], dtype: np.dtype) -> bool:
        return shape == (classes, classes) and dtype.kind in "iu"

    expected = f"a confusion of classes, {classes}x{classes} whole numbers"
    return unless_damaged(
        partial(read_array, path, "val", fits, expected), f"{record.name} is shown without its classes"
    )


def per_class(confusion_KK: np.ndarray, classes: list[str]) -> list[dict[str, Any]]:
    """Images and accuracy of each class; None for one without images."""
    counts, right = confusion_KK.sum(1).tolist(), confusion_KK.diagonal().tolist()
    return [
        {"class": name, "images": n, "accuracy": hit / n if n else None}
        for name, n, hit in zip(classes, counts, right, strict=True)
    ]


def mistakes(confusion_KK: np.ndarray, most: int) -> list[tuple[int, int, int]]:
    """The commonest mistakes: the class, what it was taken for, and how many images."""
    wrong_KK = confusion_KK.astype("int64")
    wrong_KK.flat[:: len(wrong_KK) + 1] = 0  # the diagonal
    order = (-wrong_KK).argsort(axis=None, kind="stable")[:most].tolist()
    pairs = [divmod(at, len(wrong_KK)) for at in order if wrong_KK.flat[at]]
    return [(a, b, int(wrong_KK[a, b])) for a, b in pairs]


def confusion_lines(confusion_KK: np.ndarray, classes: list[str]) -> list[str]:
    """The worst classes, and the commonest mistakes."""
    rows = [row for row in per_class(confusion_KK, classes) if row["images"]]
    rows.sort(key=lambda row: row["accuracy"])
    weakest = ", ".join(f"{row['class']} {row['accuracy']:.2f}" for row in rows[:SHOWN])
    confused = ", ".join(f"{classes[a]} as {classes[b]} ({n})" for a, b, n in mistakes(confusion_KK, SHOWN))
    return [f"weakest classes: {weakest}", f"commonest mistakes: {confused or 'none'}"]


@dataclass(frozen=True)
class InputSpec:
    """Image size, classes and channels that a net is built for."""

    image_size: tuple[int, int]
    classes: int
    channels: int

    def cost(self, net: Net) -> Cost | CountedCost:
        return net_cost(net, self.classes, self.image_size, self.channels)

    def drawing(self, net: Genotype) -> RenderableType:
        height, width = self.image_size
        title = Text(f"at {height}x{width} px, {self.channels} channels, {self.classes} classes", "dim")
        return Group(title, net_drawing(net, self.classes, self.image_size, self.channels))

    def svg(self, net: Genotype) -> str:
        return net_svg(net, self.classes, self.image_size, self.channels)


def parse_size(text: str) -> tuple[int, int]:
    """(height, width) from "32" or "32x48"; InputError if it is neither."""
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(is_whole(side) for side in sides):
        raise InputError(f"image size: a side in pixels or HEIGHTxWIDTH, got {short_repr(text)}")
    return as_map((int(sides[0]), int(sides[-1])))


def input_spec(folder: Path) -> InputSpec:
    """The images and classes of a run; InputError if its run.json does not say."""
    facts = read_data_facts(folder)
    return InputSpec(as_map(tuple(facts["image_size"])), len(facts["classes"]), facts["in_chans"])


def find_trial(folder: Path, trial: int) -> Record:
    """The record of a trial; InputError if there is none."""
    by_trial = {r.trial: r for r in reversed(read_records(folder))}  # of one number twice, the first
    if trial not in [*by_trial]:  # a list can be no key
        known = f"{len(by_trial)} are recorded, from {min(by_trial)} to {max(by_trial)}" if by_trial else "none yet"
        raise InputError(f"run {folder.name}: no trial {trial}; {known}")
    return by_trial[trial]


def find_arch(
    arch: str, image_size: str = "", classes: int | None = None, channels: int | None = None
) -> tuple[Genotype, InputSpec]:
    """A net named by zoo, JSON file or RUN:TRIAL, and its input.

    Sizes left out are the run's, or ImageNet's: 224 px, 1000 classes, 3 channels. InputError if there is no such net or
    a size is wrong.
    """
    run, trial = run_and_trial(arch)
    record = None if trial is None else find_trial(find_run(run), trial)
    given = input_spec(find_run(run)) if record else InputSpec(*IMAGENET)
    size = parse_size(image_size) if image_size else given.image_size
    spec = InputSpec(size, classes or given.classes, channels or given.channels)
    if record:
        return Genotype.from_dict(record.genotype), spec
    if arch.endswith(".json"):
        return read_json(Path(arch), Genotype, Path.read_bytes), spec
    if arch not in zoo.names() and (":" in arch or "/" in arch):
        raise InputError(f"architecture: a zoo name, a genotype's .json file or RUN:TRIAL, got {short_repr(arch)}")
    return zoo.get(arch, size), spec


def recorded_cut(arch: str, image_size: str = "") -> tuple[CutNet, InputSpec] | None:
    """The cut of a pretrained net that RUN:TRIAL names, at its own size, and the run's input; None of other nets."""
    run, trial = run_and_trial(arch)
    net = None if trial is None else net_from_dict(find_trial(find_run(run), trial).genotype)
    if not isinstance(net, CutNet):
        return None
    if image_size and parse_size(image_size) != (net.side, net.side):
        raise InputError(f"image-size: a cut net has its own, {net.side} px, got {short_repr(image_size)}")
    return net, input_spec(find_run(run))


def draw_trial(folder: Path, trial: int) -> RenderableType:
    """One net of a run: its result, its drawing and its scores."""
    record, classes = find_trial(folder, trial), read_data_facts(folder)["classes"]
    metric = run_metric(folder)
    accuracy = "" if record.accuracy is None else f", validation {metric.name} {metric.text(record.accuracy)}"
    net = net_from_dict(record.genotype)
    name = f"{record.family} {record.key}" if isinstance(net, Genotype) else net.source
    title = f"trial {trial} of {folder.name}: {name}, {record.status}{accuracy}"
    known = summary_line(folder, record.key, metric)
    head = plain(*filter(None, (title, record.error, _start_line(record), _better_line(folder, record, metric), known)))
    drawing = input_spec(folder).drawing(net) if isinstance(net, Genotype) else _timm_lines(net, record)
    if record.accuracy is None:
        return Group(head, drawing)
    confusion_KK = read_confusion(folder, record, len(classes))
    confused = [] if confusion_KK is None else [plain(*confusion_lines(confusion_KK, classes))]
    trained = _cut_line(record) if record.is_cut else _training_line(folder, record, metric)
    return Group(head, drawing, _scores_table(record, metric), *confused, plain(trained, style="dim"))


def _training_line(folder: Path, record: Record, metric: Metric) -> str:
    how = ", ".join(f"{name} {value}" for name, value in record.runtime.items())
    rising = " and still rose at the end" * bool(_rising(folder, record, metric))
    return f"trained on {record.device} ({how}), {record.seconds:.1f} s{rising}"


def _cut_line(record: Record) -> str:
    """How a cut of a pretrained net was judged, and what of its weights is pretrained."""
    about = (
        dict.fromkeys(("source", "pretrained_on", "licence"), "unknown") | {"judged": 0, "share": 1} | record.runtime
    )
    judged = f"judged by cross-validation over {about['judged']:,} pictures"
    if record.weights == "frozen":
        source = f"weights {about['source']}, pretrained on {about['pretrained_on']}, licence {about['licence']}"
        return f"{judged}, as it was pretrained, its head a classifier in closed form; {source}"
    way = f"{about['share']:.0%} of the way from the frozen to the trained weights"
    return f"{judged}, trained on for {record.budget['done']} steps in {record.seconds:.0f} s, {way}"


def _better_line(folder: Path, record: Record, metric: Metric) -> str:
    """Where the net has better weights, from before it was trained on or after; "" where these are the best."""
    better = better_weights(read_records(folder), record)
    if better.trial == record.trial or record.status != Status.OK:
        return ""
    return f"the same net has {metric.text(better.accuracy)} as trial {better.trial}: export and retrain take that one"


def _start_line(record: Record) -> str:
    """Weights that the net started from, and their share of its parameters; "" of fresh ones."""
    label, share = record.lineage.get("weights"), record.lineage.get("share")
    known = isinstance(label, str) and isinstance(share, int | float)
    return f"started from {label}: {share:.0%} of its parameters" if known else ""


def _timm_lines(net: TimmNet | CutNet, record: Record) -> RenderableType:
    """Costs of a pretrained net, in place of a drawing, and where it is cut."""
    costs = costs_text(record.cost)
    cut, size = "", ""
    if isinstance(net, CutNet):
        cut = f"cut after block {net.block} at {net.side} px, pooled by {net.pooling}; "
        size = f" --image-size {net.side}"
    parts = f"; its parts: alternas cost {TIMM}{net.name}{size}" if net.source != net.name else ""
    return plain(f"{cut}{costs}{parts}", style="dim")


def svg_trial(folder: Path, trial: int, path: Path) -> None:
    """Write the picture of one net of a run; InputError if there is no such net, or the file cannot be written."""
    net = Genotype.from_dict(find_trial(folder, trial).genotype)
    write_svg(path, input_spec(folder).svg(net))


def trial_facts(folder: Path, trial: int) -> dict[str, Any]:
    """One record of a run as JSON, with the accuracy and the confusion of its classes where they were measured."""
    record, classes = find_trial(folder, trial), read_data_facts(folder)["classes"]
    confusion_KK, metric = read_confusion(folder, record, len(classes)), run_metric(folder)
    facts = as_shown(record.to_dict(), metric) | {"rising": _rising(folder, record, metric)}
    if confusion_KK is None:
        return facts
    return facts | {"per_class": per_class(confusion_KK, classes), "confusion": confusion_KK.tolist()}


def _rising(folder: Path, record: Record, metric: Metric) -> bool | None:
    images = validation_images(folder)
    return still_rose(record, images, metric, noise_of(read_records(folder), metric, images, retrained(folder)))


def _scores_table(record: Record, metric: Metric) -> Table:
    """Scores on validation and training images: a large gap is overfitting, two bad ones underfitting."""
    splits = {"validation": validation_metrics(record, metric)}
    if train := {name.removeprefix("train_"): v for name, v in record.metrics.items() if name.startswith("train_")}:
        splits["training"] = train
    if test := {name.removeprefix("test_"): v for name, v in record.metrics.items() if name.startswith("test_")}:
        splits["test"] = test
    measured = {name: None for scores in splits.values() for name, value in scores.items() if value is not None}
    shown = [name for name in metrics() if name in measured]
    shown += [name for name in measured if name not in shown and not name.startswith(("train_", "test_"))]
    cells = {quantity(name).title: [value_text(scores.get(name)) for scores in splits.values()] for name in shown}
    rows = [["images", *splits], *([name, *values] for name, values in cells.items())]
    if sum(max(max(map(len, name.split())), *map(len, values)) + 2 for name, *values in rows) <= SCORES_WIDTH:
        rows = [list(row) for row in zip(*rows, strict=True)]  # a row for each split, a column for each score
    names, *rows = rows
    return text_table([dict(zip(names, row, strict=True)) for row in rows], left=names[:1])


def cost_svg(
    arch: str, path: Path, image_size: str = "", classes: int | None = None, channels: int | None = None
) -> None:
    """Write the picture of one net; arguments as of `cost_facts`. InputError if it is timm's, or cannot be written."""
    if arch.startswith(TIMM):
        raise InputError(f"svg: only nets that have a genotype can be drawn, got {short_repr(arch)}")
    net, spec = find_arch(arch, image_size, classes, channels)
    write_svg(path, spec.svg(net))
