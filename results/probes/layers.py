"""Every layer of a net by name, in the order of a forward pass; and values looked at as they pass, not kept.

B batch. A value is looked at inside its hook, before anything behind it runs: in-place operations come too late
to change it, and no copy is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...archs.errors import InputError
from .listen import undisturbed
from .sites import Site, residual_sites

See = Callable[[Site, Tensor], None]
SILENT = ("Identity", "Dropout", "DropPath", "Flatten")  # eval mode: what goes in comes out


@contextmanager
def seeing(net: nn.Module, sites: Sequence[Site], see: See) -> Iterator[None]:
    """`see(site, value)` for what passes `sites` while `net` runs; it must neither keep nor change the value."""
    hooks = [_hook(net.get_submodule(site.module), site, see) for site in sites]
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
def all_sites(net: nn.Module, x_BCHW: Tensor) -> list[Site]:
    """Outputs of all innermost modules (norms and hidden units of MLPs too) and the residual stream, as they pass.

    Modules that only pass on (Identity, dropout) are left out, and so are tables that no image enters.

    Args:
        net: a net that `residual_sites` takes.
        x_BCHW: one image is enough: it is sent through to see the order.

    Raises:
        InputError: if a module runs twice in one pass: its name would say two things.
    """
    stream = residual_sites(net)
    known = {(site.module, site.side) for site in stream}
    leaves = [Site(name, name, "out", "layer", "") for name in _leaves(net) if (name, "out") not in known]
    order: list[Site] = []
    with undisturbed(net), seeing(net, [*leaves, *stream], lambda site, _: order.append(site)):
        net(x_BCHW[:1])
    if twice := [site.name for site in set(order) if order.count(site) > 1]:
        raise InputError(f"probe: layer {sorted(twice)[0]} runs twice in one pass")
    return order


def _leaves(net: nn.Module) -> list[str]:
    modules = net.named_modules()
    return [name for name, module in modules if not list(module.children()) and type(module).__name__ not in SILENT]


def _hook(module: nn.Module, site: Site, see: See) -> Any:
    def before(_: nn.Module, args: Any) -> None:
        see(site, args[0])

    def behind(_: nn.Module, args: Any, y: Any) -> None:
        if args:  # else a table that no image enters
            see(site, y)

    return module.register_forward_pre_hook(before) if site.side == "in" else module.register_forward_hook(behind)
