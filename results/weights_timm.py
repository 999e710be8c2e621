"""Trained weights of timm's, by name or from a file with timm's names."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from safetensors.torch import save

from ..archs import Genotype, InputError, Network, OperationError, timm_models, timm_weights
from ..archs.plan import Map
from ..archs.weights import fill, shapes


def pretrained(name: str, size: Map | None) -> tuple[Network, str, dict[str, Any], str]:
    """timm's net `name` with its weights, downloaded; what it is called; what is known of its training; its digest.

    Raises:
        InputError: if timm has no such net or weights, or no genotype says it.
        OperationError: if the weights cannot be had.
    """
    from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage] - its library changed

    config = _config(name)
    if not config.has_weights:
        raise InputError(f"timm has no weights for {name!r}")
    genotype_of(name, size)  # refused before anything is downloaded
    full = f"{config.architecture}.{config.tag}"
    try:
        model = timm_models.create(name, True, image_size=size)
    except (OSError, HTTPError, InputError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = f"with a file of them: --from FILE.safetensors --arch timm:{full}"
        raise OperationError(f"timm: the weights of {full} cannot be had ({reason}); {hint}") from None
    network = timm_weights.convert(model)
    digest = hashlib.sha256(save({k: v.contiguous() for k, v in network.state_dict().items()})).hexdigest()[:12]
    return network, full, _facts(config, network), digest


def from_file(path: Path, name: str, size: Map | None) -> tuple[Network, dict[str, Any]]:
    """A file with timm's names. How it was trained is known if `name` has the tag of timm's weights.

    Raises:
        InputError: if timm knows no such net, or the file does not hold its weights.
    """
    config, there = _config(name), shapes(path)
    classes = (*there.get(f"{config.classifier}.weight", ()), 0)[0] or None  # None leaves it to timm
    channels = (*there.get(f"{config.first_conv}.weight", ()), 0, 0)[1] or None
    model = timm_models.create(name, False, classes, channels, size)
    fill(model, path)
    network = timm_weights.convert(model)
    return network, _facts(config, network) if "." in name else {}


def genotype_of(name: str, size: Map | None = None) -> Genotype:
    """The genotype of timm's net `name`.

    Raises:
        InputError: if timm knows no such net, or no genotype says it.
    """
    return timm_weights.read(timm_models.create(name, image_size=size))


def _config(name: str) -> Any:
    """What timm says of the weights of `name`.

    Raises:
        InputError: if timm does not know the name.
    """
    from timm import get_pretrained_cfg

    try:
        config = get_pretrained_cfg(name)
    except RuntimeError:  # an unknown tag
        config = None
    if config is None:
        timm_models.create(name)  # refuses an unknown name, with the nearest known one
        raise InputError(f"timm says nothing of how {name!r} is trained")
    return config


def _facts(config: Any, network: Network) -> dict[str, Any]:
    """What timm's pretraining was; its classes only if the head is still that one."""
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    facts: dict[str, Any] = {}
    if network.in_chans == len(config.mean):
        facts |= {"mean": [255 * value for value in config.mean], "std": [255 * value for value in config.std]}
    subset = infer_imagenet_subset(config.to_dict()) if network.num_classes == config.num_classes else None
    return facts | ({"data": subset, "classes": ImageNetInfo(subset).label_names()} if subset else {})
