"""Hook points of a net's residual stream, by name in the order of depth, and capture of the activations there.

B batch, T tokens (the class token first, where there is one), C channels, H x W map.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...archs import Network
from ...archs.errors import InputError
from .inputs import Images

BATCH = 64
SILENT = ("Identity", "Dropout", "DropPath", "Flatten")  # eval mode: what goes in comes out
See = Callable[["HookPoint", Tensor], None]


@dataclass(frozen=True)
class HookPoint:
    """A value in a net: the input or the output of a module."""

    name: str  # for people, such as "stage 2 block 3" or "encoder 4 mlp"
    module: str  # its name in `named_modules`
    side: str  # "in" for the module's first argument, "out" for what it returns
    op: str  # what has just been added to the stream: stem, conv, msa or mlp
    stage: str  # "stem", "1" and so on, or "encoder"
    grid: tuple[int, int] | None = None  # (height, width) of the tokens, where the value is x_BTC; None for maps
    lead: int = 0  # tokens before those of the grid, such as the class token
    block: str = ""  # the block that has just been added, in `named_modules`
    # (module, side) where what was added is heard, silencing that module adds nothing; ("", "") without a shortcut
    branch: tuple[str, str] = ("", "")


def residual_points(net: nn.Module) -> list[HookPoint]:
    """The residual stream after the stem and after every conv block, MSA and MLP (Park & Kim's choice).

    Takes the nets of `archs.build`, and timm's VisionTransformer and ResNet. InputError if the net is of another kind.
    """
    if isinstance(net, Network):
        return list(_network_points(net))
    timm_net: Any = net
    if type(net).__name__ == "VisionTransformer":
        grid, lead = tuple(timm_net.patch_embed.grid_size), timm_net.num_prefix_tokens
        return list(_encoder_points("blocks", timm_net.blocks, grid, lead, ("drop_path1", "drop_path2"), "in"))
    if type(net).__name__ == "ResNet":
        return list(_timm_resnet_points(net))
    raise InputError(
        f"analysis: knows the nets of alternas and timm's VisionTransformer and ResNet, got {type(net).__name__}"
    )


def _network_points(net: Network) -> Iterator[HookPoint]:
    if not isinstance(net.stem, nn.Identity):
        yield HookPoint("stem", "stem", "out", "stem", "stem")
    for s, stage in enumerate(net.genotype.plan(net.image_size, net.in_chans).stages):
        for b, at in enumerate(stage):
            block, name, branches = f"stages.{s}.{b}", f"stage {s + 1} block {b + 1}", at.spec.branches
            if not at.skips:
                op = branches[0].op if branches else "conv"
                yield HookPoint(name, block, "out", op, str(s + 1), block=block)
                continue
            for op, layer, next_norm in branches:
                module, side = (f"{block}.{next_norm}", "in") if next_norm else (block, "out")
                branch = (f"{block}.{layer}", "in" if layer == "drop_path" else "out")
                point = name if len(branches) == 1 else f"{name} {op}"
                yield HookPoint(point, module, side, op, str(s + 1), block=block, branch=branch)
    if (encoder := net.encoder) is not None:
        lead = int(encoder.cls_token is not None)
        yield from _encoder_points("encoder.blocks", encoder.blocks, encoder.grid, lead, ("attn", "mlp"), "out")


def _encoder_points(
    path: str, blocks: nn.Module, grid: tuple[int, int], lead: int, branches: tuple[str, str], side: str
) -> Iterator[HookPoint]:
    """Points of a transformer encoder; `branches` are the modules of a block whose `side` MSA and MLP add."""
    yield HookPoint("encoder embedding", f"{path}.0", "in", "stem", "encoder", grid, lead)
    for i, module in enumerate(blocks.children()):
        block = f"{path}.{i}"
        adds = not getattr(module, "skipless", False)  # timm's blocks all do
        msa, mlp = ((f"{block}.{layer}", side) if adds else ("", "") for layer in branches)
        yield HookPoint(f"encoder {i + 1} msa", f"{block}.norm2", "in", "msa", "encoder", grid, lead, block, msa)
        yield HookPoint(f"encoder {i + 1} mlp", block, "out", "mlp", "encoder", grid, lead, block, mlp)


def _timm_resnet_points(net: nn.Module) -> Iterator[HookPoint]:
    yield HookPoint("stem", "maxpool", "out", "stem", "stem")
    for s in range(1, 5):
        for b, block in enumerate(net.get_submodule(f"layer{s}").children()):
            path = f"layer{s}.{b}"
            last = [name for name in ("bn2", "bn3", "se", "drop_path") if getattr(block, name, None) is not None][-1]
            branch = (f"{path}.{last}", "out")
            yield HookPoint(f"stage {s} block {b + 1}", path, "out", "conv", str(s), block=path, branch=branch)


def stage_ends(sites: Sequence[HookPoint]) -> list[int]:
    """Indices in `sites` of the last site of each stage."""
    return [i for i, site in enumerate(sites) if i + 1 == len(sites) or sites[i + 1].stage != site.stage]


def as_map(site: HookPoint, x: Tensor) -> Tensor:
    """x_BCHW of what passed `site`: tokens laid out on their grid, without the class token."""
    if site.grid is None:
        return x
    return x[:, site.lead :].transpose(1, 2).unflatten(2, site.grid)


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
        for p, grad, requires_grad in grads:
            p.grad = grad
            p.requires_grad_(requires_grad)


@contextmanager
def hooked(handles: Iterable[Any]) -> Iterator[None]:
    """Remove these hooks at the end."""
    handles = list(handles)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def silence(_module: nn.Module, _args: Any, y: Any) -> Tensor:
    """Forward hook: zeros instead of the output."""
    return torch.zeros_like(y)


def seeing(net: nn.Module, sites: Sequence[HookPoint], see: See) -> AbstractContextManager[None]:
    """`see(site, value)` for what passes `sites` while `net` runs; it must neither keep nor change the value."""

    def before(site: HookPoint, _module: nn.Module, args: Any) -> None:
        see(site, args[0])

    def after(site: HookPoint, _module: nn.Module, args: Any, y: Any) -> None:
        if args:  # else a table that no image enters
            see(site, y)

    def handles() -> Iterator[Any]:
        for site in sites:
            module = net.get_submodule(site.module)
            if site.side == "in":
                yield module.register_forward_pre_hook(partial(before, site))
            else:
                yield module.register_forward_hook(partial(after, site))

    return hooked(handles())


def entering(
    net: nn.Module, modules: Sequence[str], see: Callable[[str, nn.Module, Any], None]
) -> AbstractContextManager[None]:
    """`see(name, module, arguments)` before each of `modules` of `net` runs."""
    return hooked(net.get_submodule(name).register_forward_pre_hook(partial(see, name)) for name in modules)


@contextmanager
def listening(net: nn.Module, sites: Sequence[HookPoint]) -> Iterator[dict[str, Tensor]]:
    """Activations at `sites` in the last call of `net`, by the site's name, cloned with their graph."""
    values: dict[str, Tensor] = {}
    with seeing(net, sites, lambda site, value: values.update({site.name: value.clone()})):
        yield values


@torch.no_grad()
def captured(net: nn.Module, sites: Sequence[HookPoint], x_BCHW: Tensor) -> dict[str, Tensor]:
    """Activations at each of `sites` for these images, in eval mode."""
    with undisturbed(net), listening(net, sites) as values:
        net(x_BCHW)
    return {site.name: values[site.name] for site in sites}


@torch.no_grad()
def all_sites(net: nn.Module, x_BCHW: Tensor) -> list[HookPoint]:
    """Outputs of all innermost modules (norms and hidden units of MLPs too) and the residual stream, as they pass.

    Modules that only pass on (Identity, dropout) are left out, and so are tables that no image enters. One image is
    enough: it is sent through to see the order. InputError as `residual_points`, or if a module runs twice in one pass:
    its name would say two things.
    """
    stream = residual_points(net)
    known = {(site.module, site.side) for site in stream}
    leaves = [
        HookPoint(name, name, "out", "layer", "")
        for name, module in net.named_modules()
        if not list(module.children()) and type(module).__name__ not in SILENT and (name, "out") not in known
    ]
    order: list[HookPoint] = []
    with undisturbed(net), seeing(net, [*leaves, *stream], lambda site, _: order.append(site)):
        net(x_BCHW[:1])
    if twice := [site.name for site, count in Counter(order).items() if count > 1]:
        raise InputError(f"analysis: layer {sorted(twice)[0]} runs twice in one pass")
    return order


def map_shapes(net: nn.Module, sites: Sequence[HookPoint], images: Images) -> list[tuple[int, int, int]]:
    """(C, H, W) of the map at each site."""
    values = captured(net, sites, images.seen(images.x_NCHW[:1]))
    return [tuple(as_map(site, values[site.name]).shape[1:]) for site in sites]  # pyright: ignore[reportReturnType]


def mean_over_images(
    net: nn.Module, sites: Sequence[HookPoint], images: Images, measure: Callable[[Tensor], Tensor], batch: int = BATCH
) -> list[Tensor]:
    """`measure` of the map at each site, averaged over all images; `measure` averages over those of x_BCHW."""
    sums: list[Any] = [0.0] * len(sites)
    for x_BCHW in images.inputs(batch):
        values = captured(net, sites, x_BCHW)
        for i, site in enumerate(sites):
            sums[i] = sums[i] + len(x_BCHW) * measure(as_map(site, values[site.name])).double().cpu()
    return [total / len(images) for total in sums]


def measured_stream(
    net: nn.Module, images: Images, least: int, analysis: str, measure: Callable[[Tensor], Tensor]
) -> list[tuple[HookPoint, dict[str, Any], Tensor, Tensor | None]]:
    """A measure of the residual stream's maps, see `mean_over_images`, which needs at least `least` pixels a side.

    Of each site with such a map: the site, its columns in a table, the measure, and what it changed since the site
    before; None where the map then had another shape and a change means nothing. InputError if no site has such a map.
    """
    every = residual_points(net)
    shapes = map_shapes(net, every, images)
    large = [(site, shape) for site, shape in zip(every, shapes, strict=True) if min(shape[1:]) >= least]
    if not large:
        largest = max(min(shape[1:]) for shape in shapes)
        raise InputError(f"{analysis}: needs maps of at least {least} px a side, the largest has {largest}")
    values = mean_over_images(net, [site for site, _ in large], images, measure)
    found = []
    for i, (site, shape) in enumerate(large):
        columns = {"place": i, "site": site.name, "op": site.op, "stage": site.stage}
        columns |= {"height": shape[1], "width": shape[2]}
        change = values[i] - values[i - 1] if i and large[i - 1][1] == shape else None
        found.append((site, columns, values[i], change))
    return found
