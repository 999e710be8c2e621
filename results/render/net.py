"""What the commands show and cost look up and draw. Reads records; no torch, no Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...archs import Cost, Genotype, InputError, static_cost, zoo
from ...archs.errors import is_whole, short_repr
from ...archs.layout import as_map
from ..runs.record import Record
from ..runs.retrained import summary_line
from ..runs.store import find_run, read_data_facts, read_records, run_and_trial
from .svg import net_svg, write_svg
from .tables import net_drawing
from .terminal import plain

IMAGENET = ((224, 224), 1000, 3)


@dataclass(frozen=True)
class InputSpec:
    """The images and classes that a net is looked at with."""

    image_size: tuple[int, int]
    classes: int
    channels: int

    def cost(self, net: Genotype) -> Cost:
        return static_cost(net, self.classes, self.image_size, self.channels)

    def drawing(self, net: Genotype) -> RenderableType:
        height, width = self.image_size
        title = Text(f"at {height}x{width} px, {self.channels} channels, {self.classes} classes", "dim")
        return Group(title, net_drawing(net, self.classes, self.image_size, self.channels))

    def svg(self, net: Genotype) -> str:
        return net_svg(net, self.classes, self.image_size, self.channels)


def parse_size(text: str) -> tuple[int, int]:
    """(height, width) from "32" or "32x48".

    Raises:
        InputError: if it is neither.
    """
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(is_whole(side) for side in sides):
        raise InputError(f"image size: a side in pixels or HEIGHTxWIDTH, got {short_repr(text)}")
    return as_map((int(sides[0]), int(sides[-1])))


def input_spec(folder: Path) -> InputSpec:
    """The images and classes of a run.

    Raises:
        InputError: if its run.json does not say.
    """
    facts = read_data_facts(folder)
    return InputSpec(as_map(tuple(facts["image_size"])), len(facts["classes"]), facts["in_chans"])


def find_trial(folder: Path, trial: int) -> Record:
    """The record of a trial.

    Raises:
        InputError: if there is none.
    """
    records = read_records(folder)
    found = next((r for r in records if r.trial == trial), None)
    if found is None:
        known = (
            f"recorded are {min(r.trial for r in records)} to {max(r.trial for r in records)}"
            if records
            else "none yet"
        )
        raise InputError(f"run {folder.name}: no trial {trial}; {known}")
    return found


def find_arch(
    arch: str, image_size: str = "", classes: int | None = None, channels: int | None = None
) -> tuple[Genotype, InputSpec]:
    """A net named by zoo, JSON file or RUN:TRIAL, and what to look at it with.

    Sizes left out are the run's, or ImageNet's: 224 px, 1000 classes, 3 channels.

    Raises:
        InputError: if there is no such net or a size is wrong.
    """
    run, trial = run_and_trial(arch)
    record = None if trial is None else find_trial(find_run(run), trial)
    given = input_spec(find_run(run)) if record else InputSpec(*IMAGENET)
    size = parse_size(image_size) if image_size else given.image_size
    scene = InputSpec(size, classes or given.classes, channels or given.channels)
    if record:
        return Genotype.from_dict(record.genotype), scene
    if arch.endswith(".json"):
        return _from_file(Path(arch)), scene
    if arch not in zoo.names() and (":" in arch or "/" in arch):
        raise InputError(f"architecture: a zoo name, a genotype's .json file or RUN:TRIAL, got {short_repr(arch)}")
    return zoo.get(arch, size), scene


def draw_trial(folder: Path, trial: int) -> RenderableType:
    """One net of a run: its result, its drawing and its scores."""
    from .scores import confusion_of, scores_drawing

    record, classes = find_trial(folder, trial), read_data_facts(folder)["classes"]
    found = "" if record.accuracy is None else f", validation accuracy {record.accuracy:.4f}"
    title = f"trial {trial} of {folder.name}: {record.family} {record.key}, {record.status}{found}"
    again = summary_line(folder, record.key)
    head = plain(*filter(None, (title, record.error, again)))
    drawing = input_spec(folder).drawing(Genotype.from_dict(record.genotype))
    if record.accuracy is None:
        return Group(head, drawing)
    scores = scores_drawing(record, confusion_of(folder, record, len(classes)), classes)
    return Group(head, drawing, scores)


def svg_trial(folder: Path, trial: int, path: Path) -> None:
    """Write the picture of one net of a run.

    Raises:
        InputError: if there is no such net, or the file cannot be written.
    """
    net = Genotype.from_dict(find_trial(folder, trial).genotype)
    write_svg(path, input_spec(folder).svg(net))


def trial_facts(folder: Path, trial: int) -> dict[str, Any]:
    """One record of a run as JSON, with the accuracy and the confusion of its classes where they were measured."""
    from .scores import confusion_of, per_class

    record, classes = find_trial(folder, trial), read_data_facts(folder)["classes"]
    confusion_KK = confusion_of(folder, record, len(classes))
    if confusion_KK is None:
        return record.to_dict()
    return record.to_dict() | {"per_class": per_class(confusion_KK, classes), "confusion": confusion_KK.tolist()}


def _from_file(path: Path) -> Genotype:
    try:
        return Genotype.from_json(path.read_text())
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
