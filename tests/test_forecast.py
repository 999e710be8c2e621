"""The compute that a search is likely to take: before it begins, against its parts; while it runs, against its end."""

from __future__ import annotations

import io
import itertools
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from alternas.results.render.terminal import Console
from alternas.search.engine import progress
from alternas.search.engine.progress import LiveView, PlainView
from alternas.search.engine.shown import ShownSearch
from alternas.search.spec import Budget
from alternas.search.training.job import Point, Progress, TrainJob
from alternas.search.trials.forecast import ComputeForecast
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get, random_net
from fakes import RECIPE, STEPS, FakeExecutor, SilentView, driver_of, price, run_loop

Open = Callable[..., SearchTrials]
A_STEP = 6 * RECIPE.batch_size  # FLOPs of a MAC in an optimiser step


def spent(controller: SearchTrials) -> float:
    """FLOPs of all that was trained, by the records."""
    records = [r for r in controller.store.records if r.budget.get("done")]
    return A_STEP * float(sum(r.cost["macs"] * r.budget["done"] * max(1, len(r.accuracies)) for r in records))


@pytest.mark.parametrize("limits", [{}, {"macs": 300_000}])
@pytest.mark.parametrize("repeats", [1, 3])
def test_before_a_search_begins(open_controller: Open, limits: dict[str, int], repeats: int) -> None:
    """Baselines with their seeds, and so many mean nets of random draws within the limits."""
    controller = open_controller(get("all", 8), trials=12, limits=limits, repeats=repeats)
    draws = [price(random_net(get("all", 8), seed)).macs for seed in range(100)]
    mean = statistics.mean(macs for macs in draws if macs <= limits.get("macs", macs))
    baselines = sum(price(net).macs for net in controller.baselines) * max(2, repeats)
    expected = A_STEP * STEPS * (baselines + 12 * repeats * mean)
    assert ComputeForecast(controller).left() == pytest.approx(expected, rel=1e-12)


def test_a_scheduler_makes_it_less(open_controller: Open) -> None:
    """Rungs at 1/8, 1/4 and 1/2; of three nets two go on."""
    controller = open_controller(get("all", 8), trials=40, scheduler="mo-asha")
    mean = statistics.mean(price(random_net(get("all", 8), seed)).macs for seed in range(100))
    share = 1 / 8 + (1 / 8) / 1.5 + (1 / 4) / 1.5**2 + (1 / 2) / 1.5**3
    expected = A_STEP * STEPS * (sum(price(net).macs for net in controller.baselines) * 2 + 40 * share * mean)
    assert ComputeForecast(controller).left() == pytest.approx(expected, rel=1e-12)


def test_a_limit_on_flops_bounds_it(open_controller: Open) -> None:
    controller = open_controller(get("all", 8), trials=400, budget=Budget(train_flops=1e9))
    assert ComputeForecast(controller).left() == pytest.approx(1e9)


class Watch(SilentView):
    """Notes at each end what was spent and what was left."""

    def __init__(self, controller: SearchTrials) -> None:
        self.controller, self.forecast = controller, ComputeForecast(controller)
        self.foretold = [(0.0, self.forecast.left())]

    def ended(self, record: Any, job: Any) -> None:
        self.foretold.append((spent(self.controller), self.forecast.left()))


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"scheduler": "mo-asha"}, {"repeats": 2}, {"limits": {"macs": 300_000}}, {}])
def test_while_a_search_runs(open_controller: Open, how: dict[str, Any]) -> None:
    """The space's mean tells a random search's compute beforehand to a quarter, its first half the rest to a tenth.

    Nets that a scheduler promotes cost more than the mean, as accuracy rises with MACs here: it tells two thirds.
    """
    controller = open_controller(get("all", 8), trials=60, **how)
    view = Watch(controller)
    run_loop(controller, FakeExecutor(1), view)
    whole = spent(controller)
    assert view.foretold[0][1] == pytest.approx(whole, rel=0.4 if "scheduler" in how else 0.25)
    assert view.foretold[-1][1] == pytest.approx(0, abs=1e-6)
    if "scheduler" not in how:  # where trials that wait have no record yet
        half = next(pair for pair in view.foretold if pair[0] >= whole / 2)
        assert sum(half) == pytest.approx(whole, rel=0.1)


def test_what_runs_counts_as_far_as_it_has_come(open_controller: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tick a second, a sixteenth of a training: seconds left are FLOPs left over FLOPs a second."""
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    controller = open_controller(get("resnet", 8), trials=2)
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    view = LiveView(ShownSearch(controller), console)
    whole, job = view.work_left(), driver_of(controller).next_job()
    assert isinstance(job, TrainJob)
    assert whole == ComputeForecast(controller).left() > 0
    view.started(job)
    for step in (1, 2, 3):
        clock[0] += 1
        view.tick(Progress(job.id, Point(step, 1.0, 0.5), 1.0))
    a_second = A_STEP * price(job.genotype).macs
    assert view.rate() == pytest.approx(a_second)
    assert view.work_left() == pytest.approx(whole - 3 * a_second)
    assert view.seconds_left() == pytest.approx(whole / a_second - 3)


def test_the_estimate_is_shown(open_controller: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", itertools.count(0.0, 900.0).__next__)
    for kind in (PlainView, LiveView):
        console = Console(file=io.StringIO(), width=200, force_terminal=kind is LiveView)
        controller = open_controller(get("resnet", 8), trials=12 if kind is PlainView else 24)
        with kind(ShownSearch(controller), console) as view:
            run_loop(controller, FakeExecutor(1), view)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert " h left)" in text or kind is LiveView
        assert "FLOP left · " in text or kind is PlainView
        assert "at this rate" in text or kind is PlainView
