"""Blocks and networks: the contract of each, and outputs against independent computations."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from torch import Tensor

from alternas.archs import Encoder, Genotype, Head, Stage, Stem, build, zoo
from alternas.archs.attention import WindowAttention
from alternas.spaces import SPACES, RandomChooser, get

NETS = {
    "basic": Genotype(Stem("cifar", 8), (Stage("basic", 2, 8), Stage("basic", 2, 16, 2))),
    "bottleneck": Genotype(Stem("cifar", 8), (Stage("bottleneck", 2, 8), Stage("bottleneck", 2, 16, 2))),
    "msa": Genotype(Stem("cifar", 8), (Stage("basic", 2, 8, msa=1, heads=2, head_dim=4, window=4),)),
    "msa_bottleneck": Genotype(Stem("cifar", 8), (Stage("bottleneck", 4, 8, msa=2, heads=2, head_dim=4),)),
    "msa_first": Genotype(Stem("cifar", 8), (Stage("basic", 2, 16, msa=(0,), heads=1, head_dim=4, window=2),)),
    "imagenet": Genotype(Stem("imagenet", 8), (Stage("basic", 1, 8),)),
    "patchify": Genotype(Stem("patchify", 8, 2), (Stage("basic", 1, 8),)),
    "token": Genotype(Stem("cifar", 8), (Stage("basic", 1, 8),), Encoder(16, 2, 2, patch=2), Head("token")),
    "pooled": Genotype(Stem("cifar", 8), (Stage("basic", 1, 8),), Encoder(16, 1, 2, 1.5)),
    "root": Genotype(Stem("bit", 32), (), Encoder(16, 1, 2, patch=2), Head("token")),
}


@pytest.mark.parametrize("name", NETS)
def test_every_block_shape_and_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = build(NETS[name], 5, 16, 2)
    logits = model(torch.randn(3, 2, 16, 16))
    assert logits.shape == (3, 5)
    logits.square().sum().backward()
    for where, parameter in model.named_parameters():
        assert parameter.grad is not None, where
        assert parameter.grad.abs().sum() > 0, where


@pytest.mark.parametrize("space", SPACES)
def test_samples_build_and_train_a_step(space: str) -> None:
    chooser = RandomChooser(0)
    for _ in range(10):
        model = build(get(space, 8).sample(chooser), 10, 8, 1)
        model(torch.randn(2, 1, 8, 8)).sum().backward()


def plain_attention(module: WindowAttention, x_BCHW: Tensor) -> Tensor:
    """The definition, a window, a head and a query at a time."""
    p, q = module.window
    dim = module.qkv.out_channels // (3 * module.heads)
    inner = module.heads * dim
    qkv = module.qkv(x_BCHW)
    mixed = torch.zeros_like(qkv[:, :inner])
    for top in range(0, x_BCHW.shape[2], p):
        for left in range(0, x_BCHW.shape[3], q):
            for head in range(module.heads):
                query, key, value = (
                    qkv[:, part * inner + head * dim : part * inner + (head + 1) * dim, top : top + p, left : left + q]
                    for part in range(3)
                )
                for i in range(p):
                    for j in range(q):
                        scores = torch.einsum("bd,bdkl->bkl", query[:, :, i, j], key) / math.sqrt(dim)
                        for k in range(p):
                            for m in range(q):
                                scores[:, k, m] += module.table[k - i + p - 1, m - j + q - 1]
                        weights = scores.flatten(1).softmax(1).view_as(scores)
                        out = torch.einsum("bkl,bdkl->bd", weights, value)
                        mixed[:, head * dim : (head + 1) * dim, top + i, left + j] = out
    return module.out(mixed)


@pytest.mark.parametrize("window", [(2, 2), (4, 2), (4, 6)])
def test_window_attention_is_its_definition(window: tuple[int, int]) -> None:
    torch.manual_seed(0)
    module = WindowAttention(6, 5, heads=3, head_dim=4, window=window)
    with torch.no_grad():
        module.table.normal_()
        x = torch.randn(2, 6, 4, 6)
        torch.testing.assert_close(module(x), plain_attention(module, x), atol=1e-5, rtol=1e-4)


def test_hybrid_gives_timms_outputs() -> None:
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_r_s16_p8_224").eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    ours = build(zoo.get("vit_tiny_r_s16_p8"), 1000, 224).eval()
    moved = {
        "stem.0.weight": "patch_embed.backbone.conv.weight",
        "stem.1.weight": "patch_embed.backbone.norm.weight",
        "stem.1.bias": "patch_embed.backbone.norm.bias",
        "encoder.proj.weight": "patch_embed.proj.weight",
        "encoder.proj.bias": "patch_embed.proj.bias",
    }
    state = theirs.state_dict()
    named = {name: moved.get(name, name.removeprefix("encoder.")) for name in ours.state_dict()}
    assert sorted(named.values()) == sorted(state)
    ours.load_state_dict({name: state[source] for name, source in named.items()})
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)


def test_preactivation_trunk_is_timms() -> None:
    """timm's pre-activation ResNetV2-50 with BatchNorm: our bottlenecks, shortcuts and final norm."""
    torch.manual_seed(0)
    theirs = timm.create_model("resnetv2_50", num_classes=10).eval()
    ours = build(zoo.get("preresnet50", 224), 10, 224).eval()
    for net in (theirs, ours):
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
                torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    state, named = theirs.state_dict(), {}
    for name in ours.state_dict():
        source = name.replace("blocks.", "").replace("shortcut", "downsample.conv").replace("stem.0", "stem.conv")
        parts = source.split(".")
        if parts[0] == "stages":
            source = ".".join(["stages", parts[1], "blocks", *parts[2:]])
        named[name] = source.replace("head.", "head.fc.")
    ours.load_state_dict({n: state[s].reshape(ours.state_dict()[n].shape) for n, s in named.items()})
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)
