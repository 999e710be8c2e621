"""Small nets, one for each block, stem, style, position embedding and head; for 16 px and 2 channels."""

import ast
import math
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alternas.archs import Encoder, Genotype, Head, Stage, Stem, Style
from alternas.archs.blocks.axes import Axis

CIFAR = Stem("cifar", 8)
MSA = Stage("basic", 2, 8, msa=1, heads=2, head_dim=4, window=4)
LINEAR = Stage("uib", 2, 16, head_dim=4, attention="linear")
WIDE = (Stage("bottleneck", 2, 32), Stage("bottleneck", 2, 32, 2))
VIT = Encoder(16, 2, 2, patch=4)
MIXED = Genotype(  # kinds that int8 treats in different ways
    CIFAR, (Stage("mbconv", 2, 8, msa=1, heads=2, head_dim=4, window=4, se=0.25), Stage("convnext", 1, 12, 2))
)


def vit(pool: str = "token", encoder: Encoder = VIT) -> Genotype:
    return Genotype(Stem("none"), (), encoder, Head(pool))


def modern(block: str) -> Genotype:
    return Genotype(CIFAR, (Stage(block, 2, 8), Stage(block, 2, 16, 2)))


NETS = {
    "basic": Genotype(CIFAR, (Stage("basic", 2, 8), Stage("basic", 2, 16, 2))),
    "bottleneck": Genotype(CIFAR, (Stage("bottleneck", 2, 8), Stage("bottleneck", 2, 16, 2))),
    "post basic": Genotype(CIFAR, (Stage("basic", 2, 8), Stage("basic", 2, 16, 2)), style=Style("post")),
    "post bottleneck": Genotype(CIFAR, (Stage("bottleneck", 2, 8), Stage("bottleneck", 2, 8, 2)), style=Style("post")),
    "bit": Genotype(Stem("imagenet", 32), WIDE, style=Style("pre", "group")),
    "bit cifar": Genotype(Stem("cifar", 32), WIDE[:1], style=Style("pre", "group")),
    "bit trunk": Genotype(Stem("bit", 32), WIDE, Encoder(16, 1, 2), Head("token"), Style("post", "group")),
    "bit trunk with msa": Genotype(Stem("bit", 32), (replace(WIDE[0], msa=1),), style=Style("post", "group")),
    "msa": Genotype(CIFAR, (MSA,)),
    "msa_bottleneck": Genotype(CIFAR, (Stage("bottleneck", 4, 8, msa=2, heads=2, head_dim=4),)),
    "msa_first": Genotype(CIFAR, (Stage("basic", 2, 16, msa=(0,), heads=1, head_dim=4, window=2),)),
    "msa_a": Genotype(CIFAR, (replace(MSA, attention="msa_a"),), style=Style("post")),
    "msa_a first": Genotype(CIFAR, (replace(MSA, width=16, msa=(0,), attention="msa_a"),)),
    "msa in post": Genotype(CIFAR, (MSA, Stage("basic", 1, 8, 2)), style=Style("post")),
    "per head": Genotype(CIFAR, (replace(MSA, per_head=True),)),
    "mbconv": modern("mbconv"),
    "convnext": modern("convnext"),
    "transformer": Genotype(CIFAR, (replace(MSA, attention="transformer", mlp_ratio=1.5),)),
    "transformer first": Genotype(CIFAR, (replace(MSA, attention="transformer", width=16, msa=(0, 1), window=0),)),
    "post mbconv": replace(modern("mbconv"), style=Style("post")),
    "mbconv with options": Genotype(CIFAR, (Stage("mbconv", 2, 8, 2, kernel=5, expand=2, se=0),)),
    "convnext with options": Genotype(CIFAR, (Stage("convnext", 2, 8, 2, kernel=3, expand=3),)),
    "uib": modern("uib"),
    "uib with both": Genotype(CIFAR, (Stage("uib", 2, 16, 2, kernel=5, start_kernel=3, expand=2, act="gelu"),)),
    "uib strided first": Genotype(CIFAR, (Stage("uib", 2, 16, 2, kernel=0, start_kernel=5, layer_scale=0.5),)),
    "uib separable": Genotype(CIFAR, (Stage("uib", 2, 16, 2, expand=1, se=1.5, act="hard_swish"),)),
    "uib fused": Genotype(CIFAR, (Stage("uib", 2, 16, 2, fused=True, se=0.25, act="silu"),)),
    "uib feed-forward": Genotype(CIFAR, (Stage("uib", 2, 8, kernel=0, expand=1.5), Stage("conv", 1, 8))),
    "conv": Genotype(CIFAR, (Stage("conv", 2, 8), Stage("conv", 1, 12, 2, kernel=1, act="silu"), Stage("uib", 1, 12))),
    "mqa": Genotype(CIFAR, (Stage("uib", 2, 8, msa=(1,), heads=2, head_dim=4, attention="mqa"),)),
    "mqa strided": Genotype(
        CIFAR, (Stage("uib", 2, 12, msa=(0, 1), heads=2, head_dim=4, attention="mqa", kv_stride=2, layer_scale=0.5),)
    ),
    "linear": Genotype(CIFAR, (replace(LINEAR, width=8, msa=(1,)),)),
    "linear first": Genotype(CIFAR, (replace(LINEAR, msa=(0, 1), mlp_ratio=1.5, act="relu"),)),
    "linear behind a stride": Genotype(CIFAR, (replace(LINEAR, depth=3, stride=2, msa=(1, 2), fewer_norms=True),)),
    "uib with fewer norms": Genotype(
        CIFAR, (Stage("uib", 2, 8, 2, kernel=5, expand=2, act="gelu", start_kernel=3, fewer_norms=True),)
    ),
    "scaled convnext": Genotype(CIFAR, (Stage("downsample", 1, 12, 2), Stage("convnext", 2, 12, layer_scale=0.1))),
    "gated_conv": modern("gated_conv"),
    "gated_conv with options": Genotype(
        Stem("conv", 8, before=(4,), act="gelu", norm="layer", ends_with="norm"),
        (Stage("gated_conv", 1, 8, kernel=3, expand=0.75), Stage("convnext", 1, 8)),
        head=Head(hidden=16, hidden_norm="layer", act_first=True, act="gelu", norm="layer"),
    ),
    "conv stem": Genotype(Stem("conv", 8, before=(6,), act="silu"), (Stage("basic", 1, 8),)),
    "conv stem without an end": Genotype(Stem("conv", 8, before=(6, 4), kernel=5, ends_with="norm"), WIDE[:1]),
    "patchify with overlap": Genotype(Stem("patchify", 8, 4, kernel=7, norm="layer"), (Stage("convnext", 1, 8),)),
    "conv head": Genotype(CIFAR, (Stage("basic", 1, 8),), head=Head(norm="none", conv=12, act="silu")),
    "normed hidden head": Genotype(
        CIFAR,
        (Stage("convnext", 1, 8),),
        head=Head(hidden=12, norm="layer", hidden_norm="layer", act="gelu", norm_eps=1e-5),
    ),
    "batch head": Genotype(
        CIFAR, (Stage("mbconv", 1, 8),), head=Head("avg", 12, "none", hidden_norm="batch", act_first=True)
    ),
    "imagenet": Genotype(Stem("imagenet", 8), (Stage("basic", 1, 8),)),
    "post imagenet": Genotype(Stem("imagenet", 8), (Stage("basic", 1, 8),), style=Style("post")),
    "patchify": Genotype(Stem("patchify", 8, 2), (Stage("basic", 1, 8),)),
    "hybrid": Genotype(CIFAR, (Stage("basic", 1, 8),), Encoder(16, 2, 2, patch=2), Head("token")),
    "hybrid pooled": Genotype(CIFAR, (Stage("basic", 1, 8),), Encoder(16, 1, 2, 1.5)),
    "root": Genotype(Stem("bit", 32), (), Encoder(16, 1, 2, patch=2), Head("token")),
    "vit": vit(),
    "vit pooled": vit("avg"),
    "vit without qkv bias": vit(encoder=replace(VIT, qkv_bias=False)),
    "vit without positions": vit(encoder=replace(VIT, position="none")),
    "vit 1-D in every layer": vit(encoder=replace(VIT, position_at="layers")),
    "vit 1-D shared": vit(encoder=replace(VIT, position_at="shared")),
    "vit 2-D": vit(encoder=replace(VIT, position="2d")),
    "vit 2-D in every layer": vit(encoder=replace(VIT, position="2d", position_at="layers")),
    "vit 2-D shared": vit("avg", replace(VIT, position="2d", position_at="shared")),
    "vit relative": vit(encoder=replace(VIT, position="relative", position_at="layers")),
    "vit relative shared": vit("avg", replace(VIT, position="relative", position_at="shared")),
    "vit local": vit(encoder=replace(VIT, local=3)),
    "vit local relative": vit(encoder=replace(VIT, local=3, position="relative", position_at="shared")),
    "hidden head": Genotype(CIFAR, (Stage("basic", 1, 8),), head=Head(hidden=12)),
    "hidden token head": replace(vit(), head=Head("token", 12)),
}

# Nets whose contract tests are slow ones: further options of kinds that have another net above.
FURTHER = {
    "convnext with options",
    *(
        "uib with both",
        "uib strided first",
        "uib separable",
        "uib feed-forward",
        "linear first",
        "linear behind a stride",
    ),
    *("uib with fewer norms", "batch head"),
    *("gated_conv with options", "conv stem without an end", "normed hidden head"),
    *("vit 1-D in every layer", "vit 2-D in every layer", "vit relative", "post mbconv"),
    *("bit cifar", "bit trunk with msa", "msa_a first", "post imagenet", "hybrid pooled", "vit without positions"),
}


def twice(net: Genotype) -> Genotype:
    """Twice the channels of the stem and of all stages, twice as many heads, each twice as large."""
    stages = [replace(s, width=2 * s.width, heads=2 * s.heads, head_dim=2 * s.head_dim) for s in net.stages]
    stem = replace(net.stem, width=2 * net.stem.width, before=tuple(2 * width for width in net.stem.before))
    return replace(net, stem=stem, stages=tuple(stages))


def index_in(axis: Axis, larger: Axis) -> list[int]:
    """The places in a larger axis of the same name that one takes."""
    index = [0]
    for part, whole in zip(axis.sizes, larger.sizes, strict=True):
        start = (whole - part) // 2 if axis.centred else 0
        index = [outer * whole + start + i for outer in index for i in range(part)]
    return index


TIMM_FAMILIES = {  # by a net of each, a side of its images that is as small as may be
    "test_resnet": 64,
    "resnet18": 64,
    "resnetv2_50x1_bit": 64,
    "regnety_004": 64,
    "convnext_atto": 64,
    "tf_efficientnet_lite0": 64,
    "mobilenetv3_small_100": 64,
    "mobilenetv4_conv_small": 64,
    "mobilenetv4_hybrid_medium": 64,
    "ghostnet_100": 64,
    "repvit_m0_9": 64,
    "fastvit_t8": 64,
    "mobileone_s0": 64,
    "efficientformer_l1": 224,
    "test_vit": 96,
    "efficientformerv2_s0": 224,
    "efficientvit_b0": 64,
    "levit_128s": 224,
    "tiny_vit_5m_224": 96,
    "mobilevit_xs": 64,
    "coatnet_nano_rw_224": 96,
    "maxvit_tiny_rw_224": 224,
    "swin_tiny_patch4_window7_224": 112,
    "vit_tiny_r_s16_p8_224": 96,
    "vit_small_r26_s32_224": 96,
    "edgenext_xx_small": 64,
    "caformer_s18": 64,
    "deit_tiny_distilled_patch16_224": 96,
    "hrnet_w18_small": 64,
    "densenet121": 64,
    "crossvit_tiny_240": 240,
    "test_efficientnet": 64,
}


def lively(model: nn.Module) -> Any:
    """With no weight at zero and norms away from the identity: else a block could hide."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-0.1, 0.1)
                module.running_var.uniform_(0.5, 1.5)
    return model


def plain_attention(module: Any, x_BCHW: Tensor) -> Tensor:
    """Attention by its definition: a window, a head, a query and a key at a time."""
    (p, q), heads = module.window, module.heads
    mixed = torch.zeros(len(x_BCHW), module.out.in_features, *x_BCHW.shape[2:]).unflatten(1, (heads, -1))
    projected = torch.einsum("oc,bchw->bohw", module.qkv.weight, x_BCHW).unflatten(1, (3, heads, -1))
    for top, left in product(range(0, x_BCHW.shape[2], p), range(0, x_BCHW.shape[3], q)):
        queries, keys, values = projected[..., top : top + p, left : left + q].unbind(1)
        for head, i, j in product(range(heads), range(p), range(q)):
            table, key = module.table if module.table.dim() == 2 else module.table[head], keys[:, head]
            scores = torch.einsum("bd,bdkl->bkl", queries[:, head, :, i, j], key) / math.sqrt(key.shape[1])
            scores += table[p - 1 - i : 2 * p - 1 - i, q - 1 - j : 2 * q - 1 - j]
            weights = scores.flatten(1).softmax(1).view_as(scores)
            mixed[:, head, :, top + i, left + j] = torch.einsum("bkl,bdkl->bd", weights, values[:, head])
    return torch.einsum("oc,bchw->bohw", module.out.weight, mixed.flatten(1, 2)) + module.out.bias[:, None, None]


def model_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An export's model.py, imported; it asks for nothing of alternas."""
    text = (folder / "model.py").read_text(encoding="utf-8")
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert "alternas" not in {ast.unparse(node).split()[1].split(".")[0] for node in imported}
    spec: Any = spec_from_file_location("model", folder / "model.py")
    module: Any = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "model", module)
    spec.loader.exec_module(module)
    return module
