"""A search on shared weights beside nets trained alone: hypervolume, nets by cost, speed and memory of the bank.

python benchmarks/supernet.py search    8 and 16 trainings on cue and clutter, three seeds: about two hours on one core
python benchmarks/supernet.py bank      a step beside a bare loop over the same nets; the bank's size on `free`

Runs lie below runs/ and resume. A run's front is chosen on one half of the validation images and judged on the other.
Compute is counted in FLOPs, training 6 and evaluation 2 x MACs x images, finetuning included, baselines left out, and
shown in full trainings of the table's mean net.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from machine import keep, options, shown, sized, summary

from alternas.archs import Genotype, build, static_cost
from alternas.archs.weights import read
from alternas.results.metrics import evaluate
from alternas.results.ranking.pareto import hypervolume, pareto_ranks
from alternas.results.runs.overview import run_row
from alternas.results.runs.record import Record
from alternas.results.runs.store import read_records, weights_file
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.supernet import draws
from alternas.search.supernet.bank import Bank, NetInput, skeleton
from alternas.search.supernet.budget import NETS_A_STEP
from alternas.search.supernet.draws import NetSampler
from alternas.search.tabular.benchmark_table import TabularBenchmark
from alternas.search.tabular.published import load_table
from alternas.search.tabular.trained import CHANCE
from alternas.search.training import recipes
from alternas.search.training.loaders import Batch, DeviceLoader, open_loader
from alternas.search.training.optim import memory_format, optimizer_for
from alternas.spaces import Space, get

PLAN = [
    (data, trainings, seed)
    for data in sized(("cue", "clutter"), ("clutter",))
    for trainings in sized((8, 16), (1,))
    for seed in range(sized(3, 1))
]
SHORT = sized([], ["--epochs", "0.05", "--trials", "4"])
STEPS, WARM_UP, REPEATS = sized(60, 2), sized(10, 1), sized(5, 2)  # timed steps
PROBES = sized(500, 20)  # nets that a bank of `free` is measured on
draws.POOL_DRAWS = sized(draws.POOL_DRAWS, 20)
Judged = tuple[Record, float, float]  # a net, and its accuracy on either half of the validation images


def search(data: str, trainings: int, seed: int) -> dict[str, Any]:
    """One search, and what its front is worth."""
    name = f"supernet-{data}-{trainings}-{seed}"
    how = ["--data", data, "--supernet", str(trainings), "--seed", str(seed), "--workers", "1", "--name", name]
    command = [sys.executable, "-m", "alternas", "search", "bench", *how, *SHORT]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return judged(Path("runs") / name, data)


def judged(run: Path, data: str) -> dict[str, Any]:
    """Hypervolume of a run's front over that of the table, with slices alone and finetuned; and the compute spent."""
    table, records = load_table(data), read_records(run)
    loader = open_loader(shown(load(DataConfig(data)).without_test()), torch.device("cpu"), 0)
    nets = [
        (record, *halves(read(weights_file(run, record)), loader))
        for record in records
        if record.weights in ("shared", "finetuned") and weights_file(run, record).exists()
    ]
    sliced = [net for net in nets if net[0].weights == "shared"]
    return {
        "sliced": worth(sliced, table),
        "finetuned": worth(nets, table),
        "front": [(r.cost["macs"], round(accuracy, 4), r.weights) for r, accuracy in front_of(nets)],
        "trainings": spent(run, table),
        "evaluated": sum(r.weights == "shared" for r in records),
    }


@torch.no_grad()
def halves(net: Any, loader: DeviceLoader) -> tuple[float, float]:
    """Accuracy on either half of the validation images."""

    def answered(batch: Batch) -> Batch:
        return net.eval()(batch[0].contiguous(memory_format=memory_format(net.genotype, loader.device))), batch[1]

    batches = list(loader.images("val", 50))
    middle = len(batches) // 2
    one, other = (evaluate(map(answered, half), net.num_classes) for half in (batches[:middle], batches[middle:]))
    return one.accuracy, other.accuracy


def front_of(nets: list[Judged]) -> list[tuple[Record, float]]:
    """The front by the first half, with accuracies on the second, the cheapest first."""
    ranks = pareto_ranks([(chosen_by, r.cost["macs"]) for r, chosen_by, _ in nets])
    front = [(r, accuracy) for (r, _, accuracy), rank in zip(nets, ranks, strict=True) if rank == 1]
    return sorted(front, key=lambda net: net[0].cost["macs"])


def worth(nets: list[Judged], table: TabularBenchmark) -> float:
    """Hypervolume over that of the true front of the table, all of whose nets were trained alone."""
    costs = [entry.costs["macs"] for entry in table.entries.values()]
    bounds = [(min(costs), max(costs))]
    true = hypervolume([(e.accuracy, e.costs["macs"]) for e in table.entries.values()], CHANCE, bounds)
    return round(hypervolume([(a, r.cost["macs"]) for r, a in front_of(nets)], CHANCE, bounds) / true, 4)


def spent(run: Path, table: TabularBenchmark) -> float:
    """Compute of a run without its baselines, in full trainings of the table's mean net."""
    row, recipe = run_row(run), recipes.get("cue")
    mean = statistics.mean(entry.costs["macs"] for entry in table.entries.values())
    flops = row["train_flops"] + row["eval_flops"] - row["baseline_flops"]
    return round(flops / (6 * mean * recipe.steps(40_000) * recipe.batch_size), 2)


def overhead() -> dict[str, Any]:
    """Seconds of a step on slices of a bank over those of a bare loop: the same nets, batches and optimizer."""
    space, recipe, inputs = get("bench", 16), recipes.get("cue"), NetInput(10, (16, 16), 1)
    sampler = NetSampler(space, lambda net: float(static_cost(net, 10, 16, 1).macs), lambda net: 0.0, 0)
    drawn = [sampler.nets(step, NETS_A_STEP) for step in range(WARM_UP + STEPS)]
    images = recipe.batch_size // NETS_A_STEP
    x_BCHW, y_B = torch.randn(images, 1, 16, 16), torch.randint(10, (images,))
    bank = Bank(inputs)
    bank.reserve(sampler.pool)
    alone = {net: build(net, *inputs[:3]).to(memory_format=torch.channels_last) for nets in drawn for net in nets}
    own = optimizer_for(bank, recipe, recipe.lr)
    theirs = {net: optimizer_for(model, recipe, recipe.lr) for net, model in alone.items()}

    def shared_step(nets: tuple[Genotype, ...]) -> None:
        for net in nets:
            F.cross_entropy(bank(net, x_BCHW), y_B).backward()
        own.step()
        own.zero_grad()

    def bare_step(nets: tuple[Genotype, ...]) -> None:
        x = x_BCHW.contiguous(memory_format=torch.channels_last)
        for net in nets:
            F.cross_entropy(alone[net](x), y_B).backward()
            theirs[net].step()
            theirs[net].zero_grad()

    def seconds(step: Any) -> float:
        for nets in drawn[:WARM_UP]:
            step(nets)
        start = time.perf_counter()
        for nets in drawn[WARM_UP:]:
            step(nets)
        return time.perf_counter() - start

    torch.set_num_threads(1)
    ratios = [seconds(shared_step) / seconds(bare_step) for _ in range(REPEATS)]
    return {"time of a step over a bare loop's": summary(ratios)}


def size(space: Space, inputs: NetInput) -> dict[str, Any]:
    """Parameters of a bank over those of the largest net alone; by kind of block, in thousands."""
    sampler = NetSampler(space, lambda net: float(static_cost(net, *inputs[:3]).macs), lambda net: 0.0, 0)
    nets = [net for step in range(PROBES) for net in sampler.nets(step, 1)]
    bank = Bank(inputs)
    bank.reserve([*sampler.pool, *nets])
    largest = max(sum(p.numel() for p in skeleton(net, inputs).net.parameters()) for net in sampler.pool)
    kinds = defaultdict[str, int](int)
    for role in bank.axes:
        words = role.partition("/")[0].split()
        kinds[words[4] if words[0] == "stage" else words[0]] += bank.tensor(role).numel()
    total = sum(kinds.values())
    return {"parameters": total, "over the largest net": round(total / largest, 2), "by kind": dict(kinds)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("what", choices=("search", "bank"))
    what = parser.parse_args().what
    if what == "search":
        runs = {
            f"{data}, {trainings} trainings, seed {seed}": search(data, trainings, seed)
            for data, trainings, seed in PLAN
        }
        keep("supernet_search", runs)
    else:
        sizes = {f"free, {side} px": size(get("free", side), NetInput(10, (side, side), 1)) for side in (16, 32)}
        keep("supernet_bank", overhead() | sizes)


if __name__ == "__main__":
    main()
