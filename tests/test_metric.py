"""A metric beside accuracy: names, floors, what is shown of it, and searches that rank by it."""

import json
import math
import re
from dataclasses import replace
from operator import ge
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    recall_score,
    roc_auc_score,
    top_k_accuracy_score,
)

from alternas.archs import InputError, zoo
from alternas.results import load_run
from alternas.results.metrics import evaluate, macro_auroc, scores
from alternas.results.ranking.compare import compare
from alternas.results.ranking.front import mark_ties, still_rose
from alternas.results.ranking.metric import (
    Metric,
    class_of,
    floor_name,
    parse_metric,
    run_metric,
    score_range,
)
from alternas.results.ranking.noise import Noise
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.pareto import hypervolume
from alternas.results.ranking.quantities import class_metrics
from alternas.results.ranking.remarks import left_out
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.runs.record import Record
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import open_loader
from alternas.search.training.loop import train
from command_line import Run, records
from runs import finished_run, made_run, net_row, ranked_net

TEN = {"classes": list("0123456789")}
NLL = {"name": "nll", "minimize": True}
NET = zoo.alternet("basic", (1, 1), (0, 0), (1, 1), 0, width=4)


def row(trial: int, score: float, macs: int, **more: Any) -> dict[str, Any]:
    metrics = {"accuracy": 0.5, "nll": -score}
    usual = {"key": f"net{trial}", "cost": {"macs": macs, "params": macs}, "accuracy": score, "metrics": metrics}
    return net_row(trial, NET, **usual | more)


NETS = [row(0, -1.5, 100), row(1, -0.25, 2000), row(2, -0.5, 400), row(3, -0.75, 500)]


def run_of(name: str, rows: list[dict[str, Any]], metric: Any = NLL, **settings: Any) -> Path:
    return made_run(Path("runs") / name, rows, settings={"objective": "macs", "metric": metric} | settings)


def test_names_are_checked_and_directions_known() -> None:
    assert parse_metric("accuracy", False, has_trainer=False) == Metric()
    assert parse_metric("nll", False, has_trainer=False) == Metric("nll", True)
    assert parse_metric("ece", False, has_trainer=True).minimize
    assert parse_metric("miou", False, has_trainer=True) == Metric("miou")
    assert parse_metric("rmse", True, has_trainer=True) == Metric("rmse", True)
    with pytest.raises(InputError, match="minimize: of accuracy more is better"):
        parse_metric("accuracy", True, has_trainer=True)
    for name, minimize, rule in (
        ("miou", False, "metric: unknown value 'miou'"),
        ("accurcy", False, "did you mean 'accuracy'"),
        ("auroc", True, "minimize: of auroc more is better"),
        ("x" * 300, False, "metric: "),
        ("recall:\x1b[31m", False, "metric: name must be printable"),
    ):
        with pytest.raises(InputError, match=rule.replace("(", r"\(")):
            parse_metric(name, minimize, has_trainer=False)
    assert class_of(Metric("recall:b"), ("a", "b")) == 1
    assert class_of(Metric("auroc"), ("a", "b")) is None
    with pytest.raises(InputError, match="metric recall:CLASS: unknown value 'c'"):
        class_of(Metric("recall:c"), ("a", "b"))


def test_the_floor_is_what_guessing_gives() -> None:
    """Where a closed form is known; equal probabilities have an NLL of ln K."""
    floors = {"accuracy": 0.1, "balanced_accuracy": 0.1, "top5": 0.5, "auroc": 0.5, "macro_f1": 0, "recall:3": 0}
    for name, floor in (floors | {"nll": -math.log(10), "ece": -1}).items():
        best = 0 if name in ("nll", "ece") else 1
        assert score_range(parse_metric(name, False, False), TEN, [0.3]) == pytest.approx((floor, best)), name
    assert score_range(Metric("nll", True), TEN, [])[0] == pytest.approx(
        -torch.nn.functional.cross_entropy(torch.zeros(5, 10), torch.arange(5)).item()
    )
    assert score_range(Metric("rmse", True), TEN, [-3.0, -1.0]) == (-3.0, -1.0)
    assert score_range(Metric("rmse", True, 4.0), TEN, [-3.0, -1.0]) == (-4.0, 0.0), "the user says what guessing gives"
    assert score_range(Metric("psnr", chance=5.0), TEN, [20.0, 31.0]) == (5.0, 31.0), "more than 1"
    assert floor_name(Metric("psnr", chance=5.0), TEN) == "chance"
    assert parse_metric("miou", False, True, chance=0.3) == Metric("miou", chance=0.3)
    with pytest.raises(InputError, match="chance: of nll it is known"):
        parse_metric("nll", False, False, chance=0.1)
    with pytest.raises(InputError, match="metric: chance must be a number from"):
        Metric("miou", chance=math.inf)


@pytest.mark.usefixtures("elsewhere")
def test_a_front_shows_the_value_and_names_the_metric(alternas: Any) -> None:
    run_of("mine", NETS)
    found = json.loads(alternas("front", "mine", "--json")[1])
    assert [(r["trial"], r["value"]) for r in found] == [(0, 1.5), (2, 0.5), (1, 0.25)]
    assert {r["metric"] for r in found} == {"nll"}
    assert not {"accuracy", "accuracy_per_gmac", "retrained_accuracy"} & found[0].keys()
    out = alternas("leaderboard", "mine")[1]
    assert "nll" in out.splitlines()[1] + out.splitlines()[2]
    assert "0.2500" in out
    assert "accuracy" not in out
    assert "acc/GMAC" not in out
    points = [(math.log(10) - r["value"], r["macs"]) for r in found]  # above guessing, of the most there is
    expected = hypervolume([(above / math.log(10), macs) for above, macs in points], 0.0, [(100, 2000)])
    assert leaderboard_of(Path("runs/mine")).hypervolume() == pytest.approx(expected)
    assert f"nll above chance x log MACs) {expected:.4f}" in " ".join(out.split())
    shown = json.loads(alternas("show", "mine", "1", "--json")[1])
    assert (shown["metric"], shown["value"], "accuracy" in shown) == ("nll", 0.25, False)
    assert "validation nll 0.2500" in " ".join(alternas("show", "mine", "1")[1].split())
    listed = json.loads(alternas("runs", "--json")[1])[0]
    assert (listed["metric"], listed["best_value"], listed["best_accuracy"]) == ("nll", 0.25, None)
    assert "0.2500 nll" in alternas("runs")[1]


OTHERS = [{"recall:3": 0.2, "nll": 1.5}, {"recall:3": 0.1, "nll": 0.25}, {"recall:3": 0.9, "nll": 0.5}, {"nll": 3.0}]


@pytest.mark.usefixtures("elsewhere")
def test_any_metric_that_was_recorded_is_an_objective(alternas: Any) -> None:
    """The front by brute force; net 3 lacks the recall, net 2 has more of it than the cheaper net 0."""
    nets = [{**net, "metrics": more} for net, more in zip(NETS, OTHERS, strict=True)]
    run_of("mine", nets)
    values = {n["trial"]: (n["accuracy"], n["metrics"]["recall:3"], -n["cost"]["macs"]) for n in nets[:3]}
    best = {
        trial
        for trial, own in values.items()
        if not any(other != own and all(map(ge, other, own)) for other in values.values())
    }
    found = json.loads(alternas("front", "mine", "--objectives", "nll,recall:3,macs", "--json")[1])
    assert {r["trial"] for r in found} == best
    assert all(r["recall:3"] == nets[r["trial"]]["metrics"]["recall:3"] for r in found)
    out = " ".join(alternas("front", "mine", "--objectives", "recall:3,macs,accuracy")[1].split())
    assert "left out: 1 net without recall:3" in out
    assert "nll above chance x recall:3 above the worst x log MACs" in out
    assert "0.9000" in out
    frame = load_run("mine").front("recall:3")
    assert sorted(frame["recall:3"]) == [0.1, 0.9], "net 0 loses to net 2 in both"


@pytest.mark.usefixtures("elsewhere")
def test_objectives_that_a_run_does_not_have(alternas: Any) -> None:
    run_of("mine", [{**NETS[0], "metrics": {"recall:3": 0.5, "sd": 1.0}}])
    for asked, said in (
        ("recal:3", "did you mean 'recall:3'"),
        ("nll", "two or three different ones"),
        ("sd", "objectives: sd is a column of every leaderboard"),
    ):
        code, _, err = alternas("front", "mine", "--objectives", asked)
        assert (code, said in err, err.count("\n")) == (2, True, 1), err


def test_ties_ask_that_no_objective_is_worse() -> None:
    """Net 1 leads net 0 by more than the noise at equal cost, but has more of a metric of which less is better."""
    noise = Noise([(0.5, 10 * 0.01**2, 10)], 20, 10)

    def tied(delay: float) -> list[int | str] | None:
        rows = [
            ranked_net(0, 0.50, rank=1, seeds=2, metrics={"delay": 1.0}),
            ranked_net(1, 0.60, rank=1, seeds=2, metrics={"delay": delay}),
            ranked_net(2, 0.49, rank=2, seeds=2, metrics={"delay": 1.5}),
        ]
        mark_ties(rows, RankingQuery(("accuracy", "macs", "-delay")), noise)
        return rows[2].tied_with

    assert tied(2.0) == [0]
    assert tied(1.2) == [], "net 1 leads it at no more of either"


@pytest.mark.usefixtures("elsewhere")
def test_an_old_run_is_ranked_by_accuracy_and_an_odd_metric_refused(alternas: Any) -> None:
    folder = finished_run()
    assert run_metric(folder) == Metric()
    assert json.loads(alternas("front", "mine", "--json")[1])[0]["accuracy"] == 0.91
    for odd in (
        {"name": "x", "minimize": True, "chance": "much"},
        {"name": 3, "minimize": True},
        {"name": "x", "minimize": 1},
        [],
        "nll",
    ):
        run_of("odd", NETS, odd)
        code, _, err = alternas("front", "odd")
        assert (code, "metric" in err, err.count("\n")) == (2, True, 1), odd


@pytest.mark.usefixtures("elsewhere")
def test_gain_ties_and_noise_are_of_the_metric(alternas: Any) -> None:
    plain = [row(5, -1.0, 100, kind="baseline"), row(6, -0.5, 10_000, kind="baseline")]
    seeds = {"accuracies": {"0": -0.60, "1": -0.64, "2": -0.60, "3": -0.64, "4": -0.62}}
    run_of("mine", [*plain, row(7, -0.62, 1000, **seeds)])
    rows = {r["trial"]: r for r in json.loads(alternas("leaderboard", "mine", "--json")[1])}
    assert rows[7]["gain"] == pytest.approx(13.0), "halfway in log10 from 1.0 to 0.5 is 0.75: 0.13 less"
    assert rows[7]["sd"] == pytest.approx(0.02)
    assert rows[7]["tied_with"] == [], "0.062 is their half width"
    out = " ".join(alternas("front", "mine")[1].split())
    assert "seed noise: 2 hundredths of nll (sd over 5 trainings of 1 net)" in out
    assert "gain: hundredths of nll above plain ResNets" in out


def test_rising_is_told_by_the_seed_noise() -> None:
    curve = [{"step": 8, "accuracy": -1.0}, {"step": 16, "accuracy": -0.8}]
    budget = {"full": 16, "done": 16}
    net = Record(0, "search", "resnet", "n", {}, {}, {"macs": 1, "params": 1}, "ok", curve=curve, budget=budget)
    metric = Metric("nll", True)
    rose = [still_rose(net, 1000, metric, Noise([(-0.9, sd**2, 1)], 2, 1)) for sd in (0.07, 0.071)]
    assert rose == [True, False], "0.2 is 2 sqrt(2) x 0.0707"
    assert still_rose(net, 1000, metric, None) is None


@pytest.mark.usefixtures("elsewhere")
def test_runs_of_different_metrics_are_not_compared(alternas: Any) -> None:
    run_of("one", NETS)
    run_of("two", NETS[:2])
    run_of("other", NETS, {"name": "auroc", "minimize": False})
    with pytest.raises(InputError, match="compare: runs must be ranked by the same metric, got nll in one, auroc in o"):
        compare(["one", "other"], RankingQuery())
    found = json.loads(alternas("compare", "one", "two", "--json")[1])
    assert [(r["run"], r["metric"], r["best_value"]) for r in found["runs"]] == [
        ("one", "nll", 0.25), ("two", "nll", 0.25),
    ]  # fmt: skip
    assert found["front"][0]["value"] == 1.5
    assert {"best", "nll"} <= {*alternas("compare", "one", "two")[1].split()}


@pytest.mark.usefixtures("elsewhere")
def test_what_a_net_must_reach_begins_fronts_and_hypervolumes(alternas: Any) -> None:
    """Of NLL .25, .5, .75 and 1.5 two are at most .5; between them and a perfect 0 half of .5 and none of it."""
    board = leaderboard_of(run_of("asked", NETS, NLL | {"needed": 0.5}))
    assert [r.trial for r in board.rows] == [2, 1]
    assert board.score_range == (-0.5, 0.0)
    assert board.hypervolume() == pytest.approx(0.0)  # one is at the bound, the other the most expensive
    assert any("without nll of at most 0.5000: 2 nets" in line for line in left_out(board))
    run_of("none", NETS, NLL | {"needed": 0.1})
    code, text, _ = alternas("front", "none")
    assert code == 0
    assert "no net is within the limits (nll of at most 0.1000): 4 nets left out" in " ".join(text.split())


@pytest.mark.usefixtures("elsewhere")
def test_a_users_metric_is_counted_from_the_worst_net_of_all_runs() -> None:
    metric = {"name": "rmse", "minimize": True}
    run_of("one", [row(0, -40.0, 100), row(1, -10.0, 1000)], metric)
    run_of("two", [row(0, -20.0, 100), row(1, -80.0, 1000)], metric)
    assert [r["hypervolume"] for r in compare(["one", "two"], RankingQuery()).runs] == pytest.approx([40 / 70, 60 / 70])


@pytest.mark.usefixtures("elsewhere")
def test_a_frame_has_the_values() -> None:
    frame = load_run(run_of("mine", [*NETS, row(4, -0.3, 9, accuracies={"0": -0.2, "1": -0.4})])).frame()
    assert frame["value"].tolist() == [1.5, 0.25, 0.5, 0.75, 0.3]
    assert set(frame["metric"]) == {"nll"}
    assert frame["accuracy"].tolist() == [0.5] * 5, "which the trainings report too"
    assert frame.loc[4, "values"] == {"0": 0.2, "1": 0.4}
    front = load_run("mine").front()
    assert front["value"].tolist() == frame.loc[front.index, "value"].tolist()


@pytest.mark.usefixtures("elsewhere")
def test_a_report_shows_values(alternas: Any) -> None:
    curve = [{"step": 1, "loss": 1.0, "accuracy": -2.0}, {"step": 2, "loss": 1.0, "accuracy": -1.25}]
    run_of("mine", [*NETS, row(4, -1.25, 50, curve=curve)])
    facts = json.loads(alternas("report", "mine", "--json", "--assets", "numbers")[1])
    assert (facts["metric"], facts["best_value"], "best_accuracy" in facts) == ("nll", 0.25, False)
    page = Path("runs/mine/report.html").read_text(encoding="utf-8")
    assert "best nll 0.2500" in page
    assert "validation nll" in page
    assert "validation accuracy" not in page
    assert "down is better by nll" in page
    assert "1.25" in (Path("numbers") / "curves.csv").read_text(encoding="utf-8")
    assert "-1.25" not in (Path("numbers") / "curves.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["nll", "recall:3", "auroc"])
def test_a_training_reports_the_score_and_all_metrics(tmp_path: Path, name: str) -> None:
    data = load(DataConfig("digits"))
    loader, metric = open_loader(data, torch.device("cpu"), 1), parse_metric(name, False, False)
    files = {"checkpoint": str(tmp_path / "state.pt"), "weights": str(tmp_path / "net.safetensors")}
    recipe = replace(recipes.get("smoke"), refit=False)  # the curve's end is of the layer that is trained
    job = TrainJob(0, NET, recipe, 0, 8, 8, **files, test=True, metric=metric)
    result = list(train(job, loader))[-1]
    assert isinstance(result, JobResult)
    assert result.accuracy == metric.score(result.metrics[name]) == result.curve[-1].accuracy
    known = {"accuracy", "balanced_accuracy", "macro_f1", "auroc", "top5", "nll", "ece", name}
    assert result.metrics.keys() == {f"{split}{one}" for split in ("", "train_", "test_") for one in known}
    plain = list(train(TrainJob(0, NET, recipe, 0, 8, 8, **files, test=True), loader))[-1]
    assert isinstance(plain, JobResult)
    assert plain.accuracy == result.metrics["accuracy"], "the same training, from its checkpoint"


@pytest.mark.slow
def test_a_search_by_another_metric_resumes_retrains_and_exports(served: Run, tmp_path: Path) -> None:
    words = ["--trials", "3", "--name", "mine", "--metric", "nll", "--epochs", "2"]
    code, out, err = served(tmp_path, "search", *words)
    assert code == 0, err
    assert "nll" in out
    assert re.search(r"ok nll \d\.\d{4}, ", out), "a line for each net"
    before = records(tmp_path, "mine")
    assert all(r["accuracy"] == -r["metrics"]["nll"] for r in before if r["kind"] == "search" and r["status"] == "ok")
    assert served(tmp_path, "search", *words)[0] == 0
    assert records(tmp_path, "mine") == before
    code, _, err = served(tmp_path, "search", *[word for word in words if word not in ("--metric", "nll")])
    assert (code, "metric.name is 'nll' there, 'accuracy' here" in err) == (2, True)
    code, out, err = served(tmp_path, "retrain", "mine", "--top", "1", "--seeds", "2", "--json")
    assert code == 0, err
    (found,) = json.loads(out)
    assert (found["metric"], found["value"]["n"], found["test_value"]["n"]) == ("nll", 2, 2)
    assert found["value"]["mean"] > 0
    assert "validation nll" in served(tmp_path, "show", "mine", str(found["trial"]))[1]
    code, out, err = served(tmp_path, "export", "mine", "--out", "best")
    assert code == 0, err
    facts = json.loads((tmp_path / "best" / "config.json").read_text(encoding="utf-8"))
    assert (facts["metric"], facts["value"] > 0, 0 <= facts["accuracy"] <= 1) == ("nll", True, True)


def test_wrong_metrics_of_a_search_are_refused_in_one_line(alternas: Any, elsewhere: Path) -> None:
    for words, rule in (
        (["--metric", "miou"], "metric: unknown value 'miou'"),
        (["--metric", "recall:ten"], "metric recall:CLASS: unknown value 'ten'"),
        (["--min-accuracy", "1.5"], "min-accuracy: accuracy must be from 0 to below 1, got 1.5"),
        (["--minimize"], "minimize: of accuracy more is better; it is for metrics of a --trainer of your own"),
    ):
        code, _, err = alternas("search", "resnet", "--data", "digits", *words)
        assert (code, rule in err, err.count("\n")) == (2, True, 1), err
    assert not Path("runs").exists()


@pytest.mark.parametrize("classes", [3, 12])
def test_scores_are_scikit_learns(classes: int) -> None:
    torch.manual_seed(0)
    logits, y = 2 * torch.randn(500, classes), torch.randint(classes, (500,))
    found, p = scores(logits, y, classes), logits.double().softmax(1).numpy()
    assert found.accuracy == np.mean(p.argmax(1) == y.numpy())
    assert found.nll == pytest.approx(log_loss(y, p, labels=range(classes)), rel=1e-5)
    assert found.confusion_KK.tolist() == confusion_matrix(y, p.argmax(1), labels=range(classes)).tolist()
    guess = p.argmax(1)
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, guess), rel=1e-12)
    assert found.macro_f1 == pytest.approx(f1_score(y, guess, average="macro"), rel=1e-12)
    assert found.auroc == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), rel=1e-6)
    recalls = np.asarray(recall_score(y, guess, average=None))
    assert [found.recall(label) for label in range(classes)] == pytest.approx(recalls.tolist(), rel=1e-12)
    if classes > 5:
        assert found.top5 == top_k_accuracy_score(y, p, k=5, labels=range(classes))
    else:
        assert found.top5 == 1


def test_classes_without_images_count_as_scikit_learn_counts_them() -> None:
    """Seven classes, images of four of them, one of the others guessed."""
    torch.manual_seed(3)
    y, logits = torch.randint(4, (60,)), torch.randn(60, 7)
    logits[:, 5:] -= 100
    found, guess = scores(logits, y, 7), logits.argmax(1)
    with pytest.warns(UserWarning, match="y_pred contains classes"):
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, guess), rel=1e-12)
    assert found.macro_f1 == pytest.approx(f1_score(y, guess, average="macro"), rel=1e-12)
    p = logits.softmax(1)
    assert found.auroc == pytest.approx(np.mean([roc_auc_score(y == k, p[:, k]) for k in range(4)]), rel=1e-6)
    assert np.isnan(found.recall(4))


def test_auroc_with_ties_and_of_one_class() -> None:
    torch.manual_seed(4)
    p, y = torch.randint(4, (80, 3)).float(), torch.randint(2, (80, 3))
    assert macro_auroc(p, y) == pytest.approx(roc_auc_score(y, p, average="macro"), rel=1e-12)
    assert np.isnan(macro_auroc(p, torch.ones(80, 3))), "where all images are of a class there is nothing to tell"


def test_calibration_is_its_definition() -> None:
    """Guo et al., 2017, equation 3."""
    torch.manual_seed(1)
    logits, y = 3 * torch.randn(400, 4), torch.randint(4, (400,))
    confidence, guess = logits.double().softmax(1).max(1)
    wanted = 0.0
    for low in range(15):
        inside = (confidence >= low / 15) & (confidence < (low + 1) / 15)
        if inside.any():
            accuracy = (guess[inside] == y[inside]).double().mean()
            wanted += (inside.sum() / 400 * (accuracy - confidence[inside].mean()).abs()).item()
    assert scores(logits, y, 4).ece == pytest.approx(wanted, abs=1e-6)


def test_perfect_and_nan() -> None:
    y = torch.arange(6)
    perfect = scores(100 * torch.eye(6), y, 6)
    assert (perfect.accuracy, perfect.ece) == (1.0, pytest.approx(0, abs=1e-9))
    assert np.isnan(scores(torch.full((6, 6), torch.nan), y, 6).nll)


def test_batches_do_not_matter() -> None:
    torch.manual_seed(2)
    x, y = torch.randn(50, 7), torch.randint(7, (50,))
    whole = evaluate([(x, y)], 7)
    parts = evaluate(zip(x.split(8), y.split(8), strict=True), 7)
    assert whole.numbers() == parts.numbers()
    assert whole.numbers("train_").keys() == {f"train_{name}" for name in class_metrics()}
