"""timm's models turned into our networks and back: genotype, weights, outputs.

Reads timm's ResNet (resnet*), ResNetV2 (resnetv2_*, BiT among them) and VisionTransformer (vit_*, the hybrids with a
BiT trunk too). Everything is checked and nothing guessed: a net with a parameter that no genotype has is refused, and
so is one whose outputs differ. Other nets of timm that are in the zoo, known by timm's
names of their architectures, have their tensors in the order of ours: weights are taken over one by one, of shapes that
agree but for axes of 1.
"""

import re
from typing import Any, NamedTuple

import torch
from timm.layers.norm_act import GroupNormAct
from timm.models import resnet, resnetv2
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from ..blocks.spec import BLOCKS
from ..errors import InputError
from ..genotype import Genotype
from ..network import Network, build
from ..parts import PREACTIVATION, Encoder, Head, Stem, Style
from ..stage import Stage
from ..zoo import BY_ORDER
from .models import create

BLOCK_KINDS = {
    resnet.BasicBlock: "basic",
    resnet.Bottleneck: "bottleneck",
    resnetv2.PreActBasic: "basic",
    resnetv2.PreActBottleneck: "bottleneck",
    resnetv2.Bottleneck: "bottleneck",
}
TOLERANCE = 1e-3  # of outputs whose largest is 1


def load(name: str, pretrained: bool = True, num_classes: int | None = None) -> Network:
    """timm's model `name`, downloaded if `pretrained`, as one of our networks; InputError if there is none such."""
    return convert(create(name, pretrained, num_classes=num_classes))


def convert(model: Any) -> Network:
    """One of timm's models as our network, with weights and outputs; InputError if a part of it is in no genotype."""
    first = next(model.parameters())
    need(first.device.type != "meta", "no weights: it is on the meta device")
    genotype, patches = read(model), getattr(model, "patch_embed", None)
    height, width = getattr(patches, "img_size", None) or model.pretrained_cfg["input_size"][1:]
    channels = next(module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d))
    classes = getattr(model, "num_classes", 0)
    need(classes > 0, "no head; give num_classes")
    ours = build(genotype, classes, (height, width), channels)
    own, theirs = ours.state_dict(), model.state_dict()
    renamed = in_order(own, theirs) if of_timm(model) else _by_name(own, theirs, genotype)
    ours.load_state_dict(renamed, strict=False)  # without the numbers of steps that norms have seen
    ours.to(first.device, first.dtype)
    check_outputs(ours, model, (channels, height, width))
    return ours.train(model.training)


def _by_name(ours: dict[str, Tensor], theirs: dict[str, Tensor], genotype: Genotype) -> dict[str, Tensor]:
    """timm's tensors under our names; InputError if one is missing, of another shape, or left."""
    renamed = {}
    for name, tensor in ours.items():
        source = timm_key(name, genotype)
        need(source in theirs, f"no parameter {source}, which {genotype.family} nets have")
        need(theirs[source].numel() == tensor.numel(), f"{source} of shape {tuple(theirs[source].shape)}")
        renamed[name] = theirs.pop(source).reshape(tensor.shape)
    need(not theirs, f"parameters without a place: {', '.join(list(theirs)[:3])}")
    return renamed


def to_timm(network: Network) -> dict[str, Tensor]:
    """The weights by names and shapes of timm's model of the same net; InputError, with the part, if timm has none."""
    net = network.genotype
    if (name := by_order_name(net)) is not None:
        return given_over(network, name)
    _check_in_timm(net)
    state = {timm_key(name, net): tensor for name, tensor in network.state_dict().items()}
    if net.encoder is None and net.style.order == "pre":
        state["head.fc.weight"] = state["head.fc.weight"][:, :, None, None]  # timm's is a 1x1 conv
    return state


def timm_key(name: str, net: Genotype) -> str:
    """timm's name of our parameter `name`: patterns are replaced one after the other."""
    for ours, theirs in _renames(net):
        name = re.sub(ours, theirs, name)
    return name


def _renames(net: Genotype) -> list[tuple[str, str]]:
    if net.encoder is None and net.style.order == "post":
        layers = [(rf"^stages\.{i}\.", f"layer{i + 1}.") for i in range(len(net.stages))]
        inside = [(r"\.shortcut\.", ".downsample."), (r"\.norm(\d)", r".bn\1")]
        return [*layers, *inside, (r"^stem\.0", "conv1"), (r"^stem\.1", "bn1"), (r"^head\.", "fc.")]
    pairs = [(r"^stages\.(\d+)\.(\d+)", r"stages.\1.blocks.\2")]
    if net.style.order == "post":
        pairs += [(r"shortcut\.0", "downsample.conv"), (r"shortcut\.1", "downsample.norm")]
    else:
        pairs += [(r"shortcut", "downsample.conv")]
    pairs += [(r"^stem\.0", "stem.conv"), (r"^stem\.1", "stem.norm")]
    if net.encoder is None:
        return [*pairs, (r"^head\.", "head.fc.")]
    trunk = (r"^(stem|stages)\.", r"patch_embed.backbone.\1.") if net.stages else (r"^stem\.", "patch_embed.backbone.")
    tokens = [(r"^encoder\.proj", "patch_embed.proj"), (r"^encoder\.positions\.0\.table", "pos_embed")]
    return [*pairs, trunk, *tokens, (r"^encoder\.", "")]


def _check_in_timm(net: Genotype) -> None:
    """Raise InputError if no ResNet, ResNetV2 or VisionTransformer of timm can be this net."""
    kinds = net.kinds - {"basic", "bottleneck"}
    spec, style = net.encoder, (net.style.order, net.style.norm)
    stem = {"vit": "none", "hybrid": "bit"}.get(net.family, "imagenet")
    styles = [("post", "group")] if spec else [("post", "batch"), ("pre", "batch"), ("pre", "group")]
    usual = spec is None or (spec.position, spec.position_at, spec.local, spec.skipless) == ("1d", "stem", 0, 0)
    for here, part in (
        (not kinds, f"blocks {', '.join(sorted(kinds))}"),
        (net.stem.kind == stem, f"stem {net.stem.kind!r} of a {net.family}"),
        (not net.stages or style in styles, f"style {style} of a {net.family}"),
        (bool(spec) or len(net.stages) == 4, f"{len(net.stages)} stages"),
        (all(s.stride == (2 if i else 1) for i, s in enumerate(net.stages)), "such strides"),
        (all(s.width == net.stem.width * 2**i for i, s in enumerate(net.stages)), "such widths"),
        (usual, "such positions or local attention in an encoder"),
        (net.head == Head("token" if spec else "avg"), f"head {net.head}"),
    ):
        if not here:
            raise InputError(f"timm has no net with {part}")


def read(model: Any) -> Genotype:
    """The genotype of one of timm's models; InputError if the net has a part that no genotype has."""
    if (known := of_timm(model)) is not None:
        return known
    if isinstance(model, resnet.ResNet):
        root: Any = model.conv1
        need(type(root) is nn.Conv2d, "a deep stem")
        stages = [getattr(model, f"layer{i}") for i in (1, 2, 3, 4)]
        return Genotype(Stem("imagenet", root.out_channels), _read_stages(stages), style=Style("post"))
    if isinstance(model, resnetv2.ResNetV2):
        stem, style = _read_root(model)
        return Genotype(stem, _read_stages([stage.blocks for stage in model.stages]), style=style)
    need(isinstance(model, VisionTransformer), f"the class {type(model).__name__}")
    blocks, patches = list(model.blocks), model.patch_embed
    need(bool(blocks), "no blocks")
    first = blocks[0]
    need(model.num_prefix_tokens == 1 and model.cls_token is not None, "other tokens than one class token")
    need(model.global_pool == "token", f"global pool {model.global_pool!r}")
    need(hasattr(getattr(first, "attn", None), "qkv"), f"blocks of class {type(first).__name__}")
    need(hasattr(first.mlp, "fc1"), f"an MLP of class {type(first.mlp).__name__}")
    act = first.mlp.act
    need(isinstance(act, nn.GELU) and act.approximate == "none", f"the activation {act}")
    stem, trunk, style = Stem("none"), (), PREACTIVATION
    backbone = getattr(patches, "backbone", None)
    if backbone is not None:
        need(hasattr(backbone, "stem") or hasattr(backbone, "conv"), f"a trunk of class {type(backbone).__name__}")
        stem, style = _read_root(backbone)
        inner: Any = backbone.stages if isinstance(backbone, resnetv2.ResNetV2) else []
        trunk = _read_stages([stage.blocks for stage in inner])
        style = style if trunk else PREACTIVATION
    encoder = Encoder(
        model.embed_dim,
        len(blocks),
        first.attn.num_heads,
        first.mlp.fc1.out_features / model.embed_dim,
        patches.proj.kernel_size[0],
        first.attn.qkv.bias is not None,
    )
    return Genotype(stem, trunk, encoder, Head("token"), style)


def _read_root(model: Any) -> tuple[Stem, Style]:
    root = getattr(model, "stem", model)
    need(hasattr(root, "conv"), "a deep stem")
    grouped = any(isinstance(module, GroupNormAct | nn.GroupNorm) for module in model.modules())
    style = Style("post" if hasattr(root, "norm") else "pre", "group" if grouped else "batch")
    kind = "bit" if style == Style("post", "group") else "imagenet"
    return Stem(kind, root.conv.out_channels), style


def _read_stages(runs: list[Any]) -> tuple[Stage, ...]:
    stages = []
    for number, blocks in enumerate(runs):
        first = next(iter(blocks))
        need(type(first) in BLOCK_KINDS, f"blocks of class {type(first).__name__}")
        kind = BLOCK_KINDS[type(first)]
        conv = first.conv3 if kind == "bottleneck" else first.conv2
        stages.append(Stage(kind, len(blocks), conv.out_channels // BLOCKS[kind].expansion, 2 if number else 1))
    return tuple(stages)


class Pair(NamedTuple):
    """A tensor of ours and timm's in its place."""

    name: str
    own: Tensor
    their_name: str
    theirs: Tensor


def of_timm(model: Any) -> Genotype | None:
    """The zoo's net of this model's architecture, if it is one of those; it may have other classes and channels."""
    name = (getattr(model, "pretrained_cfg", None) or {}).get("architecture", "")
    return BY_ORDER[name].make(224) if name in BY_ORDER else None


def by_order_name(net: Genotype) -> str | None:
    """timm's name of a net that is taken over by order; None if it is none of those."""
    return next((name for name, entry in BY_ORDER.items() if entry.make(224).key == net.key), None)


def in_order(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's tensors under our names; InputError if it is another net than its name says."""
    return {pair.name: pair.theirs.reshape(pair.own.shape) for pair in _paired(ours, theirs)}


def given_over(network: Network, name: str) -> dict[str, Tensor]:
    """The network's weights by the names and shapes of timm's model `name`, which is the same net."""
    with torch.device("meta"):
        model = create(name, False, network.num_classes, network.in_chans, network.image_size)
    pairs = _paired(network.state_dict(), model.state_dict())
    return {pair.their_name: pair.own.reshape(pair.theirs.shape) for pair in pairs}


def _paired(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> list[Pair]:
    """Tensors of two nets in their order, but for the numbers of steps that norms have seen."""
    own, other = ([item for item in state.items() if item[1].dim()] for state in (ours, theirs))
    need(len(own) == len(other), f"{len(other)} tensors, where the zoo's net has {len(own)}")
    pairs = [Pair(*mine, name, tensor) for mine, (name, tensor) in zip(own, other, strict=True)]
    for pair in pairs:
        had, got = (tuple(tensor.shape) for tensor in (pair.own, pair.theirs))
        need(
            [side for side in had if side > 1] == [side for side in got if side > 1],
            f"{pair.their_name} of shape {got}, where the zoo's {pair.name} has {had}",
        )
    return pairs


def need(condition: bool, what: str) -> None:
    if not condition:
        raise InputError(f"timm: this net has {what}: no genotype says that")


@torch.no_grad()
def check_outputs(ours: Network, theirs: nn.Module, shape: tuple[int, ...]) -> None:
    """Equal outputs for one image of noise: parameters alone do not show padding, pooling, activations."""
    training = theirs.training
    noise, first = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)), next(theirs.parameters())
    x_BCHW = noise.to(first.device, first.dtype)
    try:
        expected, got = theirs.eval()(x_BCHW), ours.eval()(x_BCHW)
    except RuntimeError as error:
        raise InputError(f"timm: this net does not run on {tuple(shape)}: {str(error).splitlines()[0]}") from None
    finally:
        theirs.train(training)
    need(expected.shape == got.shape, f"outputs of shape {tuple(expected.shape)}")
    apart = ((expected - got).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
    need(apart < TOLERANCE, f"outputs that differ from its genotype's by {apart:.1e} of the largest")
