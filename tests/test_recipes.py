"""Recipes as values: names, files, limits; the learning rate; the optimisers."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from timm.optim._optim_factory import list_optimizers
from timm.scheduler.cosine_lr import CosineLRScheduler
from torch import nn

from alternas.archs import InputError, zoo
from alternas.search.training import recipes
from alternas.search.training.optim import optimizer_for, peak_rate, rate_at, warmup_steps
from alternas.search.training.recipe import OPTIMIZERS, Augment, Recipe, check_on

ALL = [make() for make in recipes.RECIPES.values()]


@pytest.mark.parametrize("recipe", ALL, ids=lambda r: r.name)
def test_every_recipe_round_trips_and_says_its_source(recipe: Recipe, tmp_path: Path) -> None:
    assert recipes.get(recipe.name) == recipe
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(recipe.to_dict()), encoding="utf-8")
    assert recipes.get(str(path)) == recipe
    about = recipes.RECIPES[recipe.name].__doc__ or ""
    assert "Our own" in about or any(year in about for year in ("2020", "2021", "2022", "2024"))


def test_published_numbers() -> None:
    """Park & Kim's configs; Dosovitskiy et al., tables 3 and 4; Wightman et al., A2."""
    cifar, imagenet = recipes.paper_cifar(), recipes.paper_imagenet()
    for ours in (cifar, imagenet):
        assert (ours.optimizer, ours.lr, ours.weight_decay, ours.decay_all) == ("adamw", 1.25e-4, 0.05, True)
        assert (ours.augment.mixup, ours.augment.cutmix, ours.drop_path, ours.label_smoothing) == (1.0, 0.8, 0.1, 0.1)
        assert ours.warmup * ours.epochs == pytest.approx(5)
    assert (cifar.batch_size, cifar.clip_grad) == (96, 5.0)
    assert (cifar.augment.ra_magnitude_std, cifar.augment.reprob) == (1.0, 0.0)
    assert (imagenet.batch_size, imagenet.clip_grad) == (128, 0.0)
    assert (imagenet.augment.ra_magnitude_std, imagenet.augment.reprob) == (0.5, 0.25)
    assert recipes.vit_pretrain().lr / recipes.vit_pretrain().avg_pool_lr == pytest.approx(8 / 3)
    assert recipes.vit_finetune().steps(50_000) == pytest.approx(10_000, rel=0.02)
    assert recipes.cue().steps(40_000) == 625
    assert recipes.resnet_a2().optimizer == "lamb"


@pytest.mark.parametrize(
    ("images", "steps", "mixup", "warm"),
    [(5_000, 500, 0.0, 100), (50_000, 10_000, 0.1, 500), (600_000, 20_000, 0.1, 500)],
)
def test_bit_hyperrule(images: int, steps: int, mixup: float, warm: int) -> None:
    """Kolesnikov et al., ECCV 2020, section 3.3: the number of images decides on length and mixup."""
    recipe = recipes.fitted(recipes.get("bit_hyperrule"), images)
    assert (recipe.steps(images), recipe.augment.mixup, recipe.batch_size, recipe.lr) == (steps, mixup, 512, 0.003)
    assert warmup_steps(recipe, steps) == warm
    shares = [rate_at(recipe, round(share * steps), steps) for share in (0.29, 0.3, 0.59, 0.6, 0.89, 0.9)]
    assert shares == pytest.approx([1, 0.1, 0.1, 0.01, 0.01, 0.001])
    mine = recipes.get("bit_hyperrule").with_epochs(3)
    assert recipes.fitted(mine, images) == mine, "whose epochs were given keeps them"
    assert [recipes.usual_side(recipe, side) for side in ((32, 32), (95, 96), (96, 96))] == [128, 128, 384]
    assert recipes.usual_side(recipes.get("smoke"), (32, 32)) is None


def test_budgets() -> None:
    smoke = recipes.get("smoke")
    assert smoke.steps_per_epoch(1078) == 8
    assert smoke.with_epochs(2).steps(1078) == 16
    assert smoke.with_epochs(0.01).steps(1078) == 1
    assert smoke.steps_per_epoch(5) == 1
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="epochs"):
            smoke.with_epochs(bad)


@pytest.mark.parametrize(("change", "words"), [
    ({"lr": "high"}, "mine.json: lr must be a number above 0 and at most 1000, got 'high'"),
    ({"lr": 0}, "lr must be a number above 0"),
    ({"batch_size": True}, "batch_size must be a whole number from 1 to 1048576, got True"),
    ({"dropout": 1.0}, "dropout must be a number from 0 to 0.99"),
    ({"epochs": 1e308}, "epochs must be"),
    ({"epochs": math.nan}, "NaN is no number"),
    ({"warmup": 0.6, "cooldown": 0.6}, "warmup [+] cooldown"),
    ({"schedule": "cosin"}, "did you mean 'cosine'"),
    ({"optimizer": "adamww"}, "did you mean 'adamw'"),
    ({"loss": "mse"}, "known: cross_entropy, binary"),
    ({"precision": "fp8"}, "known: auto"),
    ({"grad_accum_steps": 500}, "grad_accum_steps is more"),
    ({"learning_rate": 1}, "field: unknown value 'learning_rate'"),
    ({"augment": {"flipp": True}}, "did you mean 'flip'"),
    ({"augment": {"reprob": 2}}, "augment.reprob must be a number from 0 to 1, got 2"),
    ({"augment": {"ra_num_ops": 1.5}}, "augment.ra_num_ops must be a whole number"),
    ({"augment": [1]}, "must be an object"),
    ({"name": "n" * 1000}, "name must be a text of at most 200 characters"),
])  # fmt: skip
def test_recipes_that_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(recipes.smoke().to_dict() | change), encoding="utf-8")
    with pytest.raises(InputError, match=words) as caught:
        recipes.get(str(path))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words"), [(None, "No such file"), ("{", "cannot be read"), ("[]", "an object"), ("{}", "name is missing")]
)
def test_files_that_hold_no_recipe(text: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        recipes.get(str(path))
    with pytest.raises(InputError, match="did you mean 'smoke'"):
        recipes.get("smok")


def test_randaugment_needs_whole_numbers() -> None:
    check_on(recipes.paper_cifar(), 255, 3, (32, 32))
    check_on(recipes.smoke(), 0, 5, (8, 8))
    with pytest.raises(InputError, match="paper_cifar: RandAugment"):
        check_on(recipes.paper_cifar(), 0, 3, (32, 32))
    with pytest.raises(InputError, match="1 or 3 channels, these have 4"):
        check_on(recipes.paper_cifar(), 255, 4, (32, 32))
    with pytest.raises(InputError, match="pad 4 is more than a side of 3x9"):
        check_on(recipes.paper_cifar(), 255, 3, (3, 9))


def test_cosine_is_timms() -> None:
    recipe = dataclasses.replace(recipes.smoke(), warmup=0.1, lr=1.0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = CosineLRScheduler(optimizer, 90, warmup_t=10, warmup_lr_init=0.1, warmup_prefix=True, t_in_epochs=False)
    for step in range(100):
        theirs.step_update(step)
        wanted = (step + 1) / 10 if step < 10 else optimizer.param_groups[0]["lr"]
        assert rate_at(recipe, step, 100) == pytest.approx(wanted, abs=1e-9)


def test_the_other_schedules() -> None:
    linear = dataclasses.replace(recipes.smoke(), schedule="linear", warmup=0.2)
    assert [rate_at(linear, step, 10) for step in (0, 1, 2, 6, 9)] == pytest.approx([0.5, 1, 1, 0.5, 0.125])
    constant = dataclasses.replace(recipes.smoke(), schedule="constant", warmup=0.1, cooldown=0.3)
    rates = [rate_at(constant, step, 10) for step in range(10)]
    assert rates == pytest.approx([1, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])
    assert [rate_at(constant, step, 100) for step in range(10, 70)] == [1.0] * 60, "the same whatever the budget"


def test_nets_read_by_averaging_have_their_own_rate() -> None:
    recipe, token = recipes.vit_pretrain(), zoo.get("vit_tiny_patch16")
    averaged = dataclasses.replace(token, head=dataclasses.replace(token.head, pool="avg"))
    assert peak_rate(recipe, token) == 8e-4
    assert peak_rate(recipe, averaged) == 3e-4
    assert peak_rate(recipe, zoo.get("resnet18", 32)) == 8e-4
    assert peak_rate(recipes.smoke(), averaged) == recipes.smoke().lr


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_downhill(name: str) -> None:
    assert name in list_optimizers()
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1)), torch.randn(64, 4)
    recipe = dataclasses.replace(recipes.smoke(), optimizer=name, lr=0.01, weight_decay=1e-4)
    optimizer, losses = optimizer_for(net, recipe, 0.01), []
    for _ in range(30):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]


def test_who_is_decayed() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))

    def decayed(recipe: Recipe) -> set[int]:
        groups = optimizer_for(net, recipe, 1e-3).param_groups
        return {id(p) for group in groups if group["weight_decay"] for p in group["params"]}

    assert decayed(recipes.smoke()) == {id(net[0].weight), id(net[2].weight)}
    assert decayed(recipes.paper_cifar()) == {id(p) for p in net.parameters()}


NUMBERS = [(kind, f.name) for kind in (Recipe, Augment) for f in dataclasses.fields(kind) if f.type in ("int", "float")]


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
@pytest.mark.parametrize("value", [10**10, 10**400, float("inf"), float("nan")])
def test_no_number_of_a_recipe_may_be_of_any_size(kind: type, name: str, value: float) -> None:
    recipe = recipes.smoke().to_dict()
    (recipe if kind is Recipe else recipe["augment"])[name] = value
    with pytest.raises(InputError, match=f"{name} must be "):
        Recipe.from_dict(recipe)
