"""What a study is: a plan made from a setting, and how its results are shown. registry.py lists them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...archs import Genotype, InputError
from ...results.render.experiment import PlotSpec
from ..data.dataset import DataSet
from ..data.splits import WHOLE, View
from ..training.recipe import Recipe
from .nets import net_of
from .plan import Training

QUICK_STEPS = 200  # most steps of a training of a quick study
QUICK_SEEDS = 2


@dataclass(frozen=True)
class ComparisonSetting:
    """What a study is made for.

    Attributes:
        data: the set.
        recipe: of every training.
        seeds: how often each is repeated.
        quick: few points and short trainings: to see that it works, not to learn from.
    """

    data: DataSet
    recipe: Recipe
    seeds: int
    quick: bool = False

    @property
    def steps(self) -> int:
        """The full budget of a training on all of the data."""
        return self.recipe.steps(len(self.data.train))

    def net(self, family: str, size: str) -> Genotype:
        return net_of(family, size, self.data.image_size)

    def repeated(self, net: Genotype, factors: dict[str, Any], **changes: Any) -> Iterator[Training]:
        """One training a seed."""
        for seed in range(self.seeds):
            yield self.training(net, seed, factors, **changes)

    def training(
        self, net: Genotype, seed: int, factors: dict[str, Any], share: float = 1.0, **changes: Any
    ) -> Training:
        """A training on a share of the data, drawn by the seed, for as many steps as on all of them."""
        view = View(share, draw=seed) if share < 1 else WHOLE
        given = {"recipe": self.recipe, "steps": self.steps, "view": view} | changes
        return Training(net, seed=seed, factors=factors, **given)


@dataclass(frozen=True)
class Comparison:
    """One study.

    Attributes:
        name: on the command line.
        plan: makes its trainings; those with factors are shown, the others serve them.
        sight: of its table and its plot.
    """

    name: str
    plan: Callable[[ComparisonSetting], Sequence[Training]]
    sight: Callable[[ComparisonSetting], PlotSpec]

    @property
    def about(self) -> str:
        """The first line of the plan's docstring."""
        return (self.plan.__doc__ or "").strip().split("\n")[0]


def shares(setting: ComparisonSetting) -> tuple[float, ...]:
    """The shares of the data that are compared; each must be more than the one before in whole images a class."""
    return (0.1, 1.0) if setting.quick else (0.03, 0.1, 0.3, 1.0)


def quickened(setting: ComparisonSetting) -> ComparisonSetting:
    """The setting of a quick study: short trainings, two seeds at most."""
    full = setting.steps
    epochs = setting.recipe.epochs * min(1.0, QUICK_STEPS / full)
    return ComparisonSetting(setting.data, setting.recipe.with_epochs(epochs), min(setting.seeds, QUICK_SEEDS), True)


def classes_apart(data: DataSet) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Labels to train on, and the others.

    Raises:
        InputError: with fewer than four classes.
    """
    count = len(data.classes)
    if count < 4:
        raise InputError(
            f"few-shot: needs at least 4 classes, two to train on and two new ones; {data.name} has {count}"
        )
    half = count // 2
    return tuple(range(half)), tuple(range(half, count))
