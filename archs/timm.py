"""timm's models: made by name, counted, and turned into our networks and back (genotype, weights, outputs).

Reads timm's ResNet (resnet*), ResNetV2 (resnetv2_*, BiT among them) and VisionTransformer (vit_*, the hybrids with a
BiT trunk too). Everything is checked and nothing guessed: a net with a parameter that no genotype has is refused, and
so is one whose outputs differ. Counting is `FlopCounterMode` / 2, the convention of cost.py, so that nets of timm
stand beside ours.
"""

from __future__ import annotations

import difflib
import logging
import re
from typing import Any

import timm
import torch
from timm.layers.norm_act import GroupNormAct
from timm.models import resnet, resnetv2
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count

from .blocks.spec import BLOCKS
from .errors import InputError
from .genotype import Genotype
from .layout import Map
from .network import Network, build
from .parts import PREACTIVATION, Encoder, Head, Stage, Stem, Style

TOLERANCE = 1e-3  # of outputs whose largest is 1
BLOCK_KINDS = {
    resnet.BasicBlock: "basic",
    resnet.Bottleneck: "bottleneck",
    resnetv2.PreActBasic: "basic",
    resnetv2.PreActBottleneck: "bottleneck",
    resnetv2.Bottleneck: "bottleneck",
}
OPERATOR_KINDS = {
    "convolution": "conv",
    "mm": "linear",
    "addmm": "linear",
    "bmm": "attention",
    "baddbmm": "attention",
}
log = logging.getLogger(__name__)


def create(
    name: str,
    pretrained: bool = False,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: Map | None = None,
    drop_path: float = 0.0,
) -> nn.Module:
    """timm's model `name`; what is None is left to timm, and `image_size` where the net takes any.

    Stochastic depth of `drop_path` is timm's own.

    Raises:
        InputError: if timm does not know the name or refuses the numbers.
    """
    known, tagged = timm.list_models(), timm.list_pretrained()
    if name not in known and name not in tagged:
        base = name.split(".")[0]
        candidates = [n for n in tagged if n.startswith(f"{base}.")] if base in known else known
        near = difflib.get_close_matches(name, candidates, n=1)
        raise InputError(f"timm has no model {name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    more: dict[str, Any] = {"drop_path_rate": drop_path} if drop_path else {}
    try:
        given = create_args(name, num_classes, in_chans, image_size)
        return timm.create_model(name, pretrained=pretrained, **given, **more)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        raise InputError(f"timm: {name}: {_first_line(error)}") from None


def create_args(name: str, num_classes: int | None, in_chans: int | None, image_size: Map | None) -> dict[str, Any]:
    """What `timm.create_model` is given beside the name: what is not None, and the image size where it is fixed."""
    given: dict[str, Any] = {"num_classes": num_classes, "in_chans": in_chans}
    config = timm.get_pretrained_cfg(name)
    if config and config.fixed_input_size:  # the model is built for one image size
        given["img_size"] = image_size
    return {name: value for name, value in given.items() if value is not None}


def flop_counter() -> FlopCounterMode:
    """torch's FLOP counter, which before torch 2.15 leaves out attention on a CPU."""
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    formula = {on_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)}
    return FlopCounterMode(display=False, custom_mapping={} if on_cpu in flop_registry else formula)


def count(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, Any]:
    """`params`, `macs`, and `by_place` (the model's children) and `by_kind` (conv, linear, attention).

    Args:
        model: any, on any device, the meta device too; left in eval mode, without gradients.
        shape: (channels, height, width) of one image.
    """
    first = next(model.parameters())
    model.eval().requires_grad_(False)
    with flop_counter() as counter:
        model(torch.zeros(1, *shape, device=first.device, dtype=first.dtype))
    counts = counter.get_flop_counts()
    by_kind: dict[str, int] = {}
    for operator, flops in counts.get("Global", {}).items():
        name = str(operator).rsplit(".", 1)[-1]
        kind = "attention" if "attention" in name else OPERATOR_KINDS.get(name, name)
        by_kind[kind] = by_kind.get(kind, 0) + flops // 2
    by_place = {}
    for name, child in model.named_children():
        flops = sum(counts.get(f"{type(model).__name__}.{name}", {}).values())
        by_place[name] = {"params": sum(p.numel() for p in child.parameters()), "macs": flops // 2}
    return {
        "params": sum(p.numel() for p in model.parameters()),
        "macs": counter.get_total_flops() // 2,
        "by_place": by_place,
        "by_kind": {kind: {"macs": macs} for kind, macs in by_kind.items()},
    }


def count_timm(
    name: str, image_size: Map | None, num_classes: int | None, in_chans: int | None
) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """`count` of timm's model `name`, and the shape of the image it was counted with.

    Raises:
        InputError: if timm does not know the name, or the net takes no image of that size.
    """

    def counted() -> tuple[dict[str, Any], tuple[int, int, int]]:
        model: Any = create(name, False, num_classes, in_chans, image_size)
        channels, *sides = model.pretrained_cfg["input_size"]
        height, width = image_size or sides
        shape = (in_chans or channels, height, width)
        return count(model, shape), shape

    try:
        with torch.device("meta"):
            return counted()
    except (NotImplementedError, RuntimeError, TypeError, AssertionError) as error:
        reason = _first_line(error)
    try:
        counts = counted()
    except InputError:
        raise
    except (AssertionError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"timm: {name} takes no such image ({_first_line(error)})") from None
    log.warning("timm: %s was not counted on the meta device but on the CPU (%s)", name, reason)
    return counts


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def load(name: str, pretrained: bool = True, num_classes: int | None = None) -> Network:
    """timm's model `name` as one of our networks, with its weights (downloaded if `pretrained`).

    Raises:
        InputError: if timm does not know the name, or the net has no genotype.
    """
    return convert(create(name, pretrained, num_classes=num_classes))


def convert(model: Any) -> Network:
    """One of timm's models as one of our networks, with its weights and outputs.

    Raises:
        InputError: if the net has a part that no genotype has.
    """
    first = next(model.parameters())
    _need(first.device.type != "meta", "no weights: it is on the meta device")
    genotype, patches = read(model), getattr(model, "patch_embed", None)
    height, width = model.pretrained_cfg["input_size"][1:] if patches is None else patches.img_size
    channels = next(module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d))
    classes = getattr(model, "num_classes", 0)
    _need(classes > 0, "no head; give num_classes")
    ours = build(genotype, classes, (height, width), channels)
    theirs, renamed = model.state_dict(), {}
    for name, tensor in ours.state_dict().items():
        source = timm_key(name, genotype)
        _need(source in theirs, f"no parameter {source}, which {genotype.family} nets have")
        _need(theirs[source].numel() == tensor.numel(), f"{source} of shape {tuple(theirs[source].shape)}")
        renamed[name] = theirs.pop(source).reshape(tensor.shape)
    _need(not theirs, f"parameters without a place: {', '.join(list(theirs)[:3])}")
    ours.load_state_dict(renamed)
    ours.to(first.device, first.dtype)
    _check_outputs(ours, model, (channels, height, width))
    return ours.train(model.training)


def to_timm(network: Network) -> dict[str, Tensor]:
    """The network's weights by the names and shapes of timm's model of the same net.

    Raises:
        InputError: if timm has no such net, naming the part that it does not have.
    """
    net = network.genotype
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
    usual = spec is None or (spec.position, spec.position_at, spec.local) == ("1d", "stem", 0)
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
    if isinstance(model, resnet.ResNet):
        root: Any = model.conv1
        _need(type(root) is nn.Conv2d, "a deep stem")
        stages = [getattr(model, f"layer{i}") for i in (1, 2, 3, 4)]
        return Genotype(Stem("imagenet", root.out_channels), _read_stages(stages), style=Style("post"))
    if isinstance(model, resnetv2.ResNetV2):
        stem, style = _read_root(model)
        return Genotype(stem, _read_stages([stage.blocks for stage in model.stages]), style=style)
    _need(isinstance(model, VisionTransformer), f"the class {type(model).__name__}")
    blocks, patches = list(model.blocks), model.patch_embed
    _need(bool(blocks), "no blocks")
    first = blocks[0]
    _need(model.num_prefix_tokens == 1 and model.cls_token is not None, "other tokens than one class token")
    _need(model.global_pool == "token", f"global pool {model.global_pool!r}")
    _need(hasattr(getattr(first, "attn", None), "qkv"), f"blocks of class {type(first).__name__}")
    _need(hasattr(first.mlp, "fc1"), f"an MLP of class {type(first.mlp).__name__}")
    act = first.mlp.act
    _need(isinstance(act, nn.GELU) and act.approximate == "none", f"the activation {act}")
    stem, trunk, style = Stem("none"), (), PREACTIVATION
    backbone = getattr(patches, "backbone", None)
    if backbone is not None:
        _need(hasattr(backbone, "stem") or hasattr(backbone, "conv"), f"a trunk of class {type(backbone).__name__}")
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
    """Stem and style of a ResNetV2, or of its stem alone."""
    root = getattr(model, "stem", model)
    _need(hasattr(root, "conv"), "a deep stem")
    grouped = any(isinstance(module, GroupNormAct | nn.GroupNorm) for module in model.modules())
    style = Style("post" if hasattr(root, "norm") else "pre", "group" if grouped else "batch")
    kind = "bit" if style == Style("post", "group") else "imagenet"
    return Stem(kind, root.conv.out_channels), style


def _read_stages(runs: list[Any]) -> tuple[Stage, ...]:
    stages = []
    for number, blocks in enumerate(runs):
        first = next(iter(blocks))
        _need(type(first) in BLOCK_KINDS, f"blocks of class {type(first).__name__}")
        kind = BLOCK_KINDS[type(first)]
        conv = first.conv3 if kind == "bottleneck" else first.conv2
        stages.append(Stage(kind, len(blocks), conv.out_channels // BLOCKS[kind].expansion, 2 if number else 1))
    return tuple(stages)


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise InputError(f"timm: this net has {what}: no genotype says that")


@torch.no_grad()
def _check_outputs(ours: Network, theirs: nn.Module, shape: tuple[int, ...]) -> None:
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
    _need(expected.shape == got.shape, f"outputs of shape {tuple(expected.shape)}")
    apart = ((expected - got).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
    _need(apart < TOLERANCE, f"outputs that differ from its genotype's by {apart:.1e} of the largest")
