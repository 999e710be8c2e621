"""Findings: numbers with interval and verdict, of which each verdict has numbers it is said of and some it is not."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console
from scipy.stats import t, ttest_ind

from alternas.archs import Encoder, Genotype, Head, Stem, build
from alternas.results.analysis import attention_distance as distance
from alternas.results.analysis import head_cka as heads
from alternas.results.analysis import landscape
from alternas.results.analysis import linear_probe as linear
from alternas.results.analysis import patch_filters as filters
from alternas.results.analysis import token_localization as tokens
from alternas.results.analysis.cka import findings_of_two
from alternas.results.analysis.registry import analyse
from alternas.results.analysis_tools.comparison import NetFacts, compare_nets
from alternas.results.analysis_tools.findings import Finding, findings_table, measured, of_net, shown_rows
from alternas.results.analysis_tools.hooks import HookPoint
from alternas.results.analysis_tools.index import Explained
from alternas.results.analysis_tools.inputs import AnalysisInput, AnalysisResult, Clean, Images, change_columns
from alternas.results.analysis_tools.output import maps, write_results

NETS = [NetFacts("trial 2 (alternet)", 0.80, 1, 2000), NetFacts("trial 0 (resnet)", 0.75, 1, 1000)]
ONE, OTHER = [1.0, 2.0, 4.0, 4.5], [0.5, 0.7, 2.0]


def test_a_finding_is_a_t_interval_and_its_side_of_0() -> None:
    words = ("above", "below")
    found = measured("it", [*ONE, None, float("nan")], "blocks", words, unit="px")
    low, high = t.interval(0.95, 3, np.mean(ONE), np.std(ONE, ddof=1) / 2)
    assert found == Finding("it", 2.875, pytest.approx(low), pytest.approx(high), "above", "px", "blocks", 4)
    assert measured("it", [-3.0, -3.1, -2.9], words=words).verdict == "below"
    assert measured("it", [-3.0, 3.1], words=words).verdict == "undecided"
    assert measured("it", [3.0], words=words) == Finding("it", 3.0)
    assert measured("it", []).verdict == "not measured"


def test_people_are_shown_the_columns_that_are_filled() -> None:
    found = [*of_net("a", [measured("it", ONE, unit="px")]), *of_net("b", [Finding("", verdict="does not fit")])]
    rows = shown_rows(found)
    assert list(rows[0]) == ["net", "name", "value", "95 % interval", "unit", "verdict"]
    assert (rows[0]["value"], rows[0]["95 % interval"]) == ("2.88", "0.246 to 5.5")
    assert list(shown_rows([Finding("it", 1.0)])[0]) == ["name", "value"]
    file = io.StringIO()
    Console(file=file, width=80).print(findings_table(found, "title"))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert [line for line in lines if line in ("a", "b")] == ["a", "b"], "each net is a line above its numbers"


def test_losses_are_relative_to_what_is_above_chance() -> None:
    """In points, a net that knows little loses little."""
    images = Images(torch.zeros(100, 1, 2, 2), torch.arange(100) % 4, torch.zeros(1), torch.ones(1))
    good, poor, none = (Clean.of(accuracy, images).loss("it", [-0.1, -0.12], "parts") for accuracy in (0.85, 0.45, 0.3))
    assert good.value == pytest.approx(0.11 / 0.6)
    assert poor.value == pytest.approx(0.11 / 0.2)
    assert (none.value, none.verdict) == (None, "at chance"), "0.3 of 100 is within the noise of a quarter"
    clean = Clean.of(0.85, images)
    assert clean.finding.low == pytest.approx(0.85 - 1.96 * (0.85 * 0.15 / 100) ** 0.5)
    same = clean.loss("it", [0.0, 0.0], "parts")
    assert (same.low, same.verdict) == (pytest.approx(-t.ppf(0.975, 1) * 0.01 / 0.6 / 24**0.5), "undecided")
    assert clean.loss_over_images("it", change_columns(torch.zeros(100))).high == pytest.approx(0.03 / 0.6)


def test_an_interval_over_images_is_never_of_width_0() -> None:
    """No answer of 50 changes: as likely as not below 3 / 50 (the rule of three)."""
    assert change_columns(torch.zeros(50)) == {"change": 0, "low": -0.06, "high": 0.06}
    change_N = torch.tensor([-1.0] * 10 + [0.0] * 40)
    low, high = t.interval(0.95, 49, -0.2, change_N.std().item() / 50**0.5)
    assert change_columns(change_N) == pytest.approx({"change": -0.2, "low": low, "high": high})


# verdicts of single analyses


def grid_tokens(best: Callable[[int, int], tuple[int, int]], side: int = 4) -> str:
    rows = []
    for r in range(side):
        for c in range(side):
            to = best(r, c)
            off = float(np.hypot(to[0] - r, to[1] - c))
            rows.append({"row": r, "column": c, "own": 0.2, "rank": 1 if to == (r, c) else 2})
            rows[-1] |= {"best_row": to[0], "best_column": to[1], "cells_off": off}
    return tokens.findings(rows)[0].verdict


def test_tokens_keep_their_places_beyond_chance() -> None:
    assert grid_tokens(lambda r, c: (r, c)) == "places kept"
    assert grid_tokens(lambda r, c: (r, max(c - 1, 0))) == "places blurred"
    assert grid_tokens(lambda r, c: (r, c) if c < 2 else (3 - r, 0)) == "places blurred"
    assert grid_tokens(lambda r, c: (3 - r, 3 - c)) == "as chance would give"
    assert grid_tokens(lambda r, c: (2, 2), 8) == "as chance would give"


def test_nearer_heads_are_told_by_rank_correlation() -> None:
    def verdict(*heads_at: tuple[float, float]) -> str:
        rows = [
            {"layer": "1", "head": i, "distance_px": d, "place": "a", "cka": c} for i, (d, c) in enumerate(heads_at)
        ]
        return heads.findings(rows)[-1].verdict

    assert verdict(*[(i, 1 - i / 10) for i in range(8)]) == "nearer heads are more like it"
    assert verdict(*[(i, i / 10) for i in range(8)]) == "farther heads are"
    assert verdict(*[(i, (i * 5 % 8) / 10) for i in range(8)]) == verdict((1, 0.9), (2, 0.5), (3, 0.1)) == "undecided"


def test_matches_in_order() -> None:
    def verdict(best: list[int]) -> str:
        sites = [[HookPoint(str(i), str(i), "out", "conv", "1") for i in range(4)]] * 2
        return findings_of_two(np.eye(4)[best], sites)[-1].verdict

    assert verdict([0, 0, 2, 3]) == "in order"
    assert verdict([1, 0, 2, 3]) == "not in order"
    assert verdict([2, 2, 2, 2]) == "all have one best match"


def test_minima_and_lower_points_of_a_surface() -> None:
    def verdicts(height: Callable[[float, float], float]) -> list[str]:
        steps = [i / 2 - 1 for i in range(5)]
        rows = [{"a": a, "b": b, "nll": 0.1, "l2": 0.0, "loss": height(a, b)} for a in steps for b in steps]
        return [finding.verdict for finding in landscape.findings(rows, 5)[-2:]]

    assert verdicts(lambda a, b: a * a + b * b) == ["", "one bowl"]
    assert verdicts(lambda a, b: a) == ["lower elsewhere", "none"]
    assert verdicts(lambda a, b: (a * a - 0.25) ** 2 + b * b) == ["lower elsewhere", "several"]


def test_local_heads_are_held_against_the_whole_map() -> None:
    """A window of 3 px is near by, however evenly its heads look there: its own even distance is 2 px."""
    rows = [{"layer": "1", "head": i, "distance_px": px, "even_px": 2.0, "even_map_px": 10.0} for i, px in enumerate(
        (1.9, 2.0, 6.0))]  # fmt: skip
    rows += [{"layer": "2", "head": 0, "distance_px": 8.0, "even_px": 10.0, "even_map_px": 10.0}]
    by_name = {finding.name: finding for finding in distance.findings(rows)}
    assert by_name["local heads of the first layer"].value == 2
    assert by_name["mean distance, first layer"].value == pytest.approx(3.3)
    assert by_name[distance.WIDENS].value == pytest.approx(8 - 3.3)
    assert distance.CONVERGE not in by_name, "one head has no spread"


def test_probes_have_the_resolution_of_their_test_images() -> None:
    rows: list[dict[str, Any]] = [
        {"place": p, "features": f, "accuracy": a, "low": a - 0.1, "high": a + 0.1, "draws": 3}
        for p, f, a in (("stem", "gap", 0.2), ("end", "gap", 0.6), ("end", "token 0,0", 0.3), ("end", "token 1,1", 0.5))
    ]
    found = {finding.name: finding for finding in linear.findings(rows, ["stem", "end"], 50)}
    assert found["probe of the mean of the map, last place"].value == 0.6
    assert found["probe of a single token, last place"].value == pytest.approx(0.4)
    assert {finding.resolution for finding in found.values()} == {1 / 50}


def test_filters_are_held_against_noise() -> None:
    """The count beside them is that of noise: filters that are noise need as many."""
    net = torch.nn.Conv2d(3, 64, 4, 4)
    torch.nn.init.normal_(net.weight, generator=torch.Generator().manual_seed(0))
    _, shares = filters.components(net.weight.detach())
    assert abs(filters.enough(shares.numpy()) - filters.enough_of_noise(net.weight.shape)) <= 2


# two nets


def explained(**samples: tuple[list[float], list[float]]) -> list[Explained]:
    return [
        Explained(name, name, [found for net, values in zip(NETS, pair, strict=True)
                               for found in of_net(net.name, [measured(f"mean of {name}", values, "blocks")])])
        for name, pair in samples.items()
    ]  # fmt: skip


def test_the_interval_of_a_difference_is_welchs() -> None:
    (row,) = compare_nets(NETS, explained(it=(ONE, OTHER)), None, "points")["comparison"]
    wanted = ttest_ind(ONE, OTHER, equal_var=False).confidence_interval()
    assert (row["low"], row["high"]) == pytest.approx((wanted.low, wanted.high))
    assert (row["name"], row["net"], row["verdict"]) == (
        "mean of it", "trial 2 (alternet) less trial 0 (resnet)", "undecided",
    )  # fmt: skip


@pytest.mark.parametrize(("sd", "said"), [
    (None, "what another seed does is not known here."),
    (0.01, "seeds alone do up to 2.8: more than that."),
    (0.02, "seeds alone do up to 5.7: a tie."),
])  # fmt: skip
def test_accuracies_are_held_against_seeds(sd: float | None, said: str) -> None:
    lead = "trial 2 (alternet) is 5.0 points better than trial 0 (resnet), at 2 times its MACs; "
    assert compare_nets(NETS, [], sd, "points") == {"comparison": [], "why": [lead + said]}


def test_what_sets_two_nets_apart_is_said_with_its_doubt() -> None:
    parts = explained(far=([-0.5, -0.4, -0.6], [0.3, 0.2, 0.4]), near=([-0.5, 0.4, 0.6], [0.3, -0.2, 0.4]))
    told = compare_nets(NETS, parts, None, "points")
    assert [row["name"] for row in told["comparison"]] == ["mean of far", "mean of near"]
    _, first, doubt = told["why"]
    assert first.startswith("Mean of far is -0.5 in trial 2 (alternet) and 0.3 in trial 0 (resnet): apart by 0.8, ")
    assert doubt.startswith("Of 2 numbers 1 differ at 95 %, 0.1 would by chance.")
    none = compare_nets(NETS, parts[1:], None, "points")["why"]
    assert none[1:] == ["None of these numbers tells the nets apart by more than chance."]
    assert compare_nets(NETS, explained(one=([1.0], [2.0, 3.0])), None, "points")["comparison"] == []


# maps


def test_maps_of_a_figure_share_a_scale_and_are_kept(tmp_path: Path) -> None:
    """Of two nets side by side too; the numbers are in an npz."""
    drawn: list[Figure] = []

    def result(most: float) -> AnalysisResult:
        pictures = {"early": np.array([[0.0, 0.5]]), "late": np.array([[0.2, most]])}

        def draw(figure: Any) -> None:
            maps(figure, pictures, "share")
            drawn.append(figure)

        return AnalysisResult("a map", [{"x": 1}], [], draw, pictures)

    part = write_results(tmp_path, "field", [("one", result(1.0)), ("two", result(4.0))])
    for figure in drawn:
        *pictures, bar = figure.axes
        assert [axes.images[0].get_clim() for axes in pictures] == [(0.0, 4.0)] * 2
        assert bar.get_ylabel() == "share"
    with np.load(tmp_path / part.npz) as kept:
        assert set(kept.files) == {"one/early", "one/late", "two/early", "two/late"}
        assert kept["two/late"].tolist() == [[0.2, 4.0]]


@pytest.mark.parametrize("analysis", ["field", "rollout", "positions"])
def test_analyses_with_maps_have_a_colour_bar_and_their_numbers(analysis: str) -> None:
    genotype = Genotype(Stem("none"), (), Encoder(16, 2, 2, patch=4), Head("token"))
    images = Images(torch.rand(4, 1, 16, 16), torch.arange(4) % 2, torch.zeros(1), torch.ones(1))
    found = analyse(analysis, AnalysisInput("vit", build(genotype, 2, 16, 1), images))
    assert isinstance(found, AnalysisResult)
    found.draw(figure := Figure(layout="constrained"))
    shown = [axes.images[0] for axes in figure.axes if axes.images]
    assert len({image.get_clim() for image in shown if image.get_cmap().name == "viridis"}) == 1
    assert len([axes for axes in figure.axes if axes.get_label() == "<colorbar>"]) == 1
    size = {"field": (16, 16), "rollout": (4, 4), "positions": (16, 16)}[analysis]
    assert {values.shape for values in found.maps.values()} == {size}
    if analysis == "field":
        assert [values.sum() for values in found.maps.values()] == pytest.approx([1.0] * len(found.maps))
