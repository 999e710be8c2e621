"""A cost is an entry and its formula, a metric an entry and how it is computed: all else follows from the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score

from alternas.archs import InputError
from alternas.archs.timm_net import TimmNet
from alternas.results import load_run
from alternas.results.metrics import Scores, scores
from alternas.results.ranking.metric import Metric, guessing, parse_metric
from alternas.results.ranking.quantities import QUANTITIES, Quantity, Score
from alternas.results.ranking.stats import ANY, range_of
from alternas.results.report.run import open_run
from alternas.results.report.sections import leaderboard_table, net_columns, net_row
from alternas.search.spec import ProbeSpec
from alternas.search.trials.search_trials import SearchTrials
from fakes import FakeExecutor, SilentView, run_loop, spec_of
from runs import drawn_records, made_run

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
