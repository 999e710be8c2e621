"""A plan of trainings, without Ray: order, identity, dependence, resuming, failures; the studies' plans."""

import dataclasses
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alternas.archs import Genotype, InputError, build, static_cost, zoo
from alternas.results.render.experiment import study_rows
from alternas.results.runs.record import Record
from alternas.results.runs.store import Store
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from alternas.search.data.views import View
from alternas.search.experiments.plan import ExperimentContext, PlanTrials, Training
from alternas.search.experiments.run_plan import compute_of
from alternas.search.experiments.studies import STUDIES
from alternas.search.experiments.study_nets import CNNS, FAMILIES, SIZES, StudySetting, net_of, swapped
from alternas.search.training.job import FewShot, InitWeights, JobResult, TrainJob
from fakes import NETS, RECIPE, FakeExecutor, SilentView, lose, run_loop, training


@pytest.fixture
def carry(tmp_path: Path) -> Callable[..., Any]:
    """Carries out a plan on tmp_path with a fake executor, as a restarted command would; records and jobs run."""

    def run(plan: list[Training], fate: Any = lambda job: None, slots: int = 2) -> tuple[list[Record], list[TrainJob]]:
        executor = FakeExecutor(slots, fate)
        with closing(Store(tmp_path)) as store:
            context = ExperimentContext(tmp_path, "study", load(DataConfig("digits")))
            work = PlanTrials(plan, context, store)
            run_loop(work, executor, SilentView())
            assert not work.live
            return work.records, executor.ran

    return run


def test_every_training_is_done_once_in_the_plans_order(carry: Any) -> None:
    plan = [training(n, seed) for n in range(3) for seed in range(2)]
    found, ran = carry(plan)
    assert [r.training_id for r in found] == [t.id for t in plan]
    assert [(j.genotype, j.seed) for j in ran] == [(t.net, t.seed) for t in plan]
    assert len({r.trial for r in found}) == len({j.weights for j in ran}) == 6
    again, more = carry(plan)
    assert (again, more) == (found, []), "nothing is left to do"


def test_a_larger_plan_trains_what_is_new_and_factors_are_the_plans(carry: Any) -> None:
    carry([training(0)])
    found, ran = carry([training(0, factors={"called": "otherwise"}), training(1)])
    assert [j.genotype for j in ran] == [NETS[1]]
    assert [r.factors for r in found] == [{"called": "otherwise"}, {"net": 1}]
    assert [r.trial for r in found] == [0, 1]


def test_identity_is_what_makes_the_result() -> None:
    one = training()
    same = [training(factors={"x": 1}), training(start=None), dataclasses.replace(one, net=NETS[0].canonical())]
    assert {t.id for t in same} == {one.id}
    few = FewShot((1, 2), (2,), (1,))
    others = [
        training(1), training(seed=1), dataclasses.replace(one, steps=8),
        training(view=View(0.5)), training(view=View(0.5, draw=1)), training(view=View(classes=(1, 2))),
        training(task="patches"), training(test=True), training(few_shot=few),
        dataclasses.replace(one, recipe=dataclasses.replace(RECIPE, lr=1.0)),
        training(origin="a", start=InitWeights("", "x")), training(origin="b", start=InitWeights("", "x")),
        training(origin="a", start=InitWeights("", "x", zero_head=True)),
        training(origin="a", start=InitWeights("", "x", freeze="inherited")),
    ]  # fmt: skip
    assert len({t.id for t in (one, *others)}) == len(others) + 1
    here, there = InitWeights("/here", "x"), InitWeights("/there", "y")
    assert training(origin="a", start=here).id == training(origin="a", start=there).id


def test_what_starts_from_another_waits_for_its_weights(carry: Any, tmp_path: Path) -> None:
    first = training(0, factors={})
    second = training(1, origin=first.id, start=InitWeights("", "the first", zero_head=True))
    third = training(2, origin=second.id, start=InitWeights("", "the second"))
    found, ran = carry([third, second, first], slots=3)
    assert [j.genotype for j in ran] == [NETS[0], NETS[1], NETS[2]]
    starts = [j.start for j in ran]
    assert starts[0] is None
    assert starts[1] is not None
    assert starts[2] is not None
    assert starts[1].weights == ran[0].weights == str(tmp_path / "weights" / f"{first.id}.safetensors")
    assert (starts[1].zero_head, starts[1].steps, starts[2].steps) == (True, 16, 32)
    assert [r.training_id for r in found] == [third.id, second.id, first.id]


def test_a_start_that_fails_takes_its_followers_with_it(carry: Any) -> None:
    first = training(0)
    plan = [first, training(1, origin=first.id, start=InitWeights("", "the first")), training(2)]

    def fate(job: TrainJob) -> Any:
        return JobResult(job.id, "oom", error="no room") if job.genotype == NETS[0] else None

    found, ran = carry(plan, fate)
    assert [r.status for r in found] == ["oom", "error", "ok"]
    assert "its start, trial 0, is oom" in found[1].error
    assert [j.genotype for j in ran] == [NETS[0], NETS[2]]
    found, ran = carry(plan)
    assert [r.status for r in found] == ["ok", "ok", "ok"], "what failed is tried again"
    assert [j.genotype for j in ran] == [NETS[0], NETS[1]]
    assert len({r.trial for r in found}) == 3


def test_nan_is_an_answer_and_not_tried_again(carry: Any) -> None:
    found, _ = carry([training()], lambda job: JobResult(job.id, "nan", error="loss nan"))
    assert found[0].status == "nan"
    assert carry([training()]) == (found, [])


def away(job: TrainJob) -> JobResult:
    return JobResult(job.id, "lost", error="the store is away")


@pytest.mark.parametrize(("loss", "why"), [(lose, "its worker died; 3 times"), (away, "the store is away; 3 times")])
@pytest.mark.parametrize(("deaths", "status"), [(2, "ok"), (3, "lost")])
def test_a_dead_worker_is_not_a_bad_net(
    carry: Any, deaths: int, status: str, loss: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    left = [deaths]

    def fate(job: TrainJob) -> Any:
        left[0] -= 1
        return loss(job) if left[0] >= 0 else None

    found, ran = carry([training()], fate)
    assert [r.status for r in found] == [status]
    assert found[0].error == (why if status == "lost" else "")
    assert len(ran) == 3
    assert len({j.checkpoint for j in ran}) == 1
    line = f"trial 0: {why.split(';')[0]}; it is "
    assert caplog.messages == [line + "tried again"] * 2 + [line + "given up"] * (deaths - 2)


def test_records_say_all_that_they_came_from(carry: Any) -> None:
    parts = {"weights": "x", "share": 0.5, "parts": []}

    def fate(job: TrainJob) -> Any:
        return JobResult(job.id, "ok", 16, 0.5, {"nll": 1.0, "odd": math.nan}, (), 1.5, "cpu", {"passes": 1}, parts)

    (record,), _ = carry([training(view=View(0.3, (1, 2), 5), task="patches")], fate)
    assert record.accuracy is None, "accuracy on colours is no accuracy on classes"
    assert record.metrics == {"patches_nll": 1.0, "patches_odd": None, "patches_accuracy": 0.5}
    assert record.data == {"name": "digits", "split": "bb2c9e7c826e", "fraction": 0.3, "classes": [1, 2], "draw": 5}
    assert (record.lineage, record.budget, record.kind) == (parts, {"full": 16, "done": 16}, "study")
    assert record.runtime == {"passes": 1, "task": "patches"}
    assert Record.from_dict(record.to_dict()) == record


@pytest.fixture(scope="module")
def settings(digits: DataSet) -> list[StudySetting]:
    full = StudySetting(digits, RECIPE, 3)
    return [full, full.quickened()]


@pytest.mark.parametrize("name", STUDIES)
def test_a_studys_plan_can_be_carried_out(name: str, settings: list[StudySetting], carry: Any) -> None:
    study = STUDIES[name]
    for setting in settings:
        plan = list(study.plan(setting))
        assert len({t.id for t in plan}) == len(plan), "no training twice"
        for t in plan:
            assert isinstance(t.net, Genotype)
            t.net.check(setting.data.image_size)
        groups: dict[str, set[int]] = {}
        for t in plan:
            if t.factors:
                groups.setdefault(repr(t.factors), set()).add(t.seed)
        assert all(seeds == set(range(setting.seeds)) for seeds in groups.values()), "seeds repeat all factors"
        assert len(groups) > 1
        sight = study.plot(setting)
        assert {sight.x, sight.line} - {""} <= {*plan[-1].factors, "error"}
    full, quick = (compute_of([*study.plan(s)], s.data) for s in settings)
    assert quick <= full * 2 / 3
    assert setting.steps <= 200
    assert study.about.endswith((".", "?")), "one sentence"


@pytest.mark.parametrize(("side", "grid"), [(8, "8x8"), (28, "14x14"), (32, "8x8"), (36, "9x9"), (10, "10x10")])
def test_windows_are_named_by_what_tokens_see(digits: DataSet, side: int, grid: str) -> None:
    """28 px are not divided by 8: the whole map has 14 x 14 tokens, and is called that."""
    data = dataclasses.replace(digits, image_size=(side, side))
    plan = list(STUDIES["windows"].plan(StudySetting(data, RECIPE, 1)))
    named = {t.factors["window"]: t.net for t in plan}
    assert list(named) == ["3x3", "5x5", f"{grid}, the whole map"]
    for label, net in named.items():
        assert isinstance(net, Genotype)
        assert net.encoder is not None
        rows, columns = build(net, 10, side, 1).encoder.grid
        assert f"{rows}x{columns}" == grid
        assert net.encoder.local == (0 if "whole" in label else int(label[0]))


def test_a_study_is_tabled_from_its_records(settings: list[StudySetting], carry: Any) -> None:
    study, quick = STUDIES["data-size"], settings[1]
    records, _ = carry(list(study.plan(quick)))
    rows = study_rows(records, study.plot(quick).names)
    assert [(row["net"], row["fraction"]) for row in rows] == [(f, s) for s in (0.1, 1.0) for f in FAMILIES]
    assert all(row["accuracy"]["n"] == 2 and row["failed"] == 0 for row in rows)


@pytest.mark.parametrize("image", [(8, 8), (16, 16), (28, 28), (32, 32), (64, 64), (32, 48), (224, 224)])
@pytest.mark.parametrize("family", [*FAMILIES, "bit"])
def test_the_studies_nets_fit_all_images_and_grow(image: tuple[int, int], family: str) -> None:
    nets = [net_of(family, size, image) for size in SIZES]
    assert [net.family for net in nets] == [family.replace("bit", "resnet")] * 3
    if family in CNNS:
        assert {net.style.norm for net in nets} == {"group" if family == "bit" else "batch"}
    macs = [static_cost(net, 10, image).macs for net in nets]
    assert macs == sorted(macs)
    assert len(set(macs)) == 3


def test_swapped_in_heads_are_the_zoos() -> None:
    ours, zoos = swapped(zoo.get("preresnet18", 32), (0, 1, 1, 1), (32, 32)), zoo.get("alternet18", 32)
    assert [(s.heads, s.head_dim, s.window) for s in ours.stages[1:]] == [
        (s.heads, s.head_dim, s.window) for s in zoos.stages[1:]
    ]
    assert ours.key == zoos.key
    with pytest.raises(InputError, match="stage 1"):
        swapped(ours, (2, 1, 1, 1), (32, 32))


def test_few_shots_need_enough_images_before_anything_is_trained(digits: DataSet) -> None:
    few = Split(np.zeros((20, 1, 8, 8), np.uint8), np.arange(20) % 10)
    setting = StudySetting(dataclasses.replace(digits, val=few), RECIPE, 1)
    with pytest.raises(InputError, match="20 validation images of each new class; class '5' of digits has 2"):
        list(STUDIES["few-shot"].plan(setting))
