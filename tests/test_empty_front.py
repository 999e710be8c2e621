"""A front without nets is an answer: every command that shows one says why it is empty, and ends well."""

import json
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import InputError
from alternas.results.latency.nets import nets_of
from alternas.results.report.front_plot import front_plot
from alternas.results.report.run import open_run
from alternas.results.report.sections import leaderboard_table
from runs import drawn_records, made_run

pytestmark = pytest.mark.usefixtures("elsewhere")

NONE = "no net is within the limits (at most 7 MACs): 6 nets left out"
FILTERS = {
    NONE: ["--max-macs", "7"],
    "no net is within the limits (at most 8 params): 6 nets left out": ["--max-params", "8"],
    "no net is within the limits (at most 7 MACs, family vit or modern): 6 nets left out": [
        "--max-macs", "7", "--family", "vit,modern",
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def runs(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs whose baselines were trained with two seeds, which tell the noise, and one that has just begun."""
    monkeypatch.setenv("COLUMNS", "120")
    records = drawn_records(6, stops=False)
    for row in records[:2]:
        row["accuracies"] = {"0": row["accuracy"] - 0.01, "1": row["accuracy"] + 0.01}
    made_run(Path("runs/one"), records)
    made_run(Path("runs/two"), records)
    tight = {"space": "all", "objective": "macs", "limits": {"macs": 7}}
    made_run(Path("runs/tight"), records, settings=tight)
    made_run(Path("runs/new"), [])


@pytest.mark.parametrize("said", FILTERS)
@pytest.mark.parametrize("words", [["front", "one"], ["leaderboard", "one"], ["compare", "one", "two"]], ids=str)
def test_a_filter_that_leaves_no_net(
    alternas: Any, words: list[str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    code, out, err = alternas(*words, *FILTERS[said])
    assert (code, err) == (0, "")
    assert said in out
    code, out, _ = alternas(*words, *FILTERS[said], "--json")
    found = json.loads(out)
    assert code == 0
    if words[0] == "compare":
        assert found["front"] == []
        assert {f"run {name}: {said}" for name in ("one", "two")} <= {*found["notes"]}
    else:
        assert (found, caplog.messages) == ([], [said])


@pytest.mark.parametrize("command", ["front", "leaderboard", "report"])
def test_limits_of_a_run_that_no_net_keeps(alternas: Any, command: str) -> None:
    code, out, _ = alternas(command, "tight")
    assert code == 0
    assert (NONE if command != "report" else "6 records, 0 on the front") in out


def test_a_run_that_has_just_begun(alternas: Any, caplog: pytest.LogCaptureFixture) -> None:
    for command in ("front", "leaderboard"):
        code, out, _ = alternas(command, "new")
        assert (code, "no net has been trained to the end" in out) == (0, True)
        assert alternas(command, "new", "--json")[:2] == (0, "[]\n")
    assert caplog.messages == ["no net has been trained to the end"] * 2


@pytest.mark.parametrize(
    ("count", "said"), [(0, "no net has been trained to the end"), (6, "left out: 6 nets without latency ms")]
)
def test_a_search_that_has_measured_no_latency_yet(alternas: Any, count: int, said: str) -> None:
    settings = {"space": "all", "objective": "latency_ms", "latency": "cpu/1/float32/eager/1"}
    made_run(Path("runs/slow"), drawn_records(count, stops=False), settings=settings)
    code, out, _ = alternas("front", "slow", "--objectives", "latency_ms")
    assert (code, said in out, "latency: " in out) == (0, True, False)
    assert alternas("front", "slow", "--json")[:2] == (0, "[]\n")
    assert alternas("report", "slow")[0] == 0
    assert alternas("front", "slow", "--latency-of", "cuda")[0] == 2


def test_one_of_two_runs_has_no_net(alternas: Any) -> None:
    code, out, _ = alternas("compare", "one", "tight", "--json")
    found = json.loads(out)
    assert code == 0
    assert [row["on_joint_front"] > 0 for row in found["runs"]] == [True, False]
    assert f"run tight: {NONE}" in found["notes"]


def test_the_report_says_why_it_shows_none(alternas: Any) -> None:
    run = open_run(Path("runs/tight"))
    caption = f"N{NONE[1:]}."
    assert (front_plot(run).caption, leaderboard_table(run).caption) == (caption, caption)
    facts = json.loads(alternas("report", "tight", "--assets", "assets", "--json")[1])
    assert (facts["trained"], facts["front"], facts["best_accuracy"]) == (6, 0, None)
    page = Path(facts["page"]).read_text(encoding="utf-8")
    assert caption in page
    assert "6 nets trained to the end, 0 on the front" in page


def test_what_needs_a_net_says_why_there_is_none(alternas: Any) -> None:
    with pytest.raises(InputError, match="run tight: no net is within the limits"):
        nets_of("tight")
    code, _, err = alternas("retrain", "tight")
    assert (code, err) == (2, f"alternas: run tight: {NONE}\n")
