"""Small nets, one for each block, stem, style, position embedding and head; for 16 px and 2 channels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from alternas.archs import Encoder, Genotype, Head, Stage, Stem, Style

CIFAR = Stem("cifar", 8)
MSA = Stage("basic", 2, 8, msa=1, heads=2, head_dim=4, window=4)
WIDE = (Stage("bottleneck", 2, 32), Stage("bottleneck", 2, 32, 2))
VIT = Encoder(16, 2, 2, patch=4)


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
    "strided keys": Genotype(
        CIFAR, (replace(MSA, attention="transformer", stride=3, window=0, kv_stride=2, kv_heads=1, per_head=True),)
    ),
    "shared keys": Genotype(CIFAR, (replace(MSA, attention="transformer", heads=4, kv_heads=2, mix=3),)),
    "conditional positions": Genotype(CIFAR, (replace(MSA, attention="transformer", position="conditional"),)),
    "msa with options": Genotype(
        CIFAR, (replace(MSA, window=0, stride=2, kv_stride=3, kv_heads=1, mix=3, position="conditional"),)
    ),
    "msa_a with options": Genotype(
        CIFAR, (replace(MSA, attention="msa_a", mix=5, position="none"),), style=Style("post")
    ),
    "conv_ffn": modern("conv_ffn"),
    "single head": Genotype(CIFAR, (Stage("conv_ffn", 2, 16, 2, 1, attention="single_head", mlp_ratio=1.5),)),
    "single head first": Genotype(
        CIFAR, (Stage("conv_ffn", 2, 16, 2, (0, 1), attention="single_head", part=0.5, kernel=5),)
    ),
    "post mbconv": replace(modern("mbconv"), style=Style("post")),
    "mbconv with options": Genotype(CIFAR, (Stage("mbconv", 2, 8, 2, kernel=5, expand=2, se=0),)),
    "convnext with options": Genotype(CIFAR, (Stage("convnext", 2, 8, 2, kernel=3, expand=3),)),
    "conv stem": Genotype(Stem("conv", 8, before=(6,), act="silu"), (Stage("basic", 1, 8),)),
    "conv stem without an end": Genotype(Stem("conv", 8, before=(6, 4), kernel=5, ends_with="conv"), WIDE[:1]),
    "patchify with overlap": Genotype(Stem("patchify", 8, 4, kernel=7, norm="layer"), (Stage("convnext", 1, 8),)),
    "conv head": Genotype(CIFAR, (Stage("basic", 1, 8),), head=Head(norm="none", conv=12, act="silu")),
    "normed hidden head": Genotype(
        CIFAR, (Stage("convnext", 1, 8),), head=Head(hidden=12, norm="layer", hidden_norm="layer", act="gelu")
    ),
    "distilled head": Genotype(CIFAR, (Stage("mbconv", 1, 8),), head=Head(norm="pooled_batch", distilled=True)),
    "batch head": Genotype(
        CIFAR, (Stage("mbconv", 1, 8),), head=Head("avg", 12, "batch", hidden_norm="batch", act_first=True)
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
