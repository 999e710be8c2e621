"""What a net is trained for: to tell classes apart, or, before that, to paint what is hidden from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from torch import Tensor, nn

from ...archs import Network
from ...archs.errors import one_of
from ..data.dataset import DataSet
from .gradients import loss_of
from .masked import LEVELS, ColourScale, MaskedPatches, masked_loss
from .recipe import Recipe

Forward = Callable[[Tensor], Any]  # of a module that `dress` made
TASKS = ("classes", "patches")


class Task(Protocol):
    """One way of training a `Network`, perhaps inside a larger module that is thrown away."""

    kinds: int  # of answers

    def dress(self, network: Network) -> nn.Module:
        """The module to train."""
        ...

    def kept(self, module: nn.Module) -> Network:
        """The network inside a module that `dress` made."""
        ...

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """Mean loss of a batch; called under autocast."""
        ...

    def answers(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        """(logits, true answers) of a batch."""
        ...


class Classes:
    """Tell the classes apart."""

    def __init__(self, recipe: Recipe, data: DataSet) -> None:
        self.recipe, self.kinds = recipe, len(data.classes)

    def dress(self, network: Network) -> nn.Module:
        return network

    def kept(self, module: nn.Module) -> Network:
        return cast(Network, module)

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        return loss_of(self.recipe, forward(x_BCHW).float(), target)

    def answers(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        return forward(x_BCHW), y_B


class Patches:
    """Predict the mean colours of hidden patches; labels are not looked at."""

    def __init__(self, data: DataSet) -> None:
        self.scale = ColourScale.of(data)
        self.kinds = LEVELS**data.in_chans

    def dress(self, network: Network) -> nn.Module:
        return MaskedPatches(network, self.scale)

    def kept(self, module: nn.Module) -> Network:
        return cast(MaskedPatches, module).network

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        return masked_loss(forward, x_BCHW)

    def answers(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        logits_MK, colour_M = forward(x_BCHW)
        return logits_MK, colour_M


def task_of(name: str, recipe: Recipe, data: DataSet) -> Task:
    """The task of that name.

    Raises:
        InputError: if the name is unknown.
    """
    return Patches(data) if one_of("task", name, TASKS) == "patches" else Classes(recipe, data)
