"""What a default search makes of its compute: nets of at most 1.5 M MACs of a space, on `clutter-small`.

    python benchmarks/default_space.py [SPACE ...] [--seeds 10 11] [--flops 6e11] [--strategy NAME] [--alone]

The search's own producers, one job at a time in this process, without Ray; no baselines. All training counts, 6 x MACs
x images, and ends the search; that of evaluation is shown beside. Hypervolume: (accuracy - 0.1) x log10 MACs between
5e4 and 1.5e6, over the whole box, of all nets of the run. A table says where the compute went: by phase and by kind of
block. About five minutes a search on one core; run two at once, one thread each.
"""

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import keep, options, shown, sized
from rich.console import Console

from alternas.archs import Genotype
from alternas.results.ranking.objectives import own_flops, spent_on_evaluation
from alternas.results.ranking.pareto import hypervolume
from alternas.results.ranking.quantities import Limits
from alternas.results.runs.record import Record
from alternas.results.runs.status import Status
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.default import FINETUNING_SHARE
from alternas.search.engine.worker import Worker
from alternas.search.prepare import prepare
from alternas.search.run import opened, run_loop
from alternas.search.run_config import Budget, RunConfig
from alternas.search.spec import SearchSpec
from alternas.search.training import recipes
from alternas.search.training.job import Job, JobResult, Progress

DATA, CHANCE, MAX_MACS, BOX = "clutter-small", 0.1, 1_500_000, (5e4, 1.5e6)
MARKS = sized((2e11, 4e11, 6e11), (1e9,))  # FLOPs at which hypervolumes are read


class InProcess:
    """An `Executor` of one worker, which does each job when it is asked for results."""

    def __init__(self, data: DataSet) -> None:
        self._worker, self._job = Worker(1, "cpu"), None
        self._worker.take(data)
        self._job: Job | None = None

    @property
    def idle(self) -> int:
        return 0 if self._job else 1

    @property
    def starting(self) -> int:
        return 0

    def submit(self, job: Job) -> None:
        self._job = job

    def poll(self, timeout: float) -> Sequence[Progress | JobResult]:
        job, self._job = self._job, None
        return list(self._worker.run(job)) if job else []


class NoView:
    """Shows nothing."""

    def started(self, job: Job) -> None: ...
    def tick(self, tick: Progress) -> None: ...
    def ended(self, job: Any) -> None: ...
    def apply(self, line: Any) -> None: ...
    def refresh(self) -> None: ...


def searched(space: str, seed: int, flops: float, **changes: Any) -> dict[str, Any]:
    """One search, what it found and where its compute went."""
    recipe = replace(recipes.get(recipes.usual(DATA)), **sized({}, {"epochs": 0.2}))
    run = RunConfig(budget=Budget(train_flops=flops, baselines=0.0))
    spec = SearchSpec(
        space=space, data=DataConfig(DATA), recipe=recipe, name=f"{space}-{seed}", run=run,
        seed=seed, limits=Limits({"macs": MAX_MACS}), **changes,
    )  # fmt: skip
    context = prepare(spec, Console(quiet=True))
    began = time.monotonic()
    with opened(context) as (trials, driver):
        run_loop(driver, InProcess(shown(context.data).without_test()), NoView())
        records = [record for record in trials.store.records if record.status == Status.OK]
    return found(records) | {"minutes": round((time.monotonic() - began) / 60, 1)}


def found(records: Sequence[Record]) -> dict[str, Any]:
    """Hypervolumes, the front, and the compute of a run's nets by phase and by kind of block."""
    phases, kinds, spent, marks = defaultdict[str, float](float), defaultdict[str, float](float), 0.0, {}
    for number, record in enumerate(records):
        phases[record.weights] += own_flops(record)
        kinds[kind_of(record)] += own_flops(record)
        spent += own_flops(record)
        marks |= {f"{mark:.0e}": volume(records[: number + 1]) for mark in MARKS if spent <= 1.02 * mark}
    front = [r for r in records if all(not dominates(other, r) for other in records)]
    return {
        "hypervolume": volume(records),
        "by FLOPs": marks,
        "without finetuning": volume([r for r in records if r.weights != "finetuned"]),
        "FLOPs": spent,
        "FLOPs of evaluation": sum(map(spent_on_evaluation, records)),
        "nets": sum(r.weights != "finetuned" for r in records),
        "by phase": {name: round(flops / spent, 3) for name, flops in phases.items()},
        "by kind": {name: round(flops / spent, 3) for name, flops in sorted(kinds.items())},
        "front": [
            (r.cost["macs"], round(r.accuracy or 0.0, 3), kind_of(r), r.weights, r.budget["done"])
            for r in sorted(front, key=lambda r: r.cost["macs"])
        ],
        "trained": [
            (r.trial, r.cost["macs"], round(r.accuracy or 0.0, 3), kind_of(r), r.weights, r.budget["done"],
             r.lineage.get("trial"), r.lineage.get("share") and round(r.lineage["share"], 2))
            for r in records
        ],
    }  # fmt: skip


def volume(records: Sequence[Record]) -> float:
    """The hypervolume of nets within the box."""
    points = [(r.accuracy or 0.0, max(BOX[0], float(r.cost["macs"]))) for r in records]
    return round(hypervolume([*points, (CHANCE, BOX[0])], CHANCE, [BOX]), 4)


def dominates(other: Record, record: Record) -> bool:
    """Whether another net is at least as good at no more MACs, and not the same."""
    mine, its = ((r.accuracy or 0.0, -r.cost["macs"]) for r in (record, other))
    return its != mine and its[0] >= mine[0] and its[1] >= mine[1]


def kind_of(record: Record) -> str:
    """The kind of block of a net's first stage, its attention, and whether it has an encoder."""
    net = Genotype.from_dict(record.genotype)
    stages = [stage for stage in net.stages if stage.places]
    kinds = [net.stages[0].block if net.stages else "vit", *(stage.attention for stage in stages[:1])]
    return "+".join([*kinds, *["encoder"] * (net.encoder is not None)])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("spaces", nargs="*", default=["all", "resnet"])
    parser.add_argument("--seeds", type=int, nargs="*", default=sized([10, 11, 12, 13, 14], [10]))
    parser.add_argument("--flops", type=float, default=sized(6e11, 1e9))
    parser.add_argument("--strategy", default="evolution-per-cost")
    parser.add_argument("--polish", type=float, default=FINETUNING_SHARE)
    parser.add_argument("--alone", action="store_true", help="no net inherits, and none is finetuned")
    parser.add_argument("--name", default="default_space")
    asked = parser.parse_args()
    how: dict[str, Any] = {"strategy": asked.strategy, "inherit": not asked.alone}
    how["polish"] = 0.0 if asked.alone else asked.polish
    figures: dict[str, Any] = {"FLOPs": asked.flops, "alone": asked.alone, "strategy": asked.strategy}
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for space in asked.spaces:
            runs = {seed: searched(space, seed, asked.flops, **how) for seed in asked.seeds}
            volumes = [run["hypervolume"] for run in runs.values()]
            figures[space] = {"median": statistics.median(volumes), "least": min(volumes), "seeds": runs}
        os.chdir(home)
    keep(asked.name, figures)


if __name__ == "__main__":
    main()
