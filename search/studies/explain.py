"""`explain`: trained nets of a run, the images of its data, and what the papers' analyses say of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from ...archs import Genotype, InputError
from ...archs.errors import count_of, one_of, shown
from ...archs.weights import read
from ...results.chosen import chosen_net, named_net, trained_weights
from ...results.probes.catalogue import ANALYSES, analyse, chosen
from ...results.probes.index import FOLDER, Explained, write_index
from ...results.probes.subject import Images, Subject
from ...results.probes.write import write_findings
from ...results.record import Record
from ...results.show import scene_of
from ...results.store import read_records
from ..data.dataset import DataSet
from ..data.sample import images_at
from ..training.bench import sample
from ..training.memory import open_bench
from ..training.recipe import Recipe
from .of_run import data_of, recipe_of

MINIBATCHES, MINIBATCH = 16, 16  # of augmented training images: Park & Kim take batches of 16
ZOO = "zoo"


@dataclass(frozen=True)
class Explain:
    """What is to be explained, and how thoroughly.

    Attributes:
        net: RUN or RUN:TRIAL; of a run its best net.
        against: a trial of the run, RUN:TRIAL, "zoo" for the plain ResNet of the run next in MACs, or "".
        analyses: their names; () takes all.
        samples: validation images, at most.
        device: where the nets are.
        out: folder of pictures and tables; None is explain/ in the run's.
    """

    net: str
    against: str = ""
    analyses: tuple[str, ...] = ()
    samples: int = 1024
    device: str = "cpu"
    out: Path | None = None

    def __post_init__(self) -> None:
        chosen(self.analyses)
        one_of("device", self.device, ("cpu", "cuda"))
        count_of("samples", self.samples, least=8)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("device: no CUDA here, got cuda")


@dataclass(frozen=True)
class Chosen:
    """A trained net: the folder of its weights, its record, and its run where that is another than the first net's."""

    home: Path
    record: Record
    run: str = ""

    @property
    def name(self) -> str:
        """For people: no two nets share it."""
        trial = self.record.factors.get("trial", self.record.trial)
        return f"{self.run + ' ' if self.run else ''}trial {trial} ({self.record.family})"


def explain(asked: Explain, console: Console) -> dict[str, Any]:
    """Do the analyses, write their pictures and tables; what was found, as explain.json says it.

    Raises:
        InputError: if there is no such net, its weights are gone, or the data are not those of the run any more.
    """
    run, trial = named_net(asked.net)
    nets = [Chosen(*chosen_net(run, trial))]
    if asked.against:
        nets.append(_other(asked.against, run, nets[0].record))
    for net in nets:
        trained_weights(net.home, net.record)
    data = data_of(run, console)
    subjects = _subjects(nets, recipe_of(run), data, asked)
    folder = asked.out or run / FOLDER
    _make(folder)
    parts = list(_parts(chosen(asked.analyses), subjects, folder, console))
    return write_index(folder, _facts(run, nets, subjects[0], data) | {"folder": str(folder)}, parts)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"explain: {shown(str(folder))} cannot be written to ({error.strerror})") from None


def said(told: dict[str, Any]) -> str:
    """What the command prints: each analysis in words, and where its picture is."""
    lines = [f"{told['images']} validation images of {told['data']}"]
    for part in told["analyses"]:
        lines.append(f"\n{part['title']}" + (f"  ({told['folder']}/{part['png']})" if part["png"] else ""))
        for net, reading in zip(part["nets"], part["readings"], strict=True):
            lines.append(textwrap.fill(f"{net}: {reading}", 100, initial_indent="  ", subsequent_indent="  "))
    return "\n".join(lines)


def _parts(names: list[str], subjects: list[Subject], folder: Path, console: Console) -> Iterator[Explained]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=ANALYSES[name].about.lower())
            if ANALYSES[name].two:
                pair = " and ".join(subject.name for subject in subjects)
                found = [(pair, analyse(name, subjects[0], subjects[1] if len(subjects) > 1 else None))]
            else:
                found = [(subject.name, analyse(name, subject)) for subject in subjects]
            yield write_findings(folder, name, found)
            progress.advance(task)


def _other(text: str, run: Path, record: Record) -> Chosen:
    """The net to hold it against.

    Raises:
        InputError: if there is none of that name.
    """
    if text == ZOO:
        plain = [r for r in read_records(run) if r.kind == "baseline" and r.status == "ok" and r.key != record.key]
        if not plain:
            raise InputError(f"against: run {run.name} has no plain ResNet that was trained to the end")
        macs = record.cost["macs"]
        return Chosen(run, min(plain, key=lambda r: abs(math.log(r.cost["macs"] / macs))))
    if text.isascii() and text.isdigit() and len(text) < 10:
        return Chosen(*chosen_net(run, int(text)))
    other, trial = named_net(text)
    scenes = scene_of(run), scene_of(other)
    if scenes[0] != scenes[1]:
        raise InputError(f"against: nets of {other.name} see other images or classes than those of {run.name}")
    return Chosen(*chosen_net(other, trial), "" if other.samefile(run) else other.resolve().name)


def _subjects(nets: list[Chosen], recipe: Recipe, data: DataSet, asked: Explain) -> list[Subject]:
    """The nets with their weights; all are shown the same images, which are read once."""
    device = torch.device(asked.device)
    images, training = images_of(data, asked.samples, device), training_batches(data, recipe, device)
    found = []
    for net in nets:
        genotype = Genotype.from_dict(net.record.genotype)
        network = read(trained_weights(net.home, net.record), genotype, data.image_size).to(device).eval()
        found.append(Subject(net.name, network, images, training, recipe.weight_decay))
    return found


def training_batches(data: DataSet, recipe: Recipe, device: torch.device) -> tuple[tuple[Tensor, Tensor], ...]:
    """Some small batches of training images, augmented as the recipe says but not mixed."""
    few = replace(recipe, batch=min(MINIBATCH, len(data.train)), accumulate=1)
    return tuple(open_bench(data, device, 0).batches(few, 0, 0, MINIBATCHES))


def images_of(data: DataSet, most: int, device: torch.device) -> Images:
    """Validation images, the same ones each time, with black 0 and white 1."""
    places, peak = sample(len(data.val), most).numpy(), data.peak or 1.0

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.float32) / peak, device=device)

    labels = torch.as_tensor(data.val.y_N[places], device=device)
    return Images(tensor(images_at(data.val, places)), labels, tensor(data.mean), tensor(data.std))


def _facts(run: Path, nets: list[Chosen], subject: Subject, data: DataSet) -> dict[str, Any]:
    return {
        "run": run.resolve().name,
        "nets": [
            {"name": n.name, "trial": n.record.trial, "key": n.record.key, "accuracy": n.record.own_accuracy}
            for n in nets
        ],
        "data": data.name,
        "images": len(subject.images),
    }
