"""A worker's probe of one of timm's small nets, and a search among its cuts from the command line."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor, nn

from alternas.archs import OperationError
from alternas.archs.cut_network import CutNetwork, cut_trunk
from alternas.archs.timm.cuts import pooled
from alternas.archs.timm.models import create
from alternas.archs.timm.weights_files import NetWeights
from alternas.archs.timm_net import CutNet, net_cost, picture_moments
from alternas.archs.weights import fill
from alternas.results.metrics import scores
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.quantities import QUANTITIES, Limits, Quantity
from alternas.results.runs.status import Status
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.probe import evaluate
from alternas.search.probe import probe as probing
from alternas.search.probe.crossval import Judged, cross_validate, labelled
from alternas.search.probe.evaluate import probe_job
from alternas.search.probe.job import ProbeJob
from alternas.search.probe.probe import FeatureMatrix, metrics_of, probe
from alternas.search.training.failures import failure
from alternas.search.training.loaders import open_loader
from command_line import Run

NET = "test_efficientnet.r160_in1k"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def weights_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    for name in (NET, "test_resnet.r160_in1k"):
        torch.manual_seed(0)
        save_file(create(name).state_dict(), folder / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module")
def digits() -> DataSet:
    data = load(DataConfig("digits"))
    mean, std = picture_moments(data.mean, data.std, data.white_level)
    few = range(0, len(data.train), 4)
    return replace(data, mean=mean, std=std, train=data.train.at([*few]), val=data.val.at([*range(80)]))  # pyright: ignore[reportArgumentType]


def job(weights_dir: Path, tmp_path: Path, **more: Any) -> ProbeJob:
    return ProbeJob(
        **({"trial": 0, "net": NET, "side": 32, "weights_dir": str(weights_dir), "weights": str(tmp_path)} | more)
    )


def test_every_cut_is_judged_and_the_front_has_weights(digits: DataSet, weights_dir: Path, tmp_path: Path) -> None:
    """Costs are those of the nets as they are built; weights give pictures the classes that the probe counted."""
    result = probe_job(job(weights_dir, tmp_path), open_loader(digits, CPU, 1))
    assert result.status == Status.OK
    assert [cut.block for cut in result.cuts] == sorted(cut.block for cut in result.cuts)
    assert len(result.cuts) > 3
    best = max(result.cuts, key=lambda cut: cut.accuracy)
    assert best.accuracy > 0.6  # random weights and a classifier in closed form; guessing has 0.1
    net = CutNet(NET, best.block, 32, best.pooling)
    cost = net_cost(net, 10, 8)
    assert cost == best.cost
    network = CutNetwork(net, 10, 1)
    fill(network, tmp_path / f"{net.key}.safetensors")
    assert sum(p.numel() for p in network.parameters()) == best.cost.params
    x_BCHW, y_B = next(iter(open_loader(digits, CPU, 1).images("train", 200)))
    with torch.no_grad():
        right = (network.eval()(x_BCHW).argmax(1) == y_B).float().mean().item()
    assert right >= best.accuracy  # on pictures that the classifier was fitted on
    assert {cut.block for cut in result.cuts if not cut.sha256}.isdisjoint({best.block})


def test_limits_leave_out_deeper_cuts(
    digits: DataSet, weights_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any cost that follows from a cut's totals."""
    loader = open_loader(digits, CPU, 1)
    every = probe_job(job(weights_dir, tmp_path), loader).cuts
    most = every[2].cost.macs
    within = probe_job(job(weights_dir, tmp_path, limits=Limits({"macs": most})), loader).cuts
    assert 0 < len(within) < len(every)
    assert all(cut.cost.macs <= most for cut in within)
    weights = Quantity("weight_bytes", "weights", formula=lambda costs: 4 * costs["params"])
    monkeypatch.setitem(QUANTITIES, "weight_bytes", weights)
    limits = Limits({"weight_bytes": 4 * every[2].cost.params})
    cheap = probe_job(job(weights_dir, tmp_path, limits=limits, objective="weight_bytes"), loader).cuts
    assert 0 < len(cheap) < len(every)
    assert all(cut.cost.params <= every[2].cost.params for cut in cheap)
    assert probe_job(job(weights_dir, tmp_path, limits=Limits({"macs": 1})), loader).cuts == ()


def test_cuts_that_the_runs_front_dominates_leave_no_weights(
    digits: DataSet, weights_dir: Path, tmp_path: Path
) -> None:
    result = probe_job(job(weights_dir, tmp_path, front=((1.0, 1.0),)), open_loader(digits, CPU, 1))
    assert not [cut for cut in result.cuts if cut.sha256]
    assert not [*tmp_path.iterdir()]


def test_broken_weights_are_one_line(digits: DataSet, tmp_path: Path) -> None:
    (tmp_path / f"{NET}.safetensors").write_bytes(b"\0" * 100)
    result = probe_job(job(tmp_path, tmp_path), open_loader(digits, CPU, 1))
    assert result.status == Status.ERROR
    assert f"{NET}.safetensors: is no safetensors file" in result.error


def test_a_download_onto_a_full_disk_is_the_disks_fault(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the search, which the same command resumes; else the net would be left out for good."""

    def full(*words: Any) -> NetWeights:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            raise OperationError("timm: the weights cannot be had") from None

    monkeypatch.setattr(evaluate, "find_weights", full)
    monkeypatch.setattr(evaluate, "_pretrained_state", evaluate._pretrained_state.__wrapped__)
    asked = job(tmp_path, tmp_path)
    with pytest.raises(OperationError) as caught:
        probe_job(asked, open_loader(digits, CPU, 1))
    assert failure(asked, caught.value).status == Status.FULL


@pytest.mark.slow
def test_a_search_among_cuts_from_the_command_line(served: Run, weights_dir: Path, tmp_path: Path) -> None:
    words = ["search", "pretrained", "--data", "digits", "--weights-dir", str(weights_dir), "--name", "cuts", "--json"]
    words += ["--nets", "test_efficientnet,test_resnet", "--max-macs", "3M", "--polish", "0.85"]
    code, out, err = served(tmp_path, *words)
    assert code == 0, err
    front = json.loads(out)
    assert {row["weights"] for row in front} <= {"frozen", "finetuned"}
    assert b'"finetuned"' in (tmp_path / "runs/cuts/records.jsonl").read_bytes()
    assert all(row["interval"] for row in front)
    records = (tmp_path / "runs/cuts/records.jsonl").read_bytes()
    assert json.loads(served(tmp_path, *words)[1]) == front  # resumed: nothing is left to do
    assert (tmp_path / "runs/cuts/records.jsonl").read_bytes() == records
    assert served(tmp_path, "export", "cuts", "--out", "best")[0] == 0
    assert (tmp_path / "best" / "model.py").exists()


@pytest.mark.slow
def test_a_search_among_cuts_by_measured_latency(served: Run, weights_dir: Path, tmp_path: Path) -> None:
    words = ["search", "pretrained", "--data", "digits", "--weights-dir", str(weights_dir), "--name", "cuts", "--json"]
    words += ["--nets", "test_efficientnet", "--max-macs", "3M", "--objective", "latency_ms", "--polish", "0"]
    code, out, err = served(tmp_path, *words)
    assert code == 0, err
    front = json.loads(out)
    times = [row["latency_ms"] for row in front]
    assert times == sorted(times)
    assert all(times)
    records = (tmp_path / "runs/cuts/records.jsonl").read_bytes()
    assert json.loads(served(tmp_path, *words)[1]) == front
    assert (tmp_path / "runs/cuts/records.jsonl").read_bytes() == records


@pytest.mark.parametrize(("words", "line"), [
    (["--weights-dir", "nowhere"], "weights-dir: must be a folder"),
    (["--nets", "resnet81"], "no net of timm that has weights is called 'resnet81'"),
    (["--supernet", "8"], "supernet: space 'pretrained' judges nets without training them"),
    (["--nets", "mine:3"], "'mine:3' is none of timm:NAME, FILE.safetensors"),
    (["--nets", "gone.pth"], "nets: no such file of weights"),
    (["--trials", "3"], "trials: a probe judges all cuts of a net at once"),
])  # fmt: skip
def test_a_wrong_search_among_cuts_is_one_line(alternas: Any, tmp_path: Path, words: list[str], line: str) -> None:
    code, _, err = alternas("search", "pretrained", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert line in err


def test_nets_without_weights_are_one_line(alternas: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("alternas.archs.timm.weights_files.why_missing", lambda config: "the hub does not answer")
    code, _, err = alternas("search", "pretrained", "--nets", "test_resnet", "--weights-dir", str(tmp_path))
    assert code == 2
    assert "the weights of none of 1 nets can be had" in err


def test_nets_are_of_space_pretrained_alone(alternas: Any) -> None:
    code, _, err = alternas("search", "resnet", "--nets", "levit_128s")
    assert (code, "nets: is of space 'pretrained'" in err) == (2, True)


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


def judged(net: Net, metric: Metric = ACCURACY) -> list[Any]:
    return list(probe(net.maps, pictures().split(32), labelled(Y_N, 3), metric, CLASSES))


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


def test_features_that_are_not_finite_cost_their_cuts_alone() -> None:
    net = Net()
    nn.init.constant_(net.blocks[1].bias, float("inf"))
    found = judged(net)
    assert [(each.block, each.pooling) for each in found] == [(0, "mean"), (0, "mean-max"), (0, "grid")]


def test_of_many_pictures_wide_features_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "MAX_AXES", 7)
    assert [(each.block, each.pooling) for each in judged(Net())] == [(0, "mean"), (1, "mean"), (2, "mean")]


def test_a_full_disk_is_one_line() -> None:
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
