"""All cuts of a net judged from one forward pass: what is judged, in memory and from a file, and what cannot be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor, nn

from alternas.archs.cut_network import CutNetwork, cut_trunk
from alternas.archs.errors import OperationError
from alternas.archs.timm.cuts import pooled
from alternas.archs.timm_net import CutNet
from alternas.results.metrics import scores
from alternas.results.ranking.metric import Metric
from alternas.search.probe import features
from alternas.search.probe import probe as probing
from alternas.search.probe.crossval import Judged, cross_validate, labelled
from alternas.search.probe.features import FeatureMatrix
from alternas.search.probe.probe import ProbeResult, flops_of, metrics_of, probe

CLASSES, ACCURACY = ["a", "b", "c"], Metric()
Y_N = np.arange(90) % 3


class Net(nn.Module):
    """Three random convs; the last leaves one place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 6, 3), nn.Conv2d(6, 8, 5)])

    def maps(self, x_BCHW: Tensor) -> list[Tensor]:
        maps = []
        for block in self.blocks:
            x_BCHW = block(x_BCHW).relu()
            maps.append(x_BCHW)
        return maps


def pictures() -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(90, 3, 15, 15, generator=draw) + 0.3 * torch.from_numpy(Y_N)[:, None, None, None]


def judged(net: Net, metric: Metric = ACCURACY, folder: Path | None = None) -> list[Any]:
    return list(probe(net.maps, pictures().split(32), labelled(Y_N, 3), metric, CLASSES, folder))


def test_each_block_is_judged_with_each_pooling() -> None:
    net, found = Net(), judged(Net())
    named = [(each.block, each.pooling) for each in found]
    assert named == [
        *((0, pooling) for pooling in ("mean", "mean-max", "grid")),
        *((1, pooling) for pooling in ("mean", "mean-max", "grid", "all")),
        *((2, pooling) for pooling in ("mean", "all")),  # of one place, which is its mean, its maximum and its grid
    ]
    with torch.no_grad():
        first, second, _ = net.maps(pictures())
    mean_max = torch.cat([second.mean((2, 3)), second.amax((2, 3))], 1).numpy()
    both = torch.cat([first.mean((2, 3)), second.mean((2, 3))], 1).numpy()
    for f_NF, result in ((mean_max, found[4]), (both, found[6])):
        expected = cross_validate(f_NF, labelled(Y_N, 3))
        np.testing.assert_allclose(result.logits_NK, expected.logits_NK, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(result.head.weight_KF, expected.head.weight_KF, rtol=1e-3, atol=1e-4)
        assert result.accuracy == result.score == (result.logits_NK.argmax(1) == Y_N).mean()


def test_features_in_a_file_are_those_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_memory = judged(Net())
    monkeypatch.setattr(features, "MEMORY_LIMIT", 0)
    found = judged(Net(), folder=tmp_path)
    for a, b in zip(in_memory, found, strict=True):
        np.testing.assert_allclose(a.logits_NK, b.logits_NK, rtol=1e-3, atol=1e-4)
    assert not list(tmp_path.iterdir())


def test_features_that_are_not_finite_cost_their_cuts_alone() -> None:
    net = Net()
    nn.init.constant_(net.blocks[1].bias, float("inf"))
    found = judged(net)
    assert [(each.block, each.pooling) for each in found if isinstance(each, ProbeResult)] == [
        (0, "mean"),
        (0, "mean-max"),
        (0, "grid"),
    ]
    assert {each.reason for each in found[3:]} == {"features that are not finite"}


def test_of_many_pictures_wide_features_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "MAX_AXES", 7)
    assert [(each.block, each.pooling) for each in judged(Net())] == [(0, "mean"), (1, "mean"), (2, "mean")]


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "MEMORY_LIMIT", 0)
    matrix = FeatureMatrix(90, Path("/dev/full"))
    with pytest.raises(OperationError, match="/dev/full: cannot be written"):
        matrix.fill(Net().maps, pictures().split(32))


def test_the_metric_is_the_score() -> None:
    for metric in (Metric("balanced_accuracy"), Metric("auroc"), Metric("nll", minimize=True)):
        result = judged(Net(), metric)[0]
        theirs = scores(torch.from_numpy(result.logits_NK), torch.from_numpy(Y_N), 3)
        value = getattr(theirs, metric.name)
        assert result.score == pytest.approx(metric.score(value))
        assert metrics_of(result.logits_NK, Y_N, metric, CLASSES)["auroc"] == pytest.approx(theirs.auroc)


def test_balanced_metrics_weigh_classes_alike() -> None:
    few = labelled((np.arange(90) % 6 == 0).astype(int), 2)
    net, metrics = Net(), (ACCURACY, Metric("balanced_accuracy"))
    with torch.no_grad():
        f_NF = net.maps(pictures())[0].mean((2, 3)).numpy()
    for metric, balanced in zip(metrics, (False, True), strict=True):
        result: Any = next(probe(net.maps, pictures().split(32), few, metric, CLASSES[:2]))
        expected = cross_validate(f_NF, few, balanced).logits_NK
        np.testing.assert_allclose(result.logits_NK, expected, rtol=1e-3, atol=1e-4)


def test_the_closed_form_has_the_threads_that_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def spied(*how: Any) -> Judged:
        seen.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return cross_validate(*how)

    monkeypatch.setattr(probing, "cross_validate", spied)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(2, "blas"):
            judged(Net())
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


def test_the_head_stands_on_the_cut_net() -> None:
    """Of a net of timm, with the pooling whose features come from several maps."""
    name, block, x_BCHW = "mobilenetv3_small_050", 3, torch.rand(30, 3, 32, 32)
    trunk = cut_trunk(name, 32)
    found: list[Any] = list(probe(trunk, x_BCHW.split(8), labelled(Y_N[:30], 3), ACCURACY, CLASSES))
    head = next(each.head for each in found if (each.block, each.pooling) == (block, "all"))
    net = CutNetwork(CutNet(name, block, 32, "all"), 3, state=trunk.model.state_dict()).eval()
    net.head.load_state_dict({"weight": torch.tensor(head.weight_KF), "bias": torch.tensor(head.bias_K)})
    with torch.no_grad():
        features_NF = pooled(trunk(x_BCHW)[: block + 1], "all").numpy()
        logits = net(x_BCHW).numpy()
    np.testing.assert_allclose(logits, head.logits(features_NF, np.arange(30)), rtol=1e-3, atol=1e-3)


def test_a_forward_pass_takes_two_flops_a_mac() -> None:
    assert flops_of(1000, 90) == 180_000
