"""What inheriting weights is worth: steps that a child needs to be as good as from scratch, with and without.

For parent-child pairs on `cue`, each a step apart in the search space: the parent is trained in full, the
child from scratch in full, and the child from the parent's weights. Saved is the share of the steps that the
inheriting child does not need to reach the accuracy that the child from scratch ends with, read off its
curve (EMA weights, a reading every tenth of the budget, linear between). A child that never reaches it
has saved nothing: 0, and is counted. Two controls: at the same number of steps, the accuracy of both; and
the child's schedule is as long as from scratch, so that its rate stays high until late.

    python benchmarks/inherit.py [--pairs 20] [--epochs 1] [--workers 2]

Writes benchmarks/results/inherit.json. About 12 minutes for 20 pairs on two cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from machine import keep, options, shown, sized

from alternas.archs import Genotype, Stage
from alternas.archs.stage import attention_beside
from alternas.results.ranking.stats import mean_ci, paired
from alternas.results.runs.status import Status
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.experiments.study_nets import net_of
from alternas.search.training import recipes
from alternas.search.training.job import InitWeights, JobResult, TrainJob
from alternas.search.training.recipe import Recipe

IMAGE = (16, 16)
TICKS = 10


def pairs() -> list[tuple[str, Genotype, Genotype]]:
    """(kind of step, parent, child): what evolution and the build-up would do, back and forth."""
    found = []
    for size in ("s", "m"):
        resnet, alternet, hybrid = (net_of(family, size, IMAGE) for family in ("resnet", "alternet", "hybrid"))
        found += [
            ("swap in MSA", resnet, _stage(resnet, 2, **_msa(resnet, 2))),
            ("swap in MSA", _stage(resnet, 2, **_msa(resnet, 2)), alternet),
            ("swap out MSA", alternet, _stage(alternet, 1, msa=0)),
            ("deeper", resnet, _stage(resnet, 1, depth=resnet.stages[1].depth + 1)),
            ("deeper", alternet, _stage(alternet, 0, depth=2)),
            ("shallower", resnet, _stage(resnet, 2, depth=1)),
            ("wider stage", resnet, _stage(resnet, 2, width=resnet.stages[2].width * 3 // 2)),
            ("narrower stage", resnet, _stage(resnet, 2, width=resnet.stages[2].width // 2)),
            ("more heads", alternet, _stage(alternet, 2, heads=2 * alternet.stages[2].heads)),
            ("encoder deeper", hybrid, _encoder_deeper(hybrid)),
        ]
    return found


def _stage(net: Genotype, at: int, **changes: Any) -> Genotype:
    stages: list[Stage] = list(net.stages)
    stages[at] = replace(stages[at], **changes)
    return replace(net, stages=tuple(stages))


def _msa(net: Genotype, at: int) -> dict[str, int]:
    heads, head_dim = attention_beside(net.stages[at].width)
    return {"msa": 1, "heads": heads, "head_dim": head_dim, "window": 4}


def _encoder_deeper(net: Genotype) -> Genotype:
    assert net.encoder is not None
    return replace(net, encoder=replace(net.encoder, depth=net.encoder.depth + 1))


DATA: DataSet | None = None


def measure(number: int, recipe: Recipe, folder: str) -> dict[str, Any]:
    """Train one pair in this process: the parent, the child from scratch, the child from the parent."""
    global DATA
    DATA = DATA or shown(load(DataConfig("cue")))
    kind, parent, child = pairs()[number % len(pairs())]
    seed = number // len(pairs())
    home = Path(folder) / str(number)
    had = _train(home / "parent", parent, recipe, seed)
    start = InitWeights(str(home / "parent" / "w.safetensors"), "parent", had.step)
    scratch = _train(home / "scratch", child, recipe, seed + 1000)
    inheriting = _train(home / "inheriting", child, recipe, seed + 1000, start)
    curves = {
        name: [(p.step, p.accuracy) for p in o.curve] for name, o in (("scratch", scratch), ("inheriting", inheriting))
    }
    wanted = curves["scratch"][-1][1]
    saved = 1 - _reached(curves["inheriting"], wanted) / scratch.step
    about = {"kind": kind, "seed": seed, "saved": saved, "reached": max(a for _, a in curves["inheriting"]) >= wanted}
    return about | {"inherited": inheriting.lineage["share"], "parent": had.accuracy} | curves


def _train(folder: Path, net: Genotype, recipe: Recipe, seed: int, start: InitWeights | None = None) -> JobResult:
    import torch

    from alternas.search.training.loaders import MemoryLoader
    from alternas.search.training.loop import train

    torch.set_num_threads(1)
    assert DATA is not None
    steps = recipe.steps(len(DATA.train))
    files = str(folder / "state.pt"), str(folder / "w.safetensors")
    job, bench = (
        TrainJob(0, net, recipe, seed, steps, steps, *files, start=start),
        MemoryLoader(DATA, torch.device("cpu")),
    )
    *_, outcome = train(job, bench)
    assert isinstance(outcome, JobResult), outcome
    assert outcome.status == Status.OK, outcome
    return outcome


def _reached(curve: list[tuple[int, float]], wanted: float) -> float:
    """The step at which a curve first reaches an accuracy; its last where it never does."""
    before = (0, 0.0)
    for step, accuracy in curve:
        if accuracy >= wanted:
            share = (wanted - before[1]) / (accuracy - before[1])
            return before[0] + share * (step - before[0])
        before = (step, accuracy)
    return curve[-1][0]


def summed(rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Name and value of what came out, over all pairs and by kind of step."""
    yield "saved", vars(mean_ci([row["saved"] for row in rows]))
    yield "never reached", sum(not row["reached"] for row in rows)
    for tick in range(TICKS):
        scratch, inheriting = ({i: row[n][tick][1] for i, row in enumerate(rows)} for n in ("scratch", "inheriting"))
        gains = paired(scratch, inheriting)
        yield f"accuracy gained at {(tick + 1) / TICKS:.0%} of the steps", vars(gains)
    for kind in dict.fromkeys(row["kind"] for row in rows):
        yield f"saved: {kind}", vars(mean_ci([row["saved"] for row in rows if row["kind"] == kind]))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=sized(20, 2))
    parser.add_argument("--epochs", type=float, default=sized(1.0, 0.02))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    recipe = recipes.get("cue").with_epochs(asked.epochs)
    load(DataConfig("cue"))  # made once, then read from the cache by every process
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(asked.workers, get_context("spawn")) as pool:
        rows = []
        for row in pool.map(measure, range(asked.pairs), [recipe] * asked.pairs, [folder] * asked.pairs):
            rows.append(row)
            print(f"{len(rows)}/{asked.pairs} {row['kind']}: saved {row['saved']:.2f}", flush=True)
    keep("inherit", {"epochs": asked.epochs, "found": dict(summed(rows)), "pairs": rows})


if __name__ == "__main__":
    main()
