"""`BlockSpec`: all that the toolkit knows of a kind of residual block. Torch-free.

`BLOCKS` holds them by kind; blocks/registry.py fills it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple


class Branch(NamedTuple):
    """A branch that a block adds to the residual stream."""

    op: str  # "conv", "msa" or "mlp": how analyses group it
    layer: str = "drop_path"  # the submodule whose output is added; of "drop_path", the input
    next_norm: str = ""  # the submodule that takes the sum; "" where the sum is the block's output


class BlockStyle(NamedTuple):
    """Letter, colour and name in the legend of a kind of block in drawings."""

    letter: str = "X"
    colour: str = "#8a8f98"
    label: str = "block"


@dataclass(frozen=True)
class BlockForm:
    """A block as it is made in nets of one order of activation."""

    # its nn.Module, built from a `layout.Block`, as "package.module:Class"; ".file:Class" is in this folder
    module: str
    # its closed form: adds a `layout.Block` to a `CostAccumulator`. None in an exported net alone.
    cost: Callable[[Any, Any], None] | None = field(default=None, repr=False)
    # by layer, the axes of its weight, such as "c_out width 3 3" or "3*heads*head_dim c_in": numbers of the
    # `layout.Block` and its stage, and sides of kernels. By these weights are shared, and widened when inherited.
    # Layers that begin with "shortcut" are there where the block projects.
    axes: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    # the layers that scale its branches: near zero they make a new block almost an identity
    scaled_by: tuple[str, ...] = field(default=(), repr=False)
    # the same under group norm, whose standardised convs have no scale; () where no different
    scaled_by_group: tuple[str, ...] = field(default=(), repr=False)
    # the layers that give queries, and to which power their products with keys, sums over a head's channels, are
    # divided by the number of these
    queries: Mapping[str, float] = field(default_factory=dict, repr=False, hash=False)
    # whether its layer `norm1` is over the block's input, and so worth taking from another kind
    norms_input: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class BlockSpec:
    """The entry of one kind of block. Its repr holds what building a net needs."""

    name: str  # the kind, as stages name it
    pre: BlockForm  # how it is made, in nets of both orders unless there is `post`
    post: BlockForm | None = None  # how it is made in post-activation nets; only such blocks depend on the net's order
    expansion: int = 1  # the output's channels over the stage's width; of conv blocks
    modern: bool = True  # whether its norms are its own, whatever the net's
    # whether its inner width is its input's over the stage's expansion, instead of the stage's width
    inner_of_input: bool = False
    # the subclass of `layout.Block` with its sizes, where it has other ones
    sizes: type[Any] | None = field(default=None, repr=False)
    # the stage's options that it has (stage.py:OPTIONS), with its own values, which None stands for
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ignores: tuple[str, ...] = ()  # fields of the stage that it makes nothing of, beside the options that it has not
    optional: tuple[str, ...] = ()  # kernels among its options that may be 0, for a block without that conv
    # raises InputError if options of a stage, whose place it is told, do not go together
    check: Callable[[str, Any], None] | None = field(default=None, repr=False)
    projected: bool = True  # whether its shortcut is a 1x1 conv where stride or width change; else it has none there
    # what it adds to the residual stream; nothing where it has no shortcut at all
    branches: tuple[Branch, ...] = (Branch("conv"),)
    style: BlockStyle = field(default=BlockStyle(), repr=False)  # how it is drawn
    searched: bool = field(default=False, repr=False)  # whether the spaces `modern` and `free` draw it
    # how often `modern` does at random, against others of the same gene; measured in spaces/priors.py
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
