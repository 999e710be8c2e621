"""What a search or an experiment may take: time of a net, time of the command, steps of all trainings."""

import json
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle

import fakes
from alternas.archs import InputError, build, zoo
from alternas.archs.weights import save
from alternas.results.runs.record import Record
from alternas.results.runs.store import read_records, run_folder, write_json
from alternas.search import run
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.default import default_scheduler
from alternas.search.engine import pool
from alternas.search.engine.resources import Resources
from alternas.search.run_config import Budget
from alternas.search.training.job import JobResult, Point, Progress, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from fakes import RECIPE, STEPS, FakeExecutor, FakePool, SilentView, driver_of, fake_accuracy, run_loop
from runs import finished_run

Open = Callable[..., SearchTrials]


@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_flops_are_used_up_and_no_more(open_controller: Open, scheduler: str) -> None:
    """No training is begun that would go over the limit; ten nets do not fit into what is left."""
    most = STEPS * 6 * RECIPE.batch_size * 12_000_000
    controller = open_controller(trials=100, scheduler=scheduler, budget=Budget(train_flops=most))
    executor = FakeExecutor(3)
    assert run_loop(controller, executor, SilentView())
    costs = [spent(r) for r in controller.store.records]
    assert most - max(costs) < sum(costs) <= most
    found = Counter(r.status for r in controller.store.records if r.kind == "search")
    assert not controller.live
    assert set(found) <= {"ok", "pruned", "duplicate", "infeasible"}
    assert open_controller(trials=100, scheduler=scheduler, budget=Budget(train_flops=most)).complete
    more = open_controller(trials=100, scheduler=scheduler, budget=Budget(train_flops=2 * most))
    assert not more.complete
    run_loop(more, FakeExecutor(3), SilentView())
    costs = [spent(r) for r in more.store.records]
    assert 2 * most - max(costs) < sum(costs) <= 2 * most


def spent(record: Record) -> int:
    """FLOPs of all trainings of a net: 2 of a forward and 4 of a backward pass a MAC, by all images of its steps."""
    steps = record.budget.get("done", 0) * max(1, len(record.accuracies))
    return 6 * record.cost["macs"] * steps * record.recipe["batch_size"]


@pytest.mark.parametrize("limits", [{}, {"macs": 500_000}])
@pytest.mark.parametrize("macs", [1_000_000, 4_000_000, 12_000_000])
def test_what_is_not_searched_takes_a_quarter_of_a_limit_at_most(
    open_controller: Open, macs: int, limits: dict[str, int]
) -> None:
    """Plain ResNets with their seeds and finetuning, and known nets; however tight it is, nets are searched."""
    from alternas.archs.timm_net import TimmNet

    most = STEPS * 6 * RECIPE.batch_size * macs
    how: dict[str, Any] = {"inherit": True, "polish": 0.4, "limits": limits, "references": (TimmNet("test_resnet"),)}
    controller = open_controller(trials=10**9, budget=Budget(train_flops=most), **how)
    run_loop(controller, FakeExecutor(2), SilentView())
    records = controller.store.records
    beside = sum(spent(r) for r in records if r.kind != "search")
    assert beside <= most / 4
    assert sum(map(spent, records)) <= most
    assert any(r.kind == "search" and r.status == "ok" for r in records)
    assert controller.complete
    assert not controller.references, "each would take more than an eighth"
    assert open_controller(trials=10**9, budget=Budget(train_flops=1000 * most), **how).references


def test_time_that_is_over_leaves_the_work_as_it_stands(open_controller: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job a second; after twenty of them the rest is left, and no leg that has ended is trained again."""
    controller, first, second = open_controller(trials=50, scheduler="mo-asha"), FakeExecutor(1), FakeExecutor(1)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: len(first.ran)))
    assert not run_loop(controller, first, SilentView(), seconds=20)
    assert len(first.ran) == 20
    again = open_controller(trials=50, scheduler="mo-asha")
    assert run_loop(again, second, SilentView())
    legs = Counter((job.trial, job.seed, job.stop_step) for job in (*first.ran, *second.ran))
    assert max(legs.values()) == 1
    assert again.started == 50


def test_a_net_has_the_minutes_that_its_earlier_legs_left(open_controller: Open) -> None:
    controller = open_controller(trials=8, scheduler="mo-asha", budget=Budget(trial_minutes=2.0))
    limits: dict[int, list[float]] = {}

    def fate(job: TrainJob) -> Any:
        limits.setdefault(job.trial, []).append(job.timeout_s)
        accuracy = fake_accuracy(job.genotype, job.stop_step)
        return JobResult(job.id, "ok", job.stop_step, accuracy, seconds=30.0 * len(limits[job.trial]))

    run_loop(controller, FakeExecutor(1, fate), SilentView())
    assert limits[0] == [120.0, 120.0], "another seed is another training"
    assert [120.0, 90.0, 60.0, 30.0] in limits.values()
    unlimited = driver_of(open_controller(trials=9, scheduler="mo-asha")).next()
    assert isinstance(unlimited, TrainJob)
    assert unlimited.timeout_s == math.inf


class Hanging:
    """A worker whose odd trials give one sign of life and then hang."""

    def __init__(self, threads: int, device: str, share: float, *files: Any) -> None: ...

    def take(self, data: Any) -> None: ...

    def run(self, job: TrainJob) -> Iterator[Progress | JobResult]:
        yield Progress(job.id, Point(3, 1.0, 0.5), 0.1)
        if job.trial % 2:
            threading.Event().wait()
        yield JobResult(job.id, "ok", job.stop_step, fake_accuracy(job.genotype, job.stop_step))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_net_that_hangs_is_ended_and_its_worker_replaced(
    open_controller: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "Worker", Hanging)
    for module in (fakes, sys.modules[__name__]):  # workers do not find them on their path
        cloudpickle.register_pickle_by_value(module)
    controller = open_controller(trials=4, budget=Budget(trial_minutes=0.02))
    with closing(pool.Pool(Resources(workers=1), load(DataConfig("digits")), 1)) as workers:
        assert run_loop(controller, workers, SilentView())
    for record in controller.store.records:
        if record.status != "duplicate":
            assert record.status == ("timeout" if record.trial % 2 else "ok")
    late = next(r for r in controller.store.records if r.status == "timeout")
    assert late.error == "took longer than 1 s"
    assert late.budget["done"] == 3


STUDY = ("study", "windows", "--data", "digits", "--quick", "--seeds", "1", "--epochs", "1")
EXPERIMENTS = [
    STUDY,
    ("retrain", "mine", "--top", "1", "--seeds", "3", "--recipe", "smoke", "--epochs", "1"),
    ("finetune", "--from", "zoo", "--data", "digits", "--seeds", "3", "--epochs", "1"),
    ("buildup", "--from", "zoo", "--data", "digits", "--seeds", "2", "--epochs", "1"),
]


@pytest.fixture
def experiment_inputs(elsewhere: None) -> None:
    """A run to retrain nets of, and weights to start from."""
    digits = load(DataConfig("digits"))
    folder = finished_run()
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    write_json(folder / "run.json", facts | {"data": digits.facts()})
    save(build(zoo.alternet("basic", (1, 2), (0, 0), (1, 1), 0, width=4), 10, 8, 1), Path("zoo.safetensors"))


def ended(command: tuple[str, ...]) -> list[Record]:
    name = "mine/retrain" if command[0] == "retrain" else "experiment"
    return read_records(Path("runs") / name)


def words_of(command: tuple[str, ...]) -> list[str]:
    words = [word.replace("zoo", "zoo.safetensors") for word in command]
    return words if command[0] == "retrain" else [*words, "--name", "experiment"]


@pytest.mark.slow
@pytest.mark.usefixtures("experiment_inputs")
@pytest.mark.parametrize(("command", "as_json"), [*((c, False) for c in EXPERIMENTS), (STUDY, True)], ids=str)
def test_an_experiment_whose_time_is_over_is_resumed_by_the_same_command(
    alternas: Any, fake_pool: type[FakePool], command: tuple[str, ...], as_json: bool
) -> None:
    words = [*words_of(command), *(["--json"] if as_json else [])]
    code, out, err = alternas(*words, "--max-hours", "1e-12")
    assert code == 0, err
    assert "stopped after 1e-12 hours; the same command resumes" in (err if as_json else out)
    assert (ended(command), fake_pool.jobs_of_all) == ([], [])
    fake_pool.fate_of_all = staticmethod(lambda job: time.sleep(0.3))
    code, out, err = alternas(*words, "--max-hours", f"{0.4 / 3600}")
    assert code == 0, err
    before = ended(command)
    assert 1 <= len(before) <= 2
    fake_pool.fate_of_all = staticmethod(lambda job: None)
    code, out, err = alternas(*words)
    assert code == 0, err
    assert "stopped" not in out + err
    assert ended(command)[: len(before)] == before
    plan = [r.training_id for r in ended(command)]
    assert len(plan) == len(set(plan)) == (4 if command[0] == "buildup" else 3)


@pytest.mark.usefixtures("elsewhere")
def test_trainings_of_an_experiment_that_take_too_long_are_tried_again(
    alternas: Any, fake_pool: type[FakePool]
) -> None:
    def slow(job: TrainJob) -> JobResult | None:
        late = len(fake_pool.jobs_of_all) > 1 and job.timeout_s < 200
        return JobResult(job.id, "timeout", error="took longer than 90 s") if late else None

    fake_pool.fate_of_all = staticmethod(slow)
    words = words_of(STUDY)
    assert alternas(*words, "--trial-minutes", "1.5")[0] == 0
    assert {job.timeout_s for job in fake_pool.jobs_of_all} == {90.0}
    assert [r.status for r in ended(STUDY)] == ["ok", "timeout", "timeout"]
    assert alternas(*words, "--trial-minutes", "4")[0] == 0, "other limits resume too"
    assert [job.timeout_s for job in fake_pool.jobs_of_all[3:]] == [240.0, 240.0]
    assert [r.status for r in ended(STUDY)][3:] == ["ok", "ok"]


@pytest.mark.parametrize("option", ["--trial-minutes", "--max-hours", "--max-train-flops"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "x"])
def test_limits_are_above_nothing(alternas: Any, elsewhere: Path, option: str, value: str) -> None:
    code, _, err = alternas("search", option, value)
    assert (code, option.lstrip("-") in err) == (2, True)
    assert not Path("runs").exists()


def test_a_scheduler_where_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that exists always the same, so that more trials go on with it."""
    monkeypatch.chdir(tmp_path)
    found = {trials: default_scheduler("new", "evolution", trials) for trials in (1, 31, 32, 1000)}
    assert found == {1: "none", 31: "none", 32: "mo-asha", 1000: "mo-asha"}
    assert {default_scheduler("new", name, 99) for name in ("buildup", "enumerate")} == {"none"}, (
        "all of a plan is trained"
    )
    for kept, trials, there in (("none", 99, "none"), ("asha", 3, "asha")):
        folder = run_folder("old")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "run.json", {"format": 4, "settings": {"scheduler": kept}})
        assert default_scheduler("old", "evolution", trials) == there
    with pytest.raises(InputError, match="name"):
        default_scheduler("../elsewhere", "evolution", 99)


@pytest.mark.usefixtures("elsewhere")
def test_a_limit_on_compute_is_a_budget_and_no_more(alternas: Any, fake_pool: type[FakePool]) -> None:
    """A run begun with one resumes with more, without, with so many trials, and the other way round."""
    words = ("search", "resnet", "--data", "digits", "--epochs", "1", "--recipe", "smoke")
    more = [("--max-train-flops", "20G"), ("--max-train-flops", "40G"), (), ("--trials", "24"), ("--trials", "40")]
    for name, order in (("one", more), ("other", [(), *more[:2], ("--trials", "24")])):
        nets = [0]
        for limit in order:
            code, out, err = alternas(*words, "--name", name, *limit)
            assert code == 0, (limit, out, err)
            nets.append(sum(r.kind == "search" and r.weights != "finetuned" for r in read_records(run_folder(name))))
        assert nets == sorted(nets)
        assert nets[-1] > nets[1] > 0
    assert fake_pool.jobs_of_all


def test_baselines_wait_once_they_have_had_their_share_of_the_time(open_controller: Open) -> None:
    """Each training is said to take 10 s of 100: a quarter is over after three, and the rest come last."""
    from alternas.archs.timm_net import TimmNet

    def order(share: float) -> list[str]:
        budget = Budget(hours=100 / 3600, baselines=share)
        controller = open_controller(trials=4, budget=budget, references=(TimmNet("test_resnet"),))
        kinds = list[str]()

        def fate(job: TrainJob) -> JobResult:
            kinds.append(controller.live[job.trial].kind)
            return JobResult(job.id, "ok", job.stop_step, 0.5, seconds=10.0)

        assert run_loop(controller, FakeExecutor(1, fate), SilentView())
        assert controller.complete
        controller.store.close()
        (controller.folder / "records.jsonl").unlink()
        return kinds

    first = order(1.0)
    beside = [kind for kind in first if kind != "search"]
    assert first == [*beside, *["search"] * 4]
    assert len(beside) > 5
    assert order(0.25) == [*beside[:3], *["search"] * 4, *beside[3:]]
    assert order(0.0) == [*["search"] * 4, "reference", "reference"]
    with pytest.raises(InputError, match="baselines: must be a share from 0 to 1, got 2"):
        Budget(baselines=2)
