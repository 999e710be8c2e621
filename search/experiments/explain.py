"""`explain`: trained nets of a run, the images of its data, and what the papers' analyses say of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ...archs import InputError
from ...archs.errors import check_choice, check_count, is_whole
from ...results.analysis.registry import ANALYSES, analyse, chosen
from ...results.analysis_tools.across_nets import TRENDS
from ...results.analysis_tools.index import FOLDER, Explained, open_folder, write_index
from ...results.analysis_tools.inputs import AnalysisInput
from ...results.analysis_tools.output import write_results
from ...results.render.net import input_spec
from ...results.runs.record import Record
from ...results.runs.select import parse_run_spec, select_net, trained_weights
from ...results.runs.store import read_data_facts, read_records
from ..data.load import coming, progress_on
from ..data.splits import View
from ..engine.resources import Resources
from ..training.recipe import Recipe
from .explain_comparison import is_study, study_nets, study_parts
from .explain_training import NAME, SHARE, TITLE, states
from .shown_images import write_shown
from .trained_nets import AnalysisContext, TrainedNet, analysis_context, data_of, view_of

ZOO = "zoo"


@dataclass(frozen=True)
class Explain:
    """What is to be explained, and how thoroughly.

    Attributes:
        net: RUN or RUN:TRIAL; of a run its best net, of a study's all.
        against: a trial of the run, RUN:TRIAL, "zoo" for the plain ResNet of the run next in MACs, or "".
        analyses: their names; () takes all.
        samples: validation images, at most.
        device: where the nets are.
        out: folder of pictures and tables; None is explain/ in the run's.
        training: where to train the nets again, for states of their training; None does not.
    """

    net: str
    against: str = ""
    analyses: tuple[str, ...] = ()
    samples: int = 1024
    device: str = "cpu"
    out: Path | None = None
    training: Resources | None = None

    def __post_init__(self) -> None:
        chosen(self.analyses)
        check_choice("device", self.device, ("cpu", "cuda"))
        check_count("samples", self.samples, least=8)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("device: no CUDA here, got cuda")


def explain(asked: Explain, console: Console) -> dict[str, Any]:
    """Do the analyses, write their pictures and tables; what was found, as explain.json says it.

    Raises:
        InputError: if there is no such net, its weights are gone, or the data are not those of the run any more.
    """
    run, trial = parse_run_spec(asked.net)
    if trial is None and is_study(run):
        return _explain_study(asked, run, console)
    nets = [_named(*select_net(run, trial))]
    if asked.against:
        nets.append(_other(asked.against, run, nets[0].record))
        if nets[0].name == nets[1].name:
            raise InputError(f"against: {asked.against} is {nets[0].name}, the net itself")
    for net in nets:
        trained_weights(net.home, net.record)
    ground = analysis_context(data_of(run, console), asked.samples, torch.device(asked.device))
    subjects = [ground.subject(net) for net in nets]
    folder = open_folder(asked.out or run / FOLDER)
    trained = _trained(nets)
    few = [(View(SHARE, draw=net.record.seed), Recipe.from_dict(net.record.recipe)) for net in nets]
    write_shown(folder, ground.data, asked.samples, [*trained, *(few if asked.training else [])])

    def parts() -> Iterator[Explained]:
        yield from _parts(chosen(asked.analyses), subjects, folder, console)
        if asked.training:
            yield write_results(folder, NAME, states(run, nets, ground, asked.training, console), TITLE)

    return write_index(folder, _facts(run, nets, ground, folder), parts())


def _explain_study(asked: Explain, run: Path, console: Console) -> dict[str, Any]:
    """All nets of a study side by side, by the analyses that can be held so.

    Raises:
        InputError: if something asked for does not go with a study, or it has no trained nets.
    """
    if asked.against or asked.training:
        raise InputError(f"explain: {run.name} is a study, whose nets are all looked at; no --against or --training")
    for name in asked.analyses:
        check_choice("analysis of a study", name, TRENDS)
    data = data_of(run, console)
    nets = study_nets(run, data)
    ground = analysis_context(data, asked.samples, torch.device(asked.device))
    folder = open_folder(asked.out or run / FOLDER)
    write_shown(folder, ground.data, asked.samples, _trained(nets))
    names = [name for name in chosen(asked.analyses) if name in TRENDS]
    parts = study_parts(run, names, nets, ground, folder, console)
    return write_index(folder, _facts(run, nets, ground, folder), parts)


def said(told: dict[str, Any]) -> list[str]:
    """The lines that the command prints: each analysis in words, and where its picture is."""
    lines = [f"{told['images']} validation images of {told['data']}"]
    for part in told["analyses"]:
        lines += ["", part["title"] + (f"  ({told['folder']}/{part['png']})" if part["png"] else "")]
        for net, summary in zip(part["nets"], part["summaries"], strict=True):
            lines += textwrap.wrap(f"{net}: {summary}", 100, initial_indent="  ", subsequent_indent="  ")
    return lines


def _parts(names: list[str], subjects: list[AnalysisInput], folder: Path, console: Console) -> Iterator[Explained]:
    with progress_on(console) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            coming(progress, task, ANALYSES[name].about.lower())
            if ANALYSES[name].two:
                pair = " and ".join(subject.name for subject in subjects)
                found = [(pair, analyse(name, subjects[0], subjects[1] if len(subjects) > 1 else None))]
            else:
                found = [(subject.name, analyse(name, subject)) for subject in subjects]
            yield write_results(folder, name, found)
            progress.advance(task)


def _other(text: str, run: Path, record: Record) -> TrainedNet:
    """The net to hold it against.

    Raises:
        InputError: if there is none of that name.
    """
    if text == ZOO:
        plain = [r for r in read_records(run) if r.kind == "baseline" and r.status == "ok" and r.key != record.key]
        if not plain:
            raise InputError(f"against: run {run.name} has no plain ResNet that was trained to the end")
        macs = record.cost["macs"]
        return _named(run, min(plain, key=lambda r: abs(math.log(r.cost["macs"] / macs))))
    if is_whole(text):
        return _named(*select_net(run, int(text)))
    other, trial = parse_run_spec(text)
    if _shown(run) != _shown(other):
        raise InputError(f"against: nets of {other.name} see other images or classes than those of {run.name}")
    return _named(*select_net(other, trial), "" if other.samefile(run) else other.resolve().name)


def _shown(run: Path) -> tuple[Any, ...]:
    """What its nets are shown: size and classes of the images, and which they are."""
    return input_spec(run), read_data_facts(run).get("split")


def _named(home: Path, record: Record, run: str = "") -> TrainedNet:
    """A net as people call it: no two share a name, where `run` says whose a net of another run is."""
    trial = record.factors.get("trial", record.trial)
    return TrainedNet(f"{run + ' ' if run else ''}trial {trial} ({record.family})", home, record)


def _trained(nets: Sequence[TrainedNet]) -> list[tuple[View, Recipe]]:
    """What nets were trained on, and how."""
    return [(view_of(net.record), Recipe.from_dict(net.record.recipe)) for net in nets]


def _facts(run: Path, nets: Sequence[TrainedNet], ground: AnalysisContext, folder: Path) -> dict[str, Any]:
    return {
        "run": run.resolve().name,
        "nets": [
            {"name": n.name, "trial": n.record.trial, "key": n.record.key, "accuracy": n.record.own_accuracy}
            for n in nets
        ],
        "data": ground.data.name,
        "images": len(ground.images),
        "folder": str(folder),
    }
