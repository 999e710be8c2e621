"""What is foretold of a search: its compute before it begins, its time left on made-up clocks while it runs."""

import io
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import Genotype
from alternas.archs.cost import training_flops
from alternas.archs.timm_net import TimmNet
from alternas.results.render.terminal import Console
from alternas.search.engine import progress
from alternas.search.engine.progress import LiveView, PlainView, ProgressCounts
from alternas.search.engine.shown import ShownSearch
from alternas.search.run_config import Budget
from alternas.search.training.job import JobResult, Point, Progress, TrainJob
from alternas.search.trials.forecast import Forecast, Pace
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.trial import Work
from alternas.spaces import FixedChooser, get, random_net
from fakes import RECIPE, STEPS, FakeExecutor, SilentView, driver_of, fake_accuracy, price, run_loop

Open = Callable[..., SearchTrials]
A_STEP = 6 * RECIPE.batch_size  # FLOPs of a MAC in an optimiser step
FACTOR = 1.5  # that what is foretold may be off by, at a quarter, half and three quarters
FACTORS = {"all of it": 2.2, "known nets": 2.0}  # where a rung's promotions or one long training are most of it


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("limits", [{}, {"macs": 300_000}])
@pytest.mark.parametrize("repeats", [1, 3])
def test_before_a_search_begins(open_controller: Open, limits: dict[str, int], repeats: int) -> None:
    """Baselines with their seeds, and so many mean nets of random draws within the limits, the first ones known."""
    controller = open_controller(get("all", 8), trials=12, limits=limits, repeats=repeats)
    nets = to_come(controller, 12, limits.get("macs", 10**9))
    baselines = sum(price(net).macs for net in controller.baselines) * max(2, repeats)
    expected = A_STEP * STEPS * (baselines + repeats * nets)
    assert Forecast(controller).left()["alone"].flops == pytest.approx(expected, rel=1e-12)


def to_come(controller: SearchTrials, trials: int, most: float) -> float:
    """MACs of the first nets, and of random ones."""
    space = controller.context.space
    first = [price(space.sample(FixedChooser(genes))).macs for genes in controller.proposer.queued]
    draws = [price(random_net(space, seed)).macs for seed in range(100)]
    return sum(first) + (trials - len(first)) * statistics.mean(macs for macs in draws if macs <= most)


def test_a_scheduler_makes_it_less(open_controller: Open) -> None:
    """Rungs at 1/8, 1/4 and 1/2; of three nets two go on."""
    controller = open_controller(get("all", 8), trials=40, scheduler="mo-asha")
    nets = to_come(controller, 40, 10**9)
    share = 1 / 8 + (1 / 8) / 1.5 + (1 / 4) / 1.5**2 + (1 / 2) / 1.5**3
    expected = A_STEP * STEPS * (sum(price(net).macs for net in controller.baselines) * 2 + share * nets)
    assert Forecast(controller).left()["alone"].flops == pytest.approx(expected, rel=1e-12)


def test_a_build_up_ends_before_its_trials_are_used(open_controller: Open) -> None:
    """All that it tries helps, so that what is foretold at most is trained; of a run that is resumed too."""

    def fate(job: TrainJob) -> JobResult:
        assert isinstance(job.genotype, Genotype)
        blocks = sum(len(stage.places) for stage in job.genotype.stages)
        return JobResult(job.id, "ok", job.stop_step, 0.5 + 0.01 * blocks)

    controller = open_controller(get("alternet", 8), trials=100, strategy="buildup")
    executor, foretold = FakeExecutor(1, fate), Forecast(controller)
    nets, flops = foretold.nets, foretold.left()["alone"].flops
    driver = driver_of(controller)
    for _ in range(len(controller.baselines) * 2 + 3):  # its ResNets, and three nets that it tries
        job = driver.next()
        assert isinstance(job, TrainJob)
        driver.take(fate(job))
    resumed = open_controller(get("alternet", 8), trials=100, strategy="buildup")
    assert Forecast(resumed).nets == nets
    assert run_loop(resumed, executor, SilentView())
    assert len(resumed.store.records) == nets < 100
    ended = open_controller(get("alternet", 8), trials=100, strategy="buildup")
    assert Forecast(ended).left()["alone"].flops == 0 < flops


@pytest.mark.parametrize("polish", [0.0, 0.4])
def test_a_limit_on_flops_bounds_it(open_controller: Open, polish: float) -> None:
    how: dict[str, Any] = {"budget": Budget(train_flops=1e11), "polish": polish, "inherit": True}
    controller = open_controller(get("all", 8), trials=10**9, **how)
    assert 0.8e11 <= Forecast(controller).left()["alone"].flops <= 1e11


def test_paces_are_found_again() -> None:
    """Of jobs that take so many seconds a FLOP, a step and a training; nothing known of them says nothing."""
    pace = Pace()
    assert pace.seconds("alone", Work(1, 1, 1)) is None

    def true(work: Work) -> float:
        return 2e-9 * work.flops + 0.03 * work.steps + 1.5 * work.trainings

    for steps in (10, 40, 160):
        for macs in (1e4, 1e5, 1e6):
            work = Work(macs * steps * 300, steps, 1)
            pace.add("alone", work, true(work))
    for work in (Work(1e9, 100, 1), Work(1e10, 20, 1), Work(1e8, 500, 1), Work(3e10, 600, 10)):
        assert pace.seconds("alone", work) == pytest.approx(true(work), rel=0.2)
    assert pace.seconds("bank", Work(1e9)) == pytest.approx(
        1e9 * sum(true(Work(m * s * 300, s, 1)) for s in (10, 40, 160) for m in (1e4, 1e5, 1e6))
        / sum(m * s * 300 for s in (10, 40, 160) for m in (1e4, 1e5, 1e6))
    )  # fmt: skip


def test_small_nets_say_little_of_large_ones() -> None:
    """ResNets at 48 px, 66 steps of 16 images, seconds of one core as a search wrote them down."""
    seconds = {776e3: 4.7, 502e3: 7.2, 148e6: 105.2, 338e6: 154.3}
    work = {macs: Work(training_flops(macs, 66, 16), 66, 1) for macs in seconds}
    pace = Pace()
    for macs in (776e3, 502e3):
        pace.add("alone", work[macs], seconds[macs])
    for macs in (148e6, 338e6):
        foretold = pace.seconds("alone", work[macs])
        assert foretold is not None
        assert seconds[macs] / 2 < foretold < 2 * seconds[macs]


class Workers:
    """Workers that take so many seconds a FLOP, a step and a training, on a clock of their own."""

    def __init__(self, clock: list[float], slots: int) -> None:
        self.clock, self.slots = clock, slots
        self.events: list[tuple[float, int, Progress | JobResult]] = []  # when, in which order, what
        self.busy = 0
        self._stops: dict[str, int] = {}  # of each training, by its checkpoint

    @property
    def idle(self) -> int:
        return self.slots - self.busy

    @property
    def starting(self) -> int:
        return 0

    def submit(self, job: TrainJob) -> None:
        self.busy += 1
        macs = 1e7 if isinstance(job.genotype, TimmNet) else price(job.genotype).macs
        done = self._stops.get(job.checkpoint, 0)
        self._stops[job.checkpoint] = job.stop_step
        for step in range(done + 1, job.stop_step + 1):
            seconds = 1.0 + (step - done) * (0.05 + 3e-9 * A_STEP * macs)
            accuracy = fake_accuracy(job.genotype, min(STEPS, step))
            self._at(seconds, Progress(job.id, Point(step, 1.0, accuracy), seconds))
        Path(job.weights).parent.mkdir(exist_ok=True)
        Path(job.weights).touch()
        self._at(seconds, JobResult(job.id, "ok", job.stop_step, accuracy, {}, (), seconds, "fake"))

    def _at(self, seconds: float, event: Progress | JobResult) -> None:
        self.events.append((self.clock[0] + seconds, len(self.events), event))

    def poll(self, timeout: float) -> list[Progress | JobResult]:
        first = min(self.events)
        self.events.remove(first)
        self.clock[0] = first[0]
        self.busy -= isinstance(first[2], JobResult)
        return [first[2]]


class Foretold(ProgressCounts):
    """Notes at each event the time, and what is said to be left."""

    def __init__(self, controller: SearchTrials) -> None:
        super().__init__(ShownSearch(controller))
        self.said: list[tuple[float, float | None]] = []
        self.counts: list[str] = []

    def ended(self, job: Any) -> None:
        super().ended(job)
        self._note()

    def tick(self, tick: Progress) -> None:
        super().tick(tick)
        self._note()

    def _note(self) -> None:
        self.said.append((progress.time.monotonic(), self.seconds_left()))
        self.counts.append(self.shown.counts)


def ratios(said: list[tuple[float, float | None]]) -> Iterator[float]:
    """What was foretold over what came, at a quarter, half and three quarters."""
    (began, _), (ended, _) = said[0], said[-1]
    for share in (0.25, 0.5, 0.75):
        at, left = next(pair for pair in said if pair[0] >= began + share * (ended - began))
        assert left is not None
        yield left / (ended - at)


KINDS: dict[str, dict[str, Any]] = {
    "as it is": {"inherit": True, "polish": 0.4},
    "alone": {},
    "repeats": {"repeats": 2},
    "scheduler": {"scheduler": "mo-asha", "trials": 40},
    "all of it": {"scheduler": "mo-asha", "trials": 40, "inherit": True, "polish": 0.4},
    "known nets": {"references": (TimmNet("test_resnet"),), "inherit": True, "polish": 0.4},
    "limited": {"budget": Budget(train_flops=1.5e11), "trials": 10**9, "inherit": True, "polish": 0.4},
}


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_time_left_is_right_within_a_factor(open_controller: Open, clock: list[float], kind: str, slots: int) -> None:
    """Also of a run that is resumed; 0 is said once all is done, and not before."""
    how = {"trials": 20, "limits": {"macs": 500_000}} | KINDS[kind]
    for more in (1, 2):
        budget = how.get("budget", Budget())
        asked = {"trials": more * how["trials"], "budget": Budget(train_flops=more * budget.train_flops)}
        controller = open_controller(get("all", 8), **how | asked)
        view = Foretold(controller)
        assert more == 1 or view.seconds_left(), "from the first second on"
        assert run_loop(controller, Workers(clock, slots), view)
        found = [*ratios(view.said)]
        factor = FACTORS.get(kind, FACTOR)
        assert all(1 / factor <= ratio <= factor for ratio in found), found
        done = [left == 0 for _, left in view.said]
        assert done == sorted(done), "nets that wait are closed at the end"
        assert done[-1]
        if "budget" not in how:
            totals = [int(text.split(" of ")[1].split()[0]) for text in view.counts]
            assert len({*totals}) == 1, "what is announced is trained"
            assert view.counts[-1].startswith(f"{totals[-1]} of {totals[-1]} nets")


def test_what_runs_counts_as_far_as_it_has_come(open_controller: Open, clock: list[float]) -> None:
    """One tick a second, a sixteenth of a training: seconds left are FLOPs left over FLOPs a second."""
    controller = open_controller(get("resnet", 8), trials=2)
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    view = LiveView(ShownSearch(controller), console)
    whole, job = view.work_left(), driver_of(controller).next()
    assert isinstance(job, TrainJob)
    assert whole == Forecast(controller).left()["alone"].flops > 0
    view.started(job)
    for step in (1, 2, 3):
        clock[0] += 1
        view.tick(Progress(job.id, Point(step, 1.0, 0.5), clock[0]))
    a_second = A_STEP * price(job.genotype).macs
    assert view.work_left() == pytest.approx(whole - 3 * a_second)


def test_the_estimate_is_shown(open_controller: Open, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(progress, "DRAWING_SHARE", 1e9)
    for kind in (PlainView, LiveView):
        console = Console(file=io.StringIO(), width=200, force_terminal=kind is LiveView)
        controller = open_controller(get("resnet", 8), trials=12 if kind is PlainView else 24)

        def later(job: TrainJob) -> None:
            clock[0] += 900.0

        with kind(ShownSearch(controller), console) as view:
            run_loop(controller, FakeExecutor(1, later), view)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert " h left)" in text or kind is LiveView
        assert "FLOP left · about " in text or kind is PlainView
