"""Inverted bottlenecks, mobile attention and plain convs: rules, and equality with timm's blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from timm.layers.attention2d import MultiQueryAttention2d
from timm.models._efficientnet_blocks import EdgeResidual, UniversalInvertedResidual
from torch import nn

from alternas.archs import Genotype, InputError, Stage, build
from alternas.archs.blocks.mobile_entries import divisible
from alternas.archs.network import load_class
from nets import CIFAR, lively


def block_of(stage: Stage) -> Any:
    """The last block of a stage behind a map of 8 channels."""
    at = Genotype(CIFAR, (stage,)).plan(16, 3).stages[0][-1]
    return load_class(at.form.module)(at)


def check_equal(ours: Any, theirs: nn.Module) -> None:
    torch.manual_seed(0)
    lively(theirs).eval()
    pairs = zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True)
    ours.load_state_dict({name: value.reshape(own.shape) for (name, own), value in pairs})
    x = torch.randn(2, 8, 15, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), theirs(x))


@pytest.mark.parametrize(("start", "kernel"), [(0, 3), (5, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convs_stand_and_stride_where_timms_do(start: int, kernel: int, stride: int) -> None:
    if stride == 2 and not start + kernel:
        return
    ours = block_of(Stage("uib", 1, 8, stride, start_kernel=start, kernel=kernel, expand=3, layer_scale=0.5))
    check_equal(
        ours, UniversalInvertedResidual(8, 8, start, kernel, 0, stride, exp_ratio=3, layer_scale_init_value=0.5)
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_fused_blocks_are_timms(stride: int) -> None:
    check_equal(block_of(Stage("uib", 1, 8, stride, fused=True, kernel=5)), EdgeResidual(8, 8, 5, stride, exp_ratio=4))


@pytest.mark.parametrize("stride", [1, 2])
def test_keys_and_values_are_of_one_head(stride: int) -> None:
    stage = Stage("uib", 1, 8, msa=(0,), heads=3, head_dim=4, attention="mqa", kv_stride=stride)
    check_equal(block_of(stage).attn, MultiQueryAttention2d(8, 8, 3, 4, 4, kv_stride=stride))


def test_a_block_that_changes_its_map_has_no_shortcut() -> None:
    for stage in (Stage("uib", 1, 8, 2), Stage("uib", 1, 12), Stage("conv", 1, 8)):
        assert not hasattr(block_of(stage), "drop_path")
    assert isinstance(block_of(Stage("uib", 1, 8)).drop_path, nn.Identity)


@pytest.mark.parametrize(("channels", "rounded"), [(4, 8), (12, 16), (18, 24), (44.8, 48), (105.6, 104), (960.0, 960)])
def test_channels_are_multiples_of_8(channels: float, rounded: int) -> None:
    assert divisible(channels) == rounded


@pytest.mark.parametrize(
    ("stage", "rule"),
    [
        (Stage("uib", 1, 8, 2, kernel=0), "stage 1: a uib block strides in a depthwise conv"),
        (Stage("uib", 1, 8, fused=True, kernel=0), "stage 1: a fused uib block is a conv of its kernel, got kernel 0"),
        (Stage("uib", 1, 8, start_kernel=4), "stage 1: start_kernel must be 0 or an odd number"),
        (Stage("uib", 1, 8, se=65), "stage 1: se must be a number from 0 to 64, got 65"),
        (Stage("convnext", 1, 8, kernel=0), "stage 1: kernel of convnext blocks must be odd, got 0"),
        (
            Stage("uib", 2, 8, msa=1, attention="mqa", kv_stride=0),
            "stage 1: kv_stride must be a whole number from 1 to 255, got 0",
        ),
        (Stage("mbconv", 1, 8, start_kernel=3), "stage 1: start_kernel is of blocks uib, got block 'mbconv'"),
    ],
)
def test_rules_of_options(stage: Stage, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        Genotype(CIFAR, (stage,))


def test_mobile_attention_takes_maps_of_any_size() -> None:
    stage = Stage("uib", 2, 8, msa=1, heads=2, head_dim=4, attention="mqa", kv_stride=2)
    net = build(Genotype(CIFAR, (stage,)), 5, 16).eval()
    assert net(torch.randn(2, 3, 19, 22)).shape == (2, 5)
    assert "window" not in repr(Genotype(CIFAR, (replace(stage, window=4),)).canonical())
