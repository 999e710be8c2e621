"""Money and GPU-hours: prices, what workers take, and searches that come to the end of their budget."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alternas.archs import InputError
from alternas.results.runs.overview import list_runs
from alternas.results.runs.spent import Spent, read_spent
from alternas.results.runs.store import read_records, run_folder
from alternas.search.config import Budget, RunConfig
from alternas.search.engine import drive, spending
from alternas.search.engine.prices import Prices, parse_prices
from alternas.search.engine.progress import ProgressCounts
from alternas.search.engine.resources import Resources
from alternas.search.engine.spending import Spending, WorkerRate
from fakes import FakePool

H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"


def test_an_hour_of_a_worker() -> None:
    both = parse_prices("cpu=0.04, gpu=2.5")
    assert both.hour(4, 0.25, H100) == pytest.approx(4 * 0.04 + 0.25 * 2.5)
    assert both.hour(2, 0, "cpu") == pytest.approx(0.08)
    by_type = parse_prices("gpu:h100=4,gpu:T4=0.5,gpu:H100 80GB=5,gpu=1")
    assert [by_type.hour(1, 2, name) for name in (H100, T4, "NVIDIA A100")] == [10, 1, 2], "the longest that fits"
    assert parse_prices("").hour(8, 8, H100) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tpu=3", "'tpu'"), ("gpu", "'gpu'"), ("gpu=dear", "'gpu=dear'"), ("gpu=", "'gpu='"), ("=3", "''"), (",", "''"),
        ("gpu:=3", "'gpu:'"), ("cpu=-1", "that of cpu must be 0 or more, got -1"), ("cpu=nan", "0 or more, got nan"),
        ("cpu=inf", "0 or more, got inf"), ("cpu=1,cpu=2", "each name once"), ("cpu=0", "at least one must be above 0"),
    ],
)  # fmt: skip
def test_no_prices(text: str, said: str) -> None:
    with pytest.raises(InputError, match=f"^price: .*{said}"):
        parse_prices(text)


def test_a_card_without_a_price() -> None:
    for text in ("cpu=1", "gpu:H100=4"):
        with pytest.raises(InputError, match=f"price: none is given for a {T4}"):
            parse_prices(text).hour(1, 1, T4)


def test_a_budget_that_cannot_be_kept() -> None:
    with pytest.raises(InputError, match="max-cost: what an hour costs is not known; give --price"):
        RunConfig(budget=Budget(cost=3.0))
    with pytest.raises(InputError, match="max-gpu-hours: with --gpus-per-trial 0"):
        RunConfig(Resources(gpus=0.0), Budget(gpu_hours=3.0))
    for name, budget in (("max-cost", {"cost": 0.0}), ("max-gpu-hours", {"gpu_hours": math.nan})):
        with pytest.raises(InputError, match=f"{name}: must be above 0"):
            Budget(**budget)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds, which a test sets."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(spending, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def run_config(**budget: float) -> RunConfig:
    return RunConfig(Resources(prices=Prices((("cpu", 1.0), ("gpu", 10.0)))), Budget(**budget))


def test_hours_are_added_up_over_sessions(tmp_path: Path, clock: SimpleNamespace) -> None:
    """By hand: half an hour of one worker, an hour of two, none while nothing runs."""
    worker, other = WorkerRate(2, 0.5, 7.0), WorkerRate(1, 0, 1.0)
    first = Spending(tmp_path, run_config(cost=14.0, gpu_hours=1.0))
    assert (first.over, str(first)) == ("", "cost 0.00 of 14, 0.00 of 1 GPU-hours")
    assert first.seconds_left == math.inf, "no rate is known"
    for seconds, workers in ((1800, [worker]), (3600, [worker, other]), (9999, [])):
        clock.now += seconds
        first.count(workers)
    assert read_spent(tmp_path) == first.spent == Spent(pytest.approx(4), pytest.approx(0.75), pytest.approx(11.5))
    second = Spending(tmp_path, run_config(cost=14.0, gpu_hours=1.0))
    clock.now += 900
    second.count([worker])
    assert second.over == ""
    assert second.seconds_left == pytest.approx(3600 * 0.75 / 7), "the GPU-hours would last for 900 s"
    clock.now += 900
    second.count([worker])
    assert second.over == "a cost of 14"
    second.save()
    assert Spending(tmp_path, run_config()).over == ""
    assert Spending(tmp_path, run_config(gpu_hours=1.0)).over == "1 GPU-hours"
    assert str(Spending(tmp_path, RunConfig())) == "", "neither prices nor a budget"


@pytest.fixture
def dear(fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch) -> type[FakePool]:
    """Workers each of whose jobs takes an hour of a CPU."""
    made = list[Spending]()

    class Kept(Spending):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    def fate(job: Any) -> None:
        made[-1].spent = made[-1].spent.plus(1.0, 1.0, 0.0, 0.5)
        made[-1].save()

    monkeypatch.setattr(drive, "Spending", Kept)
    fake_pool.fate_of_all = staticmethod(fate)
    return fake_pool


SEARCH = ("search", "resnet", "--data", "digits", "--trials", "6", "--name", "mine", "--price", "cpu=0.5")
STUDY = (
    "study",
    "windows",
    "--data",
    "digits",
    "--quick",
    "--seeds",
    "1",
    "--epochs",
    "1",
    "--name",
    "mine",
    "--price",
    "cpu=0.5",
)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("words", [SEARCH, pytest.param(STUDY, marks=pytest.mark.slow)], ids=["search", "study"])
def test_money_that_is_spent_ends_it_and_more_resumes_it(
    alternas: Any, dear: type[FakePool], words: tuple[str, ...]
) -> None:
    code, out, err = alternas(*words, "--max-cost", "1")
    assert code == 0, err
    assert "spent: cost 1.00 of 1\n" in out
    assert "stopped after a cost of 1; the same command with a larger limit resumes" in out
    before = read_records(run_folder("mine"))
    assert len(dear.jobs_of_all) == 2, "an hour each, at 0.5"
    assert alternas(*words, "--max-cost", "1")[0] == 0
    assert len(dear.jobs_of_all) == 2, "nothing is begun"
    code, out, err = alternas(*words, "--max-cost", "999")
    assert code == 0, err
    assert "stopped" not in out
    assert read_records(run_folder("mine"))[: len(before)] == before
    (row,) = list_runs()
    assert row["status"] == "ended"
    assert (row["cost"], row["cpu_hours"]) == (0.5 * len(dear.jobs_of_all), len(dear.jobs_of_all))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("lasts", "said"), [(60.0, ", the budget is over in 60 s"), (200.0, "")])
def test_a_view_promises_no_more_than_is_left(
    alternas: Any, dear: type[FakePool], monkeypatch: pytest.MonkeyPatch, lasts: float, said: str
) -> None:
    monkeypatch.setattr(Spending, "seconds_left", lasts)
    monkeypatch.setattr(ProgressCounts, "seconds_left", lambda counts: 100.0)
    _, out, _ = alternas(*SEARCH, "--max-cost", "2")
    lines = [line for line in out.splitlines() if " done  trial " in line]
    assert lines
    assert all(line.endswith(f" of 2{said})") for line in lines), lines
