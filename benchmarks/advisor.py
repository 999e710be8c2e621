"""How well the advisor's ranking of swaps foretells what each brings, on the nets of the tabular bench.

    python benchmarks/advisor.py [--seeds 2]

Each plain net of space `placements` (one width, six pairs of depths) is trained on `cue` with so many seeds and
opened up by the advisor. Its score of a set of swaps is the sum of theirs; what the set brought is the table's accuracy
of that net minus the plain net's, mean over the table's seeds. Kendall's tau over all pairs of sets of one plain net,
so that depth plays no part; intervals are of resampled seeds of the table. A sum grows with the number of swaps, so
the same again over pairs of sets of one size, which asks for the ranking of swaps alone. Beside it: the paper's
backward order, parameters, random order, each sign alone, and the ceiling of noise: what half of the seeds says of the
other half.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from machine import keep, options, sized

from alternas.archs import Genotype, static_cost
from alternas.archs.weights import read
from alternas.results.probes.advisor import Swap, advice, swaps
from alternas.results.probes.subject import Subject
from alternas.search.bench.table import CLASSES, IMAGE_SIZE, IN_CHANS, Table, load_table
from alternas.search.data.dataset import DataSet, Request
from alternas.search.data.load import load
from alternas.search.studies.subjects import ground_of
from alternas.search.training import recipes
from alternas.search.training.job import Job
from alternas.search.training.memory import MemoryBench
from alternas.search.training.train import train
from alternas.spaces import Replay, get, options_of

SAMPLES, RESAMPLES, HALVINGS, CPU = sized(1024, 16), sized(1000, 3), sized(100, 3), torch.device("cpu")
FAMILIES = sized(slice(None), slice(1, 2))
SIGNS = ("score", "variance_excess", "frequency_added", "points_lost_without")
Places = tuple[Swap, ...]
Family = dict[Places, Genotype]  # a plain net's sets of swaps and the nets that they give; () is the plain one


def families() -> list[Family]:
    """The nets of space `placements`, by their depths."""
    space = get("placements", IMAGE_SIZE)
    options = options_of(space)
    found: dict[tuple[int, ...], Family] = {}
    for genes in product(*options.values()):
        net = space.sample(Replay(dict(zip(options, genes, strict=True))))
        places = tuple(Swap(s, b) for s, stage in enumerate(net.stages) for b in stage.places)
        found.setdefault(tuple(stage.depth for stage in net.stages), {})[places] = net
    return list(found.values())[FAMILIES]


def trained(net: Genotype, seed: int, data: DataSet, folder: str) -> Subject:
    """The plain net, trained as the table's nets were."""
    recipe, path = recipes.get("cue"), Path(folder, "net.safetensors")
    recipe = recipe.with_epochs(sized(recipe.epochs, 0.02))
    steps = recipe.steps(len(data.train))
    job = Job(0, net, recipe, seed, steps, steps, str(Path(folder, f"{net.key}-{seed}.pt")), str(path))
    for _ in train(job, MemoryBench(data, CPU)):
        pass
    network = read(path, net, data.image_size).eval()
    return Subject(net.key, network, ground_of(data, SAMPLES, CPU).images)


def advised(net: Genotype, seeds: int, data: DataSet) -> dict[str, dict[Swap, float]]:
    """For each sign what the advisor says of each swap, mean over the seeds of the plain net."""
    with TemporaryDirectory() as folder:
        told = [{row["swap"]: row for row in advice(trained(net, seed, data, folder))} for seed in range(seeds)]
    turn = {"points_lost_without": -1}
    return {
        sign: {swap: turn.get(sign, 1) * mean(rows[swap.name][sign] for rows in told) for swap in swaps(net)}
        for sign in SIGNS
    }


def gains(family: Family, table: Table, seeds: Sequence[int]) -> dict[Places, float]:
    """Points over the plain net, mean over these seeds of the table."""

    def accuracy(net: Genotype) -> float:
        return 100 * mean(table.entries[net.key].trainings[seed].curve[-1] for seed in seeds)

    plain = accuracy(family[()])
    return {places: accuracy(net) - plain for places, net in family.items() if places}


def tau(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's tau of differences that should have the same sign; ties of the first count as half right."""
    signs = [(a > 0) - (a < 0) for a, _ in pairs], [(b > 0) - (b < 0) for _, b in pairs]
    return mean(a * b for a, b in zip(*signs, strict=True))


def within(
    score: Callable[[int, Places], float], found: Sequence[Mapping[Places, float]], one_size: bool
) -> list[tuple[float, float]]:
    """Differences of score and of gain for every pair of sets of one plain net, or those of as many swaps alone."""
    return [
        (score(i, a) - score(i, b), gain[a] - gain[b])
        for i, gain in enumerate(found)
        for a, b in combinations(gain, 2)
        if len(a) == len(b) or not one_size
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, default=sized(2, 1))
    seeds = parser.parse_args().seeds
    table, data, nets = load_table("cue"), load(Request("cue")), families()
    known = sorted(set.intersection(*(set(table.entries[n.key].trainings) for f in nets for n in f.values())))
    signs = [advised(family[()], seeds, data) for family in nets]
    params = [{p: static_cost(n, CLASSES, IMAGE_SIZE, IN_CHANS).params for p, n in f.items()} for f in nets]
    draw = random.Random(0)
    luck = [{places: draw.random() for places in family} for family in nets]
    ways: dict[str, Callable[[int, Places], float]] = {
        **{sign: lambda i, p, sign=sign: sum(signs[i][sign][swap] for swap in p) for sign in SIGNS},
        "backward": lambda i, p: sum(2.0 ** (swap.stage * 4 + swap.block) for swap in p),
        "fewer_swaps": lambda i, p: -len(p),
        "params": lambda i, p: params[i][p],
        "random": lambda i, p: luck[i][p],
    }
    drawn = [[draw.choice(known) for _ in known] for _ in range(RESAMPLES)]
    resampled = [[gains(family, table, some) for family in nets] for some in drawn]
    whole = [gains(family, table, known) for family in nets]
    figures: dict[str, Any] = {"table_seeds": known, "net_seeds": seeds, "nets": sum(map(len, nets))}
    for kind, one_size in (("all sets", False), ("sets of one size", True)):
        taus = {name: _with_interval(way, whole, resampled, one_size) for name, way in ways.items()}
        taus["ceiling"] = _ceiling(nets, table, known, draw, one_size)
        figures[kind] = {"pairs": len(within(ways["score"], whole, one_size)), "tau": taus}
    keep("advisor", figures)


def _with_interval(
    way: Callable[[int, Places], float],
    whole: Sequence[Mapping[Places, float]],
    resampled: Sequence[Sequence[Mapping[Places, float]]],
    one_size: bool,
) -> dict[str, float]:
    taus = sorted(tau(within(way, some, one_size)) for some in resampled)
    low, high = taus[int(0.025 * len(taus))], taus[int(0.975 * len(taus))]
    return {"tau": tau(within(way, whole, one_size)), "low": low, "high": high}


def _ceiling(
    nets: Sequence[Family], table: Table, known: Sequence[int], draw: random.Random, one_size: bool
) -> dict[str, float]:
    """Tau between the gains of two halves of the seeds, mean over halvings."""
    found = []
    for _ in range(HALVINGS):
        mixed = draw.sample(list(known), len(known))
        halves = mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
        one, other = ([gains(family, table, half) for family in nets] for half in halves)
        found.append(tau(within(lambda i, p, one=one: one[i][p], other, one_size)))
    return {"tau": mean(found)}


if __name__ == "__main__":
    main()
