"""What a network is: genotype, cost, blocks, builder, zoo.

`build`, `resized` and `Network` need torch and load it when first asked for; the rest is free of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import zoo
from .blocks import registry as _registry  # noqa: F401 - fills BLOCKS
from .cost import Cost, static_cost
from .errors import InputError, OperationError
from .genotype import Genotype
from .parts import Encoder, Head, Stem, Style
from .stage import Stage

if TYPE_CHECKING:
    from .network import Network, build, resized

__all__ = [
    "Cost",
    "Encoder",
    "Genotype",
    "Head",
    "InputError",
    "Network",
    "OperationError",
    "Stage",
    "Stem",
    "Style",
    "build",
    "resized",
    "static_cost",
    "zoo",
]


def __getattr__(name: str) -> Any:
    modules = {"build": ".network", "resized": ".network", "Network": ".network"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(modules[name], __package__), name)
