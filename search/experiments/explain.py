"""`explain`: trained nets of a run, the images of its data, and what the papers' analyses say of them.

Of a search: its best net, beside another one. Of a study: all its nets, beside what the study varies, over all seeds
(Raghu et al., NeurIPS 2021, section 7; Park & Kim, ICLR 2022).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group, RenderableType
from timm import get_pretrained_cfg
from torch import nn

from ...archs import InputError, OperationError
from ...archs.errors import check_choice, check_count, is_whole
from ...archs.timm import create
from ...archs.timm.weights_files import timm_pretrained
from ...archs.timm_net import TIMM, TimmNet
from ...results.analysis.registry import ANALYSES, analyse, chosen
from ...results.analysis_tools.comparison import NetFacts, compare_nets
from ...results.analysis_tools.findings import Finding, findings_table
from ...results.analysis_tools.index import FOLDER, Explained, open_folder, write_index
from ...results.analysis_tools.inputs import AnalysisInput, Images
from ...results.analysis_tools.output import write_results
from ...results.analysis_tools.trends import TRENDS
from ...results.ranking.metric import as_shown, run_metric
from ...results.ranking.noise import noise_of
from ...results.render.describe_net import input_spec
from ...results.render.terminal import plain
from ...results.runs.nets import best_weights, parse_run_spec, trained_nets
from ...results.runs.record import Record
from ...results.runs.retrained import retrained
from ...results.runs.store import plain_name, read_data_facts, read_records, read_settings
from ...results.runs.trained_weights import select_net, trained_weights
from ..data.dataset import DataConfig, DataSet
from ..data.load import load_at, one_class_each, track
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
    noise = noise_of(read_records(run), retrained=retrained(run))
    of = [
        NetFacts(net.name, net.record.accuracy, max(1, len(net.record.accuracies)), net.record.cost["macs"])
        for net in nets
    ]
    return compare_nets(of, parts, noise and noise.sd, run_metric(run).points)


def explain_timm(config: Explain, data: DataConfig, console: Console) -> dict[str, Any]:
    """Explain timm:NAME, which is of no run; pictures are read at the net's own size unless one is asked for."""
    if config.against:
        raise InputError(f"explain: {config.net} is of no run, which --against is for")
    name = config.net.removeprefix(TIMM)
    create(name, num_classes=1)  # refused before the data are read
    known: Any = get_pretrained_cfg(name)
    images = load_at(data, lambda _: known.input_size[-1] if known else None, console)
    net, weights = _with_weights(name, images)
    console.print(f"{config.net}: {weights}", highlight=False, markup=False, soft_wrap=True)
    context = analysis_context(images, config.samples, torch.device(config.device))
    shown = _normalised(context.images, known, images) if weights.startswith("pretrained") else context.images
    subject = AnalysisInput(config.net, net.to(config.device).eval(), shown)
    folder = open_folder(config.out or Path(plain_name("explain", name)))
    facts = {
        "run": "",
        "nets": [{"name": config.net, "trial": None, "key": TimmNet(name.split(".")[0]).key, "accuracy": None}],
        "weights": weights,
        "data": images.name,
        "images": len(shown),
        "folder": str(folder),
    }
    return write_index(folder, facts, net_parts(chosen(config.analyses), [subject], folder, console))


def _with_weights(name: str, data: DataSet) -> tuple[nn.Module, str]:
    sizes: dict[str, Any] = {
        "num_classes": len(data.classes), "in_chans": data.in_chans, "image_size": data.image_size,
    }  # fmt: skip
    known: Any = get_pretrained_cfg(name)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        if not (known and known.has_weights):
            return create(name, **sizes), "fresh weights: timm has none for it"
        try:
            net = timm_pretrained(name, **sizes)
        except OperationError as error:
            return create(name, **sizes), f"fresh weights: {error}"
    head = "" if known.num_classes == len(data.classes) else f", but a fresh head for {len(data.classes)} classes"
    return net, f"pretrained weights {known.architecture}.{known.tag}{head}"


def _normalised(images: Images, known: Any, data: DataSet) -> Images:
    """The images as the pretraining normalised its own."""
    if len(known.mean) != data.in_chans or not data.white_level:
        return images
    mean_C, std_C = (torch.tensor(of, dtype=torch.float32).to(images.x_NCHW) for of in (known.mean, known.std))
    return replace(images, mean_C=mean_C, std_C=std_C)
