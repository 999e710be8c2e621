"""A net that was trained on is one net with two sets of weights: in ranks, counts, ties, exports and retrainings."""

import json
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import zoo
from alternas.results.ranking.front import rank_rows
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.report.run import open_run
from alternas.results.report.search_progress import curves_plot, hypervolumes
from alternas.results.report.sections import leaderboard_table
from alternas.results.runs.nets import best_weights, trained_nets
from alternas.results.runs.overview import run_row
from alternas.results.runs.record import Record
from alternas.results.runs.trained_weights import select_net
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training.job import JobResult
from fakes import FakePool
from runs import made_run, net_row

pytestmark = pytest.mark.usefixtures("elsewhere")

NETS = [zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=width) for width in (4, 8, 12, 16)]
RECIPE = recipes.smoke().with_epochs(2).to_dict()


def row(trial: int, net: int, accuracy: float, macs: int = 0, **more: Any) -> dict[str, Any]:
    cost = {"params": 900, "macs": macs or 40_000 * (1 + net), "activation_bytes": 100}
    budget = {"done": 20, "full": 20}
    return net_row(trial, NETS[net], accuracy=accuracy, cost=cost, recipe=RECIPE, budget=budget) | more


def trained_on(trial: int, source: dict[str, Any], accuracy: float, **more: Any) -> dict[str, Any]:
    lineage = {"trial": source["trial"], "weights": f"trial {source['trial']}", "steps": 20}
    copied = source | {"trial": trial, "accuracy": accuracy, "weights": "finetuned", "lineage": lineage, "genes": {}}
    return copied | {"budget": {"done": 80, "full": 80}} | more


@pytest.fixture
def folder() -> Path:
    """Net 2 became better by training on (11), net 3 worse (12), the ResNet better (10) with both of its seeds."""
    plain = row(0, 0, 0.60, kind="baseline", accuracies={"0": 0.59, "1": 0.61})
    nets = [row(2, 1, 0.322, genes={"depth1": 2}), row(3, 2, 0.75)]
    later = [
        trained_on(10, plain, 0.65, accuracies={"0": 0.64, "1": 0.66}),
        trained_on(11, nets[0], 0.692),
        trained_on(12, nets[1], 0.70),
        row(13, 3, 0.5, status="pruned"),
    ]
    settings = {"objective": "macs", "recipe": RECIPE}
    return made_run(Path("runs/p"), [plain, *nets, *later], settings=settings, data=load(DataConfig("digits")).facts())


def test_the_better_weights_stand_for_a_net(folder: Path) -> None:
    rows = leaderboard_of(folder).rows
    assert {r.trial: (r.accuracy, r.weights, r.steps_in_all) for r in rows} == {
        10: (0.65, "finetuned", 100), 11: (0.692, "finetuned", 100), 3: (0.75, "alone", 20),
    }  # fmt: skip
    trainings = trained_nets(leaderboard_of(folder).records)
    assert [[r.trial for r in net] for net in trainings] == [[0, 10], [2, 11], [3, 12]]
    assert all(r.gain == pytest.approx(100 * (r.accuracy - 0.65)) for r in rows), "over the better ResNet"


def test_a_net_is_counted_once(folder: Path, alternas: Any) -> None:
    assert run_row(folder)["trained"] == 3
    said = " ".join(alternas("front", "p")[1].split())
    assert "Best of 3, so in part the luckiest" in said
    facts = json.loads(alternas("report", "p", "--json")[1])
    assert (facts["trained"], facts["front"]) == (3, 3)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "7 records, 3 nets trained to the end, 3 on the front" in page
    assert "3 nets trained to the end." in page
    run = open_run(folder)
    assert [record.trial for record in run.nets] == [10, 11, 3, 13]
    assert run.used(run.nets[1]) == {"depth1": 2}, "genes of the net, which the record of training on has not"
    assert hypervolumes(run)[-1][2] == pytest.approx(leaderboard_of(folder).hypervolume(), abs=1e-4)


def test_the_front_before_nets_were_trained_on_had_their_first_weights(folder: Path) -> None:
    changes = hypervolumes(open_run(folder))
    assert len([area for _, _, area in changes if area > 0]) >= 4, "the ResNet, net 3, and both that became better"


@pytest.mark.parametrize("named", [2, 11])
def test_either_trial_names_the_better_weights(folder: Path, named: int, fake_pool: type[FakePool]) -> None:
    home, record = select_net(folder, named)
    assert (home, record.trial, record.accuracy) == (folder, 11, 0.692)


@pytest.mark.parametrize("named", ["2", "11", "11,2"])
def test_retraining_is_held_against_the_better_weights(
    folder: Path, alternas: Any, named: str, fake_pool: type[FakePool]
) -> None:
    """Net 2 had 0.322, and 0.692 trained on: what is retrained to 0.5 must not be exported."""
    fake_pool.fate_of_all = staticmethod(lambda job: JobResult(job.id, "ok", job.stop_step, 0.5))
    code, out, err = alternas("retrain", "p", "--trials", named, "--seeds", "1", "--json")
    assert code == 0, err
    (found,) = json.loads(out)
    assert (found["trial"], found["searched"], found["net"]) == (11, 0.692, NETS[1].key)
    assert len(fake_pool.jobs_of_all) == 1
    assert [select_net(folder, trial) for trial in (2, 11)] == [select_net(folder, 11)] * 2
    assert select_net(folder, 11)[0] == folder, "the search's weights"


def test_show_says_where_the_net_has_better_weights(folder: Path, alternas: Any) -> None:
    assert "the same net has 0.6920 as trial 11: export and retrain take that one" in alternas("show", "p", "2")[1]
    assert "the same net has 0.7500 as trial 3" in alternas("show", "p", "12")[1]
    assert "the same net" not in alternas("show", "p", "11")[1]


def test_curves_go_over_all_steps_of_a_net_and_end_at_its_accuracy(folder: Path) -> None:
    """20 steps and 80 on are 0 to 0.2 and to 1; the mean of two seeds, which the table has, is marked."""
    rows = [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    for r in rows:
        end = r["accuracies"]["0"] if r.get("accuracies") else r["accuracy"]
        done = r["budget"]["done"]
        r["curve"] = [{"step": done // 2, "accuracy": end / 2}, {"step": done, "accuracy": end}]
    made_run(folder, rows, **json.loads((folder / "run.json").read_text(encoding="utf-8")))
    run = open_run(folder)
    series = {s.name: (s.x, s.y) for s in curves_plot(run).series}
    assert series["11: alternet, 100 steps"] == ([0.1, 0.2, 0.6, 1.0], [0.161, 0.322, 0.346, 0.692])
    assert series["3: alternet, 20 steps"] == ([0.5, 1.0], [0.375, 0.75])
    assert series["10: baseline, 100 steps"][1][-2:] == [0.64, 0.65], "its first seed, then the mean"
    assert series["on the leaderboard"] == ([1.0], [0.65])
    for row in leaderboard_table(run).rows:
        name = next(name for name in series if name.startswith(f"{row['trial']}: "))
        assert name.endswith(f" {row['steps']} steps")
        assert row["accuracy"] == series[name][1][-1]
    assert "1 of 1 other nets" in series, "not the first weights of nets that were trained on"


def test_weights_that_got_worse_do_not_count(folder: Path) -> None:
    assert select_net(folder, 12)[1].trial == 3
    assert select_net(folder, 3)[1].trial == 3


def test_records_in_circles_and_of_other_nets_end() -> None:
    """A lineage names a trial of another net where it inherited, or itself in a file that someone has edited."""
    heir = row(1, 1, 0.5, weights="inherited", lineage={"trial": 0, "steps": 20})
    one, two = row(2, 2, 0.5, lineage={"trial": 3}), row(3, 2, 0.6, lineage={"trial": 2})
    alone = row(4, 3, 0.5, lineage={"trial": 4})
    records = [Record.from_dict(r) for r in (row(0, 0, 0.5), heir, one, two, alone)]
    assert [[r.trial for r in net] for net in trained_nets(records)] == [[0], [1], [2, 3], [4]]
    assert [best_weights(net).trial for net in trained_nets(records)] == [0, 1, 3, 4]
    assert len(rank_rows(records, RankingQuery(("accuracy", "macs"))).rows) == 4
