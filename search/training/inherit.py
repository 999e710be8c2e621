"""Weight inheritance: a new net starts from the weights of a trained relative, part by part.

Function-preserving where the parts allow it (Net2Net, Chen et al., ICLR 2016): blocks of the same kind are copied,
widened, or cut to their channels of largest norm, and blocks that the parent has not add almost nothing. Parent and
child may be any two nets. What does not fit keeps its initialisation. What a kind of block needs for it is in its
`BlockSpec`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...archs import Network
from ...archs.blocks.axes import Axis
from ...archs.blocks.encoder import TransformerEncoder
from ...archs.blocks.layers import Projection
from ...archs.layout import Block
from ...archs.stage import OPTIONS
from ...archs.timm_net import CutNet
from ...archs.timm_network import AnyNetwork
from ...archs.weights import fill, read
from .channel_order import sort_channels
from .job import FREEZE_POLICIES, InitWeights
from .net2net import CopyCount, Linear, channel_map, copy_module, copy_stem, copy_tokens, spread
from .net2net_blocks import copy_block

Parts = tuple[nn.Module | nn.Parameter, ...]
NEAR = 0.01  # of a new block's last layer: at exactly 0 the layers in front of it would get no gradient
ENCODER_SCALED_BY = ("attn.proj", "mlp.fc2")


@dataclass(frozen=True)
class Inherited:
    """What one part of the child took."""

    # "stem", "stage 1 block 2" (from 1), "last norm", "last conv", "encoder tokens" (patch projection, class token,
    # positions), "encoder block 3", "encoder norm" or "head"
    place: str
    source: str  # the parent's part, named alike; "" if nothing came from the parent
    # "copied"; "fitted", cut or widened where sizes differ, or short of a piece that the parent lacks; "resized", only
    # positions interpolated; "identity", new and of almost no effect; "fresh", as initialised; "zero", a head set to 0
    how: str
    params: int  # parameters of the child's part
    taken: int  # how many of them came from the parent's
    parts: Parts = field(default=(), repr=False, compare=False)  # the child's modules and parameters of that place


@torch.no_grad()
def inherit(child: Network, parent: Network) -> list[Inherited]:
    """Fill the fresh `child` in place from `parent`, from the image to the head, and tell what each part took."""
    parent = sort_channels(parent, child)
    rows, tally = [], CopyCount()
    if child.genotype.canonical().stem.kind == parent.genotype.canonical().stem.kind:
        copy_stem(child.stem, parent.stem, tally)
    rows.append(_row("stem", (child.stem,), "stem", tally))
    rows += _stages(child, parent)
    lasts = (("last norm", child.norm, parent.norm), ("last conv", child.last_conv, parent.last_conv))
    for place, own, other in lasts:
        if own is not None:
            tally = CopyCount()
            if other is not None:
                copy_module(own, other, tally)
            rows.append(_row(place, (own,), place, tally))
    if child.encoder is not None:
        image = (child.genotype.stem.kind == "none", parent.genotype.stem.kind == "none")
        rows += _encoder(child.encoder, parent.encoder, image)
    tally = CopyCount()
    # The same classes from the same kind of features, tokens or channels of a map.
    if child.num_classes == parent.num_classes and (child.encoder is None) == (parent.encoder is None):
        copy_module(child.head, parent.head, tally)
    rows.append(_row("head", (child.head,), "head", tally))
    return [row for row in rows if row.params]


def summary(rows: list[Inherited]) -> dict[str, Any]:
    """The report of `inherit` as JSON, with the share of the child's parameters that came from the parent."""
    share = sum(row.taken for row in rows) / sum(row.params for row in rows)
    told = [{name: value for name, value in vars(row).items() if name != "parts"} for row in rows]
    return {"parts": told, "share": share}


def aligned(child: Sequence[Hashable], parent: Sequence[Hashable]) -> list[int | None]:
    """The parent's place for each place of the child, in order; None where there is none.

    One to one where both are as long. Else the first takes the first, which carries stride and
    projection; of the rest as many as possible of one kind, then as many as possible at all. Of
    equally good ones the latest: attention is built up from a stage's end.
    """
    if len(child) == len(parent):
        return list(range(len(child)))
    # best[i][j]: most (pairs of one kind, pairs) of child[i:] and parent[j:], by dynamic programming
    best = [[(0, 0)] * (len(parent) + 1) for _ in range(len(child) + 1)]
    for i in reversed(range(len(child))):
        for j in reversed(range(len(parent))):
            alike, count = best[i + 1][j + 1]
            best[i][j] = max((alike + (child[i] == parent[j]), count + 1), best[i + 1][j], best[i][j + 1])
    pairs: list[int | None] = [0 if parent else None, *[None] * (len(child) - 1)]
    i = j = 1
    while i < len(child) and j < len(parent):
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            pairs[i], i, j = j, i + 1, j + 1
    return pairs


def _row(place: str, parts: Parts, source: str, tally: CopyCount, new: bool = False) -> Inherited:
    params = sum(parameter.numel() for parameter in _parameters(parts))
    how = next((how for how in ("fitted", "resized", "copied") if how in tally.hows), "fresh")
    if how != "fresh" and tally.taken < params:
        how = "fitted"
    return Inherited(place, source if tally.taken else "", "identity" if new else how, params, tally.taken, parts)


def _parameters(parts: Parts) -> list[nn.Parameter]:
    return [p for part in parts for p in (part.parameters() if isinstance(part, nn.Module) else [part])]


def _stages(child: Network, parent: Network) -> list[Inherited]:
    """Copy blocks of one kind; make others identities, if the parent has stages to go on from."""
    layout, other = (net.genotype.plan(net.image_size, net.in_chans) for net in (child, parent))
    rows = []
    for s, (stage, modules) in enumerate(zip(layout.stages, child.stages, strict=True)):
        had = other.stages[s] if s < len(other.stages) else ()
        pairs = aligned([_species(b) for b in stage], [_species(p) for p in had])
        for i, (b, block, j) in enumerate(zip(stage, modules.children(), pairs, strict=True)):
            tally, source = CopyCount(), "" if j is None else f"stage {s + 1} block {j + 1}"
            new = bool(other.stages) if j is None else _species(b) != _species(had[j])
            if new and b.skips:
                # A standardised conv has no scale: there the norm in front of it scales, which ReLU and conv pass on.
                by_norm = b.style.norm == "group" and b.form.scaled_by_group
                silence(block, b.form.scaled_by_group if by_norm else b.form.scaled_by)
            if j is None:
                identity = other.channels if other.stages else 0
            else:
                trained = parent.stages[s].get_submodule(str(j))
                if new:
                    _copy_common(block, b, trained, had[j], tally)
                else:
                    copy_block(block, trained, b, had[j], tally)
                identity = had[j].c_out if had[j].skips and not had[j].projects else 0
            if identity:
                _pass_on(block, identity)
            rows.append(_row(f"stage {s + 1} block {i + 1}", (block,), source, tally, new and b.skips))
    return rows


def _species(b: Block) -> tuple[Hashable, ...]:
    """The block's kind with what of the style it depends on, and options in which weights do not nest."""
    apart = tuple(b.option(name) for name in b.spec.options if not OPTIONS[name].nests)
    return (b.kind, b.style.order if b.spec.ordered else "", "" if b.spec.modern else b.style.norm, *apart)


def _copy_common(block: nn.Module, b: Block, trained: nn.Module, p: Block, tally: CopyCount) -> None:
    """Copy what means the same in blocks of two kinds: a norm of the block's input, the projection."""
    if b.form.norms_input and p.form.norms_input:
        copy_module(block.get_submodule("norm1"), trained.get_submodule("norm1"), tally)
    # What a projection sees: the activated input, the raw one, or (with a norm behind it) the raw one.
    sees, saw = ("modern" if x.spec.modern else "pre" if x.form.norms_input else "post" for x in (b, p))
    own, other = (getattr(module, "shortcut", None) for module in (block, trained))
    if sees == saw and b.projects and p.projects and own is not None and other is not None:
        copy_module(own, other, tally)


def silence(block: nn.Module, last: tuple[str, ...]) -> None:
    """Make the block add almost nothing: its `last` layers are near zero."""
    for layer in map(block.get_submodule, last):
        for key, value in layer.named_parameters():
            if key == "bias":
                value.zero_()
            elif isinstance(layer, Linear):
                value.mul_(NEAR)
            else:  # a norm, which may have been born at zero
                value.fill_(NEAR)


def _pass_on(block: nn.Module, channels: int) -> None:
    """Make a projection where the parent has an identity of `channels` channels repeat its input's channels.

    Standardised convs are left: an identity of theirs is far larger than its input.
    """
    shortcut = getattr(block, "shortcut", None)
    for conv in shortcut.modules() if shortcut is not None else ():
        if isinstance(conv, Projection):
            sides = (conv.out_channels, conv.in_channels)
            rows, columns = (channel_map(Axis((n,)), Axis((channels,))) for n in sides)
            conv.weight.copy_(spread(torch.eye(channels)[:, :, None, None], rows, columns, divide=True))


def _encoder(child: TransformerEncoder, parent: TransformerEncoder | None, image: tuple[bool, bool]) -> list[Inherited]:
    """Fill the encoder; as initialised where the parent has none. `image`: whether each one sees the image itself."""
    had = [] if parent is None else list(parent.blocks)
    pairs = aligned([""] * len(child.blocks), [""] * len(had))
    tokens, norm = CopyCount(), CopyCount()
    if parent is not None:
        copy_tokens(child, parent, image, pairs, tokens)
        copy_module(child.norm, parent.norm, norm)
    token = () if child.cls_token is None else (child.cls_token,)
    rows = [_row("encoder tokens", (child.proj, child.positions, *token), "encoder tokens", tokens)]
    for i, (block, j) in enumerate(zip(child.blocks, pairs, strict=True)):
        tally, source = CopyCount(), ""
        if j is not None:
            copy_module(block, had[j], tally)
            source = f"encoder block {j + 1}"
        elif had:
            silence(block, ENCODER_SCALED_BY)
        rows.append(_row(f"encoder block {i + 1}", (block,), source, tally, new=bool(had) and j is None))
    return [*rows, _row("encoder norm", (child.norm,), "encoder norm", norm)]


@dataclass(frozen=True)
class InitializedNet:
    """A net as training begins."""

    frozen: tuple[nn.Module, ...] = ()  # modules that stay in eval mode
    slow: tuple[nn.Parameter, ...] = ()  # parameters that learn at `rate` of the recipe's learning rate
    rate: float = 1.0
    refitted: bool = False  # whether what norms see has changed
    lineage: dict[str, Any] = field(default_factory=dict)  # where the weights came from, for the record


def init_weights(net: AnyNetwork, start: InitWeights | None) -> InitializedNet:
    """Give a fresh net its first weights, and freeze what is not trained. Those of timm start fresh.

    Raises InputError if the weights cannot be read.
    """
    if start is None:
        return InitializedNet()
    if isinstance(net.genotype, CutNet):
        fill(net, Path(start.weights))
        norms = tuple(module for module in net.modules() if isinstance(module, _BatchNorm))
        # Norms keep their statistics, which few pictures would spoil.
        return InitializedNet(norms, lineage={"weights": start.label, "steps": start.steps})
    assert isinstance(net, Network), "a search gives references no weights"
    policy, rows = FREEZE_POLICIES[start.freeze], inherit(net, read(Path(start.weights)))
    if start.zero_head:  # all classes are equally likely then (Dosovitskiy et al., 2021, section 3.2)
        nn.init.zeros_(net.classifier.weight)
        nn.init.zeros_(net.classifier.bias)
        rows = [row if row.place != "head" else replace(row, source="", how="zero", taken=0) for row in rows]
    if policy.new:
        fixed = [row for row in rows if row.how in ("copied", "resized") and row.place != "head"]
    else:  # all in front of the first block that is trained, or of the head
        order = [row.place for row in rows]
        blocks = [place for place in order if " block " in place]
        trained = blocks[len(blocks) - round(policy.share * len(blocks)) :]
        fixed = [] if policy.share == 1 else rows[: order.index((*trained, "head")[0])]
    for part in (part for row in fixed for part in row.parts):
        part.requires_grad_(False)
    frozen = [part for row in fixed for part in row.parts if isinstance(part, nn.Module)]
    slow = [p for row in rows if row.how in ("copied", "resized", "fitted") for p in _parameters(row.parts)]
    lineage = {"weights": start.label, "steps": start.steps, "freeze": start.freeze} | summary(rows)
    return InitializedNet(tuple(frozen), tuple(slow), policy.rate, is_refitted(rows), lineage)


def is_refitted(rows: Sequence[Inherited]) -> bool:
    """Whether a part in front of the head is new, or was cut or widened, so that what norms see has changed."""
    return any(row.how not in ("copied", "resized") for row in rows if row.place != "head")
