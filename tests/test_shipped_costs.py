"""A search weighs and limits nets by what is shipped, and counts the compute of what is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alternas.archs import Genotype, Stage, Stem, deployed_cost, static_cost
from alternas.archs.cost import BACKWARD_FACTOR, Cost
from alternas.archs.timm_net import net_cost
from alternas.archs.timm_network import build_deployed
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.objectives import own_flops
from alternas.results.runs.record import Record
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import FileSpace
from fakes import FakeExecutor, SilentView, run_loop

NET = Genotype(Stem("cifar", 8), (Stage("repvgg", 2, 16, 2),))
SPACE = """
from alternas.archs import Genotype, Stage, Stem

class Mine:
    def __init__(self, image_size):
        pass

    def sample(self, chooser):
        kind, width = chooser.choose("kind", ("repvgg", "repvit", "basic")), chooser.choose("width", (8, 16))
        return Genotype(Stem("cifar", 8), (Stage(kind, 2, width, 2),))
"""


def costs(net: Genotype) -> tuple[Cost, Cost]:
    return deployed_cost(net, 10, 8, 1), static_cost(net, 10, 8, 1)


def test_a_search_ranks_what_is_shipped(
    open_controller: Callable[..., SearchTrials], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SPACE, encoding="utf-8")
    controller = open_controller(FileSpace("./mine.py", (8, 8)), trials=6)
    run_loop(controller, FakeExecutor(), SilentView())
    records = [r for r in controller.store.records if r.accuracy is not None]
    for record in records:
        shipped, trained = costs(Genotype.from_dict(record.genotype))
        assert (record.cost["macs"], record.training_macs) == (shipped.macs, trained.macs)
        assert controller.context.cost_of(record.key, record.cost) == shipped.macs
        assert Record.from_dict(record.to_dict()) == record
    assert any("training_macs" in r.cost for r in records)
    assert any("training_macs" not in r.cost for r in records)
    macs = {r.trial: r.cost["macs"] for r in records}
    assert all(row["macs"] == macs[row["trial"]] for row in leaderboard(records).front)


def test_compute_is_that_of_the_trained_net() -> None:
    shipped, trained = costs(NET)
    assert net_cost(NET, 10, 8, 1) == shipped
    budget, recipe = {"full": 3, "done": 3}, {"batch_size": 4}
    fields = {"family": "modern", "key": NET.key, "genotype": NET.to_dict(), "genes": {}, "cost": shipped.totals()}
    record = Record(trial=0, kind="search", status="ok", budget=budget, recipe=recipe, **fields)
    assert own_flops(record) == BACKWARD_FACTOR * trained.macs * 12


def test_latency_is_that_of_the_shipped_net() -> None:
    shipped, _ = costs(NET)
    assert sum(p.numel() for p in build_deployed(NET, 10, 8, 1).parameters()) == shipped.params
