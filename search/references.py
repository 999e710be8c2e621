"""References: nets of timm that a search is compared with (`--with timm:resnet18`); checked and counted beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from ..archs.errors import InputError, short_repr
from ..archs.timm_net import TIMM, CountedCost, TimmNet, counted_cost
from .config import Settings, names
from .data.dataset import DataSet


def parse_references(text: str, option: str = "with") -> tuple[TimmNet, ...]:
    """The nets of "timm:resnet18,timm:vit_tiny_patch16_224"; none of "". `option` is that which names them.

    Raises:
        InputError: if a part is no net of timm, has the tag of pretrained weights, or stands there twice.
    """
    nets: list[TimmNet] = []
    for part in names(text):
        name = part.removeprefix(TIMM)
        if name == part or not name:
            raise InputError(f"{option}: must be nets of timm such as {TIMM}resnet18, got {short_repr(part)}")
        if "." in name:
            hint = f"write {TIMM}{name.split('.')[0]}; --from takes weights"
            raise InputError(f"{option}: is trained from fresh weights, got those of {short_repr(part)}; {hint}")
        if TimmNet(name) in nets:
            raise InputError(f"{option}: {part} stands there twice")
        nets.append(TimmNet(name))
    return tuple(nets)


def count_references(nets: Sequence[TimmNet], data: DataSet, settings: Settings) -> dict[TimmNet, CountedCost]:
    """What each of the nets costs on the data; limits are for candidates. timm and torch are loaded if there is one.

    Raises:
        InputError: if timm does not know a net, or it takes no such images or not the recipe's stochastic depth.
    """
    costs = {net: counted_cost(net, len(data.classes), data.image_size, data.in_chans) for net in nets}
    for net in nets:
        check_drop_path(net, settings.recipe.drop_path)
    return costs


def check_drop_path(net: TimmNet, drop_path: float, option: str = "with") -> None:
    """Raise InputError if a net of timm cannot be trained with so much stochastic depth."""
    if not drop_path:
        return
    import torch

    from ..archs.timm import create

    try:
        with torch.device("meta"):
            create(net.name, drop_path=drop_path)
    except InputError as error:
        rule = f"{TIMM}{net.name} cannot have the recipe's drop_path {drop_path:g}"
        raise InputError(f"{option}: {rule} ({error})") from None
