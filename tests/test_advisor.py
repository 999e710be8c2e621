"""The build-up advisor: which swaps there are, what its signs are made of, and that the net stays as it was."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from alternas.archs import Genotype, InputError, Network, Stage, Stem, build, static_cost
from alternas.results.probes.advisor import Swap, advice, analyse, swapped, swaps
from alternas.results.probes.fourier import analyse as fourier
from alternas.results.probes.numbers import highest
from alternas.results.probes.subject import Images, Subject
from alternas.results.probes.variance import analyse as variance
from nets import NETS, lively

PLAIN = Genotype(Stem("cifar", 8), (Stage("basic", 3, 8), Stage("basic", 3, 16, 2)))


def subject_of(net: Genotype, count: int = 24, side: int = 16) -> Subject:
    """A net that is right on all of its images, so that it has something to lose."""
    torch.manual_seed(0)
    network, x = lively(build(net, 5, side, 2)).eval(), torch.randn(count, 2, side, side)
    with torch.no_grad():
        return Subject("net", network, Images(x, network(x).argmax(1), torch.zeros(2), torch.ones(2)))


def test_what_may_be_swapped() -> None:
    assert swaps(PLAIN) == [Swap(0, 0), Swap(0, 1), Swap(0, 2), Swap(1, 1), Swap(1, 2)], "none that downsamples"
    part = replace(PLAIN, stages=(replace(PLAIN.stages[0], msa=(2,)), PLAIN.stages[1]))
    assert Swap(0, 2) not in swaps(part)


@pytest.mark.parametrize("name", NETS)
def test_every_swap_gives_a_net(name: str) -> None:
    net = NETS[name]
    for swap in swaps(net):
        changed = swapped(net, swap, net.plan((16, 16), 2).stages[swap.stage][-1].map_out)
        assert changed.key != net.key
        assert swap.block in changed.stages[swap.stage].places
        static_cost(changed, 5, 16, 2)


def test_a_swap_keeps_what_is_there_and_has_the_papers_heads() -> None:
    there = replace(PLAIN.stages[0], msa=(2,), heads=2, head_dim=4, window=2)
    one = swapped(replace(PLAIN, stages=(there, PLAIN.stages[1])), Swap(0, 0), (16, 16)).stages[0]
    assert (one.places, one.heads, one.head_dim, one.window) == ((0, 2), 2, 4, 2)
    wide = replace(PLAIN, stages=(Stage("basic", 2, 64),))
    new = swapped(wide, Swap(0, 1), (32, 32)).stages[0]
    assert (new.places, new.heads, new.head_dim, new.window) == ((1,), 3, 64, 8), "AlterNet's on 64 channels"


@pytest.mark.parametrize(
    ("at", "window"),
    [((8, 8), 0), ((4, 8), 0), ((8, 16), 8), ((16, 12), 4), ((10, 9), 0), ((14, 7), 7), ((13, 13), 0), ((12, 9), 3)],
)
def test_windows_divide_the_map(at: tuple[int, int], window: int) -> None:
    assert swapped(PLAIN, Swap(0, 0), at).stages[0].window == window


def test_the_signs_are_those_of_the_analyses() -> None:
    subject = subject_of(PLAIN)
    rows = {row["swap"]: row for row in advice(subject)}
    logs = {r["site"]: torch.tensor(r["variance"]).log() for r in variance(subject).rows}
    mine = [logs[f"stage 1 block {i}"] for i in (1, 2, 3)]
    assert rows["stage 1 block 2"]["variance_excess"] == pytest.approx(float(mine[1] - sum(mine) / 3), abs=1e-5)
    changes = {r["site"]: r["change"] for r in highest(fourier(subject).rows)}
    for name, row in rows.items():
        assert row["frequency_added"] == pytest.approx(changes[name])


def test_a_block_is_worth_what_the_net_loses_without_it() -> None:
    subject = subject_of(PLAIN)
    net = subject.net
    assert isinstance(net, Network)
    rows = {row["swap"]: row["points_lost_without"] for row in advice(subject)}

    def right() -> float:
        with torch.no_grad():
            x = subject.images.seen(subject.images.x_NCHW)
            return float((net.eval()(x).argmax(1) == subject.images.y_N).float().mean())

    whole = right()
    assert whole == 1
    block = net.stages[1][1]
    kept, block.drop_path = block.drop_path, Nothing()
    assert rows["stage 2 block 2"] == pytest.approx(100 * (whole - right()), abs=1e-4)
    assert rows["stage 2 block 2"] > 0
    block.drop_path = kept


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0 * x


def test_scores_are_mean_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"variance": [3.0, 1.0, 2.0, 0.0, 4.0], "frequency": [0.0] * 5, "loss": [-1.0, -2.0, -3.0, -4.0, 0.0]}
    monkeypatch.setattr("alternas.results.probes.advisor._signs", lambda s, n, f, name: given[name])
    rows = advice(subject_of(PLAIN))
    assert [row["swap"] for row in rows] == [
        f"stage {s} block {b}" for s, b in ((2, 3), (1, 1), (1, 2), (1, 3), (2, 2))
    ]
    assert [row["score"] for row in rows] == pytest.approx([2.5 / 3, 2 / 3, 1.25 / 3, 1.25 / 3, 0.5 / 3])


@pytest.mark.parametrize(
    ("frequency", "scores"),
    [
        ([None, 2.0, None, 1.0, None], [(1 + 0.5) / 2, (0.25 + 1 + 1) / 3, (0.5 + 0.25) / 2, 0.0, (0.75 + 0.75) / 2]),
        ([None, None, 5.0, None, None], [(1 + 0.5) / 2, (0.25 + 1) / 2, (0.5 + 0.25) / 2, 0.0, (0.75 + 0.75) / 2]),
    ],
)
def test_a_sign_that_is_not_known_counts_for_nothing(
    frequency: list[float | None], scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"variance": [4.0, 0.5, 2.0, 0.0, 3.0], "frequency": frequency, "loss": [-3.0, -1.0, -4.0, -5.0, -2.0]}
    monkeypatch.setattr("alternas.results.probes.advisor._signs", lambda s, n, f, name: given[name])
    found = {row["swap"]: row for row in advice(subject_of(PLAIN))}
    names = [f"stage {s} block {b}" for s, b in ((1, 1), (1, 2), (1, 3), (2, 2), (2, 3))]
    assert [found[name]["frequency_added"] for name in names] == frequency
    assert [found[name]["score"] for name in names] == pytest.approx(scores)


def test_costs_are_those_of_the_swapped_net() -> None:
    row = next(row for row in advice(subject_of(PLAIN)) if row["swap"] == "stage 1 block 2")
    net = replace(PLAIN, stages=(replace(PLAIN.stages[0], msa=(1,), heads=1, head_dim=24, window=8), PLAIN.stages[1]))
    before, after = static_cost(PLAIN, 5, 16, 2), static_cost(net, 5, 16, 2)
    assert (row["macs_change"], row["params_change"]) == (after.macs - before.macs, after.params - before.params)


def test_windows_are_those_of_the_stages_own_map() -> None:
    row = next(row for row in advice(subject_of(PLAIN, 4, 40)) if row["swap"] == "stage 2 block 2")
    net = replace(PLAIN, stages=(PLAIN.stages[0], replace(PLAIN.stages[1], msa=(1,), heads=1, head_dim=48, window=5)))
    assert row["macs_change"] == static_cost(net, 5, 40, 2).macs - static_cost(PLAIN, 5, 40, 2).macs


def test_maps_too_small_for_a_sign_leave_it_silent() -> None:
    rows = advice(subject_of(PLAIN, 4, 2))
    assert {row["frequency_added"] for row in rows} == {None}
    assert any(row["variance_excess"] for row in rows)


def test_a_single_block() -> None:
    net = Genotype(Stem("cifar", 8), (Stage("basic", 2, 8, msa=1, heads=1, head_dim=8, window=4),))
    found = analyse(subject_of(net))
    assert [(row["swap"], row["score"]) for row in found.rows] == [("stage 1 block 1", 1.0)]
    assert found.reading.startswith("Stage 1 block 1 is the one block that may become an MSA block.")


def test_the_net_stays_as_it_was_and_the_finding_draws() -> None:
    subject = subject_of(PLAIN)
    before = {name: value.clone() for name, value in subject.net.state_dict().items()}
    found = analyse(subject)
    found.draw(Figure())
    best = found.rows[0]
    assert (
        f"Of 5 blocks {best['swap']} should become an MSA block first, {found.rows[-1]['swap']} last" in found.reading
    )
    assert f"the variance is {math.exp(best['variance_excess']):.2f} times" in found.reading
    cost = ("costs" if best["macs_change"] > 0 else "saves", abs(best["macs_change"]))
    assert "The swap {} {:,} MACs".format(*cost) in found.reading
    assert all(torch.equal(value, before[name]) for name, value in subject.net.state_dict().items())
    assert not any(module._forward_hooks for module in subject.net.modules())


def test_nets_without_such_blocks() -> None:
    with pytest.raises(InputError, match="no conv block"):
        advice(subject_of(NETS["vit"]))
    with pytest.raises(InputError, match="alternas alone"):
        advice(replace(subject_of(PLAIN), net=nn.Flatten()))
