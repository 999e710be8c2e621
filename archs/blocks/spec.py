"""`BlockSpec`: all that the toolkit knows of a kind of residual block. Torch-free.

`BLOCKS` holds them by kind; blocks/registry.py fills it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple


class Branch(NamedTuple):
    """A branch that a block adds to the residual stream.

    Attributes:
        op: "conv", "msa" or "mlp": how analyses group it.
        layer: the submodule whose output is added; of "drop_path", the input.
        next_norm: the submodule that takes the sum; "" where the sum is the block's output.
    """

    op: str
    layer: str = "drop_path"
    next_norm: str = ""


class BlockStyle(NamedTuple):
    """Letter, colour and name in the legend of a kind of block in drawings."""

    letter: str = "X"
    colour: str = "#8a8f98"
    label: str = "block"


@dataclass(frozen=True)
class BlockForm:
    """A block as it is made in nets of one order of activation.

    Attributes:
        module: its nn.Module, built from a `layout.Block`, as "package.module:Class"; ".file:Class" is in this folder.
        cost: its closed form: adds a `layout.Block` to a `CostAccumulator`. None in an exported net alone.
        axes: by layer, the axes of its weight, such as "c_out width 3 3" or "3*heads*head_dim c_in": numbers of the
            `layout.Block` and its stage, and sides of kernels. By these weights are shared, and widened when inherited.
            Layers that begin with "shortcut" are there where the block projects.
        scaled_by: the layers that scale its branches: near zero they make a new block almost an identity.
        scaled_by_group: the same under group norm, whose standardised convs have no scale; () where no different.
        queries: the layers that give queries, and to which power their products with keys, sums over a head's channels,
            are divided by the number of these.
        norms_input: whether its layer `norm1` is over the block's input, and so worth taking from another kind.
    """

    module: str
    cost: Callable[[Any, Any], None] | None = field(default=None, repr=False)
    axes: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    scaled_by: tuple[str, ...] = field(default=(), repr=False)
    scaled_by_group: tuple[str, ...] = field(default=(), repr=False)
    queries: Mapping[str, float] = field(default_factory=dict, repr=False, hash=False)
    norms_input: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class BlockSpec:
    """The entry of one kind of block. Its repr holds what building a net needs.

    Attributes:
        name: the kind, as stages name it.
        pre: how it is made, in nets of both orders unless there is `post`.
        post: how it is made in post-activation nets; only such blocks depend on the net's order.
        expansion: the output's channels over the stage's width; of conv blocks.
        modern: whether its norms are its own, whatever the net's.
        inner_of_input: whether its inner width is its input's over the stage's expansion, instead of the stage's width.
        sizes: the subclass of `layout.Block` with its sizes, where it has other ones.
        options: the stage's options that it has (stage.py:OPTIONS), with its own values, which None stands for.
        ignores: fields of the stage that it makes nothing of, beside the options that it has not.
        optional: kernels among its options that may be 0, for a block without that conv.
        check: raises InputError if options of a stage, whose place it is told, do not go together.
        projected: whether its shortcut is a 1x1 conv where stride or width change; else it has none there.
        branches: what it adds to the residual stream; nothing where it has no shortcut at all.
        style: how it is drawn.
        searched: whether the spaces `modern` and `free` draw it.
        prior: how often `modern` does at random, against others of the same gene; measured in spaces/priors.py.
    """

    name: str
    pre: BlockForm
    post: BlockForm | None = None
    expansion: int = 1
    modern: bool = True
    inner_of_input: bool = False
    sizes: type[Any] | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ignores: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    check: Callable[[str, Any], None] | None = field(default=None, repr=False)
    projected: bool = True
    branches: tuple[Branch, ...] = (Branch("conv"),)
    style: BlockStyle = field(default=BlockStyle(), repr=False)
    searched: bool = field(default=False, repr=False)
    prior: float = field(default=1.0, repr=False)

    def form(self, order: str) -> BlockForm:
        """Its form in nets of this order of activation."""
        return self.post if self.post is not None and order == "post" else self.pre

    @cached_property
    def attends(self) -> bool:
        """Whether it is an attention block, which stages place by `msa`."""
        return any(branch.op == "msa" for branch in self.branches)

    @cached_property
    def has_mlp(self) -> bool:
        """Whether it has an MLP of the stage's `mlp_ratio`."""
        return any(branch.op == "mlp" for branch in self.branches)

    @property
    def ordered(self) -> bool:
        """Whether it is made otherwise in post-activation nets."""
        return self.post is not None


BLOCKS: dict[str, BlockSpec] = {}


def conv_kinds() -> list[str]:
    """The kinds of conv blocks."""
    return [name for name, spec in BLOCKS.items() if not spec.attends]


def attention_kinds() -> list[str]:
    """The kinds of attention blocks."""
    return [name for name, spec in BLOCKS.items() if spec.attends]
