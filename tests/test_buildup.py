"""The build-up, as a strategy and as a command: the published trajectory, repeats, limits, every space."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console

from alternas.archs import Genotype, InputError, static_cost, zoo
from alternas.results.ranking.metric import Metric
from alternas.search.strategies.buildup import BuildUp, Step, judge, steps_table
from alternas.search.strategies.history import History, PastTrial, State
from alternas.search.strategies.strategy_context import NetCosts, StrategyContext
from alternas.search.training.job import JobResult, TrainJob
from alternas.spaces import SPACES, FixedChooser, Genes, Space, get, options_of
from fakes import FakePool

Msa = tuple[int, ...]
PLAIN: Genes = {"family": "resnet", "block": "bottleneck", "width": 64, "depth1": 3, "depth2": 4, "depth3": 6,
                "depth4": 4, "window1": 4, "window2": 4, "window3": 4, "window4": 4}  # fmt: skip
BASIC: Genes = {"block": "basic", "width": 64, "depth1": 2, "depth2": 2, "depth3": 2, "depth4": 2}
PUBLISHED: dict[Msa, float] = {  # Park & Kim, ICLR 2022, CIFAR-100: MSA blocks by stage and top-1 %
    (0, 0, 0, 0): 82.48, (0, 0, 0, 1): 83.45, (0, 0, 0, 2): 83.66, (0, 0, 1, 2): 83.77, (0, 0, 2, 2): 83.52,
    (0, 0, 3, 2): 83.19, (0, 1, 1, 2): 84.02, (0, 2, 1, 2): 83.39, (1, 1, 1, 2): 83.80,
}  # fmt: skip
TRIED = [  # what the rule makes of these
    ((0, 0, 0, 0), "start"), ((0, 0, 0, 1), "accepted"), ((0, 0, 0, 2), "accepted"), ((0, 0, 1, 2), "accepted"),
    ((0, 0, 2, 2), "rejected"), ((0, 1, 1, 2), "accepted"), ((0, 2, 1, 2), "rejected"), ((1, 1, 1, 2), "rejected"),
]  # fmt: skip
ONE_BLOCK = ((0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0))


def msa_of(net: Genotype) -> Msa:
    return tuple(len(stage.places) for stage in net.stages)


def published(net: Genotype) -> float:
    return PUBLISHED.get(msa_of(net), 10.0) / 100


@dataclass
class Lab:
    """A search whose nets train in `slots` at once; `pick` says which of the running ends next."""

    space: Space
    sampler: BuildUp
    accuracy: Callable[[Genotype], float] = published
    slots: int = 1
    pick: Callable[[int], int] = lambda running: 0
    history: History = field(default_factory=lambda: History({}, lambda key, cost: 1.0))
    running: list[tuple[PastTrial, Genotype]] = field(default_factory=list)
    asked: list[Genotype] = field(default_factory=list)
    most: int = 0

    def ask(self) -> Genotype | None:
        """The strategy's net, running from now on; None if it has none."""
        genes = self.sampler.propose(self.history, self.history.next_number)
        if genes is None:
            return None
        net = self.space.sample(FixedChooser(genes))
        self.running.append((self.add(net.key, State.RUNNING), net))
        self.asked.append(net)
        self.most = max(self.most, len(self.running))
        return net

    def add(self, key: str, state: State, accuracy: float | None = None) -> PastTrial:
        """A trial of this net."""
        self.history.trials.append(PastTrial(self.history.next_number, {}, key, state, accuracy, 1.0))
        return self.history.trials[-1]

    def end(self, repeats: Sequence[float] = ()) -> None:
        """One of the running nets ends."""
        trial, net = self.running.pop(self.pick(len(self.running)))
        if len(repeats) > 1:  # as a search does
            trial.accuracies = {str(seed): value for seed, value in enumerate(repeats)}
        trial.state, trial.accuracy = State.COMPLETE, fmean(repeats) if repeats else self.accuracy(net)

    def run(self, most: int = 1000) -> Lab:
        """Ask until nothing is proposed and nothing runs, or `most` nets have ended."""
        for _ in range(most):
            while len(self.running) < self.slots and self.ask():
                pass
            if not self.running:
                break
            self.end()
        return self

    @property
    def steps(self) -> list[Step]:
        return self.sampler.steps(self.history)

    @property
    def msa(self) -> list[Msa]:
        return [msa_of(net) for net in self.asked]


def anything(net: Genotype) -> bool:
    return True


def paper(fits: Callable[[Genotype], bool] = anything, slots: int = 1) -> Lab:
    """The body of the paper's run, in the space `alternet` at 32 px."""
    space = get("alternet", 32)
    context = StrategyContext(space, 0, lambda net: NetCosts(1.0, 1.0), lambda net: 0.0 if fits(net) else 1.0)
    return Lab(space, BuildUp(context, [PLAIN]), slots=slots)


def msa_of_next(lab: Lab) -> Msa | None:
    net = lab.ask()
    return msa_of(net) if net else None


def verdicts(steps: Sequence[Step]) -> list[tuple[Msa, str]]:
    return [(step.msa, step.verdict) for step in steps]


@pytest.mark.parametrize("slots", [1, 3])
def test_the_published_trajectory(slots: int) -> None:
    lab = paper(slots=slots)
    steps = lab.run().steps
    assert verdicts(steps) == TRIED
    assert lab.msa == [msa for msa, _ in TRIED]
    assert lab.most == 1, "each step waits for the one before"
    last = next(net for net in lab.asked if msa_of(net) == (0, 1, 1, 2))
    assert [stage.places for stage in last.stages] == [s.places for s in zoo.get("alternet50_cifar", 32).stages]
    cost = static_cost(last, 100, 32, 3)
    assert (cost.params, cost.macs) == (33_012_840, 1_509_826_560)


def test_differences_are_those_to_the_parent() -> None:
    steps = paper().run().steps
    by_key = {step.key: step.msa for step in steps}
    assert steps[0].parent_key == ""
    assert steps[0].difference is None
    change = {step.msa: 100 * step.difference.mean for step in steps if step.difference}
    expected = {(0, 0, 0, 1): 0.97, (0, 0, 0, 2): 0.21, (0, 0, 1, 2): 0.11, (0, 0, 2, 2): -0.25, (0, 1, 1, 2): 0.25,
                (0, 2, 1, 2): -0.63, (1, 1, 1, 2): -0.22}  # fmt: skip
    assert change == pytest.approx(expected)
    assert [by_key[step.parent_key] for step in steps[4:]] == [(0, 0, 1, 2)] * 2 + [(0, 1, 1, 2)] * 2


def test_paths_go_side_by_side() -> None:
    space = get("alternet", 32)
    lab = Lab(space, BuildUp(StrategyContext(space, 0, lambda net: NetCosts(1.0, 1.0)), [PLAIN, BASIC]))
    plain, first = (0, 0, 0, 0), (0, 0, 0, 1)
    assert [(net.stages[0].block, msa_of(net)) for net in (lab.ask(), lab.ask()) if net] == [
        ("bottleneck", plain),
        ("basic", plain),
    ]
    assert not lab.ask(), "both starts run"
    lab.pick = lambda running: running - 1
    lab.end()  # the basic start
    net = lab.ask()
    assert net
    assert (net.stages[0].block, msa_of(net)) == ("basic", first)
    assert not lab.ask(), "its first step and the other start run"


@pytest.mark.parametrize(
    ("before", "after", "verdict", "then"),
    [
        ([0.80, 0.82, 0.81], [0.83, 0.81, 0.82], "undecided", (0, 0, 1, 0)),
        ([0.80, 0.82, 0.81], [0.82, 0.841, 0.83], "accepted", (0, 0, 0, 2)),
        ([0.80, 0.82, 0.81], [0.78, 0.801, 0.79], "rejected", (0, 0, 1, 0)),
        ([0.80], [0.81], "accepted", (0, 0, 0, 2)),
        ([0.80], [0.80], "rejected", (0, 0, 1, 0)),
        ([0.508, 0.725], [0.586], "accepted", (0, 0, 0, 2)),
        ([0.80, 0.90], [0.81, 0.91], "accepted", (0, 0, 0, 2)),
    ],
)  # fmt: skip
def test_repeats_decide_where_there_are_any(before: list[float], after: list[float], verdict: str, then: Msa) -> None:
    lab = paper()
    lab.ask()
    lab.end(before)
    lab.ask()
    lab.end(after)
    step = lab.steps[-1]
    assert step.verdict == verdict
    assert step.difference is not None
    assert step.difference.n == min(len(before), len(after))
    assert step.difference.mean == pytest.approx(fmean(a - b for a, b in zip(after, before, strict=False)))
    assert (step.difference.low is None) == (min(len(before), len(after)) < 2)
    assert msa_of_next(lab) == then


def test_a_step_of_one_image_is_no_certainty() -> None:
    """Two seeds that both gain one image of 100 are two equal differences, not an interval of width 0."""
    before, after = (
        PastTrial(0, state=State.COMPLETE, accuracy=fmean(each), accuracies=dict(zip("01", each, strict=True)))
        for each in ([0.80, 0.90], [0.81, 0.91])
    )
    context = StrategyContext(get("alternet", 32), 0, lambda net: NetCosts(1.0, 1.0), resolution=0.01)
    assert [judge(before, after, replace(context, resolution=step))[1] for step in (0.0, 0.01)] == [
        "accepted", "undecided",
    ]  # fmt: skip


def noise(net: Genotype) -> float:
    """Of a net, whatever it is: half the steps help."""
    return random.Random(net.key).random()


def by_hand(depths: Msa, caps: Msa, accuracy: Callable[[Msa], float]) -> list[Msa]:
    """All that a walk trains, by the rule as it is written."""
    best, stage = [0] * len(depths), len(depths) - 1
    trained = [tuple(best)]
    while stage >= 0:
        more = [count + (number == stage) for number, count in enumerate(best)]
        fits = more[stage] <= caps[stage] and 2 * more[stage] <= depths[stage]
        if fits:
            trained.append(tuple(more))
        if fits and accuracy(tuple(more)) > accuracy(tuple(best)):
            best = more
        else:
            stage -= 1
    return trained


def caps_of(space: Space, stages: int) -> Msa:
    """The most MSA blocks that the options allow in each stage: a number, or every second of the free blocks."""
    options = options_of(space)
    free = [sum(name.startswith(f"msa{n}_") for name in options) for n in range(1, stages + 1)]
    return tuple(int(max(options.get(f"msa{n}", ((k + 1) // 2,)))) for n, k in enumerate(free, start=1))


def macs_at(side: int) -> Callable[[Genotype], NetCosts]:
    """The price of a net at an image size."""
    return lambda net: NetCosts(float(static_cost(net, 10, side).macs), 0.0)


@pytest.mark.parametrize("name", sorted(SPACES.keys() - {"hybrid", "resnet"}))
@pytest.mark.parametrize("side", [16, 32])
def test_every_space_is_walked_to_its_end_by_the_rule(name: str, side: int) -> None:
    space = get(name, side)
    sampler = BuildUp(StrategyContext(space, 0, macs_at(side)))
    lab = Lab(space, sampler, noise, slots=4).run()
    nets = {net.key: net for net in lab.asked}
    assert len(nets) == len(lab.asked), "no net twice"
    steps = lab.steps
    for number, start in enumerate(sampler.starts):
        depths = tuple(stage.depth for stage in start.stages)
        mine = [step for step in steps if step.start == number]
        made = {msa_of(nets[step.key]): noise(nets[step.key]) for step in mine}
        assert [step.msa for step in mine] == by_hand(depths, caps_of(space, len(depths)), made.__getitem__)
        for step in mine:
            assert [(s.block, s.depth, s.width) for s in nets[step.key].stages] == [
                (s.block, s.depth, s.width) for s in start.stages
            ]
    for net in lab.asked:
        net.check(side)
        check_attention(net, space)


def check_attention(net: Genotype, space: Space) -> None:
    """MSA blocks stand in every second place from the stage's end, with the most heads that the space offers."""
    for number, stage in enumerate(net.stages, start=1):
        assert stage.places == tuple(range(stage.depth - 2 * len(stage.places) + 1, stage.depth, 2))
        heads = options_of(space).get(f"heads{number}")
        assert stage.attention == "msa"
        assert not (stage.places and heads) or stage.heads == max(map(int, heads or ()))


@pytest.mark.parametrize("name", ["hybrid", "resnet"])
def test_a_space_without_a_way_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"^strategy buildup: space '{name}' has no start .*$") as caught:
        BuildUp(StrategyContext(get(name, 32), 0, macs_at(32)))
    assert "\n" not in str(caught.value)


def test_starts_that_cannot_begin_are_refused() -> None:
    ground = StrategyContext(get("alternet", 32), 0, lambda net: NetCosts(1.0, 1.0))
    with pytest.raises(InputError, match="plain ResNet"):
        BuildUp(ground, [PLAIN | {"msa4": 1}])
    shallow: Genes = {"width": 16, "depth1": 1, "depth2": 1, "depth3": 2, "depth4": 1}
    assert BuildUp(ground, [shallow]).starts[0].stages[2].depth == 2
    with pytest.raises(InputError, match="no start"):
        BuildUp(
            StrategyContext(get("alternet", 8), 0, lambda net: NetCosts(1.0, 1.0)),
            [{"depth1": 1, "depth2": 1, "depth3": 1}],
        )


@pytest.mark.parametrize("stop", range(1, 9))
def test_a_new_sampler_goes_on_as_the_old_one(stop: int) -> None:
    whole, broken = paper(slots=3).run(), paper(slots=3).run(most=stop)
    old, broken.sampler = broken.sampler, paper().sampler
    broken.run()
    assert [net.key for net in broken.asked] == [net.key for net in whole.asked]
    assert broken.steps == old.steps(broken.history)


def test_nets_over_the_limits_are_not_proposed() -> None:
    over = {(0, 0, 0, 2), (0, 0, 1, 1)}
    lab = paper(lambda net: msa_of(net) not in over)
    lab.slots, lab.accuracy = 3, lambda net: 0.5 + 0.1 * sum(msa_of(net))
    steps = lab.run().steps
    assert verdicts(steps)[1:5] == [
        ((0, 0, 0, 1), "accepted"),
        ((0, 0, 0, 2), "over limit"),
        ((0, 0, 1, 1), "over limit"),
        ((0, 1, 0, 1), "accepted"),
    ]
    assert not over & set(lab.msa)
    assert steps[2].accuracy is None


def test_a_start_over_the_limits_is_walked_from_only_if_trained() -> None:
    lab = paper(fits=lambda net: bool(sum(msa_of(net))))
    assert not lab.ask()
    assert verdicts(lab.steps) == [((0, 0, 0, 0), "over limit")]
    lab.add(lab.sampler.starts[0].key, State.COMPLETE, 0.8)
    assert msa_of_next(lab) == (0, 0, 0, 1)


@pytest.mark.parametrize(("state", "said"), [(State.FAIL, "failed"), (State.PRUNED, "stopped")])
def test_what_fails_is_left_out_unless_it_succeeds_elsewhere(state: State, said: str) -> None:
    lab = paper()
    lab.ask()
    lab.end()
    net = lab.ask()
    assert net
    lab.add(net.key, state)
    assert lab.steps[-1].verdict == "pending", "its twin runs"
    lab.running.pop()[0].state = state
    assert verdicts(lab.steps)[-1] == ((0, 0, 0, 1), said)
    assert msa_of_next(lab) == (0, 0, 1, 0)
    lab.add(net.key, State.COMPLETE, 0.9)
    assert verdicts(lab.steps)[-1] == ((0, 0, 0, 1), "accepted")


def test_baselines_in_the_study_are_not_proposed_and_a_failed_one_ends_its_walk() -> None:
    lab = paper()
    baseline = lab.add(lab.sampler.starts[0].key, State.RUNNING)
    assert not lab.ask(), "it runs"
    baseline.state = State.FAIL
    assert not lab.ask()
    assert verdicts(lab.steps) == [((0, 0, 0, 0), "failed")]


def test_the_table() -> None:
    lab = paper()
    for repeats in ([0.80, 0.82, 0.81], [0.82, 0.841, 0.83]):
        lab.ask()
        lab.end(repeats)
    lab.ask()
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(steps_table(lab.steps, lab.sampler.starts, Metric()))
    rows = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert rows == [
        "start MSA blocks by stage accuracy change in points verdict",
        "bottleneck 64: 3 4 6 4 0 0 0 0 0.8100 - start",
        "bottleneck 64: 3 4 6 4 0 0 0 1 0.8303 +2.03 (95 %: +1.89 to +2.18, 3 seeds) accepted",
        "bottleneck 64: 3 4 6 4 0 0 0 2 - - pending",
    ]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("noise", [1e-4, 0.2])
def test_the_command_goes_by_the_same_rule_beyond_the_noise(
    alternas: Any, fake_pool: type[FakePool], noise: float
) -> None:
    """One net at a time, each with the same seeds; what is not clearly better is undone; the same command resumes."""
    Path("net.json").write_text(
        zoo.alternet("basic", (3, 4, 6, 4), (0,) * 4, (1,) * 4, 0, width=4).to_json(), encoding="utf-8"
    )

    def fate(job: TrainJob) -> JobResult:
        msa = msa_of(job.genotype)
        accuracy = (PUBLISHED.get(msa, 80.0) - 80) / 10 + noise * (job.seed - 1) * (1 + sum(msa) % 2)
        return JobResult(job.id, "ok", job.stop_step, accuracy)

    fake_pool.fate_of_all = staticmethod(fate)
    words = ("buildup", "--from", "net.json", "--data", "digits", "--seeds", "3", "--name", "up")
    code, out, err = alternas(*words)
    assert code == 0, err
    undone = [((0, 0, 0, 0), "start"), *((msa, "undecided") for msa in ONE_BLOCK)]
    tried = TRIED if noise < 0.1 else undone
    steps = [line for line in out.splitlines() if line.startswith("basic 4: 3 4 6 4")]
    again = [line for line in alternas(*words)[1].splitlines() if line.startswith("basic 4: 3 4 6 4")]
    assert again == steps
    assert [(line.split()[6:10], line.split()[-1]) for line in steps] == [
        ([str(blocks) for blocks in msa], verdict) for msa, verdict in tried
    ]
    assert [(msa_of(job.genotype), job.seed) for job in fake_pool.jobs_of_all] == [
        (msa, seed) for msa, _ in tried for seed in range(3)
    ]
    assert len(fake_pool.jobs_of_all) == 3 * len(tried)
