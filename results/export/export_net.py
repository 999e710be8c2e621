"""`ExportNet`: a net to export, what is known of it, and the images that its formats are checked on."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.functional import interpolate

from ...archs import Network, static_cost
from ...archs.pictures import LEVELS
from ...archs.timm_net import CutNet, TimmNet, counted_cost
from ...archs.timm_network import AnyNetwork, TimmNetwork
from ..runs.record import versions

RANDOM_IMAGES = 4
BATCH = 64


@dataclass(frozen=True, eq=False)
class ScoringImages:
    """Images, in the data's own values, that a format of lower precision is made and measured on."""

    train_NCHW: np.ndarray  # training images, to calibrate on
    val_NCHW: np.ndarray  # validation images
    y_N: np.ndarray  # what these show; (N, K) where they have several labels


@dataclass(frozen=True)
class ExportNet:
    """A net to export, with what is known of it and the images that its formats are checked on."""

    network: AnyNetwork  # in eval mode, float32, on the CPU
    facts: Mapping[str, Any]  # what config.json says: name, classes, mean, std, image_size, in_chans and more
    images_NCHW: np.ndarray  # to check on, in the data's own values; two or more
    # what formats of lower precision are calibrated and measured on; None where there is no data
    scoring: ScoringImages | None = None

    def normalised(self, images_NCHW: np.ndarray) -> Tensor:
        """Images in the data's own values, normalised for the net: x_BCHW."""
        mean, std = (torch.tensor(self.facts[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
        return (torch.from_numpy(images_NCHW).float() - mean) / std

    def traced(self, network: nn.Module) -> ExportedProgram:
        """Trace a module that takes the net's images by torch.export."""
        two_BCHW = self.normalised(self.images_NCHW)[:2]  # one image would be taken for a net of one image
        with torch.no_grad():  # a net is traced as it predicts
            program = torch.export.export(network, (two_BCHW,), dynamic_shapes=({0: Dim("batch", min=1)},))
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # which names folders of this machine
        return program

    def logits(self, images_NCHW: np.ndarray) -> np.ndarray:
        """The net's own logits of images in the data's own values: of the first alone, then of all, in batches."""
        parts = [images_NCHW[:1], *np.split(images_NCHW, range(BATCH, len(images_NCHW), BATCH))]
        with torch.no_grad():
            return torch.cat([self.network(self.normalised(part)) for part in parts]).numpy()


def export_net_of(
    network: AnyNetwork,
    about: Mapping[str, Any] | None = None,
    images: np.ndarray | None = None,
    scoring: ScoringImages | None = None,
) -> ExportNet:
    """A copy of the net for export; `about` goes over what the net itself says.

    Images, to check on, are (N, C, H, W) in the data's own values; None makes random ones. `scoring` is what formats of
    lower precision are calibrated and measured on.
    """
    network = copy.deepcopy(network).cpu().float().eval()
    size, channels = network.image_size, network.in_chans
    facts = {
        **_facts_of(network),
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
        "levels": list(LEVELS),
        "exported_with": versions(),
        "checked_on": "random images",
    }
    if images is None:
        images = np.random.default_rng(0).normal(size=(RANDOM_IMAGES, channels, *size)).astype(np.float32)
    images = np.concatenate([images, images])[: max(2, len(images))]  # one image twice: it is asked for two sizes
    if scoring:
        train_NCHW, val_NCHW = (at_size(of, size) for of in (scoring.train_NCHW, scoring.val_NCHW))
        scoring = ScoringImages(train_NCHW, val_NCHW, scoring.y_N)
    return ExportNet(network, facts | dict(about or {}), at_size(images, size), scoring)


def at_size(images_NCHW: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Images resized, with antialiasing, to the size that a net takes; they are returned where they have it."""
    if images_NCHW.shape[2:] == size:
        return images_NCHW
    parts = [torch.from_numpy(part).float() for part in np.split(images_NCHW, range(BATCH, len(images_NCHW), BATCH))]
    resized = [interpolate(part, size, mode="bicubic", antialias=True) for part in parts]
    low, high = images_NCHW.min(), images_NCHW.max()
    return torch.cat(resized).clamp(float(low), float(high)).numpy()


def _facts_of(network: Any) -> dict[str, Any]:
    if isinstance(network.genotype, CutNet):
        from .cut import cut_facts  # timm takes seconds to import

        return cut_facts(network)
    return _facts_of_timm(network) if isinstance(network.genotype, TimmNet) else _facts(network)


def _facts(network: Network) -> dict[str, Any]:
    net = network.genotype
    cost = static_cost(net, network.num_classes, network.image_size, network.in_chans)
    global_attention = any(stage.places and not stage.window for stage in net.stages)
    fixed_size = global_attention or (net.encoder is not None and net.encoder.position != "none")
    facts = {"name": f"{net.family}_{net.key}", "stages": len(net.stages), "fixed_size": fixed_size}
    return facts | {"macs": cost.macs, "params": cost.params}


def _facts_of_timm(network: TimmNetwork) -> dict[str, Any]:
    from ...archs.timm import create_args

    net, size, channels = network.genotype, network.image_size, network.in_chans
    cost = counted_cost(net, network.num_classes, size, channels)
    made: dict[str, Any] = {"name": net.name, "arguments": create_args(net.name, network.num_classes, channels, size)}
    return {"name": net.name, "stages": 0, "fixed_size": "img_size" in made["arguments"], "timm": made, **cost.totals()}
