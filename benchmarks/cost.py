"""The closed-form cost of AlterNet-50 at 224 px beside counting it on the meta device.

    python benchmarks/cost.py

The formula is timed in a process that has not imported torch. Writes benchmarks/results/cost.json.
"""

from __future__ import annotations

import sys
import time

from machine import keep, options, sized, summary

from alternas.archs import static_cost, zoo


def formula(repeats: int = sized(200, 3)) -> list[float]:
    net = zoo.get("alternet50", 224)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        static_cost(net, 1000, 224)
        times.append(time.perf_counter() - start)
    assert "torch" not in sys.modules
    return times


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


def main() -> None:
    options(__doc__).parse_args()
    found = {}
    for name, times in (("formula", formula()), ("counter", counter())):
        found[name] = {"first_ms": 1e3 * times[0], "later_ms": summary([1e3 * t for t in times[1:]])}
    keep("cost", found)


if __name__ == "__main__":
    main()
