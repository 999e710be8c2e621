"""The front's nets are trained on in the end: which, for how long, by several workers, after kills."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import Genotype, static_cost
from alternas.results.ranking.objectives import train_flops
from alternas.results.ranking.pareto import hypervolume, pareto_ranks
from alternas.results.runs.record import Record
from alternas.results.runs.store import weights_name
from alternas.search.run import search_driver
from alternas.search.run_config import Budget
from alternas.search.training.job import InitWeights, JobResult, Point, TrainJob
from alternas.search.trials.finetuning import MAX_NETS, MAX_TRAININGS
from alternas.search.trials.forecast import Forecast
from alternas.search.trials.front_finetuning import FrontFinetuning
from alternas.search.trials.producer import Idle
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.trial import Parent, Work
from alternas.search.trials.weight_sources import RATE, FromOutside
from alternas.spaces import get
from fakes import RECIPE, STEPS, FakeExecutor, SilentView, fake_accuracy, run_loop

Open = Callable[..., SearchTrials]
SHARE = 0.4


@pytest.fixture
def opened(open_controller: Open) -> Open:
    """Opens a search of `bench` whose nets inherit and are finetuned."""
    return partial(open_controller, get("bench", 8), inherit=True, polish=SHARE)


def trained(job: TrainJob) -> JobResult:
    """A leg that went well: weights are written at the end; trained on, a net is better by a tenth."""
    if job.stop_step == job.total_steps:
        Path(job.weights).parent.mkdir(exist_ok=True)
        Path(job.weights).touch()
    accuracy = 0.9 * fake_accuracy(job.genotype, min(STEPS, job.stop_step * STEPS // job.total_steps))
    accuracy += 0.1 * (job.recipe.schedule == "linear") - 0.001 * (job.seed % 10)
    start = job.start
    lineage = {"weights": start.label, "steps": start.steps, "share": 1.0} if start else {}
    curve = (Point(job.stop_step, 1.0, accuracy),)
    return JobResult(job.id, "ok", job.stop_step, accuracy, {"nll": 0.5}, curve, 1.0, "fake", lineage=lineage)


def finish(controller: SearchTrials, fate: Callable[[TrainJob], Any] = trained, slots: int = 1) -> FakeExecutor:
    executor = FakeExecutor(slots, fate)
    run_loop(controller, executor, SilentView())
    return executor


def finetuned(controller: SearchTrials) -> list[Record]:
    return [r for r in controller.store.records if r.weights == "finetuned"]


def before(controller: SearchTrials) -> list[Record]:
    return [r for r in controller.store.records if r.status == "ok" and r.weights != "finetuned"]


def flops(record: Record) -> int:
    return 6 * record.cost["macs"] * RECIPE.batch_size * record.budget["done"] * max(1, len(record.accuracies))


@pytest.mark.parametrize("trials", [1, 3, 8])
def test_the_forecast_comes_to_the_nets_that_were_trained(opened: Open, trials: int) -> None:
    """The front may have fewer nets than are allowed."""
    controller = opened(trials)
    finish(controller)
    assert finetuned(controller)
    assert Forecast(controller).nets == len(before(controller))
    assert Forecast(controller).left() == {"alone": Work()}


def test_a_share_of_the_compute_trains_the_front_on(opened: Open) -> None:
    controller = opened(40)
    finish(controller)
    nets = before(controller)
    ranks = pareto_ranks([(r.accuracy or 0.0, r.cost["macs"]) for r in nets])
    front = {r.trial for r, rank in zip(nets, ranks, strict=True) if rank == 1}
    records = [r for r in finetuned(controller) if r.kind == "search"]
    chosen = {r.lineage["trial"] for r in records}
    assert 1 < len(chosen) <= MAX_NETS < len(front)
    assert chosen <= front
    own = [r for r in nets if r.kind == "search"]
    for amount in (flops, lambda r: r.budget["done"]):  # so that it is one of the seconds too
        spent, most = sum(map(amount, records)), sum(map(amount, own)) * SHARE / (1 - SHARE)
        assert spent <= 1.01 * most
    assert spent > 0.9 * most, "of the steps, of which small nets take more than of FLOPs"
    steps = [r.budget["done"] for r in sorted(records, key=lambda r: r.cost["macs"])]
    assert steps == sorted(steps, reverse=True), "cheap ones are trained longest"
    assert max(steps) <= MAX_TRAININGS * STEPS
    assert controller.complete


def test_the_longest_training_is_the_first(opened: Open) -> None:
    """However cheap a net is, a step takes time of its own. The search's nets come before the plain ResNets."""

    def timed(job: TrainJob) -> JobResult:
        return replace(trained(job), seconds=job.stop_step * (1 + static_cost(job.genotype, 10, 8, 1).macs / 1e6))

    controller = opened(12)
    finish(controller, timed)
    records = sorted(finetuned(controller), key=lambda record: record.trial)
    assert [r.kind for r in records] == sorted((r.kind for r in records), reverse=True)
    own = [r for r in records if r.kind == "search"]
    seconds, costs = [r.seconds for r in own], [r.cost["macs"] for r in own]
    assert seconds == sorted(seconds, reverse=True)
    assert costs not in (sorted(costs), sorted(costs, reverse=True)), "which costs alone do not say"


def test_the_nets_chosen_keep_the_most_hypervolume(opened: Open) -> None:
    """Of all that many, by brute force at one net less than the front has."""
    controller = opened(12)
    finish(controller)
    nets = [r for r in before(controller) if r.kind == "search"]
    points = {r.trial: (r.accuracy or 0.0, float(r.cost["macs"])) for r in nets}
    floor, best = (choose(a for a, _ in points.values()) for choose in (min, max))
    ranks = pareto_ranks(list(points.values()))
    whole = [trial for trial, rank in zip(points, ranks, strict=True) if rank == 1]
    front = [trial for trial in whole if points[trial][0] >= 0.75 * floor + 0.25 * best]
    assert len(front) < len(whole), "some are not worth it"
    costs = [c for _, c in points.values()]

    def kept(trials: list[int]) -> float:
        return hypervolume([*(points[t] for t in trials), (floor, max(costs))], floor, [(min(costs), max(costs))])

    chosen = [r.lineage["trial"] for r in finetuned(controller) if r.lineage["trial"] in front]
    if len(front) == MAX_NETS + 1:
        assert kept(chosen) == max(kept([t for t in front if t != out]) for out in front)
    assert kept(chosen) >= 0.9 * kept(front)


def steps_of(controller: SearchTrials) -> dict[int, int]:
    """Steps of each trial with its ancestors, as one counts them who knows the records alone."""
    steps = dict[int, int]()
    for r in controller.store.records:
        steps[r.trial] = r.budget["done"] + steps.get(r.lineage.get("trial", -1), 0)
    return steps


def lacking(controller: SearchTrials) -> dict[int, float]:
    """FLOPs of the steps that each plain ResNet, by its MACs, has fewer than a net between its neighbours."""
    steps, plain = steps_of(controller), dict[int, int]()
    for r in (r for r in controller.store.records if r.kind == "baseline"):
        plain[r.cost["macs"]] = max(steps[r.trial], plain.get(r.cost["macs"], 0))
    costs, found = sorted(plain), dict[int, float]()
    for before, cost, after in zip([0, *costs], costs, [*costs[1:], 10**12], strict=False):
        between = [steps[r.trial] for r in finetuned(controller) if before < r.cost["macs"] < after]
        fewer = max([0, *(length - plain[cost] for length in between)])
        found[cost] = 6.0 * cost * RECIPE.batch_size * fewer
    return found


def test_plain_resnets_are_trained_as_long_as_their_neighbours_whenever(opened: Open) -> None:
    """Also where nets of a resumed search grow from those that were trained on before; as far as a quarter goes."""

    def grown(job: TrainJob) -> JobResult:
        """What has longer-trained ancestors is better."""
        result = trained(job)
        return replace(result, accuracy=(result.accuracy or 0.0) + 2e-3 * (job.start.steps or 0 if job.start else 0))

    for trials in (40, 80, 120):
        controller = opened(trials)
        finish(controller, grown)
        spent = Counter[str]()
        for r in controller.store.records:
            spent[r.kind] += flops(r)
        left = spent["search"] / 3 - spent["baseline"]
        assert left >= 0
        cheapest, *others = lacking(controller).values()
        assert cheapest == 0
        assert all(not fewer or fewer > left for fewer in others)
    again = [r for r in finetuned(controller) if r.kind == "baseline" and r.key == controller.baselines[0].key]
    assert len(again) > 1
    assert len({weights_name(r.trial_key, r.weights) for r in again}) == len(again), "no weights are written over"
    assert steps_of(controller)[again[-1].trial] > steps_of(controller)[again[0].trial]


def test_after_a_resume_finetuning_takes_what_is_left_of_its_share(opened: Open) -> None:
    for trials in (20, 30, 31):
        controller = opened(trials)
        finish(controller)
        for amount in (flops, lambda r: r.budget["done"]):
            spent = Counter[bool]()
            for r in (r for r in controller.store.records if r.kind == "search"):
                spent[r.weights == "finetuned"] += amount(r)
            assert spent[True] <= 1.01 * SHARE * spent.total()
        assert opened(trials).complete


def test_it_goes_on_at_a_lower_rate_from_the_nets_own_weights(opened: Open) -> None:
    controller = opened(10)
    jobs = [job for job in finish(controller).ran if job.recipe.schedule == "linear"]
    by_trial, first = {r.trial: r for r in controller.store.records}, controller.settings.seed
    assert {job.seed for job in jobs} == {first}
    for job in jobs:
        record = by_trial[job.trial]
        source = by_trial[record.lineage["trial"]]
        assert job.start
        assert Path(job.start.weights).name == f"{source.key}.safetensors"
        assert Path(job.weights).name == f"{source.key}-finetuned.safetensors"
        assert job.recipe.lr == RATE * RECIPE.lr
        assert record.recipe["lr"] == RATE * RECIPE.lr
        assert record.lineage["steps"] == source.budget["done"] + source.lineage.get("steps", 0)
        assert train_flops(record) == flops(record) + (train_flops(source) or 0), "with all that it came from"


def test_paused_nets_do_not_keep_the_front_waiting(opened: Open) -> None:
    controller = opened(20, scheduler="mo-asha")
    finish(controller)
    assert Counter(r.status for r in controller.store.records)["pruned"]
    assert finetuned(controller)


def test_a_net_without_weights_is_left_out(opened: Open) -> None:
    def thrown_away(job: TrainJob) -> JobResult:
        result = trained(job)
        if job.trial % 2 and job.stop_step == job.total_steps:
            Path(job.weights).unlink()
        return result

    controller = opened(20)
    finish(controller, thrown_away)
    assert finetuned(controller)
    assert all(not r.lineage["trial"] % 2 for r in finetuned(controller))


def test_a_limit_on_compute_leaves_the_front_its_share(opened: Open) -> None:
    full = opened(30)
    finish(full)
    most = 0.5 * sum(map(flops, full.store.records))
    full.store.close()
    (full.folder / "records.jsonl").unlink()
    (full.folder / "events.jsonl").unlink(missing_ok=True)
    controller = opened(1000, budget=Budget(train_flops=most, baselines=0.0))
    finish(controller)
    one = max(map(flops, controller.store.records))
    assert most - one < sum(map(flops, controller.store.records)) < most + one
    assert sum(map(flops, finetuned(controller))) > 0.3 * most
    assert opened(1000, budget=Budget(train_flops=most, baselines=0.0)).complete


def test_more_trials_grow_from_finetuned_nets(opened: Open) -> None:
    controller = opened(15)
    finish(controller)
    number = max(r.trial for r in controller.store.records)
    done = {r.trial for r in finetuned(controller)}
    more = opened(40)
    finish(more)
    new = [r for r in before(more) if r.trial > number]
    assert len(new) == 25
    assert any(r.lineage.get("trial") in done for r in new)
    first = {r.lineage["trial"] for r in finetuned(controller)}
    assert not any(r.lineage.get("trial") in first for r in new), "the same net has better weights by now"
    assert [r.trial for r in more.store.records] == sorted({r.trial for r in more.store.records}) or slots_ok(more)


def slots_ok(controller: SearchTrials) -> bool:
    numbers = Counter(r.trial for r in controller.store.records)
    return set(numbers.values()) == {1}


def test_starts_from_outside_have_unknown_compute(opened: Open, tmp_path: Path) -> None:
    """Nobody knows what weights from outside have cost, so that of a net that was trained on is not known either."""
    controller = opened(6, inherit=False)
    outside = Parent(InitWeights(str(tmp_path / "outside.safetensors"), "timm:resnet18"))
    controller.weights = FromOutside(outside, (STEPS // 2,))
    finish(controller)
    (children,) = {r.weights for r in before(controller) if r.kind == "search"}
    assert children == "inherited"
    for record in (r for r in finetuned(controller) if r.kind == "search"):
        assert record.lineage["steps"] is None
        assert train_flops(record) is None


def test_nothing_is_begun_before_all_others_have_ended(opened: Open) -> None:
    controller = opened(6)
    driver = search_driver(controller)
    finetuning = FrontFinetuning(controller)
    while isinstance(job := driver.next(), TrainJob):
        if controller.live[job.trial].weights != "finetuned":
            assert finetuning.next() is Idle.OVER
        driver.take(trained(job))
    assert finetuned(controller)
    assert {Genotype.from_dict(r.genotype).key for r in finetuned(controller)}
