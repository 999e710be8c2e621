"""What the modules of a net read when they are made and when they run, recorded, and as Python source."""

from types import MethodType
from typing import Any

import torch

from ...archs import Network

WIDTH = 118  # letters of a line


class NotedPart:
    """A part of a net that records which of its attributes are read."""

    def __init__(self, value: Any) -> None:
        self.__dict__.update(_value=value, read={})

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._value, name)
        if isinstance(value, MethodType) and name == "option":
            return lambda option: self.read.setdefault("options", {}).setdefault(option, value(option))
        if isinstance(value, MethodType) and name == "plan":
            return lambda *sizes: self.read.setdefault("laid_out", NotedPart(value(*sizes)))
        if isinstance(value, MethodType) and name == "form":
            return lambda *order: self.read.setdefault("form", NotedPart(value(*order)))
        assert not isinstance(value, MethodType), f"a model.py has no method {name} of {type(self._value).__name__}"
        if name not in self.read:
            self.read[name] = _noting(value)
        return self.read[name]


def _noting(value: Any) -> Any:
    """The value itself, or a `NotedPart` of it where it has fields."""
    if isinstance(value, list | tuple):
        return type(value)(map(_noting, value)) if type(value) in (list, tuple) else value
    plain = value is None or isinstance(value, bool | int | float | str)
    return value if plain else NotedPart(value)


def noted_net(network: Network) -> NotedPart:
    """The attributes that a net's modules read, when they are built and when they run."""
    noted: Any = NotedPart(network.genotype)
    with torch.device("meta"):
        net = Network(noted, network.num_classes, network.image_size, network.in_chans, 0.0).eval()
        net(torch.zeros(2, network.in_chans, *network.image_size))
        net.train()(torch.zeros(2, network.in_chans, *network.image_size))
    for part, name in (("head", "norm hidden hidden_norm pool conv"), ("stem", "kind stride")):
        for field in name.split():
            getattr(getattr(noted, part), field)
    for stage in noted.stages:
        _ = stage.places, stage.window, stage.channels, stage.stride
    if noted.encoder is not None:
        _ = noted.encoder.position, noted.encoder.embed_dim
    return noted


def whole_net(network: Network) -> str:
    """Python source that makes a net of what `noted_net` has recorded of it, called GENOTYPE."""
    return f"Network(GENOTYPE, {network.num_classes}, {network.image_size}, {network.in_chans}, dropout=0.0)"


def as_source(value: Any, depth: int = 0) -> str:
    """Python source of the recorded values, a part a line."""
    if isinstance(value, NotedPart):
        inner = [f"{name}={as_source(of, depth + 1)}" for name, of in value.read.items()]
        text = f"Values({', '.join(inner)})"
        if len(text) + 4 * depth < WIDTH and "\n" not in text:
            return text
        indent, lines = "    " * (depth + 1), list[str]()
        for item in inner:  # as many in a line as there is room for
            if lines and "\n" not in lines[-1] + item and len(f"{indent}{lines[-1]} {item},") < WIDTH:
                lines[-1] += f" {item},"
            else:
                lines.append(f"{item},")
        return "Values(\n" + "".join(f"{indent}{line}\n" for line in lines) + "    " * depth + ")"
    if type(value) in (list, tuple) and any(isinstance(item, NotedPart | list | tuple) for item in value):
        lines = [f"{'    ' * (depth + 1)}{as_source(item, depth + 1)},\n" for item in value]
        return "(\n" + "".join(lines) + "    " * depth + ")"
    return repr(value)
