"""The latency predictor: against known rates, measured nets, and latencies that others published."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from alternas.archs import Genotype, static_cost, zoo
from alternas.archs.cost import deployed_cost
from alternas.results.latency.predictor import PRIOR_RATES, LatencyPredictor, demands, fitted, spanning

NETS = Path(__file__).parent.parent / "benchmarks" / "results" / "latency_predictor_nets.jsonl"

# Milliseconds of timm's nets at 224 px, batch 1, compiled by torch 2.4 on an Intel i7-12700H: infer_step_time of
# https://github.com/huggingface/pytorch-image-models results/benchmark-infer-fp32-nchw-pt240-cpu-i7_12700h-dynamo.csv
PUBLISHED = {
    "mobilenetv3_small_100": 2.654, "mobilenetv4_conv_small": 3.996, "efficientvit_b0": 4.735,
    "mobilenetv3_large_100": 7.377, "vit_tiny_r_s16_p8": 9.023, "convnext_atto": 9.243, "efficientnet_b0": 10.662,
    "efficientvit_b1": 10.879, "efficientformerv2_s0": 11.497, "mobilenetv4_conv_medium": 11.808,
    "vit_small_patch32": 12.865, "vit_tiny_patch16": 12.868, "convnext_femto": 12.948, "repvit_m0_9": 15.423,
    "efficientnet_b1": 15.651, "efficientformerv2_s1": 15.736, "mobilenetv4_hybrid_medium": 16.028, "resnet18": 16.046,
    "repvit_m1_0": 16.399, "poolformerv2_s12": 16.512, "convnext_pico": 17.082, "repvit_m1_1": 17.789,
    "efficientvit_b2": 23.139, "efficientformerv2_s2": 23.997, "resnet34": 26.985, "convnext_nano": 28.717,
    "repvit_m1_5": 29.667, "poolformerv2_s24": 30.052, "resnet50": 32.78, "caformer_s18": 36.057,
    "vit_small_patch16": 37.412, "convnext_tiny": 37.534, "vit_small_r26_s32": 38.004, "efficientformerv2_l": 39.986,
    "vit_base_patch32": 42.092, "convformer_s18": 42.802, "poolformerv2_s36": 43.266, "coatnet_0_rw": 47.346,
    "bit_r50x1": 47.659, "efficientvit_b3": 47.936,
}  # fmt: skip


@pytest.fixture(scope="module")
def nets() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Demands, MACs and milliseconds in onnxruntime of random nets of `modern`."""
    every: list[dict[str, Any]] = [json.loads(line) for line in NETS.read_text().splitlines()]
    rows = [row for row in every if row["space"] == "modern"]
    costs = [deployed_cost(Genotype.from_dict(row["genotype"]), 10, 32) for row in rows]
    return (
        np.array([demands(cost) for cost in costs]),
        np.array([cost.macs for cost in costs]),
        np.array([row["onnx"] for row in rows]),
    )


def rank(predictor: LatencyPredictor, demands_NT: np.ndarray, ms_N: np.ndarray, left_out: list[int]) -> float:
    rest = np.setdiff1d(np.arange(len(ms_N)), left_out)
    return float(spearmanr(predictor.predict(demands_NT[rest]).ms_N, ms_N[rest])[0])


def test_work_by_operator_adds_up_to_the_costs() -> None:
    for name in (
        "resnet50",
        "mobilenetv4_hybrid_medium",
        "vit_tiny_patch16",
        "efficientvit_b1",
        "efficientformerv2_s0",
    ):
        cost = static_cost(zoo.get(name, (224, 224)), 1000, 224)
        assert sum(operator.macs for operator in cost.operators) == cost.macs, name
    resnet = {operator.kind: operator for operator in static_cost(zoo.get("resnet18", (224, 224)), 1000, 224).operators}
    assert (resnet["conv"].calls, resnet["pointwise"].calls, resnet["linear"].calls) == (17, 3, 1)  # 1x1: shortcuts
    weights, inputs, outputs = 513 * 1000 - 1000, 512, 1000
    assert resnet["linear"].traffic_bytes == 4 * (weights + inputs + outputs)


def test_rates_of_a_device_are_found(nets: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    demands_NT, _, _ = nets
    draw = np.random.default_rng(0)
    ms_N = demands_NT @ (PRIOR_RATES * np.exp(draw.normal(0, 0.7, len(PRIOR_RATES)))) * 3e-6
    chosen = spanning(demands_NT, 30)
    predictor = LatencyPredictor(demands_NT[chosen], ms_N[chosen])
    off_N = np.abs(np.log(predictor.predict(demands_NT).ms_N / ms_N))
    assert np.median(off_N) < 0.03
    assert predictor.loo_error < 0.15
    assert predictor.count == 30


def test_chosen_nets_leave_no_net_in_doubt(nets: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    demands_NT, _, _ = nets
    ms_N = demands_NT @ PRIOR_RATES * 1e-6  # a device of the prior's rates

    def errors(some: list[int]) -> np.ndarray:
        return LatencyPredictor(demands_NT[some], ms_N[some]).predict(demands_NT).error_N

    chosen, draw = spanning(demands_NT, 20), np.random.default_rng(0)
    assert len(set(chosen)) == 20
    random = [errors(list(draw.permutation(len(ms_N))[:20])).max() for _ in range(20)]
    assert errors(chosen).max() < min(random)
    assert all(more < less for less, more in pairwise(errors(chosen[:n]).mean() for n in (1, 5, 10, 20)))
    assert sorted(spanning(demands_NT[:5], 9)) == [0, 1, 2, 3, 4], "no more than there are"


@pytest.mark.parametrize(("count", "least"), [(10, 0.93), (30, 0.96)])
def test_few_measured_nets_rank_the_others(
    nets: tuple[np.ndarray, np.ndarray, np.ndarray], count: int, least: float
) -> None:
    demands_NT, macs_N, ms_N = nets
    chosen = spanning(demands_NT, count)
    predictor = LatencyPredictor(demands_NT[chosen], ms_N[chosen])
    assert rank(predictor, demands_NT, ms_N, chosen) > max(least, float(spearmanr(macs_N, ms_N)[0]))


def test_errors_are_as_large_as_they_say(nets: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    demands_NT, _, ms_N = nets
    chosen = spanning(demands_NT, 20)
    found = LatencyPredictor(demands_NT[chosen], ms_N[chosen]).predict(demands_NT)
    within = np.abs(np.log(ms_N / found.ms_N)) < 2 * found.error_N
    assert within[np.setdiff1d(np.arange(len(ms_N)), chosen)].mean() > 0.85


def test_left_out_errors_are_those_of_leaving_out(nets: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    demands_NT, _, ms_N = nets
    some = spanning(demands_NT, 25)
    off = []
    for out in some:
        rest = [n for n in some if n != out]
        ms = LatencyPredictor(demands_NT[rest], ms_N[rest]).predict(demands_NT[[out]]).ms_N[0]
        off.append(np.log(ms / ms_N[out]))
    brute = np.sqrt(np.mean(np.square(off)))
    assert LatencyPredictor(demands_NT[some], ms_N[some]).loo_error == pytest.approx(brute, rel=0.35)


def test_latencies_that_others_published() -> None:
    costs = [deployed_cost(zoo.get(name, (224, 224)), 1000, 224) for name in PUBLISHED]
    demands_NT, ms_N = np.array([demands(cost) for cost in costs]), np.array([*PUBLISHED.values()])
    chosen = spanning(demands_NT, 10)
    ours = rank(LatencyPredictor(demands_NT[chosen], ms_N[chosen]), demands_NT, ms_N, chosen)
    rest = np.setdiff1d(np.arange(len(ms_N)), chosen)
    assert ours > 0.93
    assert ours > float(spearmanr([costs[n].macs for n in rest], ms_N[rest])[0])


def test_without_measurements_the_prior_speaks_and_doubts() -> None:
    cost = static_cost(zoo.get("resnet18", (32, 32)), 10, 32)
    ms, error = fitted([], []).predict_one(cost)
    assert ms == pytest.approx(float(demands(cost) @ PRIOR_RATES) * 1e-6)
    assert error > 1
    assert fitted([cost], [5.0]).predict_one(cost)[0] == pytest.approx(5.0, rel=0.01)
