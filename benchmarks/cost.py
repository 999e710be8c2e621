"""The closed-form cost of AlterNet-50 at 224 px beside counting it on the meta device, and that of every zoo net.

    python benchmarks/cost.py [--draws 300]

The formula is timed in a process that has not imported torch. Each net of the zoo is timed in CPU time, with nothing
remembered of stages seen before. Random nets of each space, at 24 and 32 px, cost what is counted, to the digit; else
the script fails. Writes benchmarks/results/cost.json.
"""

from __future__ import annotations

import statistics
import sys
import time

from machine import keep, options, sized, summary

from alternas.archs import cost, layout, static_cost, zoo
from alternas.spaces import SPACES, get, random_net


def formula(repeats: int = sized(200, 3)) -> list[float]:
    net = zoo.get("alternet50", 224)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        static_cost(net, 1000, 224)
        times.append(time.perf_counter() - start)
    assert "torch" not in sys.modules
    return times


def zoo_nets(repeats: int = sized(15, 1)) -> dict[str, float]:
    """Median milliseconds of each net of the zoo at 224 px, the slowest first."""
    found = {}
    for name in zoo.ZOO:
        net, times = zoo.get(name, 224), []
        for _ in range(repeats):
            cost._stage.cache_clear()
            layout.stage_layout.cache_clear()
            start = time.thread_time()
            cost.static_cost(net, 1000, 224)
            times.append(time.thread_time() - start)
        found[name] = 1e3 * statistics.median(times)
    assert "torch" not in sys.modules
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def counter(repeats: int = sized(5, 2)) -> list[float]:
    """Build on the meta device and count; imports are not in the times."""
    import torch

    from alternas.archs import build
    from alternas.archs.timm import count

    times, macs = [], static_cost(zoo.get("alternet50", 224), 1000, 224).macs
    for _ in range(repeats):
        start = time.perf_counter()
        with torch.device("meta"):
            found = count(build(zoo.get("alternet50", 224), 1000, 224), (3, 224, 224))
        times.append(time.perf_counter() - start)
        assert found["macs"] == macs
    return times


def check_members(draws: int) -> int:
    """How many random nets of the spaces were built and counted; all of them cost what the formulas say."""
    import torch

    from alternas.archs import build
    from alternas.archs.timm import count

    nets = [(side, random_net(get(name, side), seed)) for side in (24, 32) for name in SPACES for seed in range(draws)]
    for side, net in nets:
        with torch.device("meta"):
            found, said = count(build(net, 10, side), (3, side, side)), static_cost(net, 10, side)
        assert (found["params"], found["macs"]) == (said.params, said.macs), net.to_json()
    return len(nets)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--draws", type=int, default=sized(300, 1), help="random nets of each space and side")
    draws = parser.parse_args().draws
    found, of_zoo = {}, zoo_nets()
    for name, times in (("formula", formula()), ("counter", counter())):
        found[name] = {"first_ms": 1e3 * times[0], "later_ms": summary([1e3 * t for t in times[1:]])}
    shown = {name: round(of_zoo[name], 3) for name in list(of_zoo)[:10]}
    found |= {"zoo, cpu ms": {"nets": len(of_zoo), "most expensive": shown}}
    keep("cost", found | {"random nets that cost what is counted": check_members(draws)})


if __name__ == "__main__":
    main()
