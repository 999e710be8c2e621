"""Nets listened to, and left as they were: modes, gradients, hooks, random numbers.

B batch. Values are cloned as they pass: an in-place operation behind a site would change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .sites import Site


@contextmanager
def undisturbed(net: nn.Module) -> Iterator[None]:
    """`net` in eval mode without gradients; afterwards its modes, gradients and torch's random state are as before."""
    modes = [(module, module.training) for module in net.modules()]
    grads = [(p, p.grad, p.requires_grad) for p in net.parameters()]
    devices = sorted({p.device.index for p in net.parameters() if p.device.type == "cuda"})
    net.eval()
    for p in net.parameters():
        p.grad = None
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for p, grad, wanted in grads:
            p.grad = grad
            p.requires_grad_(wanted)


@contextmanager
def listening(net: nn.Module, sites: Sequence[Site]) -> Iterator[dict[str, Tensor]]:
    """What passes `sites` in each call of `net`, by the site's name: clones, overwritten by the next call.

    Clones keep their graph where gradients are on.
    """
    heard: dict[str, Tensor] = {}
    hooks = [_hook(net.get_submodule(site.module), site, heard) for site in sites]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def captured(net: nn.Module, sites: Sequence[Site], x_BCHW: Tensor) -> dict[str, Tensor]:
    """What is at each of `sites` for these images, in eval mode, in the order of `sites`."""
    with undisturbed(net), listening(net, sites) as heard:
        net(x_BCHW)
    return {site.name: heard[site.name] for site in sites}


def _hook(module: nn.Module, site: Site, heard: dict[str, Tensor]) -> Any:
    if site.side == "out":
        return module.register_forward_hook(lambda _m, _x, y: heard.__setitem__(site.name, y.clone()))
    return module.register_forward_pre_hook(lambda _m, x: heard.__setitem__(site.name, x[0].clone()))
