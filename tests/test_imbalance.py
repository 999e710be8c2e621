"""Recipes for classes that are not alike: class weights against closed forms, the balanced sampler by counting."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from alternas.archs import InputError
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training.loaders import MemoryLoader, balanced, chosen_places, generator_of
from alternas.search.training.optim import Gradients
from alternas.search.training.recipe import Recipe
from alternas.search.training.task import Task, class_weights, loss_of

CPU = torch.device("cpu")
WEIGHTED = replace(recipes.get("smoke"), class_weights="balanced")
SAMPLED = replace(recipes.get("smoke"), balanced_sampler=True)
Y = np.repeat([0, 1, 3], [70, 20, 10])  # no image of class 2


@pytest.fixture(scope="module")
def uneven() -> DataSet:
    """Digits with a tenth of the images of 1 and none of 7."""
    data = load(DataConfig("digits"))
    y_N = data.train.y_N
    few = np.flatnonzero(y_N == 1)[::10]
    return replace(data, train=data.train.at(np.sort(np.append(np.flatnonzero((y_N != 1) & (y_N != 7)), few))))


def test_weights_are_scikit_learns() -> None:
    weight_K = class_weights(WEIGHTED, Y, 4)
    assert weight_K is not None
    expected = compute_class_weight("balanced", classes=np.array([0, 1, 3]), y=Y)
    assert weight_K.tolist() == pytest.approx([*expected[:2], 0, expected[2]])
    assert class_weights(recipes.get("smoke"), Y, 4) is None


def test_losses_are_weighed_by_class() -> None:
    torch.manual_seed(0)
    logits, y, weight_K = torch.randn(12, 4).double(), torch.tensor([0, 1, 3] * 4), class_weights(WEIGHTED, Y, 4)
    assert weight_K is not None
    plain = replace(WEIGHTED, label_smoothing=0.0)
    whole = F.cross_entropy(logits, y, weight=weight_K.double(), reduction="sum") / 12
    assert loss_of(plain, logits, y, weight_K).item() == pytest.approx(whole.item())
    binary, yes = replace(plain, loss="binary"), F.one_hot(y, 4).double()
    each = -(yes * F.logsigmoid(logits) + (1 - yes) * F.logsigmoid(-logits)).mean(1)
    assert loss_of(binary, logits, y, weight_K).item() == pytest.approx((weight_K[y] * each).mean().item())
    for recipe in (plain, binary, WEIGHTED):
        assert loss_of(recipe, logits, y, torch.ones(4)).item() == pytest.approx(loss_of(recipe, logits, y).item())
        assert loss_of(recipe, logits, yes, weight_K) == pytest.approx(loss_of(recipe, logits, y, weight_K))


def test_mixed_images_have_the_mean_weight_of_their_classes() -> None:
    torch.manual_seed(1)
    logits, shares = torch.randn(1, 2), torch.tensor([[0.25, 0.75]])
    found = loss_of(replace(WEIGHTED, label_smoothing=0.0), logits, shares, torch.tensor([2.0, 4.0]))
    assert found.item() == pytest.approx(3.5 * F.cross_entropy(logits, shares).item())


@pytest.mark.parametrize("loss", ["cross_entropy", "binary"])
def test_passes_have_the_gradient_of_the_whole(loss: str, uneven: DataSet) -> None:
    task, found = Task(replace(WEIGHTED, loss=loss), uneven), []
    torch.manual_seed(2)
    x, y = torch.randn(40, 6), torch.randint(10, (40,))
    for passes in (1, 3):
        torch.manual_seed(3)
        net = nn.Linear(6, 10)
        Gradients(net, replace(task.recipe, grad_accum_steps=passes), task.loss, CPU)(x, y)
        found.append(net.weight.grad)
    torch.testing.assert_close(*found)
    plain = Task(replace(task.recipe, class_weights="none"), uneven)
    assert task.loss(nn.Linear(6, 10), x, y).item() != plain.loss(nn.Linear(6, 10), x, y).item()


def test_an_epoch_has_as_many_images_of_each_class() -> None:
    order = balanced(Y, generator_of(0, 0, 0)).numpy()
    assert len(order) == len(Y)
    assert sorted(np.unique(Y[order], return_counts=True)[1].tolist()) == [33, 33, 34]
    times = np.bincount(order, minlength=len(Y))
    for label in (0, 1, 3):
        assert np.ptp(times[label == Y]) <= 1, "all images of a class come alike often"
    again, other = balanced(Y, generator_of(0, 0, 0)).numpy(), balanced(Y, generator_of(0, 1, 0)).numpy()
    assert (order == again).all()
    assert (order != other).any()
    seen = np.concatenate([balanced(Y, generator_of(0, epoch, 0)).numpy() for epoch in range(30)])
    assert len(np.unique(seen)) == len(Y), "what one epoch leaves out of a large class another has"


def test_batches_are_drawn_so_and_go_on_from_any_step(uneven: DataSet) -> None:
    loader, per_epoch = MemoryLoader(uneven, CPU), SAMPLED.steps_per_epoch(len(uneven.train))
    batches = [y_B for _, y_B in loader.batches(SAMPLED, 0, 0, 2 * per_epoch)]
    counts = torch.bincount(torch.cat(batches), minlength=10)
    assert counts[7] == 0
    kept = counts[counts > 0].float()
    assert kept.min() / kept.max() > 0.8, "but for the rest of an epoch that is left out"
    later = [y_B for _, y_B in loader.batches(SAMPLED, 0, per_epoch + 1, 2 * per_epoch)]
    assert all(torch.equal(a, b) for a, b in zip(batches[per_epoch + 1 :], later, strict=True))
    plain = dict(chosen_places(recipes.get("smoke"), 0, uneven.train.y_N, 0, 1))[0]
    first = torch.randperm(len(uneven.train), generator=generator_of(0, 0, 0))
    assert torch.equal(plain, first[:128]), "without it the order is what it was"


def test_recipes_hold_both_and_take_one() -> None:
    held = recipes.get("smoke").to_dict()
    assert (held["class_weights"], held["balanced_sampler"]) == ("none", False)
    assert Recipe.from_dict(WEIGHTED.to_dict()) == WEIGHTED
    for fields, rule in (
        ({"class_weights": "square"}, "recipe: class_weights: unknown value 'square'"),
        ({"class_weights": "balanced", "balanced_sampler": True}, "choose one"),
    ):
        with pytest.raises(InputError, match=rule):
            Recipe.from_dict(held | fields)
