"""`explain --paper-claims`: a small CNN, ViT and AlterNet are trained, analysed, and compared to the papers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from ...results.analysis_tools.claims import CLAIMS, judge, multiplicity
from ...results.analysis_tools.findings import Finding, as_rows, findings_table
from ...results.render.terminal import plain
from ...results.runs.record import Record
from ...results.runs.store import plain_name, run_folder, write_json
from ..data.dataset import DataSet
from ..data.load import load_classes, track
from .plan import ExperimentConfig, ExperimentContext, Training
from .run_plan import run_experiment
from .study_nets import SMALL_SIDE, net_of
from .trained_nets import AnalysisContext, TrainedNet, analysis_context, cached, threads_for

WARMUP = "warmup"
EARLY = f"hessian_{WARMUP}"
ANALYSES = (
    "variance", "fourier", "lesion", "noise", "robustness", "hessian", "cka", "skips", "distance", "field", "tokens",
)  # fmt: skip
QUICK_STEPS = 60
WIDTHS, DEPTHS, CLASSES = (32, 48, 64, 96, 128, 192, 256, 384), (3, 4, 6), 10  # of a ViT
# Passes over the data after which a ViT has learned: 0.94, at 60 epochs 0.78; else those of the recipe.
EPOCHS = {"digits": 200.0}


@dataclass(frozen=True)
class ClaimsConfig(ExperimentConfig):
    """Trainings that the papers' claims are held against, with at least 2 seeds and enough epochs for a ViT.

    Attributes:
        samples: validation images of the analyses, at most.
        quick: whether short trainings will do, to see that it works.
    """

    samples: int
    quick: bool

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds, least=2, most=MOST_SEEDS)  # for an interval
        check_count("samples", self.samples, least=8)


def explain_claims(config: ClaimsConfig, console: Console) -> dict[str, Any]:
    """Train what is not trained yet, analyse what is not analysed yet, and judge.

    Returns:
        data, folder, seeds, "nets" (accuracy of each seed, MACs), "claims", each a `Finding` with what it says and
        whose it is, and "multiplicity", a line.

    Raises:
        InputError: if something asked for is wrong.
        OperationError: if workers do not start or everything fails.
    """
    data = load_classes(config.data, console)
    folder = run_folder(config.name or plain_name("paper-claims", config.data.name, "quick" if config.quick else ""))
    plan = _plan(config, data)
    settings = {"study": "paper-claims", "quick": config.quick}
    records = run_experiment(plan, ExperimentContext(folder, "study", data, config.run, settings), console)
    context = analysis_context(data, config.samples, torch.device("cpu"))
    facts = _analyse_all(plan, records, config, context, folder, console)
    trained: dict[str, Any] = {}
    for training, record in zip(plan, records, strict=True):
        cost = training.cost(data)
        net = trained.setdefault(training.factors["net"], {"macs": cost.macs, "params": cost.params, "accuracy": []})
        net["accuracy"].append(record.accuracy)
    result = {
        "data": data.name,
        "folder": str(folder),
        "seeds": config.seeds,
        "nets": trained,
        "claims": [
            {"says": claim.says, "source": claim.source} | found
            for claim, found in zip(CLAIMS, as_rows(judge(claim, facts) for claim in CLAIMS), strict=True)
        ],
        "multiplicity": multiplicity(facts),
    }
    write_json(folder / "paper_claims.json", result)
    return result


def _plan(config: ClaimsConfig, data: DataSet) -> list[Training]:
    recipe, steps = config.recipe, config.recipe.steps(len(data.train))
    if config.quick and steps > QUICK_STEPS:
        recipe = recipe.with_epochs(recipe.epochs * QUICK_STEPS / steps)
        steps = recipe.steps(len(data.train))
    return [
        Training(net, recipe, steps, seed, {"net": name}, save_weights_at=(WARMUP,))
        for name, net in nets(data.image_size).items()
        for seed in range(config.seeds)
    ]


def nets(image: Map) -> dict[str, Genotype]:
    """The nets that are compared: the same plain ResNet and AlterNet as in studies, and ViTs of about its MACs.

    The ViT is the one with MACs next to those of the ResNet, among those whose maps have frequencies: 8 tokens a
    side, if it can.
    """
    size = "m" if max(image) <= SMALL_SIDE else "s"
    cnn, patch = net_of("resnet", size, image), patch_of(image)
    vits = [
        Genotype(Stem("none"), (), Encoder(dim, depth, dim // 16, patch=patch), Head("token"))
        for dim, depth in product(WIDTHS, DEPTHS)
    ]
    macs = static_cost(cnn, CLASSES, image).macs
    vit = min(vits, key=lambda vit: abs(math.log(static_cost(vit, CLASSES, image).macs / macs)))
    alternet = net_of("alternet", size, image)
    return {"cnn": cnn, "vit": vit, "vit_gap": replace(vit, head=Head("avg")), "alternet": alternet}


def patch_of(image: Map) -> int:
    """The ViTs' patch: 8 tokens a side, if it divides the image."""
    most = min(16, max(2, min(image) // 8))
    return next(p for p in range(most, 0, -1) if image[0] % p == 0 and image[1] % p == 0)


def _analyse_all(
    plan: Sequence[Training],
    records: Sequence[Record],
    config: ClaimsConfig,
    context: AnalysisContext,
    folder: Path,
    console: Console,
) -> list[dict[str, Any]]:
    """For each seed: net -> analysis -> rows; cached in the folder, so that none is done twice."""
    facts: list[dict[str, Any]] = [{} for _ in range(config.seeds)]
    pairs = list(zip(plan, records, strict=True))
    for training, record in track(pairs, lambda p: f"analyses of {p[0].factors['net']}, seed {p[0].seed}", console):
        if record.status == "ok":
            name = training.factors["net"]
            net = TrainedNet(name, folder, record)
            file = folder / "analyses" / f"{record.training_id}-{config.samples}.json"
            with threads_for([net]):
                found = cached(file, lambda net=net: _analyse(net, context))
            by_name = {analysis: {row["name"]: Finding(**row) for row in rows} for analysis, rows in found.items()}
            facts[training.seed] |= {name: by_name, f"{name}_{WARMUP}": {"hessian": by_name.get(EARLY, {})}}
    return facts


def _analyse(net: TrainedNet, context: AnalysisContext) -> dict[str, Any]:
    """The findings of each analysis that fits the net."""
    whole, early = context.analysis_input(net), context.analysis_input(net, WARMUP)
    results = {name: analyse(name, whole) for name in ANALYSES if name != "field"}
    # Far is beyond a ViT's own patch and those around it, for all nets: a convolution reaches as far as a small patch.
    results["field"] = analyse("field", whole, patch=3 * patch_of(context.data.image_size))
    results[EARLY] = analyse("hessian", early)
    return {name: as_rows(result.findings) for name, result in results.items() if not isinstance(result, str)}


def drawing(result: Mapping[str, Any]) -> RenderableType:
    """Tables that fit 80 columns; paper_claims.json says each claim in full, and whose it is."""
    trained = Table("net", "MACs", "accuracy by seed", box=None)
    for name, net in result["nets"].items():
        accuracies = ", ".join("failed" if value is None else f"{value:.3f}" for value in net["accuracy"])
        trained.add_row(name, f"{net['macs']:,}", accuracies)
    found = [Finding(**{k: v for k, v in row.items() if k not in ("says", "source")}) for row in result["claims"]]
    claims = findings_table(found, f"The papers' claims on {result['data']}, positive if right")
    in_full = f"in full: {result['folder']}/paper_claims.json"
    return Group(trained, claims, plain(result["multiplicity"], in_full))
