"""timm's models by name."""

from __future__ import annotations

from typing import Any

import timm
from torch import nn

from ..errors import InputError, did_you_mean
from ..layout import Map
from ..own_net import OwnNet, Trunk

CORPORA = {  # words of timm's tags of weights
    "in1k": "ImageNet-1k",
    "in12k": "ImageNet-12k",
    "in21k": "ImageNet-21k",
    "in22k": "ImageNet-22k",
    "laion400m": "LAION-400M",
    "laion2b": "LAION-2B",
    "datacomp1b": "DataComp-1B",
    "openai": "OpenAI's pictures with texts",
    "webli": "WebLI",
    "jft": "JFT-300M",
    "ig1b": "a billion pictures of Instagram",
    "yfcc15m": "YFCC-15M",
    "yfcc100m": "YFCC-100M",
    "lvd142m": "LVD-142M",
    "lvd1689m": "LVD-1689M",
}


def create(
    name: str,
    pretrained: bool = False,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: Map | None = None,
    drop_path: float = 0.0,
    **more: Any,
) -> nn.Module:
    """timm's model `name`; what is None is left to timm, and `image_size` where the net takes any.

    Stochastic depth of `drop_path` is timm's own. `more` are further arguments of `timm.create_model`. InputError if
    timm does not know the name or refuses the numbers.
    """
    known, tagged = timm.list_models(), timm.list_pretrained()
    if name not in known and name not in tagged:
        base = name.split(".")[0]
        candidates = [n for n in tagged if n.startswith(f"{base}.")] if base in known else known
        raise InputError(f"timm has no model {name!r}{did_you_mean(name, candidates)}")
    more |= {"drop_path_rate": drop_path} if drop_path else {}
    try:
        given = create_args(name, num_classes, in_chans, image_size)
        return timm.create_model(name, pretrained=pretrained, **given, **more)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        raise InputError(f"timm: {name}: {first_line(error)}") from None


def create_args(name: str, num_classes: int | None, in_chans: int | None, image_size: Map | None) -> dict[str, Any]:
    """Arguments of `timm.create_model` beside the name: those not None, and the image size where it is fixed."""
    given: dict[str, Any] = {"num_classes": num_classes, "in_chans": in_chans}
    config = timm.get_pretrained_cfg(name)
    if config and config.fixed_input_size:  # the model is built for one image size
        given["img_size"] = image_size
    return {name: value for name, value in given.items() if value is not None}


def config_of(name: str) -> Any:
    """timm's pretrained config of `name`; InputError if timm does not know the name."""
    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError:  # an unknown tag
        config = None
    if config is None:
        create(name)  # refuses an unknown name, with the nearest known one
        raise InputError(f"timm says nothing of how {name!r} is trained")
    return config


def origin_of(name: Trunk) -> dict[str, str]:
    """What weights were trained on, and their licence, as timm says it of a name with a tag; else "unknown"."""
    if isinstance(name, OwnNet):
        return {"licence": "unknown", "pretrained_on": name.data or "unknown"}
    config, tag = timm.get_pretrained_cfg(name), name.partition(".")[2]
    corpora = [CORPORA[word] for word in tag.split("_") if word in CORPORA]
    licence = (config and tag and config.license) or "unknown"
    return {"licence": licence, "pretrained_on": ", then ".join(reversed(corpora)) or "unknown"}


def first_line(error: Exception) -> str:
    """The first line of an error's text; where it only says what follows, with the second."""
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[: 1 + lines[0].endswith(":")])
