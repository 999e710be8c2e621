"""The latency predictor: against known rates, measured nets, and latencies that others published."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from alternas.archs import Cost, Genotype, static_cost, zoo
from alternas.results.latency.predictor import MIN_NETS, PRIOR_RATES, LatencyPredictor, demands
from alternas.results.latency.table import prediction_lines

NETS = Path(__file__).parent.parent / "benchmarks" / "results" / "latency_predictor_nets.jsonl"

# Milliseconds of timm's nets at 224 px, batch 1, compiled by torch 2.4 on an Intel i7-12700H: infer_step_time of
# https://github.com/huggingface/pytorch-image-models results/benchmark-infer-fp32-nchw-pt240-cpu-i7_12700h-dynamo.csv
PUBLISHED = {
    "mobilenetv3_small_100": 2.654, "mobilenetv4_conv_small": 3.996, "efficientvit_b0": 4.735,
    "mobilenetv3_large_100": 7.377, "vit_tiny_r_s16_p8": 9.023, "convnext_atto": 9.243, "efficientnet_b0": 10.662,
    "efficientvit_b1": 10.879, "mobilenetv4_conv_medium": 11.808, "vit_small_patch32": 12.865,
    "vit_tiny_patch16": 12.868, "convnext_femto": 12.948, "efficientnet_b1": 15.651,
    "mobilenetv4_hybrid_medium": 16.028, "resnet18": 16.046, "convnext_pico": 17.082, "efficientvit_b2": 23.139,
    "resnet34": 26.985, "convnext_nano": 28.717, "resnet50": 32.78, "vit_small_patch16": 37.412,
    "convnext_tiny": 37.534, "vit_small_r26_s32": 38.004, "vit_base_patch32": 42.092, "bit_r50x1": 47.659,
    "efficientvit_b3": 47.936,
}  # fmt: skip


@pytest.fixture(scope="module")
def nets() -> tuple[list[Cost], list[float]]:
    """Costs and milliseconds in onnxruntime of random nets of `modern`, in an order of their own."""
    every: list[dict[str, Any]] = [json.loads(line) for line in NETS.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in every if row["space"] == "modern"]
    costs = [static_cost(Genotype.from_dict(row["genotype"]), 10, 32) for row in rows]
    return costs, [row["onnx"] for row in rows]


def ranks(costs: list[Cost], ms: list[float], count: int) -> tuple[float, float]:
    """Spearman's correlation with the nets that were not measured: of the predictor, and of MACs."""
    predictor, rest, true = LatencyPredictor(costs[:count], ms[:count]), costs[count:], ms[count:]
    ours, macs = spearmanr([predictor.predict(c) for c in rest], true), spearmanr([c.macs for c in rest], true)
    return float(ours[0]), float(macs[0])


def test_work_by_operator_adds_up_to_the_costs() -> None:
    for name in ("resnet50", "mobilenetv4_hybrid_medium", "vit_tiny_patch16", "efficientvit_b1", "mambaout_femto"):
        cost = static_cost(zoo.get(name, (224, 224)), 1000, 224)
        assert sum(operator.macs for operator in cost.operators) == cost.macs, name
    resnet = {operator.kind: operator for operator in static_cost(zoo.get("resnet18", (224, 224)), 1000, 224).operators}
    assert (resnet["conv"].calls, resnet["pointwise"].calls, resnet["linear"].calls) == (17, 3, 1)  # 1x1: shortcuts
    weights, inputs, outputs = 513 * 1000 - 1000, 512, 1000
    assert resnet["linear"].traffic_bytes == 4 * (weights + inputs + outputs)


def test_rates_of_a_device_are_found(nets: tuple[list[Cost], list[float]]) -> None:
    costs, _ = nets
    rates = PRIOR_RATES * np.exp(np.random.default_rng(0).normal(0, 0.7, len(PRIOR_RATES))) * 3e-6
    ms = [float(demands(cost) @ rates) for cost in costs]
    predictor = LatencyPredictor(costs[:120], ms[:120])
    off = [abs(np.log(predictor.predict(cost) / true)) for cost, true in zip(costs, ms, strict=True)]
    assert np.median(off) < 0.03
    assert predictor.left_out_error() < 0.15


@pytest.mark.parametrize(("count", "least"), [(10, 0.93), (30, 0.96)])
def test_few_measured_nets_rank_the_others(nets: tuple[list[Cost], list[float]], count: int, least: float) -> None:
    assert ranks(*nets, count)[0] > least


def test_left_out_errors_are_those_of_leaving_out(nets: tuple[list[Cost], list[float]]) -> None:
    costs, ms = (of[:12] for of in nets)
    off = []
    for out in range(12):
        rest = [n for n in range(12) if n != out]
        predictor = LatencyPredictor([costs[n] for n in rest], [ms[n] for n in rest])
        off.append(np.log(predictor.predict(costs[out]) / ms[out]))
    error = LatencyPredictor(costs, ms).left_out_error()
    assert error == pytest.approx(np.sqrt(np.mean(np.square(off))))
    pairs: Any = [
        (SimpleNamespace(key=str(n), cost=costs[n]), SimpleNamespace(latency_ms=ms[n])) for n in (*range(12), 0)
    ]
    pairs.append((SimpleNamespace(key="timm:resnet18", cost=None), pairs[0][1]))
    said = f"latency of other nets: predicted from 12 nets, leave-one-out error {100 * error:.0f} %"
    assert prediction_lines(pairs) == [said]
    assert prediction_lines(pairs[: MIN_NETS - 1]) == []


def test_latencies_that_others_published() -> None:
    costs = [static_cost(zoo.get(name, (224, 224)), 1000, 224) for name in PUBLISHED]
    order = np.random.default_rng(0).permutation(len(costs))
    ours, macs = ranks([costs[n] for n in order], [[*PUBLISHED.values()][n] for n in order], 10)
    assert min(ours, macs) > 0.93  # in orders other than this one neither is the surer one


def test_without_measurements_the_prior_speaks() -> None:
    cost = static_cost(zoo.get("resnet18", (32, 32)), 10, 32)
    assert LatencyPredictor().predict(cost) == pytest.approx(float(demands(cost) @ PRIOR_RATES) * 1e-6)
    assert LatencyPredictor([cost], [5.0]).predict(cost) == pytest.approx(5.0, rel=0.01)
