"""The verdict on a front in words, on hand-made nets whose noise, ties, gains and knee are worked out by hand."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from alternas.results import load_run
from alternas.results.latency.measurement import Measurement
from alternas.results.ranking.chance import above_chance
from alternas.results.ranking.front import ExtraResults, Leaderboard, rank_rows
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.ranking.verdict import order_by_time, recommended, verdict_of
from alternas.results.render.board import print_front
from alternas.results.runs.record import Record
from runs import DATA, drawn_records, made_run, net_row

QUERY = RankingQuery(("accuracy", "macs"))


def net(trial: int, accuracy: float, macs: int, kind: str = "search", **more: Any) -> Record:
    cost = {"macs": macs, "params": 10 * macs}
    return Record(trial, kind, "resnet", f"net{trial}", {}, {}, cost, "ok", accuracy=accuracy, **more)


def plain(trial: int, accuracy: float, macs: int, sd: float = 0.005 * 2**0.5) -> Record:
    """A baseline of three seeds of this standard deviation."""
    accuracies = {"0": accuracy - sd, "1": accuracy, "2": accuracy + sd}
    return net(trial, accuracy, macs, "baseline", accuracies=accuracies)


PLAIN = [plain(0, 0.60, 1_000_000), plain(1, 0.70, 100_000_000)]
CHEAPEST = ", the cheapest within one standard error of the best"
HALF = stats.t.ppf(0.975, 4) * 0.005 * 2**0.5  # of a net of one seed: two nets, two degrees of freedom each


def board(*nets: Record, query: RankingQuery = QUERY, extra: ExtraResults | None = None) -> Leaderboard:
    return rank_rows(nets, query, extra)


def test_the_cheapest_as_good_as_the_best_is_taken_with_its_interval_its_gain_and_its_ties() -> None:
    """Within one standard error, 0.7 points; net 3 is tied with the best too, but 3 points below it."""
    searched = ((2, 0.62, 1_500_000), (3, 0.80, 10_000_000), (4, 0.83, 90_000_000), (5, 0.825, 50_000_000))
    first, knee, second, *rest = verdict_of(board(*PLAIN, *(net(*known) for known in searched)))
    assert pytest.approx(0.0196, abs=1e-4) == HALF
    assert first == (  # 0.85 of the way between the ResNets in log10, where their curve is at 0.685
        f"Take net 5{CHEAPEST}: 50 M MACs, 0.825 ± 0.020, 14.0 points above a plain ResNet of its cost; nets 4 "
        "and 3 are tied with it, the cheapest of them net 3 at 10 M MACs."
    )
    assert knee == (
        "The knee of the front, behind which accuracy costs more and more, is net 3: 10 M MACs, 0.800 ± 0.020."
    )
    assert second == (
        "The most accurate is net 4: 90 M MACs, 0.830 ± 0.020, 1.8 times the MACs for 0.5 points, which the noise does "
        "not tell from it."
    )
    assert rest[0] == (
        "Net 5 was trained once; ± is 95 % by the seed noise of nets about as good: 0.71 points, known from 4 degrees "
        "of freedom."
    )
    assert rest[-1] == "Best of 6, so in part the luckiest."


def test_it_is_the_most_accurate_but_for_one_within_a_standard_error_and_may_be_a_baseline() -> None:
    two = board(PLAIN[0], PLAIN[1], net(3, 0.72, 50_000_000), query=RankingQuery(("accuracy", "macs"), {"macs": 6e7}))
    assert [row.trial for row in two.front] == [0, 3]
    assert recommended(two).trial == 3, "12 points are more than the noise"
    tied = board(PLAIN[0], PLAIN[1], net(3, 0.607, 50_000_000), query=RankingQuery(("accuracy", "macs"), {"macs": 6e7}))
    assert recommended(tied).trial == 0
    assert verdict_of(tied)[0].startswith(
        f"Take net 0 (a plain ResNet){CHEAPEST}: 1 M MACs, 0.600 ± 0.011; net 3 is tied with it."
    )


@pytest.mark.parametrize(
    ("accuracy", "macs", "said"),  # of the most accurate net
    [
        (0.75, 500_000, "at least 15.0 points above a plain ResNet of its cost"),
        (0.75, 200_000_000, "at most 5.0 points above a plain ResNet of its cost"),
        (0.95, 10_000_000, "30.0 points above a plain ResNet of its cost"),
        (0.705, 100_000_000, "0.5 points above a plain ResNet of its cost (within the noise)"),
    ],
)
def test_gains_and_their_bounds(accuracy: float, macs: int, said: str) -> None:
    found = board(*PLAIN, net(9, accuracy, macs))
    row = next(row for row in found.rows if row.trial == 9)
    alone = board(*PLAIN, net(9, accuracy, macs), query=RankingQuery(("accuracy", "macs"), families=("resnet",)))
    rows = [replace(row, knee=row.trial == 9, rank=1, tied_with=[]) for row in alone.rows]
    sentence = verdict_of(Leaderboard(QUERY, rows, found.noise, records=found.records))[0]
    assert row.trial == 9
    assert sentence.endswith(f", {said}.")


def test_of_nets_that_guess_none_is_recommended(tmp_path: Path) -> None:
    """15 classes: chance is 0.067. The best of ten nets that guess on 100 images is 0.13 at 2.6 deviations of 0.025."""
    facts = DATA | {"classes": [*map(str, range(15))], "images": {"val": 100}}
    folder = made_run(tmp_path / "mine", [], data=facts)
    assert 1 / 15 + stats.norm.ppf(1 - 0.05 / 10) * (14 / 225 / 100) ** 0.5 == pytest.approx(0.131, abs=5e-4)
    for best, above in ((0.13, False), (0.14, True)):
        nets = [net(i, 0.06, 1_000 - i) for i in range(9)] + [net(9, best, 2_000)]
        found = replace(board(*nets, extra=ExtraResults(images=100)), folder=folder)
        assert (recommended(found) in above_chance(found)) == above
        low, high = proportion_interval(0.13, 100, 0.05 / 10)
        of = f"({low:.3f} to {high:.3f}, the best of 10 nets on 100 images)"
        said = f"No net is above chance (0.067) by more than the noise; the best, net 9, has 0.130 {of}: "
        assert (verdict_of(found) != [f"{said}train longer."]) == above
        cuts = replace(found, rows=[replace(row, is_cut=True) for row in found.rows])
        assert (verdict_of(cuts) != [f"{said}learn from more pictures, or search from nothing."]) == above


def proportion_interval(share: float, images: int, level: float) -> tuple[float, float]:
    """Wilson's interval by SciPy; `level` is that of each side."""
    found = stats.binomtest(round(share * images), images).proportion_ci(1 - 2 * level, method="wilson")
    return found.low, found.high


def test_the_interval_that_is_printed_says_that_nets_guess(tmp_path: Path) -> None:
    """Three classes: 0.486 ± 0.130 by the seeds is above 0.333; by 36 images it is not, and that is what is printed."""
    facts = DATA | {"classes": ["a", "b", "c"], "images": {"val": 36}}
    folder = made_run(tmp_path / "mine", [], data=facts)
    nets = [plain(0, 0.45, 1_000, 0.04), plain(1, 0.46, 2_000, 0.04), *(net(i, 0.4, 3_000 + i) for i in range(2, 12))]
    few = replace(board(*nets, net(12, 0.486, 5_000), extra=ExtraResults(images=36)), folder=folder)
    (said,) = verdict_of(few)
    z2 = stats.norm.ppf(1 - 0.05 / 13) ** 2 / 36  # (p - x)^2 = z^2 x (1 - x) / 36, of 13 nets
    roots = np.roots([1 + z2, -(2 * 0.486 + z2), 0.486**2])
    assert f"has 0.486 ({min(roots):.3f} to {max(roots):.3f}, the best of 13 nets on 36 images)" in said
    assert min(roots) < 1 / 3 < 0.486 - stats.t.ppf(0.975, 4) * 0.04
    many = replace(board(*nets, net(12, 0.486, 5_000), extra=ExtraResults(images=3600)), folder=folder)
    assert verdict_of(many)[0].startswith("Take net ")
    row = max(many.rows, key=lambda row: row.accuracy)
    assert row.accuracy - row.interval > 1 / 3


@pytest.mark.parametrize(("accuracy", "worth_it"), [(0.1, False), (0.9, True)])
def test_an_export_is_offered_where_a_net_is_above_chance(tmp_path: Path, accuracy: float, worth_it: bool) -> None:
    """What `search` asks at its end."""
    rows = [net_row(0, accuracy=accuracy)]
    folder = made_run(tmp_path / "mine", rows, data=DATA | {"images": {"val": 100}}, settings={"objective": "macs"})
    assert print_front(folder, RankingQuery(), as_json=False) is worth_it


def test_a_net_that_is_above_chance_is_taken_where_others_are_not(tmp_path: Path) -> None:
    """The best has one seed and a wide interval; one of three seeds, behind the front, is surely no guess."""
    folder = made_run(tmp_path / "mine", [], data=DATA | {"classes": ["a", "b"], "images": {"val": 10_000}})
    sure = net(3, 0.535, 4_000, accuracies={"0": 0.515, "1": 0.535, "2": 0.555})
    found = replace(board(plain(0, 0.52, 1_000, 0.02), net(2, 0.54, 3_000), sure,
                          extra=ExtraResults(images=10_000)), folder=folder)  # fmt: skip
    assert [row.trial for row in found.front] == [0, 2]
    assert recommended(found).trial == 3
    assert verdict_of(found)[0].startswith("Take net 3: ")


def test_an_interval_stays_within_what_is_possible() -> None:
    wide = board(plain(0, 0.7, 1_000, 0.2), plain(1, 0.9, 100_000, 0.02), net(2, 0.95, 1_000_000))
    said = verdict_of(wide)
    half = stats.t.ppf(0.975, 4) * ((0.2**2 + 0.02**2) / 2 / 3) ** 0.5
    assert said[0] == f"Take net 1 (a plain ResNet){CHEAPEST}: 100 k MACs, 0.900 ({0.9 - half:.3f} to 1.000)."
    assert "Which nets are tied with net 1 is not known: the seed noise is 14 points, by which nets 32 apart" in said[2]


def test_what_is_not_known_is_said() -> None:
    said = " ".join(verdict_of(board(net(0, 0.7, 1_000), net(1, 0.8, 2_000))))
    assert "±" not in said
    assert "the seed noise is not known, nor which nets are tied" in said
    assert "No plain ResNet was trained, so what it gains over one is not known." in said
    assert "of its cost" not in said


def test_retrainings_slices_and_rising_nets() -> None:
    curve = [{"step": 50, "accuracy": 0.5}, {"step": 100, "accuracy": 0.9}]
    rising = net(2, 0.9, 2_000_000, curve=curve, budget={"done": 100, "full": 100})
    again = [
        Record(i, "retrain", "resnet", "net2", {}, {}, {"macs": 2_000_000, "params": 1}, "ok", accuracy=accuracy,
               metrics={"test_accuracy": accuracy - 0.1}, seed=i, factors={"trial": 2})
        for i, accuracy in enumerate((0.86, 0.88), start=1)
    ]  # fmt: skip
    found = board(*PLAIN, rising, extra=ExtraResults(retrained=again, images=1000))
    said = verdict_of(found)
    assert "Retrained with 2 other seeds net 2 has 0.870 ± 0.014 (standard deviation), 0.770 on test." in said
    assert "Net 2 still rose at its end: with longer training the front may be another." in said
    sliced = board(*PLAIN, net(2, 0.9, 2_000_000, weights="shared"))
    assert "Net 2's score is that of a slice of the supernet, not of a training of its own." in verdict_of(sliced)
    assert not [line for line in verdict_of(sliced) if "trained once" in line]


def test_other_metrics_and_fronts_of_costs() -> None:
    nll = RankingQuery(("accuracy", "macs"), metric=Metric("nll", True))
    said = verdict_of(board(net(0, -0.5, 1_000), query=nll))
    assert said[0] == "Take net 0: 1 k MACs, nll 0.500."
    assert verdict_of(board(net(0, 0.5, 1_000), query=RankingQuery(("macs", "params")))) == []
    assert verdict_of(board()) == ["No net has been trained to the end."]


def test_front_and_report_say_it(alternas: Any, tmp_path: Path) -> None:
    rows = drawn_records(20, stops=False)
    folder = made_run(tmp_path / "mine", rows)
    said = verdict_of(leaderboard_of(folder))
    assert len(said) > 2
    assert load_run(folder).verdict() == said
    out = alternas("front", str(folder))[1]
    assert " ".join(out.split()).startswith(" ".join(said))
    assert f"{said[-1]}\n" in out, "the command, whole"
    assert json.loads(alternas("report", str(folder), "--json")[1])["verdict"] == " ".join(said)
    page = (folder / "report.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub("<[^>]+>", "", page)).replace("\xa0", " ")
    assert all(sentence in text for sentence in said)
    assert alternas("front", str(folder), "--json")[1].startswith("[\n")


def test_an_order_by_time_that_macs_do_not_tell_is_said_beyond_the_spread() -> None:
    few, many = net(2, 0.80, 1_510_000), net(3, 0.90, 2_490_000)

    def said(spread_ms: float, slow: float, **more: Any) -> list[str]:
        place = "cpu/1/float32/eager/1/32/Chip"
        ms = {"net2": slow, "net3": 0.038}
        latencies = {key: Measurement(key, ms[key], spread_ms, place) for key in ms}
        return order_by_time(board(few, many, extra=ExtraResults(latencies), **more))

    assert said(0.002, 0.096) == [
        "MACs mislead here: net 2's 1.51 M MACs take 0.096 ms, net 3's 2.49 M MACs take 0.038 ms (cpu, measured)."
    ]
    assert said(0.03, 0.096) == [], "0.058 apart, within 2 x 0.03"
    assert said(0.002, 0.02) == [], "the order is that by MACs"
    assert said(0.002, 0.096, query=RankingQuery(("accuracy", "latency_ms"))) == [], "ranked by time already"
    latencies = {"net2": Measurement("net2", 0.096, 0.002, "cpu/1/float32/eager/1/32/Chip")}
    assert order_by_time(board(few, many, extra=ExtraResults(latencies))) == [], "one net has no order"
