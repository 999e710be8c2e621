"""The last layer in closed form: scikit-learn's ridge, a destroyed layer, one that is clearly worse, and no layer."""

import dataclasses
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.utils.class_weight import compute_sample_weight
from torch import nn

from alternas.archs import Encoder, Genotype, Head, Stem, build
from alternas.archs.timm_net import TimmNet
from alternas.archs.timm_network import TimmNetwork
from alternas.results.metrics import Scores
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.probe.ridge import (
    PENALTIES,
    Axes,
    LinearHead,
    Sample,
    axes_from_pictures,
    axes_from_sums,
    weighted_sums,
)
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


@pytest.mark.parametrize("weights", ["none", "balanced"])
def test_the_layer_is_of_training_images_alone_and_its_scale_of_validation(
    tmp_path: Path, bench: MemoryLoader, weights: str
) -> None:
    """Scikit-learn's, by what the net gives its layer in eval mode; the factor by trying out many."""
    recipe = dataclasses.replace(recipes.smoke(), class_weights=weights)
    trainer = Trainer(job(tmp_path, recipe=recipe), bench)
    trainer.train_to(STEPS)
    assert trainer.scores
    trainer.refit(trainer.scores)
    net: Any = trainer.shipped
    net.eval()
    layer, logits = net.classifier, dict[str, torch.Tensor]()
    seen = list[torch.Tensor]()
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        for split in ("train", "val"):
            ((x_BCHW, y_B),) = bench.images(split, 10_000)
            logits[split] = net(x_BCHW)
    y_N = bench.data.train.y_N
    sample_weight = compute_sample_weight(weights if weights == "balanced" else None, y_N)
    f_NF = seen[0].double().numpy()
    mean_F = np.average(f_NF, axis=0, weights=sample_weight)
    sd_F = np.sqrt(np.average((f_NF - mean_F) ** 2, axis=0, weights=sample_weight))
    theirs = RidgeCV(PENALTIES).fit((f_NF - mean_F) / sd_F, 2.0 * (y_N[:, None] == np.arange(10)) - 1, sample_weight)
    their_logits = theirs.predict((f_NF - mean_F) / sd_F)
    factor = float(np.vdot(logits["train"].numpy(), their_logits) / np.vdot(their_logits, their_logits))
    np.testing.assert_allclose(logits["train"].numpy(), factor * their_logits, atol=2e-4 * factor)

    factors = np.exp(np.arange(-0.5, 0.5, 0.005))
    nll = [nn.functional.cross_entropy(logits["val"] * float(each), y_B).item() for each in factors]
    assert abs(np.log(factors[np.argmin(nll)])) < 0.02


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


def test_a_layer_that_is_a_little_worse_is_kept(
    tmp_path: Path, bench: MemoryLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own layer with noise that costs it one to three of 360 images."""
    trainer = Trainer(job(tmp_path), bench)
    trainer.train_to(STEPS)
    before: Any = trainer.scores
    net: Any = trainer.shipped
    own = {name: tensor.clone() for name, tensor in net.classifier.state_dict().items()}
    for seed in range(100):
        noise_KF = torch.randn(own["weight"].shape, generator=torch.Generator().manual_seed(seed))
        noisy_KF = (own["weight"] + 0.03 * own["weight"].std() * noise_KF).double().numpy()
        head = LinearHead(noisy_KF, own["bias"].double().numpy(), 1.0)
        refit.set_layer(net.classifier, head)
        now: Any = trainer.evaluation.scores("val")
        worse = round(360 * (before.accuracy - now.accuracy))
        net.classifier.load_state_dict(own)
        if 1 <= worse <= 3:
            break
    monkeypatch.setattr(refit, "fitted_head", lambda *_: head)
    after: Any = trainer.refit(before)
    assert 1 <= round(360 * (before.accuracy - after.accuracy)) <= 3
    assert trainer.refitted
    assert trainer.refitted.kept


def test_clearly_worse_is_by_images_that_one_alone_has_right() -> None:
    """Of 100: 4 fewer, and 8 where 30 others differ, are by chance; 8 fewer are not."""
    label_N = torch.zeros(100, dtype=torch.long)

    def scores(wrong: slice) -> Any:
        guess_N = label_N.clone()
        guess_N[wrong] = 1
        return types.SimpleNamespace(label_N=label_N, guess_N=guess_N)

    right, four, eight = (scores(slice(0, n)) for n in (0, 4, 8))
    assert not refit.clearly_worse(four, right)
    assert refit.clearly_worse(eight, right)
    assert not refit.clearly_worse(right, eight)
    assert not refit.clearly_worse(scores(slice(0, 23)), scores(slice(60, 75)))


def test_features_leave_the_net_as_it_was() -> None:
    layer = nn.Linear(4, 2)
    net = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4), layer)
    net[1].eval()
    x_BF = torch.ones(6, 4)
    f_NF, _ = refit.features(net, layer, [(x_BF, torch.arange(6))])
    torch.testing.assert_close(f_NF, x_BF / (1 + net[1].eps) ** 0.5)
    assert [module.training for module in net.modules()] == [True, True, False, True]
    assert not layer._forward_pre_hooks


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


SHAPES = [(60, 15), (60, 60), (30, 90)]  # pictures and features


def drawn(pictures: int, features: int, even: bool = False) -> Sample:
    """Correlated features far from zero, three classes, weights that differ."""
    random = np.random.default_rng(0)
    f_NF = random.normal(size=(pictures, features)) @ random.normal(size=(features, features)) + 100
    y_N = np.arange(pictures) % 3
    f_NF[:, :2] += 5 * y_N[:, None]
    weights = np.ones(pictures) if even else random.uniform(0.5, 2, pictures)
    return Sample(f_NF, 2.0 * (y_N[:, None] == np.arange(3)) - 1, weights, np.arange(pictures))


def both(sample: Sample) -> list[Axes]:
    shift_F = sample.f_NF[:5].mean(0)
    return [axes_from_sums(weighted_sums(sample, shift_F), shift_F, sample), axes_from_pictures(sample)]


def standardised(sample: Sample) -> np.ndarray:
    mean_F = np.average(sample.f_NF[sample.rows], axis=0, weights=sample.w_N)
    z_NF = sample.f_NF[sample.rows] - mean_F
    return z_NF / np.sqrt(np.average(z_NF**2, axis=0, weights=sample.w_N))


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_scikit_learn_from_sums_and_from_pictures(shape: tuple[int, int]) -> None:
    sample = drawn(*shape)
    z_NF = standardised(sample)
    for penalty in (10.0, 1000.0):
        theirs = Ridge(penalty).fit(z_NF, sample.t_NK, sample_weight=sample.w_N).predict(z_NF)
        for axes in both(sample):
            np.testing.assert_allclose(axes.head(penalty).logits(sample.f_NF, sample.rows), theirs, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_leave_one_out_is_exact(shape: tuple[int, int]) -> None:
    sample = drawn(*shape)
    z_NF = standardised(sample)
    theirs = RidgeCV(PENALTIES, store_cv_results=True).fit(z_NF, sample.t_NK, sample_weight=sample.w_N)
    out = 7
    rest = np.delete(sample.rows, out)
    left = Ridge(PENALTIES[0]).fit(z_NF[rest], sample.t_NK[rest], sample_weight=sample.w_N[rest])
    for axes in both(sample):
        for number, penalty in enumerate(PENALTIES):
            ours = axes.w_M[:, None] * axes.left_out_errors(penalty) ** 2
            np.testing.assert_allclose(ours, theirs.cv_results_[:, :, number], rtol=1e-6, atol=1e-10)
        error_K = sample.t_NK[out] - left.predict(z_NF[out : out + 1])[0]
        np.testing.assert_allclose(axes.left_out_errors(PENALTIES[0])[out], error_K, atol=1e-8)
        assert axes.best().penalty == theirs.alpha_


def test_features_that_are_constant_have_no_weight() -> None:
    sample = drawn(40, 10)
    sample.f_NF[:, 3], sample.f_NF[:, 4] = 0, 0.1 + np.arange(40) * 1e-9
    for axes in both(sample):
        assert not axes.best().weight_KF[:, 3:5].any()
        assert np.isfinite(axes.best().weight_KF).all()


def test_sums_of_a_part_are_taken_off() -> None:
    sample = drawn(60, 15)
    shift_F = sample.f_NF[:5].mean(0)
    parts = [Sample(sample.f_NF, sample.t_NK, sample.w_N, rows) for rows in (sample.rows[:20], sample.rows[20:])]
    whole, first, rest = (weighted_sums(each, shift_F) for each in (sample, *parts))
    np.testing.assert_allclose(whole - first, rest, atol=1e-8)
