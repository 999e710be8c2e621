"""The recipe as genes: which values it may take, what every strategy makes of them, what records and fronts say."""

import json
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import alternas
from alternas.archs import InputError
from alternas.archs.candidate import candidate_key
from alternas.results.export.card import recipe_text
from alternas.results.export.write import _tuned
from alternas.results.ranking.compare import differing
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.render.board import summary_lines
from alternas.results.report.elements import Table
from alternas.results.report.genes import importance_parts, importances, recipe_table
from alternas.results.report.run import open_run
from alternas.results.report.sections import leaderboard_table
from alternas.results.runs.record import Record
from alternas.results.runs.store import read_records, weights_file
from alternas.search.strategies.registry import STRATEGIES
from alternas.search.training import recipes
from alternas.search.training.recipe import Augment, Recipe
from alternas.search.training.tuned import own_genes, recipe_of, tuned_genes
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.weight_sources import Relatives
from alternas.spaces import FixedChooser, JointSpace, RandomChooser, RecordingChooser, get, members, options_of
from alternas.spaces.families import ResNetSpace
from alternas.spaces.presets import SpacePreset
from fakes import FakeExecutor, FakePool, SilentView, run_loop
from runs import drawn_records, made_run

Open = Callable[..., SearchTrials]
SMOKE = recipes.get("smoke")  # lr 6e-3, weight decay 0.05, shifts of a pixel
TUNE = tuned_genes(SMOKE, ("lr", "drop_path"), {})
STRATEGIES_THAT_TUNE = [name for name in STRATEGIES if name != "buildup"]


def joint(tune: Any = TUNE, space: Any = None) -> JointSpace:
    return JointSpace(space or get("all", 8), tune, own_genes(SMOKE, tune))


def finish(controller: SearchTrials, most: int = 10**6) -> list[Any]:
    """All jobs; the driver is killed after so many."""
    executor = FakeExecutor(1, lambda job: None if len(executor.ran) <= most else exit_(job))
    with suppress(KeyboardInterrupt):
        run_loop(controller, executor, SilentView())
    return executor.ran


def exit_(job: Any) -> Any:
    raise KeyboardInterrupt


# Which values a field may take.


def test_usual_values_are_around_the_recipes_own() -> None:
    assert TUNE["recipe.lr"] == pytest.approx([6e-3 * 2**k for k in range(-3, 4)])
    assert TUNE["recipe.drop_path"] == pytest.approx([0.05 * k for k in range(7)])
    decay = tuned_genes(SMOKE, ("weight_decay",), {})["recipe.weight_decay"]
    assert decay == pytest.approx([0.05 * 10 ** (k / 3) for k in range(-3, 4)], rel=1e-3)
    assert tuned_genes(SMOKE, ("augment",), {})["recipe.augment"] == ("none", "own", "fast", "paper_cifar")
    assert own_genes(SMOKE, TUNE) == {"recipe.lr": 6e-3, "recipe.drop_path": 0.0}


@pytest.mark.parametrize(("name", "given", "values"), [
    ("lr", [1e-4, 1e-1, "log"], [1e-4, 10**-3.5, 1e-3, 10**-2.5, 6e-3, 1e-2, 10**-1.5, 1e-1]),
    ("lr", [1e-3, 7e-3], [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 7e-3]),
    ("lr", [1e-3, 2e-3, 8e-3], [1e-3, 2e-3, 6e-3, 8e-3]),
    ("augment.pad", [0, 2], [0, 1, 2]),
    ("optimizer", ["sgd", "lion"], ["adamw", "sgd", "lion"]),
    ("augment", ["none"], ["none", "own"]),
    ("augment", ["smoke", "fast"], ["own", "fast"]),  # smoke's is its own
])  # fmt: skip
def test_ranges_of_a_recipes_file(name: str, given: list[Any], values: list[Any]) -> None:
    options = tuned_genes(SMOKE, (), {name: given})[f"recipe.{name}"]
    numbers = isinstance(values[0], int | float)
    assert list(options) == (pytest.approx(values, rel=1e-3) if numbers else values), "the recipe's own among them"


@pytest.mark.parametrize(("names", "ranges", "message"), [
    (("lrr",), {}, "tune: field: unknown value 'lrr' (did you mean 'lr'?)"),
    (("lr",), {"decay": [0, 1]}, "tune: field: unknown value 'decay'"),
    (("epochs",), {}, "tune: epochs cannot be: trials are compared after equal steps"),
    (("ema_decay",), {}, "tune: ema_decay has no usual range; give it one"),
    (("avg_pool_lr",), {}, "tune: avg_pool_lr has no usual range where it is 0 in the recipe"),
    (("optimizer",), {}, "tune: optimizer has no usual values; list them"),
    (("augment", "augment.pad"), {"augment.pad": [0, 2]}, "tune: augment is a choice of whole augmentations"),
    ((), {"lr": [1e-2, 1e-4]}, "tune: lr: the range must rise, got [0.01, 0.0001]"),
    ((), {"lr": [0, 1e-2, "log"]}, "tune: lr: the range must rise from a number above 0"),
    ((), {"lr": []}, 'tune: lr: must be [low, high], [low, high, "log"] or a list of numbers, got []'),
    ((), {"lr": "log"}, "tune: lr: must be [low, high]"),
    ((), {"lr": [True, math.inf]}, "tune: lr: must be [low, high]"),
    ((), {"lr": [0, 1e-2]}, "recipe: lr must be a number above 0"),
    ((), {"drop_path": [0, 1]}, "recipe: drop_path must be a number from 0 to 0.99"),
    ((), {"warmup": [0, 0.6], "cooldown": [0, 0.6]}, "recipe: warmup + cooldown is more than there is"),
    ((), {"optimizer": ["adamx"]}, "tune: optimizer: unknown value 'adamx'"),
    ((), {"optimizer": ["adamw"]}, "tune: optimizer: must have two values or more, got ['adamw']"),
    ((), {"augment": "none"}, "tune: augment: must be a list of names"),
])  # fmt: skip
def test_wrong_fields_and_ranges_are_one_line(names: tuple[str, ...], ranges: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        tuned_genes(SMOKE, names, ranges)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_genes_give_a_recipe() -> None:
    assert recipe_of(SMOKE, {}) == SMOKE == recipe_of(SMOKE, own_genes(SMOKE, TUNE) | {"width": 8})
    tuned = recipe_of(SMOKE, {"recipe.lr": 0.012, "recipe.drop_path": 0.1, "recipe.augment.mixup": 0.2})
    assert (tuned.lr, tuned.drop_path, tuned.augment) == (0.012, 0.1, Augment(pad=1, mixup=0.2))
    assert recipe_of(SMOKE, {"recipe.augment": "none"}).augment == Augment()
    assert recipe_of(SMOKE, {"recipe.augment": "fast"}).augment == recipes.fast().augment
    pretrain = recipes.vit_pretrain()  # 8e-4, and 3e-4 for nets that are read by averaging
    assert recipe_of(pretrain, {"recipe.lr": 4e-4}).avg_pool_lr == pytest.approx(1.5e-4), "the ratio stays"


# What is searched.


def test_a_joint_space_draws_the_same_nets_and_tells_recipes_apart(small_scale: SpacePreset) -> None:
    nets = ResNetSpace(8, small_scale)
    space = joint({"recipe.lr": (1e-3, 6e-3), "recipe.drop_path": (0.0, 0.1, 0.2)}, nets)
    assert set(options_of(space)) == set(options_of(nets)) | {"recipe.lr", "recipe.drop_path"}
    for seed in range(20):
        memo = RecordingChooser(RandomChooser(seed))
        assert space.sample(memo) == nets.sample(FixedChooser(memo.genes))
    found = [candidate_key(net.key, genes) for genes, net in members(space)]
    assert len(found) == len(set(found)) == 6 * len(list(members(nets)))
    assert candidate_key("net", {"width": 8}) == "net", "without recipe genes the net's own key"
    assert candidate_key("net", {"recipe.a": 1, "recipe.b": 2}) == candidate_key("net", {"recipe.b": 2, "recipe.a": 1})


@pytest.mark.parametrize("strategy", STRATEGIES_THAT_TUNE)
@pytest.mark.parametrize("scheduler", ["none", pytest.param("mo-asha", marks=pytest.mark.slow)])
def test_every_strategy_draws_recipes_within_their_ranges(
    open_controller: Open, tmp_path: Path, strategy: str, scheduler: str
) -> None:
    options = options_of(joint())
    runs = []
    for _ in range(2):
        controller = open_controller(joint(), 8, strategy, scheduler=scheduler, tune=TUNE, seed=3)
        jobs = finish(controller)
        records = [r for r in controller.store.records if r.status not in ("duplicate", "infeasible")]
        assert sum(r.kind == "search" for r in records) == 8
        for r in records:
            assert r.genes.keys() == options.keys()
            assert all(r.genes[name] in choices for name, choices in options.items())
            assert r.trial_key == candidate_key(r.key, r.genes) != r.key
            assert r.recipe == recipe_of(SMOKE, r.genes).to_dict(), "the record's recipe is the one trained with"
        trained = {r.trial: r for r in records}
        assert all(job.recipe.to_dict() == trained[job.trial].recipe for job in jobs)
        assert {str(weights_file(tmp_path, r)) for r in records} <= {job.weights for job in jobs}
        assert len({r.trial_key for r in records}) == len(records)
        assert len({r.recipe["lr"] for r in records if r.kind == "search"}) > 1
        assert {r.recipe["lr"] for r in records if r.kind == "baseline"} == {SMOKE.lr}
        runs.append([(r.trial, r.key, r.genes) for r in controller.store.records])
        (tmp_path / "records.jsonl").unlink()
    assert runs[0] == runs[1], "same seed, same search"


def test_a_killed_search_of_recipes_goes_on_as_if_unbroken(open_controller: Open, tmp_path: Path) -> None:
    def ends(most: int) -> list[Any]:
        controller = open_controller(joint(), 10, "evolution", tune=TUNE)
        finish(controller, most=most)
        return [(r.trial, r.trial_key, r.status) for r in controller.store.records]

    whole = ends(10**6)
    (tmp_path / "records.jsonl").unlink()
    assert 0 < len(ends(11)) < len(whole)
    assert ends(10**6) == whole
    controller = open_controller(joint(), 10, "evolution", tune=TUNE)
    keys = [trial.key for trial in controller.history.trials]
    assert all(keys[trial] == key for trial, key, _ in whole), "rebuilt from the records"


def test_a_net_is_trained_by_each_recipe_once(open_controller: Open, small_scale: SpacePreset) -> None:
    tune = {"recipe.lr": (1e-3, 6e-3)}
    nets = ResNetSpace(8, small_scale)
    controller = open_controller(joint(tune, nets), 10**4, "enumerate", tune=tune)
    finish(controller)
    trained = [r for r in controller.store.records if r.status == "ok"]
    every = {(net.key, lr) for _, net in members(nets) for lr in tune["recipe.lr"]}
    assert {(r.key, r.recipe["lr"]) for r in trained} == every
    assert len(trained) == len(every), "a baseline with the recipe's own values among them"
    rows = leaderboard(controller.store.records).rows
    assert sum(row.kind == "search" for row in rows) == len({r.key for r in trained if r.kind == "search"})


def test_no_net_inherits_from_itself(open_controller: Open, small_scale: SpacePreset) -> None:
    tune = {"recipe.lr": (1e-3, 6e-3)}
    controller = open_controller(joint(tune, ResNetSpace(8, small_scale)), 10, tune=tune, inherit=True)
    record = Record.from_dict(drawn_records(1)[0])
    (weights_file(controller.folder, record)).parent.mkdir()
    weights_file(controller.folder, record).touch()
    assert isinstance(controller.weights, Relatives)
    controller.weights.apply(record)
    net = alternas.archs.Genotype.from_dict(record.genotype)
    assert controller.weights.most_similar(net) is None


# What is asked for.


@pytest.mark.usefixtures("elsewhere")
def test_a_search_its_resumption_and_its_retraining(alternas: Any, fake_pool: type[FakePool]) -> None:
    Path("mine.json").write_text(json.dumps(SMOKE.to_dict() | {"tune": {"lr": [1e-3, 1e-2, "log"]}}), encoding="utf-8")
    words = "search resnet --data digits --recipe mine.json --epochs 1 --name t --trials"
    assert alternas(*words.split(), "4")[0] == 0
    run = Path("runs/t")
    settings = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]
    assert list(settings["tune"]) == ["recipe.lr"]
    assert len(settings["tune"]["recipe.lr"]) == 8
    assert alternas(*words.split(), "6")[0] == 0, "with more trials"
    assert sum(r.kind == "search" for r in read_records(run)) == 6
    code, _, error = alternas(*words.split(), "6", "--tune", "drop_path")
    assert (code, "tune.recipe.drop_path is None there" in error) == (2, True)
    best = max((r for r in read_records(run) if r.kind == "search"), key=lambda r: abs(r.recipe["lr"] - SMOKE.lr))
    fake_pool.jobs_of_all.clear()
    assert alternas("retrain", "t", "--trials", str(best.trial), "--seeds", "2", "--epochs", "2")[0] == 0
    assert [job.recipe for job in fake_pool.jobs_of_all] == 2 * [Recipe.from_dict(best.recipe | {"epochs": 2.0})]
    fake_pool.jobs_of_all.clear()
    assert alternas("retrain", "t", "--trials", str(best.trial), "--seeds", "1", "--recipe", "fast")[0] == 0
    assert [job.recipe for job in fake_pool.jobs_of_all] == [recipes.fast()], "another where one is named"
    code, _, error = alternas("retrain", "t", "--recipe", "mine.json")
    assert (code, "mine.json: tune is for a search, which draws recipes; leave it out\n" in error) == (2, True)
    again = "search resnet --data digits --epochs 1 --name u --trials 6 --start-with t --recipe mine.json"
    assert alternas(*again.split())[0] == 0
    taken = [r for r in read_records(Path("runs/u")) if r.taken_from]
    assert {r.trial_key for r in taken} <= {r.trial_key for r in read_records(run)}
    assert taken, "nets of the front, by the recipes they had there, are not trained again"


@pytest.mark.usefixtures("elsewhere", "fake_pool")
@pytest.mark.parametrize(("words", "message"), [
    (("--tune", "lrr"), "tune: field: unknown value 'lrr' (did you mean 'lr'?)"),
    (("--tune", "lr", "--supernet", "10"), "tune: nets of a supernet share one recipe; leave it out\n"),
    (("--tune", "lr", "--strategy", "buildup"), "tune: a build-up changes attention alone; leave it out\n"),
    (("--tune", ","), "names: must be separated by commas"),
    (("--recipe", "wrong.json"), "recipe: wrong.json: tune must be an object, got ['lr']\n"),
])  # fmt: skip
def test_what_cannot_be_is_one_line(alternas: Any, words: tuple[str, ...], message: str) -> None:
    Path("wrong.json").write_text(json.dumps(SMOKE.to_dict() | {"tune": ["lr"]}), encoding="utf-8")
    code, _, error = alternas("search", "resnet", "--data", "digits", *words)
    assert (code, error.count("\n")) == (2, 1)
    assert message in error
    assert not Path("runs").exists()


# What is said of it.


def tuned_run(folder: Path) -> Path:
    """Nets of the search that are trained by two recipes each, the second of which is better."""
    rows = []
    for row in drawn_records(40, stops=False):
        best = {"recipe.lr": 6e-3}
        if row["kind"] == "baseline":
            rows.append(row | {"genes": best, "training_id": candidate_key(row["key"], best)})
            continue
        for lr in (1e-3, 6e-3):
            genes = {"width": len(rows) % 3, "recipe.lr": lr}
            rows.append(
                row
                | {"trial": len(rows), "genes": genes, "accuracy": row["accuracy"] * (1 if lr == 6e-3 else 0.8)}
                | {"training_id": candidate_key(row["key"], genes), "recipe": SMOKE.to_dict() | {"lr": lr}}
            )
    return made_run(folder, rows)


def test_the_front_has_each_net_at_its_best_recipe(tmp_path: Path) -> None:
    run = tuned_run(tmp_path / "t")
    records, board = read_records(run), leaderboard_of(run, RankingQuery())
    nets = Counter(r.key for r in records if r.kind == "search")
    searched = [row for row in board.rows if row.kind == "search"]
    assert Counter(row.key for row in searched) == dict.fromkeys(nets, 1)
    for row in searched:
        assert row.accuracy == max(r.accuracy or 0 for r in records if r.key == row.key and r.kind == "search")
        assert (row.recipe, row.recipes) == ({"lr": 6e-3}, nets[row.key])
    baselines = [row for row in board.rows if row.kind == "baseline"]
    assert {row.recipe["lr"] for row in baselines} == {6e-3}
    text = "\n".join(summary_lines(board, board.rows))
    assert f"recipe: {len(nets)} nets trained by several; the best one counts" in text
    assert "baselines are trained by the recipe's own values" in text


def test_the_report_weighs_recipe_against_net(tmp_path: Path) -> None:
    run = open_run(tuned_run(tmp_path / "t"))
    assert leaderboard_table(run).rows[0]["lr"] == 6e-3
    plot, table = importance_parts(run)
    assert isinstance(table, Table)
    shares = importances(run.records)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["recipe.lr"] > shares["width"], "all of the best tenth are of one rate"
    rows = {row["genes of"]: row["importance"] for row in table.rows}
    assert rows == {"recipe": rows["recipe.lr"], "net": pytest.approx(1 - rows["recipe.lr"], abs=2e-3)} | {
        "recipe.lr": round(shares["recipe.lr"], 3)
    }
    assert plot.name == "importance"
    assert recipe_table({}).rows == []
    assert len(importance_parts(open_run(made_run(tmp_path / "plain", drawn_records(8))))) == 1


def test_the_card_says_the_recipe(tmp_path: Path) -> None:
    run = tuned_run(tmp_path / "t")
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    facts["settings"]["tune"] = {"recipe.lr": [1e-3, 6e-3], "recipe.augment": ["none", "own"]}
    (run / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    record = next(r for r in read_records(run) if r.kind == "search" and r.recipe["lr"] == 1e-3)
    tuned = _tuned(run, record)
    assert tuned == {"tuned": {"lr": 1e-3, "augment": SMOKE.to_dict()["augment"]}}
    trained = {"recipe": "smoke", "epochs": 14, "done": 9} | tuned
    assert recipe_text({"trained": trained}) == "smoke, 14 epochs, 9 steps, with lr 0.001, augment pad=1 mix=1"


@pytest.mark.usefixtures("elsewhere")
def test_runs_with_other_genes_of_the_recipe_are_no_fair_comparison(tmp_path: Path) -> None:
    runs = {
        name: made_run(tmp_path / name, drawn_records(4), settings={"objective": "macs", "tune": tune})
        for name, tune in (("plain", {}), ("tuned", {"recipe.lr": [1e-3, 6e-3]}))
    }
    notes = differing(runs)
    assert "no fair comparison, runs differ in tuned settings (none in plain, lr in tuned)" in notes
