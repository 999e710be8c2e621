"""The last layer in closed form: scikit-learn's ridge, a destroyed layer, one that is clearly worse, and no layer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import RidgeCV
from sklearn.utils.class_weight import compute_sample_weight
from torch import nn

from alternas.archs import Encoder, Genotype, Head, Stem, build
from alternas.archs.timm_net import TimmNet
from alternas.archs.timm_network import TimmNetwork
from alternas.results.metrics import Scores
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.probe.ridge import PENALTIES, LinearHead
from alternas.search.training import recipes, refit
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import Trainer, train
from alternas.spaces import get

STEPS = 30


@pytest.fixture(scope="module")
def bench() -> MemoryLoader:
    return MemoryLoader(load(DataConfig("digits")), torch.device("cpu"))


def job(folder: Path, **changes: Any) -> TrainJob:
    net, files = get("resnet", 8).baselines()[0], (str(folder / "c.pt"), str(folder / "w.safetensors"))
    given = TrainJob(0, net, recipes.smoke(), 0, STEPS, STEPS, *files, curve_points=2)
    return dataclasses.replace(given, **changes)


def trained(given: TrainJob, bench: MemoryLoader) -> JobResult:
    result = list(train(given, bench))[-1]
    assert isinstance(result, JobResult)
    assert result.status == "ok"
    return result


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("shape", [(90, 20), (30, 50)])
def test_the_layer_is_scikit_learns_ridge(shape: tuple[int, int], balanced: bool) -> None:
    """Penalty by leave-one-out, on standardised features, classes weighted as `compute_sample_weight` has it."""
    random = np.random.default_rng(0)
    y_N = np.arange(shape[0]) % 5 // 2  # classes of unlike size
    f_NF = (random.normal(size=shape) + y_N[:, None] / 2).astype(np.float32)
    weights = compute_sample_weight("balanced", y_N) if balanced else np.ones(len(y_N))
    mean_F = np.average(f_NF, axis=0, weights=weights)
    z_NF = (f_NF - mean_F) / np.sqrt(np.average((f_NF - mean_F) ** 2, axis=0, weights=weights))
    theirs = RidgeCV(PENALTIES).fit(z_NF, 2.0 * (y_N[:, None] == np.arange(3)) - 1, sample_weight=weights)
    head = refit.fitted_head(torch.from_numpy(f_NF), torch.from_numpy(y_N), 3, balanced)
    assert head is not None
    assert head.penalty == theirs.alpha_
    layer = nn.Linear(shape[1], 3)
    refit.set_layer(layer, head)
    logits = layer(torch.from_numpy(f_NF)).detach().numpy()
    np.testing.assert_allclose(logits, theirs.predict(z_NF), atol=1e-4)


def test_a_destroyed_layer_is_given_back(tmp_path: Path, bench: MemoryLoader) -> None:
    """Of the averaged net, which is what is kept; with sensible probabilities."""
    trainer = Trainer(job(tmp_path), bench)
    trainer.train_to(STEPS)
    before = trainer.scores
    net: Any = trainer.shipped
    with torch.no_grad():
        net.classifier.weight.normal_()
    broken = trainer.evaluation.scores("val")
    after = trainer.refit(broken)
    assert isinstance(before, Scores)
    assert isinstance(after, Scores)
    assert isinstance(broken, Scores)
    assert broken.accuracy < before.accuracy < after.accuracy
    assert after.nll < before.nll


def test_the_net_that_is_kept_has_the_layer_and_its_images_count(tmp_path: Path, bench: MemoryLoader) -> None:
    own = job(tmp_path / "own", recipe=dataclasses.replace(recipes.smoke(), refit=False))
    plain, ours = trained(own, bench), trained(job(tmp_path / "ours"), bench)
    assert ours.curve == plain.curve, "the curve is of the layer that is trained"
    assert plain.accuracy is not None
    assert ours.accuracy is not None
    assert ours.accuracy > plain.accuracy == plain.curve[-1].accuracy
    assert ours.how["last_layer"] == "closed form"
    assert "last_layer" not in plain.how
    assert ours.how["evaluated"] - plain.how["evaluated"] == 1078 + 2 * 360, "training images, and validation twice"
    net = build(own.genotype, 10, (8, 8), 1).eval()
    net.load_state_dict(load_file(tmp_path / "ours" / "w.safetensors"))
    (x, y), *_ = bench.images("val", 1000)
    assert (net(x).argmax(1) == y).double().mean().item() == pytest.approx(ours.accuracy)
    theirs = load_file(tmp_path / "own" / "w.safetensors")
    same = [name for name, tensor in net.state_dict().items() if torch.equal(tensor, theirs[name])]
    assert set(theirs) - set(same) == {"head.weight", "head.bias"}


def test_a_layer_that_is_clearly_worse_is_not_kept(
    tmp_path: Path, bench: MemoryLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained(job(tmp_path / "a", recipe=dataclasses.replace(recipes.smoke(), refit=False)), bench)
    worthless = LinearHead(np.zeros((10, 8)), np.arange(10.0), 1.0)
    monkeypatch.setattr(refit, "fitted_head", lambda *_: worthless)
    ours = trained(job(tmp_path / "b"), bench)
    assert (ours.accuracy, ours.metrics, ours.how["last_layer"]) == (plain.accuracy, plain.metrics, "trained")


def test_features_that_are_no_numbers_leave_the_layer_as_it_is(bench: MemoryLoader) -> None:
    f_NF, y_N = torch.rand(20, 4), torch.arange(20) % 2
    assert refit.fitted_head(f_NF, y_N, 2, False) is not None
    f_NF[3, 2] = torch.inf
    assert refit.fitted_head(f_NF, y_N, 2, False) is None


def test_nets_of_timm_have_one_too_and_masked_patches_none(tmp_path: Path, bench: MemoryLoader) -> None:
    net = TimmNetwork(TimmNet("mobilenetv3_small_050"), 3, 32, 3)
    layer = refit.last_layer(net)
    assert layer is net.model.classifier
    vit = Genotype(Stem("none"), (), Encoder(16, 2, 2, patch=2), Head("token"))
    assert "last_layer" not in trained(job(tmp_path, genotype=vit, task="patches"), bench).how
