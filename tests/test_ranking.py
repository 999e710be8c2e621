"""Ranks, gains and hypervolumes against brute force, closed forms and Optuna."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from optuna._hypervolume import compute_hypervolume
from sklearn.metrics import cohen_kappa_score

from alternas.archs import InputError
from alternas.archs.timm_net import TimmNet
from alternas.results import load_run
from alternas.results.metrics import Scores, scores
from alternas.results.ranking.front import envelope, gain, leaderboard
from alternas.results.ranking.metric import Metric, guessing, parse_metric
from alternas.results.ranking.pareto import coverage, hypervolume, knee, pareto_ranks
from alternas.results.ranking.quantities import QUANTITIES, Quantity, Score
from alternas.results.ranking.stats import ANY, range_of
from alternas.results.report.run import open_run
from alternas.results.report.sections import leaderboard_table, net_columns, net_row
from alternas.results.runs.record import Record
from alternas.search.spec import ProbeSpec
from alternas.search.trials.search_trials import SearchTrials
from fakes import FakeExecutor, SilentView, run_loop, spec_of
from runs import drawn_records, made_run


def brute_ranks(points: list[tuple[float, ...]]) -> list[int]:
    def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        return a[0] >= b[0] and all(x <= y for x, y in zip(a[1:], b[1:], strict=True)) and a != b

    left, ranks, rank = set(range(len(points))), [0] * len(points), 0
    while left:
        rank += 1
        top = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        for i in top:
            ranks[i] = rank
        left -= top
    return ranks


@pytest.mark.parametrize("width", [2, 3])
def test_ranks_are_brute_force_ranks(width: int) -> None:
    """With ties in each objective, with equal points, and of many points."""
    chance = random.Random(width)
    for size in (2, 4, 6) * 150:
        points = [tuple(chance.randint(0, size) / 5 for _ in range(width)) for _ in range(chance.randint(0, 24))]
        assert pareto_ranks(points) == brute_ranks(points)
    many = [tuple(chance.random() for _ in range(width)) for _ in range(200)]
    many += chance.sample(many, 30)
    assert pareto_ranks(many) == brute_ranks(many)
    assert max(pareto_ranks(many)) > 8


def test_ranks_need_two_or_three_objectives() -> None:
    for points in ([(1.0,)], [(1.0, 2.0, 3.0, 4.0)], [(1.0, 2.0), (1.0, 2.0, 3.0)]):
        with pytest.raises(ValueError, match="two or three"):
            pareto_ranks(points)


@pytest.mark.parametrize("costs", [1, 2])
def test_hypervolume_is_optunas(costs: int) -> None:
    chance = random.Random(costs)
    for _ in range(100):
        points = [
            (chance.random(), 10 ** chance.uniform(4, 7), chance.choice([0.5, 1.0, 2.0, 9.0]))[: costs + 1]
            for _ in range(chance.randint(2, 20))
        ]
        logs_NC = np.log10([point[1:] for point in points])
        losses = np.hstack([np.minimum(0.0, [[0.1 - point[0]] for point in points]), logs_NC - logs_NC.max(0)])
        most = 0.9 * math.prod(np.ptp(logs_NC, axis=0))
        expected = compute_hypervolume(losses, np.zeros(costs + 1)) / most if most else 0.0
        assert hypervolume(points, 0.1) == pytest.approx(expected)


def test_hypervolume_of_few_points() -> None:
    assert hypervolume([], 0.1) == 0
    assert hypervolume([(0.9, 5.0)], 0.1) == 0
    assert hypervolume([(1.0, 1.0), (0.2, 100.0)], 0.1) == pytest.approx(1.0)
    assert hypervolume([(1.0, 1.0)], 0.1, [(1.0, 100.0)]) == pytest.approx(1.0)
    assert hypervolume([(0.55, 10.0, 4.0), (0.1, 100.0, 16.0), (0.1, 1.0, 1.0)], 0.1) == pytest.approx(0.5**3)


def test_the_knee_is_farthest_from_the_chord() -> None:
    """Against the distance from a line, in coordinates scaled to the front's ends."""
    chance = random.Random(4)
    knees = 0
    for _ in range(200):
        front = sorted((chance.random(), chance.random()) for _ in range(6))
        front = list(zip([x for x, _ in front], sorted((y for _, y in front), reverse=True), strict=True))
        (x0, y0), (x1, y1) = front[0], front[-1]
        far = [(x - x0) / (x1 - x0) + (y - y1) / (y0 - y1) - 1 for x, y in front]
        best = max(range(6), key=lambda i: far[i])
        assert knee(front) == (best if far[best] > 1e-9 else None)
        knees += far[best] > 1e-9
    assert 20 < knees < 200


def test_few_or_straight_fronts_have_no_knee() -> None:
    assert knee([]) is None
    assert knee([(0.0, 1.0), (1.0, 0.0)]) is None
    assert knee([(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]) is None
    assert knee([(0.0, 1.0), (0.4, 0.4), (1.0, 0.0)]) is None, "a dent"
    assert knee([(0.0, 1.0), (0.5, 0.6), (0.6, 0.5), (1.0, 0.0)]) == 1
    assert knee([(0.0, 1.0, 0.5), (0.9, 0.9, 0.9), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]) == 1


def test_coverage_by_hand() -> None:
    a, b = [(0.9, 10.0), (0.5, 1.0)], [(0.9, 10.0), (0.8, 20.0), (0.6, 2.0), (0.4, 1.0)]
    assert coverage(a, b) == 0.75
    assert coverage(b, a) == 0.5
    assert coverage(a, []) is None
    assert coverage([], a) == 0.0
    assert coverage([(0.9, 10.0, 5.0)], [(0.9, 10.0, 4.0), (0.8, 10.0, 5.0)]) == 0.5


def test_gain_is_linear_in_the_logarithm_of_the_cost() -> None:
    curve = envelope([(0.80, 1e6), (0.90, 1e8), (0.85, 1e9)])
    assert [accuracy for _, accuracy in curve] == [0.80, 0.90, 0.90]
    assert gain(0.87, 1e7, curve) == (pytest.approx(2.0), None)
    assert gain(0.80, 1e6, curve) == (pytest.approx(0.0), None)
    assert gain(0.91, 1e9, curve) == (pytest.approx(1.0), None)
    assert gain(0.99, 1e7, []) == (None, None)
    assert gain(0.83, 1e6, envelope([(0.80, 1e6), (0.82, 1e6)])) == (pytest.approx(1.0), None)


def test_gain_beyond_the_baselines_is_a_bound() -> None:
    curve = envelope([(0.80, 1e6), (0.90, 1e8), (0.85, 1e9)])
    assert gain(0.9375, 9e5, curve) == (pytest.approx(13.75), "lower"), "cheaper, and better than the cheapest"
    assert gain(0.80, 9e5, curve) == (0.0, "lower")
    assert gain(0.79, 9e5, curve) == (None, None), "cheaper and worse: who knows"
    assert gain(0.92, 2e9, curve) == (pytest.approx(2.0), "upper"), "over the best, which is not the most expensive"
    assert gain(0.85, 2e9, curve) == (pytest.approx(-5.0), "upper")


def test_a_gain_is_over_plain_resnets_that_were_trained_for_as_long() -> None:
    """100 steps and 300 of finetuning beside ResNets of 100 steps; once one of them has had 400, its better weights."""

    def trained(trial: int, kind: str, accuracy: float, macs: int, steps: int, parent: int | None = None) -> Record:
        lineage = {} if parent is None else {"trial": parent}
        cost, budget = {"macs": macs, "params": 1}, {"done": steps, "full": steps}
        return Record(trial, kind, "resnet", f"net{macs}{kind}", {}, {}, cost, "ok", accuracy=accuracy, budget=budget,
                      lineage=lineage, weights="finetuned" if parent is not None else "alone")  # fmt: skip

    short = [trained(0, "baseline", 0.5, 100, 100), trained(1, "baseline", 0.7, 10_000, 100)]
    nets = [trained(2, "search", 0.6, 1000, 100), trained(3, "search", 0.8, 1000, 300, parent=2)]
    gains = {row.trial: (row.gain, row.gain_bound) for row in leaderboard([*short, *nets]).rows}
    assert gains[3] == (None, None)
    assert 2 not in gains, "a net that was trained on is one net"
    longer = trained(4, "baseline", 0.45, 100, 300, parent=0)
    gains = {row.trial: (row.gain, row.gain_bound) for row in leaderboard([*short, *nets, longer]).rows}
    assert gains[3] == (pytest.approx(30.0), "upper"), "the cheaper ResNet, which kept its better weights"


pytestmark = pytest.mark.usefixtures("elsewhere")
WEIGHTS = Quantity("weight_bytes", "weights", "bytes of weights", formula=lambda costs: 4 * costs["params"])
CODE = """
import sys
from alternas.results.ranking.quantities import QUANTITIES, Quantity

QUANTITIES["weight_bytes"] = Quantity("weight_bytes", "weights", formula=lambda costs: 4 * costs["params"])
from alternas.cli.app import main
from alternas.cli.python import search_spec

spec = search_spec("all", objective="weight_bytes", max_weight_bytes="40k")
assert (spec.costs, spec.limits, spec.measured) == (("weight_bytes",), {"weight_bytes": 40_000}, ())
sys.argv = ["alternas", "front", "mine", "--objectives", "weight_bytes", "--max-weight-bytes", sys.argv[1], "--json"]
main()
"""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The bytes of weights of each net of the run "mine", a cost that nobody has heard of, which has an entry now."""
    monkeypatch.setitem(QUANTITIES, "weight_bytes", WEIGHTS)
    rows = drawn_records(12, stops=False)
    made_run(Path("runs/mine"), rows)
    return {row["trial"]: 4 * row["cost"]["params"] for row in rows}


@pytest.mark.slow
def test_a_cost_is_an_option_that_limits(known: dict[int, int]) -> None:
    """Options are made with the commands, so that those of a new process have it."""
    most = sorted(known.values())[6]
    done = subprocess.run([sys.executable, "-c", CODE, str(most)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    front = {row["trial"]: row["weight_bytes"] for row in json.loads(done.stdout)}
    assert front == {trial: known[trial] for trial in front}
    assert 0 < max(front.values()) <= most < max(known.values())


def test_a_cost_is_an_objective_a_column_and_a_field(alternas: Any, known: dict[int, int]) -> None:
    """Of fronts, tables, the page and its files, and of `cost`."""
    front = json.loads(alternas("front", "mine", "--objectives", "accuracy,weight_bytes", "--json")[1])
    score = {row["trial"]: row["accuracy"] for row in json.loads(alternas("leaderboard", "mine", "--json")[1])}
    best = [max(score[trial] for trial, size in known.items() if size <= row["weight_bytes"]) for row in front]
    assert [row["accuracy"] for row in front] == best, "no net is better and smaller"
    assert {row["trial"]: row["weight_bytes"] for row in front} == {row["trial"]: known[row["trial"]] for row in front}
    assert " weights " in alternas("leaderboard", "mine", "--objectives", "weight_bytes,macs")[1]
    assert load_run("mine").frame()["weight_bytes"].to_dict() == known
    assert json.loads(alternas("cost", "resnet18", "--json")[1])["weight_bytes"] == 4 * 11_689_512, "as torchvision has"
    assert "46.8 M bytes of weights" in " ".join(alternas("cost", "resnet18")[1].split())
    page = open_run(Path("runs/mine"))
    assert {row["trial"]: row["bytes of weights"] for row in leaderboard_table(page).rows} == known
    rows = [net_row(page, record) for record in page.nets]
    assert {row[0]: row[net_columns().index("weight_bytes")] for row in rows} == known


def test_a_search_weighs_and_limits_a_cost_by_its_formula(
    open_controller: Callable[..., SearchTrials], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(QUANTITIES, "weight_bytes", WEIGHTS)
    limits = {"weight_bytes": 12_000, "memory": 12_000}
    work = open_controller(trials=4, strategy="evolution", costs=("weight_bytes",), limits=limits)
    run_loop(work, FakeExecutor(), SilentView())
    trained = [r for r in work.store.records if r.status == "ok" and r.kind == "search"]
    assert len(trained) == 4
    assert all(4 * r.cost["params"] <= 12_000 and r.cost["peak_activation_bytes"] <= 12_000 for r in trained)
    assert [work.context.cost_of(r.key, r.cost) for r in trained] == [4 * r.cost["params"] for r in trained]
    refused = [r for r in work.store.records if r.status == "infeasible"]
    assert all(r.constraint_violation.keys() <= limits.keys() for r in refused)


def test_memory_is_an_objective_of_a_search() -> None:
    assert spec_of("all", costs=("memory", "macs"), limits={"memory": 1}).measured == ()
    with pytest.raises(InputError, match="objective: unknown value 'train_flops'"):
        spec_of("all", costs=("train_flops",))
    for asked in ({"probe": ProbeSpec(), "limits": {"memory": 9}}, {"references": (TimmNet("resnet18"),)}):
        with pytest.raises(InputError, match="memory: of timm's nets it is not known; take macs or params"):
            spec_of("all", **{"costs": ("memory",)} | asked)


def test_a_metric_is_an_entry_and_how_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def kappa(self: Scores) -> float:
        share_KK = self.confusion_KK.double() / self.confusion_KK.sum()
        chance = float(share_KK.sum(0) @ share_KK.sum(1))
        return (float(share_KK.diagonal().sum()) - chance) / (1 - chance)

    monkeypatch.setitem(QUANTITIES, "kappa", Score("kappa", "Cohen's kappa", chance=lambda _: 0.0))
    monkeypatch.setattr(Scores, "kappa", property(kappa), raising=False)
    draw = np.random.default_rng(0)
    y, logits = draw.integers(0, 4, 200), draw.normal(size=(200, 4))
    logits[np.arange(200), y] += 1
    found = scores(torch.from_numpy(logits), torch.from_numpy(y), 4).numbers("val_")
    assert found["val_kappa"] == pytest.approx(cohen_kappa_score(y, logits.argmax(1)))
    assert parse_metric("kappa", False, has_trainer=False) == Metric("kappa")
    assert (guessing(Metric("kappa"), {"classes": "abcd"}), Metric("kappa").within, range_of("test_kappa")) == (
        0.0, ANY, ANY,
    )  # fmt: skip
    with pytest.raises(InputError, match="minimize: of kappa more is better"):
        parse_metric("kappa", True, has_trainer=True)


def test_totals_that_do_not_tell_a_cost_leave_it_unknown() -> None:
    totals: dict[str, Any] = {"params": 10, "macs": 20}
    assert [QUANTITIES[name].of(totals) for name in ("params", "macs", "memory", "latency_ms")] == [10, 20, None, None]
