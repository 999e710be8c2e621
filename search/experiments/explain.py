"""`explain`: trained nets of a run, the images of its data, and what the papers' analyses say of them.

Of a search: its best net, beside another one. Of a study: all its nets, beside what the study varies, over all seeds
(Raghu et al., NeurIPS 2021, section 7; Park & Kim, ICLR 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group, RenderableType

from ...archs import InputError
from ...archs.errors import check_choice, check_count, is_whole
from ...results.analysis.registry import ANALYSES, analyse, chosen
from ...results.analysis_tools.comparison import NetFacts, compare_nets
from ...results.analysis_tools.findings import Finding, findings_table
from ...results.analysis_tools.index import FOLDER, Explained, open_folder, write_index
from ...results.analysis_tools.inputs import AnalysisInput
from ...results.analysis_tools.output import write_results
from ...results.analysis_tools.trends import TRENDS
from ...results.ranking.metric import as_shown, run_metric
from ...results.ranking.noise import noise_of
from ...results.render.describe_net import input_spec
from ...results.render.terminal import plain
from ...results.runs.nets import best_weights, trained_nets
from ...results.runs.record import Record
from ...results.runs.retrained import retrained
from ...results.runs.run_spec import parse_run_spec
from ...results.runs.store import read_data_facts, read_records, read_settings
from ...results.runs.trained_weights import select_net, trained_weights
from ..data.load import one_class_each, track
from .explain_study import StudyNet, study_nets, study_parts
from .studies import STUDIES
from .trained_nets import TrainedNet, analysis_context, data_of, threads_for

ZOO = "zoo"


@dataclass(frozen=True)
class Explain:
    """Settings of `explain`."""

    net: str  # RUN or RUN:TRIAL; of a run its best net, of a study's all
    against: str = ""  # a trial of the run, RUN:TRIAL, "zoo" for the plain ResNet of the run next in MACs, or ""
    analyses: tuple[str, ...] = ()  # their names; () takes all
    samples: int = 1024  # validation images, at most
    device: str = "cpu"  # where the nets are
    out: Path | None = None  # folder of pictures and tables; None is explain/ in the run's

    def __post_init__(self) -> None:
        chosen(self.analyses)
        check_choice("device", self.device, ("cpu", "cuda"))
        check_count("samples", self.samples, least=8)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("device: no CUDA here, got cuda")


def explain(config: Explain, console: Console) -> dict[str, Any]:
    """Do the analyses, write their pictures and tables; returns the content of explain.json.

    InputError if there is no such net, its weights are gone, the data are not those of the run any more, or something
    asked for does not go with a study.
    """
    run, trial = parse_run_spec(config.net)
    study: list[StudyNet] = []
    if trial is None and read_settings(run).get("settings", {}).get("study") in STUDIES:
        if config.against:
            raise InputError(f"explain: {run.name} is a study, whose nets are all looked at; no --against")
        for name in config.analyses:
            check_choice("analysis of a study", name, TRENDS)
        data = one_class_each(data_of(run, console))
        nets = study = study_nets(run, data)
    else:
        nets = _nets(config, run, trial)
        data = one_class_each(data_of(run, console))
    folds = read_settings(run).get("settings", {}).get("folds", 0)
    context = analysis_context(data, config.samples, torch.device(config.device), folds)
    inputs = [] if study else [context.analysis_input(net) for net in nets]
    folder = open_folder(config.out or run / FOLDER)

    def parts() -> Iterator[Explained]:
        names = chosen(config.analyses)
        if study:
            yield from study_parts([name for name in names if name in TRENDS], study, context, folder, console)
        else:
            yield from net_parts(names, inputs, folder, console)

    metric = run_metric(run)
    facts = {
        "run": run.resolve().name,
        "nets": [
            {"name": n.name, "trial": n.record.factors.get("trial", n.record.trial), "key": n.record.key}
            | as_shown({"accuracy": n.record.own_accuracy}, metric)
            for n in nets
        ],
        "data": data.name,
        "images": len(context.images),
        "folder": str(folder),
    }
    with threads_for(nets):
        if len(inputs) == 2:
            return write_index(folder, facts, parts(), lambda found: _compared(run, nets, found))
        return write_index(folder, facts, parts())


def drawing(facts: dict[str, Any]) -> RenderableType:
    """What the command prints: a table of findings for each analysis, where its picture is, and the comparison."""
    parts: list[RenderableType] = [plain(f"{facts['images']} validation images of {facts['data']}")]
    for part in facts["analyses"]:
        title = part["title"] + (f"  ({facts['folder']}/{part['png']})" if part["png"] else "")
        parts += ["", findings_table([Finding(**finding) for finding in part["findings"]], title)]
    if facts.get("why"):
        found = [Finding(**finding) for finding in facts["comparison"]]
        parts += ["", findings_table(found, "Why: the numbers that set the nets apart, the clearest first")]
        parts += ["", plain(*facts["why"])]
    return Group(*parts)


# --- One net of a run, or two


def _nets(config: Explain, run: Path, trial: int | None) -> list[TrainedNet]:
    nets = [_named(*select_net(run, trial))]
    if config.against:
        nets.append(_other(config.against, run, nets[0].record))
        if nets[0].name == nets[1].name:
            raise InputError(f"against: {config.against} is {nets[0].name}, the net itself")
    for net in nets:
        trained_weights(net.home, net.record)  # an error now, before the data are loaded
    return nets


def _other(text: str, run: Path, record: Record) -> TrainedNet:
    """The net of `against`."""
    if text == ZOO:
        trained = map(best_weights, trained_nets(read_records(run)))
        plain = [r for r in trained if r.kind == "baseline" and r.key != record.key]
        if not plain:
            raise InputError(f"against: run {run.name} has no plain ResNet that was trained to the end")
        macs = record.cost["macs"]
        return _named(run, min(plain, key=lambda r: abs(math.log(r.cost["macs"] / macs))))
    if is_whole(text):
        return _named(*select_net(run, int(text)))
    other, trial = parse_run_spec(text)
    shown, shown_other = ((input_spec(of), read_data_facts(of).get("split")) for of in (run, other))
    if shown != shown_other:
        raise InputError(f"against: nets of {other.name} see other images or classes than those of {run.name}")
    return _named(*select_net(other, trial), "" if other.samefile(run) else other.resolve().name)


def _named(home: Path, record: Record, run: str = "") -> TrainedNet:
    """A net as people call it: no two share a name, where `run` says whose a net of another run is."""
    trial = record.factors.get("trial", record.trial)
    return TrainedNet(f"{run + ' ' if run else ''}trial {trial} ({record.family})", home, record)


def net_parts(names: list[str], inputs: list[AnalysisInput], folder: Path, console: Console) -> Iterator[Explained]:
    """Carry out each analysis and write its results."""
    for name in track(names, lambda name: ANALYSES[name].about.lower(), console):
        if ANALYSES[name].two:
            pair = " and ".join(of.name for of in inputs)
            results = [(pair, analyse(name, inputs[0], inputs[1] if len(inputs) > 1 else None))]
        else:
            results = [(of.name, analyse(name, of)) for of in inputs]
        yield write_results(folder, name, results)


def _compared(run: Path, nets: Sequence[TrainedNet], parts: Sequence[Explained]) -> dict[str, Any]:
    """The two nets compared by what the analyses found."""
    noise = noise_of(read_records(run), retrained=retrained(run))
    of = [
        NetFacts(net.name, net.record.accuracy, max(1, len(net.record.accuracies)), net.record.cost["macs"])
        for net in nets
    ]
    return compare_nets(of, parts, noise and noise.sd, run_metric(run).points)
