"""BatchNorm statistics estimated anew, for nets whose weights were changed without training."""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ...archs import Network
from .job import STATISTICS_IMAGES
from .loaders import DeviceLoader
from .optim import autocast, memory_format, precision_of
from .recipe import Recipe


@torch.no_grad()
def estimate_norms(net: Network, recipe: Recipe, loader: DeviceLoader) -> None:
    """Estimate BatchNorm statistics from training images as they are; all else computes as in eval."""
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    mode, momenta = net.training, [norm.momentum for norm in norms]
    net.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    precision, layout = precision_of(recipe, loader.device), memory_format(net.genotype, loader.device)
    batches = loader.images("train", max(2, recipe.batch_size), STATISTICS_IMAGES)
    batches = (x_BCHW for x_BCHW, _ in batches if len(x_BCHW) > 1)  # BatchNorm has no statistics of one image
    for number, x_BCHW in enumerate(batches, 1):
        for norm in norms:
            norm.momentum = 1 / number  # the mean of all so far; torch's own None waits for the device
        with autocast(precision, loader.device):
            net(x_BCHW.contiguous(memory_format=layout))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    net.train(mode)
