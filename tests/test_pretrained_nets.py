"""The ladder of pretrained nets, those that a person lists, and which is probed next."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
from scipy.special import expit

from alternas.archs import InputError
from alternas.archs.timm import count_timm
from alternas.archs.timm.weights_files import nets_of_folder
from alternas.search import summary
from alternas.search.strategies.probe_order import Curve, ProbeOrder, ProbePair, expected_odds, mean_falls, steps
from alternas.spaces.pretrained import PretrainedNet, files_as_names, find_nets, ladder


def test_the_ladder_says_what_timm_says() -> None:
    assert 36 <= len(ladder()) <= 48
    for net in ladder():
        config = timm.get_pretrained_cfg(net.name)
        assert config is not None
        assert (net.licence, net.source) == (config.license, config.hf_hub_id)
        assert (net.side, net.fixed) == (config.input_size[-1], config.fixed_input_size)
        assert "nc" not in net.licence.split("-"), "a default must not need a lawyer"
    assert [net.macs for net in ladder()] == sorted(net.macs for net in ladder())
    assert ladder()[0].macs < 65e6
    assert 4e9 < ladder()[-1].macs < 5e9
    of = {net.name.split(".")[0]: net for net in ladder()}
    for arch, millions, gmacs in (  # as published: their papers, and torchvision's page of resnet18
        ("resnet18", 11.69, 1.81),
        ("levit_128s", 7.8, 0.305),
        ("tiny_vit_21m_224", 21.2, 4.3),
        ("efficientformer_l1", 12.3, 1.3),
        ("repvit_m0_9", 5.1, 0.8),
        ("mobilevit_s", 5.6, 2.0),
    ):
        assert of[arch].params / 1e6 == pytest.approx(millions, rel=0.08)
        assert of[arch].macs / 1e9 == pytest.approx(gmacs, rel=0.03)
    hybrids = {"mobilevit", "efficientformer", "levit", "fastvit", "tiny", "repvit", "coatnet", "vit", "resnetv"}
    assert hybrids <= {net.family for net in ladder()}


def test_sides() -> None:
    of = {net.name.split(".")[0]: net for net in ladder()}
    assert of["levit_128s"].sides == (224,), "its tables are of one map"
    assert of["resnet18"].sides == (48, 64, 80, 96, 128, 160, 192, 224, 256)
    assert of["tinynet_e"].sides == (48, 64, 80, 96, 106, 128)
    counts, _ = count_timm("resnet18", (128, 128), None, None)
    assert of["resnet18"].macs_at(128) == pytest.approx(counts["macs"], rel=0.01)


def test_what_a_person_lists() -> None:
    def names(words: str) -> list[str]:
        return [net.name for net in find_nets(words)[0]]

    assert names("") == [net.name for net in ladder()]
    assert names("timm:resnet18.a1_in1k, resnet18") == ["resnet18.a1_in1k"]
    assert find_nets("timm:resnet18,mine:4")[1] == ["mine:4"]
    ours = names("levit_128*,mobilenetv4_conv_small*")
    assert "levit_128s.fb_dist_in1k" in ours
    assert sum(name.startswith("mobilenetv4_conv_small") for name in ours) == 2, "one set of weights an architecture"
    assert names("lcnet_0*.ra2_in1k") == ["lcnet_050.ra2_in1k", "lcnet_075.ra2_in1k"]
    found = find_nets("lcnet_050")[0][0]
    assert found == PretrainedNet(
        "lcnet_050.ra2_in1k", 224, False, found.macs, found.params, None, "apache-2.0", "timm/lcnet_050.ra2_in1k"
    )
    assert round(found.params / 1e6, 2) == 1.88, "timm's results-imagenet.csv"
    for word, words in (("resnet1b", "did you mean 'resnet18'"), ("vgg*z", "has weights"), ("timm:", "''")):
        with pytest.raises(InputError, match=words):
            find_nets(word)


def test_files_are_named_by_their_nets(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("resnet18.a1_in1k.pth", "levit_128s.safetensors", "other/lcnet_050.bin", "notes.txt", "mine.pt"):
        (tmp_path / name).write_bytes(b"\2\0\0\0\0\0\0\0{}")  # safetensors of nothing
    words = [str(tmp_path / "resnet18.a1_in1k.pth"), "levit*", str(tmp_path / "levit_128s.safetensors")]
    assert files_as_names(words) == (("resnet18.a1_in1k", "levit*", "levit_128s"), str(tmp_path))
    assert files_as_names(["levit*"], "here") == (("levit*",), "here")
    assert nets_of_folder(str(tmp_path)) == ["levit_128s", "resnet18.a1_in1k"]
    with pytest.raises(InputError, match="in one folder"):
        files_as_names([*words, str(tmp_path / "other" / "lcnet_050.bin")])
    with pytest.raises(InputError, match="no such file"):
        files_as_names(["gone.pth"])


ORDER = ProbeOrder(low=1e6, high=1e9)


def pair(name: str, macs: float, published: float | None = None, side: int = 224, family: str = "a") -> ProbePair:
    return ProbePair(name, side, macs, published, family, 224)


def test_hypervolume_is_the_mean_height_over_the_logarithm_of_macs() -> None:
    """By hand: .6 from 10 M on is two thirds of the axis, .9 from 100 M on lifts one third by .3."""
    cheap, large = pair("cheap", 1e7), pair("large", 1e8)
    history = [(cheap, [(1e7, 0.6)]), (large, [(3e7, 0.5), (1e8, 0.9)])]
    assert ORDER.hypervolume([cheap, large], history[:1]) == pytest.approx(0.6 * 2 / 3, abs=0.005)
    assert ORDER.hypervolume([cheap, large], history) == pytest.approx(0.4 + 0.3 / 3, abs=0.005)


def test_steps_against_brute_force() -> None:
    draw = np.random.default_rng(0)
    places, scores, edges = draw.uniform(0, 1, (20, 7)), draw.uniform(0, 1, (20, 7)), np.linspace(0, 1, 11)
    for row, found in enumerate(steps(places, scores, edges)):
        for edge, height in zip(edges, found, strict=True):
            assert height == max((s for p, s in zip(places[row], scores[row], strict=True) if p <= edge), default=0)


def test_published_accuracy_orders_the_first_and_what_adds_nothing_is_not_asked() -> None:
    pairs = [pair("worse", 5e6, 0.5), pair("better", 5e6, 0.7), pair("dominated", 9e8, 0.4)]
    first = ORDER.ask(pairs, [])
    assert first is not None
    assert first.name == "better"
    assert ORDER.ask(pairs, [(p, [(p.macs, 0.5)]) for p in pairs]) is None


def test_a_family_that_surprises_is_preferred() -> None:
    pairs = [pair(f"{kind}{i}.in1k", 1e7 * 2**i, 0.7, family=kind) for kind in "ab" for i in range(5)]
    history = [(p, [(p.macs, 0.6 if p.family == "a" else 0.8)]) for p in (*pairs[:2], *pairs[5:7])]
    means, spreads = expected_odds(pairs, pairs, history)
    assert expit(means[7:]).min() > expit(means[2:5]).max() + 0.05
    assert (spreads > 0).all()
    asked = ORDER.ask(pairs, history)
    assert asked is not None
    assert asked.family == "b"


def test_how_curves_fall_is_the_mean_of_those_seen() -> None:
    """Of two curves: at a tenth of the MACs log odds of 0 and 1 where the whole nets have 2 and 2."""
    history: list[tuple[ProbePair, Curve]] = [
        (pair("a", 1e8), [(1e7, 0.5), (1e8, float(expit(2)))]),
        (pair("b", 2e8), [(2e7, float(expit(1))), (2e8, float(expit(2)))]),
    ]
    assert mean_falls(history) == pytest.approx([-1.5, -1.5, -1.5, -1.5, 0.0])


def test_patience_ends_it() -> None:
    pairs = [pair(f"n{i}", 1e7 * 1.2**i, None) for i in range(20)]
    history = [(p, [(p.macs, 0.5)]) for p in pairs[:10]]
    assert ORDER.ask(pairs, history) is None, "nothing was added for nine probes"
    assert replace(ORDER, patience=0).ask(pairs, history) is not None
    rising = [(p, [(p.macs, 0.3 + 0.05 * i)]) for i, p in enumerate(pairs[:10])]
    assert ORDER.ask(pairs, rising) is not None


def world(seed: int) -> dict[ProbePair, Curve]:
    """Thirty nets at six sides on made-up data, with curves that are lower for sides far from a net's own."""
    draw, curves = random.Random(seed), dict[ProbePair, Curve]()
    for number in range(30):
        size, family = draw.uniform(7.5, 9.5), draw.choice("abcde")
        published = float(expit(0.4 + 0.5 * (size - 7.5) + draw.gauss(0, 0.2)))
        own = draw.gauss(0, 0.25) + "abcde".index(family) * 0.2 - 0.4
        for side in (48, 64, 96, 128, 160, 224):
            macs = 10**size * (side / 224) ** 2
            best = np.log(published / (1 - published)) + 1 + own + 1.2 * np.log(side / 224) + draw.gauss(0, 0.05)
            shares = (0.05, 0.2, 0.5, 0.8, 1.0)
            falls = (-2.0, -1.0, -0.3, 0.1, 0.0)
            curve = [(macs * s, float(expit(best + f))) for s, f in zip(shares, falls, strict=True)]
            curves[ProbePair(f"n{number}", side, macs, published, family, 224)] = curve
    return curves


@pytest.mark.slow
@pytest.mark.parametrize("published", [True, False])
def test_most_of_the_front_for_a_third_of_the_compute(published: bool) -> None:
    for seed in range(3):
        curves = {replace(p, published=p.published if published else None): c for p, c in world(seed).items()}
        pairs, order, history = list(curves), ProbeOrder(), []
        while (asked := order.ask(pairs, history)) is not None:
            history.append((asked, curves[asked]))
        share = sum(p.macs for p, _ in history) / sum(p.macs for p in pairs)
        found = order.hypervolume(pairs, history) / order.hypervolume(pairs, list(curves.items()))
        assert found >= 0.95
        assert share <= 1 / 3


def test_a_search_from_nothing_says_what_a_probe_would_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sides of one net and the only side of another, by hand; a third net is too large."""
    nets = (
        PretrainedNet("a", 64, False, 40_000_000, 1, 0.5, "mit", ""),
        PretrainedNet("b", 96, True, 30_000_000, 1, 0.5, "mit", ""),
        PretrainedNet("c", 224, True, 900_000_000, 1, 0.5, "mit", ""),
    )
    monkeypatch.setattr(summary, "ladder", lambda: nets)
    of_a = sum(40e6 * (side / 64) ** 2 for side in (48, 64, 80))
    line = summary.probe_hint("my photos", 300, 2 * (of_a + 30e6) * 300 / 90)  # so that it takes 90 seconds
    assert "search pretrained --data 'my photos'" in line
    assert "4 nets and sizes up to 100 M MACs" in line
    assert "90 s" in line
