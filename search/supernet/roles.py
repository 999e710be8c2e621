"""Roles: which tensor of the bank each parameter of a net is a slice of.

Two parameters share a tensor if they stand at the same place of their nets, in a block of the same kind, under the
same name. What cannot nest is told apart by the role's name: kinds of stem, patches, token grids, styles of norm.
"""

from dataclasses import replace
from typing import NamedTuple

from ...archs import Head, Network, Stem
from ...archs.blocks.axes import Axis, tensor_axes
from ...archs.layout import Block, Layout
from ...archs.stage import OPTIONS


class Role(NamedTuple):
    """The bank's tensor that a parameter is a slice of."""

    name: str  # of the bank's tensor
    axes: tuple[Axis, ...]  # of the parameter; the tensor's own are as long or longer


def roles_of(net: Network) -> dict[str, Role]:
    """The role of each parameter of a net, by its name in the state dict."""
    layout = net.genotype.plan(net.image_size, net.in_chans)
    return {name: _role(net, layout, name, tuple(p.shape)) for name, p in net.named_parameters()}


def _role(net: Network, layout: Layout, name: str, shape: tuple[int, ...]) -> Role:
    part, _, rest = name.partition(".")
    if part == "stages":
        stage, block, tensor = rest.split(".", 2)
        return _block_role(layout.stages[int(stage)][int(block)], int(block), tensor, len(shape))
    if part == "encoder":
        return _encoder_role(net, layout, rest, shape)
    genotype, stages = net.genotype.canonical(), len(layout.stages)
    if part == "stem":  # of one kind and patch all kernels are alike
        place = _stem_place(genotype.stem)
    else:
        own = genotype.head
        more = "" if replace(own, pool="avg", hidden=0) == Head() else f" {own}"
        place = (f"of tokens, hidden {own.hidden}" if net.encoder else f"behind {stages} stages") + more
    style = genotype.style
    return Role(f"{part} {place} {style.order} {style.norm}/{rest}", _whole(shape))


def _stem_place(stem: Stem) -> str:
    """The stem's kind, with what does not nest; its widths do."""
    if stem.kind == "conv":
        text = f"conv {stem.kernel} {len(stem.before)} {stem.halvings} {stem.act} {stem.ends_with}"
        return text + f" {stem.norm}" * (stem.norm != "none")
    return f"{stem.kind} {stem.patch}" + f" {stem.kernel} {stem.norm}" * (stem.kernel > 0 or stem.norm != "none")


def _block_role(b: Block, number: int, tensor: str, dims: int) -> Role:
    """Role of a residual block's tensor; the registry entry says how it slices."""
    style = "" if b.spec.modern else f" {b.style.order if b.spec.ordered else ''} {b.style.norm}"
    apart = {name: b.option(name) for name in b.spec.options if not OPTIONS[name].nests}
    style += "".join(f" {name} {value}" for name, value in apart.items() if value != b.spec.options[name])
    table = f" of {dims} axes" if tensor.endswith("table") else ""  # one for each head, or one for all
    return Role(f"{b.place} block {number + 1} {b.kind}{style}/{tensor}{table}", tensor_axes(b, tensor, dims))


def _encoder_role(net: Network, layout: Layout, rest: str, shape: tuple[int, ...]) -> Role:
    """Role of a tensor of the transformer encoder: nets share its blocks, whatever is in front of it."""
    encoder = net.genotype.canonical().encoder
    assert encoder is not None
    heads, dim = encoder.heads, encoder.embed_dim
    place, axes = "encoder", _whole(shape)
    if rest.startswith("proj."):
        place = f"encoder behind {len(layout.stages)} stages, patch {encoder.patch}"
    elif rest.startswith("positions."):
        place = f"encoder of {layout.grid} tokens, {net.genotype.head.pool}, {encoder.position}"
    elif ".attn.qkv." in rest:
        axes = (Axis((3, heads, dim // heads)), *axes[1:])
    elif rest.endswith(".attn.proj.weight"):
        axes = (axes[0], Axis((heads, dim // heads)))
    return Role(f"{place}/{rest}", axes)


def _whole(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """Axes of which a smaller one is the beginning of a larger one."""
    return tuple(Axis((length,)) for length in shape)
