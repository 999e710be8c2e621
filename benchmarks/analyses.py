"""CKA of all layers of two nets beside the way it is usually written: time and peak memory.

    python benchmarks/analyses.py [--layers 60 --images 4096 --batch 256 --plain-batches 1]

Ours is `cka_map`: a Gram matrix a layer and batch, computed while the value passes, and one product of matrices for all
pairs. The plain way keeps all activations of a batch and computes both Gram matrices anew for each pair. Each runs in a
process of its own, on the same images and layers; peak memory is what it adds to nets and images. The plain way would
take hours over all batches: it gets fewer, and times are compared by batch. Writes benchmarks/results/analyses.json.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from machine import keep, options, sized
from torch import Tensor, nn

from alternas.archs import build, zoo
from alternas.results.analysis.cka import cka_map, gram, hsic
from alternas.results.analysis_tools.hooks import HookPoint, all_sites, captured

NETS = sized(("resnet34", "alternet34"), ("resnet18", "alternet18"))
SIDE = 32
Way = Callable[[list[nn.Module], list[list[HookPoint]], Sequence[Tensor]], Tensor]


def ours(nets: list[nn.Module], sites: list[list[HookPoint]], batches: Sequence[Tensor]) -> Tensor:
    return cka_map(nets[0], nets[1], batches, sites[0], sites[1])


def plain(nets: list[nn.Module], sites: list[list[HookPoint]], batches: Sequence[Tensor]) -> Tensor:
    """Pair by pair, from activations that are all kept."""
    sums = torch.zeros(3, len(sites[0]), len(sites[1]), dtype=torch.double)
    for x_BCHW in batches:
        first, second = (list(captured(net, at, x_BCHW).values()) for net, at in zip(nets, sites, strict=True))
        for i, a in enumerate(first):
            for k, b in enumerate(second):
                one, two = gram(a, len(x_BCHW)), gram(b, len(x_BCHW))
                sums[:, i, k] += torch.tensor([hsic(one, two), hsic(one, one), hsic(two, two)]).double()
    return sums[0] / (sums[1] * sums[2]).sqrt()


def first_of(sites: list[HookPoint], count: int) -> list[HookPoint]:
    """So many, evenly spread from the first to the last."""
    count = min(count, len(sites))
    return [sites[i * (len(sites) - 1) // max(1, count - 1)] for i in range(count)]


def run(way: Way, layers: int, images: int, batch: int) -> dict[str, Any]:
    """Seconds and added memory of one way, and its map."""
    torch.manual_seed(0)
    nets: list[nn.Module] = [build(zoo.get(name, SIDE), 10, SIDE) for name in NETS]
    batches = torch.rand(images, 3, SIDE, SIDE).split(batch)
    sites = [first_of(all_sites(net, batches[0]), layers) for net in nets]
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    found = way(nets, sites, batches)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB on Linux
    return {"seconds": seconds, "batches": len(batches), "peak_mib": peak / 1024, "map": found.tolist()}


def apart(way: Way, layers: int, images: int, batch: int) -> dict[str, Any]:
    """`run` in a process of its own, whose peak memory is nobody else's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(partial(run, way, layers, images, batch))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--layers", type=int, default=sized(60, 3))
    parser.add_argument("--images", type=int, default=sized(4096, 16))
    parser.add_argument("--batch", type=int, default=sized(256, 8))
    parser.add_argument("--plain-batches", type=int, default=1)
    asked = parser.parse_args()
    few = min(asked.images, asked.plain_batches * asked.batch)
    found = {
        "ours": apart(ours, asked.layers, asked.images, asked.batch),
        "ours, few batches": apart(ours, asked.layers, few, asked.batch),
        "plain, few batches": apart(plain, asked.layers, few, asked.batch),
    }
    maps = [torch.tensor(each.pop("map")) for each in found.values()]
    by_batch = [each["seconds"] / each["batches"] for each in found.values()]
    keep(
        "analyses",
        vars(asked)
        | {"nets": NETS, "image_size": SIDE, "threads": torch.get_num_threads()}
        | found
        | {
            "times_faster_a_batch": by_batch[2] / by_batch[0],
            "largest_difference": (maps[1] - maps[2]).abs().nan_to_num().max().item(),
        },
    )


if __name__ == "__main__":
    main()
