"""Latency predicted from that of 10, 20 and 30 nets: rank correlation with all others, and the error.

With --measure nets are measured first, which takes an hour on a busy machine; without it the stored measurements are
judged. Times are those of the thread (`time.thread_time`), the lower decile of many, so that other processes change
them little. Exported to ONNX by torch's older exporter, which takes 0.3 s a net instead of 8.

Chosen on `hybrid` at 24 px (factors' and noise's deviations) and on the first 60 nets of `modern` (that depthwise convs
of odd channels are a kind of their own).
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import machine
import numpy as np
from scipy.stats import spearmanr

from alternas.archs import Cost, Genotype
from alternas.archs.cost import deployed_cost
from alternas.results.latency.predictor import LatencyPredictor
from alternas.spaces import get
from alternas.spaces.base import RandomChooser

CLASSES, CHANNELS = 10, 3
NETS = {"hybrid": (24, machine.sized(110, 12), 5000), "modern": (32, machine.sized(240, 12), 1000)}  # px, nets, seed
FILE = "latency_predictor_nets.jsonl"
COUNTS = machine.sized((10, 20, 30), (4,))
DRAWS = machine.sized(20, 2)
CPU_SECONDS, FEWEST = machine.sized(0.15, 0.01), 9


def main() -> None:
    parser = machine.options(__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the nets anew")
    if parser.parse_args().measure or machine.TINY:
        rows = [row for space in NETS for row in measured(space)]
        lines = [json.dumps(row, separators=(",", ":")) for row in rows]
        (machine.RESULTS / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [json.loads(line) for line in (machine.RESULTS / FILE).read_text(encoding="utf-8").splitlines()]
    figures = {}
    for space, (side, *_) in NETS.items():
        own = [row for row in rows if row["space"] == space]
        costs = [deployed_cost(Genotype.from_dict(row["genotype"]), CLASSES, side, CHANNELS) for row in own]
        for runtime in ("eager", "onnx"):
            figures[f"{space} {side} px {runtime}"] = judged(own, costs, runtime)
    machine.keep("latency_predictor", {"draws": DRAWS, "figures": figures})


def judged(rows: list[dict[str, Any]], costs: list[Cost], runtime: str) -> dict[str, Any]:
    """Rank correlations over draws of the nets that were measured, by their number."""
    timed = [(row[runtime], cost) for row, cost in zip(rows, costs, strict=True) if runtime in row]
    ms_N, of = np.array([ms for ms, _ in timed]), [cost for _, cost in timed]
    found: dict[str, Any] = {"nets": len(of), "macs": round(correlation([cost.macs for cost in of], ms_N), 3)}
    return found | {str(count): drawn(ms_N, of, count) for count in COUNTS}


def drawn(ms_N: np.ndarray, costs: list[Cost], count: int) -> dict[str, float]:
    """Mean, least and deviation of the rank correlation with the nets not measured, and the mean error in percent."""
    correlations, errors = list[float](), list[float]()
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(ms_N))
        chosen, rest = order[:count], order[count:]
        predictor = LatencyPredictor([costs[n] for n in chosen], [float(ms_N[n]) for n in chosen])
        ms_R = np.array([predictor.predict(costs[n]) for n in rest])
        correlations.append(correlation(ms_R, ms_N[rest]))
        errors.append(float(np.sqrt(np.mean(np.log(ms_R / ms_N[rest]) ** 2))))
    mean, spread = statistics.mean(correlations), statistics.pstdev(correlations)
    rounded = {"spearman": mean, "sd": spread, "least": min(correlations)}
    return {name: round(value, 3) for name, value in rounded.items()} | {
        "error_%": round(100 * statistics.mean(errors))
    }


def correlation(x_N: Any, y_N: Any) -> float:
    """Spearman's rank correlation."""
    return float(spearmanr(x_N, y_N).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def measured(space: str) -> Iterator[dict[str, Any]]:
    """Random nets of a space with milliseconds in eager PyTorch and in onnxruntime; batch 1, one thread."""
    import torch

    from alternas.archs.timm_network import build_deployed

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    side, count, seed = NETS[space]
    nets = get(space, (side, side))
    for number in range(seed + 1, seed + 1 + count):
        net = nets.sample(RandomChooser(number))
        network = build_deployed(net, CLASSES, (side, side), CHANNELS).eval()
        x_BCHW = torch.rand(1, CHANNELS, side, side)
        with torch.inference_mode():
            eager = thread_ms(lambda: network(x_BCHW))  # noqa: B023
        yield {"space": space, "genotype": net.to_dict(), "eager": eager, "onnx": thread_ms(session(network, x_BCHW))}


def session(network: Any, x_BCHW: Any) -> Callable[[], object]:
    """A function that runs the batch in onnxruntime."""
    import onnxruntime
    import torch

    for module in network.modules():  # tables of relative positions, which the older exporter cannot express
        if callable(make := getattr(module, "bias", None)) and not isinstance(make, torch.Tensor):
            with torch.no_grad():
                bias = make()
            module.bias = lambda bias=bias: bias
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/net.onnx"
        torch.onnx.export(network, (x_BCHW,), file, input_names=["images"], opset_version=18, dynamo=False)
        run = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run
    images = x_BCHW.numpy()
    return lambda: run(None, {"images": images})


def thread_ms(run: Callable[[], object]) -> float:
    """Lower decile of the milliseconds that the thread takes for a call."""
    for _ in range(3):
        run()
    times, began = list[float](), time.thread_time()
    while len(times) < FEWEST or (time.thread_time() - began < CPU_SECONDS and len(times) < 200):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return round(1e3 * sorted(times)[len(times) // 10], 4)


if __name__ == "__main__":
    main()
