"""Where a net is listened to: the places of its residual stream, by name, in the order of its depth.

B batch, T tokens (the class token first, where there is one), C channels, H x W map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...archs import Network
from ...archs.blocks.spec import BLOCKS, BlockSpec
from ...archs.errors import InputError


@dataclass(frozen=True)
class HookPoint:
    """A value in a net: what a module takes or gives.

    Attributes:
        name: for people, such as "stage 2 block 3" or "encoder 4 mlp".
        module: its name in `named_modules`.
        side: "in" for the module's first argument, "out" for what it returns.
        op: what has just been added to the stream: stem, conv, msa or mlp.
        stage: "stem", "1" and so on, or "encoder".
        grid: (height, width) of the tokens, where the value is x_BTC; None for maps.
        lead: tokens before those of the grid, such as the class token.
        block: the name of the block that has just been added, in `named_modules`.
        branch: the layer of that block whose output was added; of "drop_path" the input; "" in timm's nets.
    """

    name: str
    module: str
    side: str
    op: str
    stage: str
    grid: tuple[int, int] | None = None
    lead: int = 0
    block: str = ""
    branch: str = ""


def residual_points(net: nn.Module) -> list[HookPoint]:
    """The residual stream behind the stem and behind every conv block, MSA and MLP (Park & Kim's choice).

    Takes the nets of `archs.build`, and timm's VisionTransformer and ResNet.

    Raises:
        InputError: if the net is of another kind.
    """
    if isinstance(net, Network):
        return list(_ours(net))
    kind = type(net).__name__
    if kind == "VisionTransformer":
        grid, lead = tuple(net.patch_embed.grid_size), net.num_prefix_tokens  # pyright: ignore
        return list(_tokens("blocks", net.blocks, grid, lead))  # pyright: ignore[reportArgumentType]
    if kind == "ResNet":
        return list(_timm_resnet(net))
    raise InputError(f"probe: knows the nets of alternas and timm's VisionTransformer and ResNet, got {kind}")


def stage_ends(sites: list[HookPoint]) -> list[int]:
    """Places in `sites` of the last one of each stage."""
    return [i for i, site in enumerate(sites) if i + 1 == len(sites) or sites[i + 1].stage != site.stage]


def as_map(site: HookPoint, x: Tensor) -> Tensor:
    """x_BCHW of what `site` held: tokens laid out on their grid, without the class token."""
    if site.grid is None:
        return x
    return x[:, site.lead :].transpose(1, 2).unflatten(2, site.grid)


def _ours(net: Network) -> Iterator[HookPoint]:
    if not isinstance(net.stem, nn.Identity):
        yield HookPoint("stem", "stem", "out", "stem", "stem")
    for s, stage in enumerate(net.genotype.stages):
        for b, kind in enumerate(stage.kinds):
            yield from _block(f"stages.{s}.{b}", f"stage {s + 1} block {b + 1}", str(s + 1), BLOCKS[kind])
    if net.encoder is not None:
        yield from _tokens(
            "encoder.blocks", net.encoder.blocks, net.encoder.grid, int(net.encoder.cls_token is not None)
        )


def _block(block: str, name: str, stage: str, spec: BlockSpec) -> Iterator[HookPoint]:
    for op, layer, next_norm in spec.branches:
        place = name if len(spec.branches) == 1 else f"{name} {op}"
        module, side = (f"{block}.{next_norm}", "in") if next_norm else (block, "out")
        yield HookPoint(place, module, side, op, stage, block=block, branch=layer)


def _tokens(module: str, blocks: nn.Module, grid: tuple[int, int], lead: int) -> Iterator[HookPoint]:
    yield HookPoint("encoder embedding", f"{module}.0", "in", "stem", "encoder", grid, lead)
    for i, _ in enumerate(blocks.children()):
        block, name = f"{module}.{i}", f"encoder {i + 1}"
        yield HookPoint(f"{name} msa", f"{block}.norm2", "in", "msa", "encoder", grid, lead, block, "attn")
        yield HookPoint(f"{name} mlp", block, "out", "mlp", "encoder", grid, lead, block, "mlp")


def _timm_resnet(net: nn.Module) -> Iterator[HookPoint]:
    yield HookPoint("stem", "maxpool", "out", "stem", "stem")
    for s in range(1, 5):
        for b, _ in enumerate(net.get_submodule(f"layer{s}").children()):
            block = f"layer{s}.{b}"
            yield HookPoint(f"stage {s} block {b + 1}", block, "out", "conv", str(s), block=block)


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
