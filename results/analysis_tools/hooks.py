"""Nets listened to, and left as they were: modes, gradients, hooks, random numbers.

B batch. Values are cloned as they pass: an in-place operation behind a site would change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...archs.errors import InputError
from .hook_points import HookPoint, residual_points


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
def listening(net: nn.Module, sites: Sequence[HookPoint]) -> Iterator[dict[str, Tensor]]:
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
def captured(net: nn.Module, sites: Sequence[HookPoint], x_BCHW: Tensor) -> dict[str, Tensor]:
    """What is at each of `sites` for these images, in eval mode, in the order of `sites`."""
    with undisturbed(net), listening(net, sites) as heard:
        net(x_BCHW)
    return {site.name: heard[site.name] for site in sites}


def _hook(module: nn.Module, site: HookPoint, heard: dict[str, Tensor]) -> Any:
    if site.side == "out":
        return module.register_forward_hook(lambda _m, _x, y: heard.__setitem__(site.name, y.clone()))
    return module.register_forward_pre_hook(lambda _m, x: heard.__setitem__(site.name, x[0].clone()))


See = Callable[[HookPoint, Tensor], None]
SILENT = ("Identity", "Dropout", "DropPath", "Flatten")  # eval mode: what goes in comes out


@contextmanager
def seeing(net: nn.Module, sites: Sequence[HookPoint], see: See) -> Iterator[None]:
    """`see(site, value)` for what passes `sites` while `net` runs; it must neither keep nor change the value."""
    hooks = [_layer_hook(net.get_submodule(site.module), site, see) for site in sites]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def entering(net: nn.Module, modules: Sequence[str], see: Callable[[str, nn.Module, Any], None]) -> Iterator[None]:
    """`see(name, module, arguments)` before each of `modules` of `net` runs."""
    hooks = [net.get_submodule(name).register_forward_pre_hook(partial(see, name)) for name in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def all_sites(net: nn.Module, x_BCHW: Tensor) -> list[HookPoint]:
    """Outputs of all innermost modules (norms and hidden units of MLPs too) and the residual stream, as they pass.

    Modules that only pass on (Identity, dropout) are left out, and so are tables that no image enters.

    Args:
        net: a net that `residual_sites` takes.
        x_BCHW: one image is enough: it is sent through to see the order.

    Raises:
        InputError: if a module runs twice in one pass: its name would say two things.
    """
    stream = residual_points(net)
    known = {(site.module, site.side) for site in stream}
    leaves = [HookPoint(name, name, "out", "layer", "") for name in _leaves(net) if (name, "out") not in known]
    order: list[HookPoint] = []
    with undisturbed(net), seeing(net, [*leaves, *stream], lambda site, _: order.append(site)):
        net(x_BCHW[:1])
    if twice := [site.name for site in set(order) if order.count(site) > 1]:
        raise InputError(f"probe: layer {sorted(twice)[0]} runs twice in one pass")
    return order


def _leaves(net: nn.Module) -> list[str]:
    modules = net.named_modules()
    return [name for name, module in modules if not list(module.children()) and type(module).__name__ not in SILENT]


def _layer_hook(module: nn.Module, site: HookPoint, see: See) -> Any:
    def before(_: nn.Module, args: Any) -> None:
        see(site, args[0])

    def behind(_: nn.Module, args: Any, y: Any) -> None:
        if args:  # else a table that no image enters
            see(site, y)

    return module.register_forward_pre_hook(before) if site.side == "in" else module.register_forward_hook(behind)
