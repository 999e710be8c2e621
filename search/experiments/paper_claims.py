"""`explain --paper-claims`: a small CNN, ViT and AlterNet are trained, analysed, and compared to the papers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group, RenderableType
from rich.table import Table

from ...archs import Encoder, Genotype, Head, Stem, static_cost
from ...archs.errors import MOST_SEEDS, check_count
from ...archs.layout import Map
from ...results.analysis.registry import analyse
from ...results.analysis_tools.paper_claims import CLAIMS, judge
from ...results.render.terminal import plain
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder, write_json
from ..data.dataset import DataConfig, DataSet
from ..data.load import coming, load_showing, progress_on
from ..engine.pool import Resources
from ..training.recipe import Recipe
from .nets import SMALL_SIDE, net_of
from .plan import ExperimentContext, Training
from .run import run_experiment
from .trained_nets import AnalysisContext, TrainedNet, analysis_context, kept

WARMUP = "warmup"
EARLY = f"hessian_{WARMUP}"
ANALYSES = (
    "variance", "fourier", "lesion", "noise", "robustness", "hessian", "cka", "skips", "distance", "field", "tokens",
)  # fmt: skip
QUICK_STEPS = 60
WIDTHS, DEPTHS, CLASSES = (32, 48, 64, 96, 128, 192, 256, 384), (3, 4, 6), 10  # of a ViT


EPOCHS = {"digits": 200.0}  # after which a ViT has learned: 0.94, at 60 epochs 0.78; else those of the recipe


def usual_epochs(data: str) -> float | None:
    """Passes over data known to us; None leaves them to the recipe."""
    return EPOCHS.get(data)


@dataclass(frozen=True)
class Findings:
    """The claims are held against nets trained on these data.

    Attributes:
        data: what is trained on.
        recipe: of every training; its epochs must be enough for a ViT.
        seeds: trainings of each net; 2 or more, for an interval.
        samples: validation images of the analyses, at most.
        quick: whether short trainings will do, to see that it works.
        name: of the run; "" makes one of the data.
        resources: where.
    """

    data: DataConfig
    recipe: Recipe
    seeds: int
    samples: int
    quick: bool
    name: str
    resources: Resources

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds, least=2, most=MOST_SEEDS)  # for an interval
        check_count("samples", self.samples, least=8)


def nets(image: Map) -> dict[str, Genotype]:
    """The nets that are compared: the same plain ResNet and AlterNet as in studies, and ViTs of about its MACs."""
    size = "m" if max(image) <= SMALL_SIDE else "s"
    cnn = net_of("resnet", size, image)
    vit = _nearest(cnn, image)
    return {
        "cnn": cnn,
        "vit": vit,
        "vit_gap": replace(vit, head=Head("avg")),
        "alternet": net_of("alternet", size, image),
    }


def _nearest(cnn: Genotype, image: Map) -> Genotype:
    """The ViT with MACs next to those of `cnn`, among those whose maps have frequencies: 8 tokens a side, if it can."""
    patch = min(16, max(2, min(image) // 8))
    while image[0] % patch or image[1] % patch:
        patch -= 1
    vits = [
        Genotype(Stem("none"), (), Encoder(dim, depth, dim // 16, patch=patch), Head("token"))
        for dim, depth in product(WIDTHS, DEPTHS)
    ]
    wanted = static_cost(cnn, CLASSES, image).macs
    return min(vits, key=lambda vit: abs(math.log(static_cost(vit, CLASSES, image).macs / wanted)))


def findings(asked: Findings, console: Console) -> dict[str, Any]:
    """Train what is not trained yet, analyse what is not analysed yet, and judge.

    Returns:
        data, folder, seeds, "nets" (accuracy of each seed, MACs) and "claims", see `Verdict`.

    Raises:
        InputError: if something asked for is wrong.
        OperationError: if workers do not start or everything fails.
    """
    data = load_showing(asked.data, console)
    folder = run_folder(asked.name or plain_name("paper-claims", asked.data.name, "quick" if asked.quick else ""))
    plan = _plan(asked, data)
    settings = {"study": "paper-claims", "quick": asked.quick}
    records = run_experiment(plan, ExperimentContext(folder, "study", data, asked.resources, settings), console)
    facts = _facts(plan, records, data, asked, folder, console)
    verdicts = [judge(claim, facts) for claim in CLAIMS]
    told = {
        "data": data.name,
        "folder": str(folder),
        "seeds": asked.seeds,
        "nets": _nets(plan, records, data),
        "claims": [asdict(verdict) for verdict in verdicts],
    }
    write_json(folder / "paper_claims.json", told)
    return told


def _plan(asked: Findings, data: DataSet) -> list[Training]:
    steps = asked.recipe.steps(len(data.train))
    recipe = asked.recipe
    if asked.quick and steps > QUICK_STEPS:
        recipe = recipe.with_epochs(recipe.epochs * QUICK_STEPS / steps)
        steps = recipe.steps(len(data.train))
    return [
        Training(net, recipe, steps, seed, {"net": name}, keep=(WARMUP,))
        for name, net in nets(data.image_size).items()
        for seed in range(asked.seeds)
    ]


def _nets(plan: Sequence[Training], records: Sequence[Record], data: DataSet) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for training, record in zip(plan, records, strict=True):
        cost = static_cost(training.net, len(data.classes), data.image_size, data.in_chans)
        net = found.setdefault(training.factors["net"], {"macs": cost.macs, "params": cost.params, "accuracy": []})
        net["accuracy"].append(record.accuracy)
    return found


def _facts(
    plan: Sequence[Training], records: Sequence[Record], data: DataSet, asked: Findings, folder: Path, console: Console
) -> list[dict[str, Any]]:
    """For each seed: net -> analysis -> rows; kept in the folder, so that none is done twice."""
    facts: list[dict[str, Any]] = [{} for _ in range(asked.seeds)]
    ground = analysis_context(data, asked.samples, torch.device("cpu"))
    with progress_on(console) as progress:
        task = progress.add_task("analyses", total=len(plan))
        for training, record in zip(plan, records, strict=True):
            name = training.factors["net"]
            coming(progress, task, f"analyses of {name}, seed {training.seed}")
            if record.status == "ok":
                path = folder / "analyses" / f"{record.training}-{asked.samples}.json"
                found = kept(path, lambda r=record: _measured(r, ground, folder))
                facts[training.seed] |= {
                    name: found,
                    f"{name}_{WARMUP}": {"hessian": found.get(f"hessian_{WARMUP}", [])},
                }
            progress.advance(task)
    return facts


def _measured(record: Record, ground: AnalysisContext, folder: Path) -> dict[str, Any]:
    """The rows of each analysis that fits the net."""
    net = TrainedNet(record.factors["net"], folder, record)
    whole, early = ground.subject(net), ground.subject(net, WARMUP)
    found = {name: analyse(name, whole) for name in ANALYSES} | {EARLY: analyse("hessian", early)}
    return {name: finding.rows for name, finding in found.items() if not isinstance(finding, str)}


def drawing(told: Mapping[str, Any]) -> RenderableType:
    """Tables that fit 80 columns; paper_claims.json says each claim in full, and whose it is."""
    title = f"The papers' claims on {told['data']}, {told['seeds']} seeds: mean and 95 % interval, positive if right"
    return Group(
        _nets_table(told["nets"]), _claims(told["claims"], title), plain(f"in full: {told['folder']}/paper_claims.json")
    )


def _nets_table(nets: Mapping[str, Any]) -> Table:
    table = Table("net", "MACs", "accuracy by seed", box=None)
    for name, net in nets.items():
        accuracies = ", ".join("failed" if value is None else f"{value:.3f}" for value in net["accuracy"])
        table.add_row(name, f"{net['macs']:,}", accuracies)
    return table


def _claims(claims: list[dict[str, Any]], title: str) -> Table:
    table = Table("claim", "verdict", "mean", "interval", "unit", title=title, title_justify="left", box=None)
    for row in claims:
        mean = "" if row["mean"] is None else f"{row['mean']:+.3g}"
        interval = "" if row["low"] is None else f"{row['low']:+.2g} {row['high']:+.2g}"
        table.add_row(row["claim"], row["verdict"], mean, interval, row["unit"])
    return table
