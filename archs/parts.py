"""The parts of a genotype beside its stages (stage.py): stem, style, transformer encoder, head.

Plain frozen records of int / float / bool / str / tuple, so that equality, hashing and JSON come for free. Each
checks every rule that needs no image size, and knows its canonical form: the one spelling in which fields that do
nothing hold their default.

A field added later must default to what was true before it, and no default may ever change: keys of recorded
networks leave default values out.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from .errors import InputError
from .json_files import check_fields

STEMS = ("cifar", "imagenet", "patchify", "bit", "conv", "none")
STEM_NORMS = ("none", "layer")
STEM_ENDS = ("act", "norm")
ORDERS = ("pre", "post")
NORMS = ("batch", "group")
POOLS = ("avg", "token")
HEAD_NORMS = ("style", "none", "layer")
HIDDEN_NORMS = ("none", "batch", "layer")
POSITIONS = ("none", "1d", "2d", "relative")
POSITIONS_AT = ("stem", "layers", "shared")
ACTS = ("relu", "silu", "gelu", "hard_swish", "relu6", "tanh")
GROUPS = 32  # of every GroupNorm
LAYER_EPS = 1e-6
MAX_CLASSES = 10_000_000

Width = Annotated[int, Meta(ge=1, le=65536)]
Side = Annotated[int, Meta(ge=0, le=1024)]
Act = Annotated[str, Meta(extra={"known": ACTS})]
Ratio = Annotated[float, Meta(gt=0, le=64)]  # of hidden channels over the block's


class Part:
    """A record whose repr is the expression that makes it: its first fields, then those not at their default."""

    POSITIONAL: ClassVar[int] = 2
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __repr__(self) -> str:
        given = [repr(getattr(self, f.name)) for f in fields(self)[: self.POSITIONAL]]
        for f in fields(self)[self.POSITIONAL :]:
            default = f.default if f.default_factory is MISSING else f.default_factory()
            if getattr(self, f.name) != default:
                given.append(f"{f.name}={getattr(self, f.name)!r}")
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(frozen=True, repr=False)
class Stem(Part):
    """The first layers of a net, before its stages.

    cifar: 3x3 conv. imagenet: 7x7 / 2 conv, then 3x3 / 2 max-pool. Both as the net's style has them: norm and ReLU
    after the conv in post-activation nets, none in pre-activation nets. patchify: `patch` x `patch` conv of that
    stride, or of a larger `kernel`, then `norm`. conv: convs with BatchNorm and `act`, whatever the net's style. bit:
    the root of the ViT paper's hybrids in any net, weight-standardised 7x7 / 2 conv, GroupNorm, ReLU, 3x3 / 2
    max-pool, SAME padding. none: the encoder takes the image itself, as a ViT does.

    Attributes:
        kind: one of these.
        width: channels that it gives.
        patch: of patchify, side and stride of the patch.
        kernel: side of the kernels of "conv"; of patchify, 0 is the patch.
        norm: of patchify, after its conv: none, or LayerNorm over the channels. Of "conv", none is BatchNorm, as above;
            under LayerNorm its convs have a bias.
        before: of "conv", channels of the convs before the last one.
        halvings: of "conv", how many of its convs, the first ones, stride by 2.
        act: of "conv", its activation.
        ends_with: of "conv", what follows the last conv: norm and act, or the norm alone.
    """

    kind: Annotated[str, Meta(extra={"known": STEMS})] = "cifar"
    width: Width = 64
    patch: Side = 0
    kernel: Side = 0
    norm: Annotated[str, Meta(extra={"known": STEM_NORMS})] = "none"
    before: Annotated[tuple[Width, ...], Meta(max_length=16, description="up to 16 widths")] = ()
    halvings: Annotated[int, Meta(ge=0, le=17)] = 1
    act: Act = "relu"
    ends_with: Annotated[str, Meta(extra={"known": STEM_ENDS})] = "act"

    def __post_init__(self) -> None:
        check_fields(self, "stem")
        if self.kind == "patchify" and not self.patch:
            raise InputError("stem: patch of a patchify stem must be 1 or more, got 0")
        if self.kind == "bit" and self.width % GROUPS:
            raise InputError(f"stem: width of a bit stem must be a multiple of {GROUPS}, got {self.width}")
        if self.halvings > 1 + len(self.before):
            raise InputError(f"stem: halvings must be at most its {1 + len(self.before)} convs, got {self.halvings}")
        if self.side % 2 == 0 and self.kind == "conv":
            raise InputError(f"stem: kernel must be odd, got {self.kernel}")
        if self.kind == "patchify" and self.side < self.patch:
            raise InputError(f"stem: kernel must be at least the patch, got kernel {self.kernel}, patch {self.patch}")

    @property
    def side(self) -> int:
        """Side of the kernels of a conv or patchify stem."""
        return self.kernel or (self.patch if self.kind == "patchify" else 3)

    @property
    def convs(self) -> tuple[tuple[int, int], ...]:
        """Channels and stride of each conv of a conv stem."""
        return tuple((c, 2 if i < self.halvings else 1) for i, c in enumerate((*self.before, self.width)))

    def canonical(self) -> Stem:
        conv = ("kernel", "norm", "before", "halvings", "act", "ends_with")
        own = {"patchify": ("patch", "kernel", "norm"), "conv": conv}
        if self.kind == "none":
            return Stem("none")
        kept = {name: getattr(self, name) for name in own.get(self.kind, ())}
        if self.kind in own and self.kernel == (self.patch if self.kind == "patchify" else 3):
            kept["kernel"] = 0
        if not self.before and self.ends_with != "act":  # the only activation is after the last conv
            kept.pop("act", None)
        return Stem(self.kind, self.width, **kept)

    @property
    def stride(self) -> int:
        """Downsampling in each direction."""
        return {"cifar": 1, "none": 1, "patchify": self.patch, "conv": 2**self.halvings}.get(self.kind, 4)


@dataclass(frozen=True, repr=False)
class Style(Part):
    """Order and kind of the norms in basic and bottleneck blocks, the stem and the last norm.

    Attributes:
        order: "pre" puts norm and ReLU before each conv (He et al., ECCV 2016), "post" after it (CVPR 2016).
        norm: "batch", or "group": GroupNorm and weight-standardised convs, as BiT (Kolesnikov et al., ECCV 2020). With
            "pre" it pads symmetrically, as timm's resnetv2_*_bit; with "post" as TensorFlow's SAME, as the trunk of
            the ViT paper's hybrids.
    """

    order: Annotated[str, Meta(extra={"known": ORDERS})] = "pre"
    norm: Annotated[str, Meta(extra={"known": NORMS})] = "batch"

    def __post_init__(self) -> None:
        check_fields(self, "style")


PREACTIVATION = Style()


@dataclass(frozen=True, repr=False)
class Encoder(Part):
    """A pre-norm transformer encoder over the feature map (Dosovitskiy et al., 2021).

    Attributes:
        embed_dim: width of a token; a multiple of `heads`.
        depth: number of blocks (MSA, MLP).
        heads: attention heads.
        mlp_ratio: hidden width of the MLP over embed_dim.
        patch: side of the patch of the feature map that becomes one token.
        qkv_bias: whether queries, keys and values have a bias.
        position: the paper's appendix on position embeddings: "none"; "1d", one vector a token; "2d", half a vector
            for its row and half for its column; "relative", keys for each 1-D offset that queries are compared with
            (class token included, shared by the heads).
        position_at: added to the tokens at the "stem", anew before every one of the "layers", or the same "shared"
            by all layers; relative ones live in the layers.
        local: a token attends to the local x local tokens around it (odd), the class token to all and all to it; 0 is
            global. The "convolutional ViT" of Park & Kim, ICLR 2022.
        skipless: the block, from 1, that has no skip connections (Raghu et al., NeurIPS 2021, section 5); 0 is none.
    """

    POSITIONAL = 3

    embed_dim: Width = 192
    depth: Annotated[int, Meta(ge=1, le=1024)] = 12
    heads: Annotated[int, Meta(ge=1, le=1024)] = 3
    mlp_ratio: Ratio = 4.0
    patch: Annotated[int, Meta(ge=1, le=1024)] = 1
    qkv_bias: bool = True
    position: Annotated[str, Meta(extra={"known": POSITIONS})] = "1d"
    position_at: Annotated[str, Meta(extra={"known": POSITIONS_AT})] = "stem"
    local: Annotated[int, Meta(ge=0, le=1023)] = 0
    skipless: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        check_fields(self, "encoder")
        if self.embed_dim % self.heads:
            rule = "heads must divide embed_dim"
            raise InputError(f"encoder: {rule}, got embed_dim {self.embed_dim}, heads {self.heads}")
        check_hidden("encoder", self.mlp_ratio, self.embed_dim)
        if self.local and (self.local < 3 or self.local % 2 == 0):
            raise InputError(f"encoder: local must be 0 (global) or odd and at least 3, got {self.local}")
        if self.skipless > self.depth:
            raise InputError(f"encoder: skipless must be from 0 to {self.depth}, got {self.skipless}")
        if self.position == "2d" and self.embed_dim % 2:
            raise InputError(f"encoder: position '2d' needs an even embed_dim, got {self.embed_dim}")
        if self.position == "relative" and self.position_at == "stem":
            rule = "position 'relative' lives in the layers: position_at must be 'layers' or 'shared'"
            raise InputError(f"encoder: {rule}, got 'stem'")

    @property
    def hidden(self) -> int:
        """Hidden units of the MLP."""
        return int(self.embed_dim * self.mlp_ratio + 1e-6)  # so that hidden / embed_dim gives hidden again

    def canonical(self) -> Encoder:
        at = self.position_at
        if self.position == "none":
            at = "stem"
        elif self.depth == 1:  # one layer: all three are the same
            at = "layers" if self.position == "relative" else "stem"
        return replace(self, mlp_ratio=self.hidden / self.embed_dim, position_at=at)


@dataclass(frozen=True, repr=False)
class Head(Part):
    """The last layers of a net, from the last map to the logits.

    Attributes:
        pool: "avg" averages the map or all tokens, "token" reads a class token.
        hidden: units of a hidden layer before the logits; 0 for none. With tanh alone it is the ViT paper's head for
            pre-training.
        norm: after the stages: "style" is that of the net's style with its ReLU, where the last block's output is
            raw; else none, or LayerNorm of the pooled features. Of nets without an encoder.
        conv: channels of a 1x1 conv with BatchNorm and `act` before the pooling, as MobileNets have; 0 for none.
        act: after `conv` and in the hidden layer.
        hidden_norm: of the hidden layer, whose linear layer then has no bias.
        act_first: whether the hidden layer's activation stands before its norm, and its linear layer has a bias.
        norm_eps: eps of its LayerNorms.
    """

    POSITIONAL = 1

    pool: Annotated[str, Meta(extra={"known": POOLS})] = "avg"
    hidden: Annotated[int, Meta(ge=0, le=65536)] = 0
    norm: Annotated[str, Meta(extra={"known": HEAD_NORMS})] = "style"
    conv: Annotated[int, Meta(ge=0, le=65536)] = 0
    act: Act = "tanh"
    hidden_norm: Annotated[str, Meta(extra={"known": HIDDEN_NORMS})] = "none"
    act_first: bool = False
    norm_eps: Annotated[float, Meta(gt=0, lt=1)] = LAYER_EPS

    def __post_init__(self) -> None:
        check_fields(self, "head")

    def canonical(self) -> Head:
        normed = bool(self.hidden) and self.hidden_norm != "none"
        layers = self.norm == "layer" or (normed and self.hidden_norm == "layer")
        return replace(
            self,
            act=self.act if self.conv or self.hidden else "tanh",
            hidden_norm=self.hidden_norm if self.hidden else "none",
            act_first=self.act_first and normed,
            norm_eps=self.norm_eps if layers else LAYER_EPS,
        )


def check_hidden(place: str, ratio: float, width: int) -> None:
    """Raise InputError if an mlp_ratio leaves no hidden unit at `width`."""
    if int(width * ratio + 1e-6) < 1:
        raise InputError(f"{place}: mlp_ratio {ratio} leaves no hidden unit at width {width}")
