"""Few-shot accuracy of features: the probe against scikit-learn, draws, and chance where there is nothing."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler, normalize
from torch import Tensor

from alternas.archs import InputError, build
from alternas.results.analysis.linear_probe import HELD_OUT, PENALTIES, Labelled, draw_shots, hit_rate, shot_accuracy
from alternas.search.data.readers.synthetic import digit_arrays
from alternas.search.data.splits import three_ways
from alternas.search.training import episodes as probe
from alternas.search.training.episodes import episode_accuracies, episode_table
from alternas.search.training.refit import features
from nets import NETS, lively

HEADS = ("basic", "hybrid", "vit", "vit pooled", "hidden head", "hidden token head")


@pytest.fixture(scope="module")
def digits() -> tuple[Labelled, Labelled]:
    """Train and test: the pixels themselves as features."""
    x_NCHW, y_N = digit_arrays()
    x_ND = torch.from_numpy(x_NCHW).flatten(1).float()
    train, _, test = three_ways(y_N)
    return tuple(Labelled(x_ND[at], torch.from_numpy(y_N[at])) for at in (train, test))  # pyright: ignore


def noise(images: int, width: int, classes: int) -> Labelled:
    """Features that know nothing of the classes."""
    generator = torch.Generator().manual_seed(images)
    return Labelled(torch.randn(images, width, generator=generator), torch.arange(images) % classes)


def near(found: Tensor, chance: float) -> bool:
    """Within 4 standard errors of chance."""
    return abs(found.mean().item() - chance) <= 4 * found.std().item() / math.sqrt(len(found)) + 1e-9


@pytest.fixture(autouse=True)
def global_random_state_rests() -> Iterator[None]:
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    yield
    assert torch.equal(before, torch.get_rng_state())
    assert (numbers == np.random.get_state()[1]).all()


@pytest.mark.parametrize("labels", [range(10), (3, 8)])
@pytest.mark.parametrize("images", [40, 1000])
def test_hits_are_those_of_the_closed_form(
    digits: tuple[Labelled, Labelled], images: int, labels: tuple[int, ...]
) -> None:
    train, test = digits
    keep = torch.isin(train.y_N, torch.tensor(labels))
    known = Labelled(train.f_ND[keep][:images], train.y_N[keep][:images])
    x_ND, others_ND = known.f_ND.double().numpy(), test.f_ND.double().numpy()
    targets_NK = 2.0 * (known.y_N.numpy()[:, None] == np.array(labels)) - 1
    centred_ND = x_ND - x_ND.mean(0)
    weights_DK = np.linalg.solve(centred_ND.T @ centred_ND + 10.0 * np.eye(x_ND.shape[1]), centred_ND.T @ targets_NK)
    answers_NK = (others_ND - x_ND.mean(0)) @ weights_DK + targets_NK.mean(0)
    wanted = np.array(labels)[answers_NK.argmax(1)] == test.y_N.numpy()
    assert hit_rate(known, test, 10.0) == wanted.mean()


@pytest.mark.parametrize(("shots", "seed"), [(1, 1), (1, 3), (4, 3), (60, 3)])
def test_the_probe_is_its_description(digits: tuple[Labelled, Labelled], shots: int, seed: int) -> None:
    """Standardised by the shots, the penalty by held-out images (some equally good), all of it with scikit-learn."""
    train, test = digits
    drawn, held_out = draw_shots(train, shots, seed)
    scale = StandardScaler().fit(drawn.f_ND.double().numpy())
    targets = 2.0 * np.eye(10)[drawn.y_N.numpy()] - 1

    def accuracy(penalty: float, on: Labelled) -> float:
        net = Ridge(alpha=penalty).fit(scale.transform(drawn.f_ND.double().numpy()), targets)
        guess = net.predict(scale.transform(on.f_ND.double().numpy())).argmax(1)
        return float(np.mean(guess == on.y_N.numpy()))

    found = [accuracy(penalty, held_out) for penalty in PENALTIES]
    chosen = max(penalty for penalty, each in zip(PENALTIES, found, strict=True) if each == max(found))
    # STD_FLOOR may tip one image of 359.
    assert shot_accuracy(train, test, shots, seed) == pytest.approx(accuracy(chosen, test), abs=0.004)


@pytest.mark.parametrize("name", HEADS)
def test_features_times_the_heads_weights_are_the_logits(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, x_NCHW, y_N = lively(build(NETS[name], 5, 16, 2, dropout=0.5)), torch.randn(7, 2, 16, 16), torch.arange(7)
    list(net.stages.modules())[-1].eval()  # a net may be in both modes
    modes, buffers = [m.training for m in net.modules()], [b.clone() for b in net.buffers()]
    with pytest.raises(RuntimeError):
        features(net, net.classifier, [(torch.zeros(1, 3, 16, 16), torch.zeros(1))])
    f_ND, found_N = features(net, net.classifier, zip(x_NCHW.split(3), y_N.split(3), strict=True))
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(one, two) for one, two in zip(net.buffers(), buffers, strict=True))
    assert not any(m._forward_pre_hooks for m in net.modules())
    assert (f_ND.dtype, f_ND.requires_grad, found_N.tolist()) == (torch.float32, False, y_N.tolist())
    last = net.head if isinstance(net.head, torch.nn.Linear) else net.head[-1]
    torch.testing.assert_close(f_ND @ last.weight.T + last.bias, net.eval()(x_NCHW))


def test_draws_are_nested_and_apart() -> None:
    """Labels are no run from 0, one class has fewer images than are held out, and a feature is its image's number."""
    y_N = torch.tensor([2, 7, 9, 9]).repeat(60)[torch.from_numpy(np.random.default_rng(0).permutation(240))][:-30]
    images, sizes, before = Labelled(torch.arange(210.0)[:, None], y_N), torch.bincount(y_N), set()
    for shots in (1, 3, 20):
        drawn, held_out = draw_shots(images, shots, 5)
        now, others = (set(part.f_ND.flatten().int().tolist()) for part in (drawn, held_out))
        assert before < now
        assert not now & others
        assert torch.bincount(drawn.y_N, minlength=10).tolist() == [shots * (label in (2, 7, 9)) for label in range(10)]
        wanted = (sizes - shots * (sizes > 0)).clamp(max=HELD_OUT)
        assert torch.bincount(held_out.y_N).tolist() == wanted.tolist()
        assert all(y_N[int(f)] == y for f, y in zip(drawn.f_ND, drawn.y_N, strict=True))
        before = now
    assert not torch.equal(draw_shots(images, 20, 5)[0].f_ND, draw_shots(images, 20, 6)[0].f_ND)


def test_support_and_queries_are_apart() -> None:
    """A feature is nothing but its image's number: right guesses are of images seen before. Every image is used."""
    pool = Labelled(torch.eye(125), torch.arange(125) % 5)
    assert near(episode_accuracies(pool, 5, 10, count=40), 1 / 5)


def test_the_interval_is_that_of_the_mean(digits: tuple[Labelled, Labelled]) -> None:
    (row,) = episode_table(digits[0], (5,), (2,), 30, 1)
    found = episode_accuracies(digits[0], 5, 2, count=30, seed=1).numpy()
    low, high = scipy.stats.t.interval(0.95, 29, found.mean(), scipy.stats.sem(found))
    assert (row["mean"], row["low"], row["high"], row["n"]) == (*map(pytest.approx, (found.mean(), low, high)), 30)


def test_the_interval_stays_between_0_and_1(monkeypatch: pytest.MonkeyPatch, digits: tuple[Labelled, Labelled]) -> None:
    monkeypatch.setattr(probe, "episode_accuracies", lambda *_: torch.tensor([0.0, 1, 1], dtype=torch.double))
    (row,) = episode_table(digits[0], (5,), (2,), 3, 1)
    assert (row["low"], row["high"]) == (0.0, 1.0)
    monkeypatch.setattr(probe, "episode_accuracies", lambda *_: torch.ones(4, dtype=torch.double))
    (row,) = episode_table(digits[0], (5,), (2,), 4, 1)
    assert row["low"] < 1, "right every time, of 75 questions each"


@pytest.mark.parametrize("ways", [2, 4])
def test_an_episode_is_its_description(ways: int) -> None:
    """With two images a class all episodes there are can be written out; each is as likely as another."""
    random, every = np.random.default_rng(0), []
    f_ND = 5 + random.normal(size=(8, 6)) + 0.8 * np.repeat(random.normal(size=(4, 6)), 2, axis=0)
    for labels in itertools.combinations(range(4), ways):
        for choice in itertools.product(range(2), repeat=ways):
            support = f_ND[[2 * label + at for label, at in zip(labels, choice, strict=True)]]
            query = f_ND[[2 * label + 1 - at for label, at in zip(labels, choice, strict=True)]]
            known, asked = normalize(support - support.mean(0)), normalize(query - support.mean(0))
            fit = Ridge(alpha=probe.EPISODE_PENALTY).fit(known, 2 * np.eye(ways) - 1)
            every.append(float(np.mean(fit.predict(asked).argmax(1) == np.arange(ways))))
    pool = Labelled(torch.from_numpy(f_ND), torch.arange(8) // 2)
    found = episode_accuracies(pool, ways, 1, 1, count=400)
    assert set(found.tolist()) == set(every)
    assert near(found, np.mean(every).item())


def test_episodes_are_a_function_of_their_seed(digits: tuple[Labelled, Labelled]) -> None:
    found = episode_accuracies(digits[0], 5, 1, count=12, seed=4)
    assert torch.equal(found, episode_accuracies(digits[0], 5, 1, count=12, seed=4))
    assert torch.equal(found[:5], episode_accuracies(digits[0], 5, 1, count=5, seed=4))
    assert not torch.equal(found, episode_accuracies(digits[0], 5, 1, count=12, seed=5))
    assert len(set(found.tolist())) > 3


def test_errors_name_rule_and_value() -> None:
    train, test = noise(30, 3, 3), noise(30, 3, 4)
    for on, shots, said in (
        (train, 11, "11 shots need 11 training images of class 0, there are 10"),
        (test, 1, "1 shots need 1 training images of class 3, there are 0"),
        (train, 0, "shots must be a whole number from 1 .* got 0"),
    ):
        with pytest.raises(InputError, match=rf"^probe: {said}$"):
            shot_accuracy(train, on, shots, 0)
    with pytest.raises(InputError, match=r"^episodes: ways must be at most the pool's classes, got 4 of 3$"):
        episode_accuracies(train, 4, 1)
    short = Labelled(test.f_ND, test.y_N + 5)
    with pytest.raises(InputError, match=r"^episodes: 3 shots and 5 queries need 8 images of class 7, there are 7$"):
        episode_accuracies(short, 2, 3, 5)
    for changes in ({"ways": 1}, {"shots": 0}, {"queries": 0}, {"count": 1}, {"seed": -1}):
        ((name, value),) = changes.items()
        with pytest.raises(InputError, match=rf"^episodes: {name} must be .* got {value}$"):
            episode_accuracies(train, **({"ways": 2, "shots": 1} | changes))
    with pytest.raises(InputError, match=r"^probe: features must be finite, those of 2 of 3 images are not$"):
        Labelled(torch.tensor([[1.0, math.inf], [2, 3], [math.nan, 1]]), torch.arange(3))
