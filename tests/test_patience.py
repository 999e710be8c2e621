"""Early stopping of a search: when its front has stopped growing, by brute force and in whole searches."""

import io
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from alternas.archs import Genotype, InputError
from alternas.results.ranking.quantities import Limits
from alternas.search.run import conclude
from alternas.search.run_config import Budget, RunConfig
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials.admission import Patience
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import FakeExecutor, SilentView, fake_accuracy, run_loop
from runs import width_of

Open = Callable[..., SearchTrials]


def net(score: float | None, cost: int, **more: Any) -> Any:
    """What a record says that counts."""
    fields = {"status": "ok", "kind": "search", "accuracies": {}, "taken_from": "", "key": f"{cost}"} | more
    return SimpleNamespace(accuracy=score, cost={"macs": cost}, **fields)


def baseline(first: float, second: float, cost: int) -> Any:
    return net((first + second) / 2, cost, kind="baseline", accuracies={"0": first, "1": second})


def watch(nets: int, records: list[Any]) -> Patience:
    settings: Any = SimpleNamespace(limits=Limits(macs=900), run=RunConfig(budget=Budget(patience=nets)))
    patience = Patience(settings, lambda key, cost: cost["macs"])
    for record in records:
        patience.add(record)
    return patience


def has_stalled(nets: int, records: list[Any]) -> bool:
    """The rule of docs/strategies.md again, from the definitions."""
    ok = [r for r in records if r.status == "ok"]
    groups = [list(r.accuracies.values()) for r in ok if r.accuracies]
    ok = [r for r in ok if r.cost["macs"] <= 900]
    own = [i for i, r in enumerate(ok) if r.kind == "search" and not r.taken_from]
    if len(own) < nets or own[-nets] == 0:
        return False
    before = ok[: own[-nets]]
    for i in own[-nets:]:
        rivals = [r for r in before if r.cost["macs"] <= ok[i].cost["macs"]]
        best = max(rivals or [min(before, key=lambda r: r.accuracy)], key=lambda r: r.accuracy)
        n, m = max(1, len(ok[i].accuracies)), max(1, len(best.accuracies))
        known = len(groups) > 1  # one net of two seeds is too little
        width = width_of(groups, (ok[i].accuracy, n), (best.accuracy, m)) if known else 0.0
        if ok[i].accuracy > best.accuracy + width:
            return False
    return True


@pytest.mark.parametrize("nets", [1, 3, 8])
@pytest.mark.parametrize("baselines", [0, 1, 4])
def test_it_is_the_rule_after_every_record(nets: int, baselines: int) -> None:
    draw, seen = random.Random(f"{nets}/{baselines}"), set()
    for _ in range(6):
        patience, records = watch(nets, []), list[Any]()
        for number in range(40):
            score, cost = draw.random(), draw.randrange(100, 1000)
            if number < baselines:
                record = baseline(score, score + draw.gauss(0, 0.05), cost)
            else:
                more = [{}] * 6 + [{"status": "pruned"}, {"status": "nan", "score": None}, {"taken_from": "other:1"}]
                changes = dict(draw.choice(more))
                record = net(changes.pop("score", score), cost, **changes)
            records.append(record)
            patience.add(record)
            assert patience.is_over == has_stalled(nets, records), records
            seen.add(patience.is_over)
    assert seen == {True, False}


def test_a_lift_within_the_noise_is_none_and_many_small_ones_are() -> None:
    noisy = [baseline(0.5, 0.52, 500), baseline(0.7, 0.72, 800)]  # sd 0.0141, 2 degrees: 0.086 between single trainings
    assert watch(2, [*noisy, net(0.56, 500), net(0.55, 600)]).is_over
    assert not watch(2, [*noisy, net(0.56, 500), net(0.61, 600)]).is_over
    creeping = [net(0.51 + 0.03 * i, 500) for i in range(1, 5)]
    assert watch(1, [*noisy, *creeping]).is_over
    assert not watch(4, [*noisy, *creeping]).is_over, "together they are above the front before them"


def flat_after(growing: int) -> Callable[[TrainJob], Any]:
    """Nets from some trial on are as bad as can be."""

    def fate(job: TrainJob) -> Any:
        if job.trial < growing:
            return None
        return JobResult(job.id, "ok", job.stop_step, 0.05, {}, (), 0.1, "fake")

    return fate


def finished(controller: SearchTrials, fate: Callable[[TrainJob], Any]) -> str:
    """Run a search to its end; what it says then."""
    assert run_loop(controller, FakeExecutor(4, fate), SilentView())
    assert controller.complete
    console = Console(file=io.StringIO(), width=200)
    conclude(controller, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def trained(controller: SearchTrials) -> list[Any]:
    return [r for r in controller.store.records if r.kind == "search" and r.status == "ok"]


@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_a_search_ends_and_goes_on_with_more(open_controller: Open, scheduler: str) -> None:
    """What ran and what the scheduler sends on still ends; no other setting of the run is touched."""

    def opened(patience: int | None) -> SearchTrials:
        return open_controller(get("all", 8), trials=100, scheduler=scheduler, budget=Budget(patience=patience))

    controller = opened(6)
    first = max(controller.live) + 12
    said = finished(controller, flat_after(first))
    assert "none of the last 6 nets is above the front before them by more than the seed noise" in said
    nets = trained(controller)
    begun = controller.started
    assert 12 < begun < 100
    if scheduler == "none":
        assert [r.accuracy for r in nets][-6:] == [0.05] * 6
    stopped_at = [r.trial for r in nets]
    again = opened(6)
    assert again.complete, "the same command has nothing to do"
    longer = opened(11)
    assert not longer.complete
    finished(longer, flat_after(first))
    assert begun < longer.started < 100
    assert [r.trial for r in trained(longer)][: len(stopped_at)] == stopped_at
    finished(opened(None), flat_after(first))
    assert opened(None).started == 100


def test_nets_that_still_run_end_and_growth_among_them_goes_on(open_controller: Open) -> None:
    """Four workers: when the last bad net ends three more run; the one that is good makes the search go on."""
    controller = open_controller(get("resnet", 8), trials=40, budget=Budget(patience=4))
    first = max(controller.live) + 12
    good = first + 6

    def fate(job: TrainJob) -> Any:
        if job.trial == good:
            return JobResult(job.id, "ok", job.stop_step, 0.99, {}, (), 0.1, "fake")
        return flat_after(first)(job)

    finished(controller, fate)
    nets = trained(controller)
    (place,) = [i for i, record in enumerate(nets) if record.accuracy == 0.99]
    assert len(nets) >= place + 4
    assert controller.patience.is_over
    assert all(record.accuracy == fake_accuracy(Genotype.from_dict(record.genotype), 16) for record in nets[:4])


@pytest.mark.usefixtures("elsewhere")
def test_bad_patience_is_one_line(alternas: Any) -> None:
    for words, said in (
        (["--patience", "0"], "patience: must be 1 or more, got 0"),
        (["--patience", "5", "--strategy", "enumerate"], "patience: strategy 'enumerate' follows a plan of its own"),
        (["--patience", "5", "--supernet", "4"], "patience: a supernet follows a plan of its own; leave it out"),
    ):
        code, out, err = alternas("search", "resnet", "--data", "digits", "--trials", "2", "--name", "mine", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err
    with pytest.raises(InputError, match="patience: must be 1 or more"):
        Budget(patience=0)
