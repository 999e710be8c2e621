"""What an export format is given, `ExportNet`, and what it must give, `Format`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from ...archs import Genotype, Network, deployed_cost, fused
from ...archs.timm_net import counted_cost
from ...archs.timm_network import TimmNetwork
from ..runs.record import versions

RANDOM_IMAGES = 4


@dataclass(frozen=True)
class ExportNet:
    """A net to export, with what is known of it and the images that its formats are checked on.

    Attributes:
        network: in eval mode, float32, on the CPU.
        facts: what config.json says: name, classes, mean, std, image_size, in_chans and more.
        images_BCHW: in the data's own values; two or more.
    """

    network: Network | TimmNetwork
    facts: Mapping[str, Any]
    images_BCHW: Tensor

    def normalised(self) -> Tensor:
        """x_BCHW, the images as the net takes them."""
        mean, std = (torch.tensor(self.facts[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
        return (self.images_BCHW.float() - mean) / std

    @property
    def batch_sizes(self) -> tuple[int, int]:
        """Every format is run on the first image alone and on all of them."""
        return 1, len(self.images_BCHW)

    @cached_property
    def program(self) -> ExportedProgram:
        """The net as torch.export traces it, with any number of images in a batch; what onnx and pt2 are made of.

        Reparametrised convs are one conv each.
        """
        net = self.network.genotype
        network = fused(self.network) if isinstance(net, Genotype) and net.reparametrised else self.network
        two_BCHW = self.normalised()[:2]  # one image would be taken for a net of one image
        with torch.no_grad():  # a net is traced as it predicts
            return torch.export.export(network, (two_BCHW,), dynamic_shapes=({0: Dim("batch", min=1)},))

    def logits(self) -> Tensor:
        """The net's own logits, first of the first image alone, then of all."""
        with torch.no_grad():
            return torch.cat([self.network(self.normalised()[:n]) for n in self.batch_sizes])


@dataclass(frozen=True)
class Format:
    """One way to hand a net out.

    Attributes:
        title: of its part of the model card.
        file: its main file.
        write: writes its files to a folder, and says what is known of them; "weights" is the name of a second one.
        usage: how to load it, in Markdown, for a net of these facts.
        files: what each of its files is, by name.
        requires: packages that must be installed.
    """

    title: str
    file: str
    write: Callable[[ExportNet, Path], dict[str, Any]]
    usage: Callable[[Mapping[str, Any]], str]
    files: Mapping[str, str]
    requires: tuple[str, ...] = ()


def export_net_of(
    network: Network | TimmNetwork, about: Mapping[str, Any] | None = None, images: np.ndarray | None = None
) -> ExportNet:
    """A copy of the net for export.

    Args:
        network: left as it is.
        about: what is known of it, over what the net itself says and the least that may be said of its data.
        images: to check on, (N, C, H, W) in the data's own values; None makes random ones.
    """
    network = copy.deepcopy(network).cpu().float().eval()
    size, channels = network.image_size, network.in_chans
    facts = {
        **(_facts_of_timm(network) if isinstance(network, TimmNetwork) else _facts(network)),
        "family": network.genotype.family,
        "key": network.genotype.key,
        "accuracy": None,
        "data": None,
        "image_size": list(size),
        "in_chans": channels,
        "classes": [str(i) for i in range(network.num_classes)],
        "mean": [0.0] * channels,
        "std": [1.0] * channels,
        "pictures": False,
        "exported_with": versions(),
        "checked_on": "random images",
    }
    if images is None:
        images = np.random.default_rng(0).normal(size=(RANDOM_IMAGES, channels, *size)).astype(np.float32)
    images = np.concatenate([images, images])[: max(2, len(images))]  # one image twice: it is asked for two sizes
    return ExportNet(network, facts | dict(about or {}), torch.from_numpy(images))


def _facts(network: Network) -> dict[str, Any]:
    """What is known of one of our nets alone."""
    net = network.genotype
    cost = deployed_cost(net, network.num_classes, network.image_size, network.in_chans)
    global_attention = any(stage.places and not stage.window for stage in net.stages)
    fixed_size = global_attention or (net.encoder is not None and net.encoder.position != "none")
    facts = {"name": f"{net.family}_{net.key}", "stages": len(net.stages), "fixed_size": fixed_size}
    trained = {"training_macs": cost.training_macs, "training_params": cost.training_params} if cost.trained else {}
    return facts | {"macs": cost.macs, "params": cost.params} | trained


def _facts_of_timm(network: TimmNetwork) -> dict[str, Any]:
    """What is known of one of timm's nets alone, and how timm makes it."""
    from ...archs.timm import create_args

    net, size, channels = network.genotype, network.image_size, network.in_chans
    cost = counted_cost(net, network.num_classes, size, channels)
    made: dict[str, Any] = {"name": net.name, "arguments": create_args(net.name, network.num_classes, channels, size)}
    return {"name": net.name, "stages": 0, "fixed_size": "img_size" in made["arguments"], "timm": made, **cost.totals()}
