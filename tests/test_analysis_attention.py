"""Attention recomputed: with it the modules' real outputs come out, and distances are those of the closed forms."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import timm
import torch
from analysed import net_of, pixels
from timm.layers.attention import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from alternas.archs import InputError, build
from alternas.archs.blocks.attention import WindowAttention, from_windows
from alternas.results.analysis.attention_distance import attention_distances, mean_distances, pixel_distances
from alternas.results.analysis_tools.attention_weights import attention_sites, attention_weights, head_outputs
from alternas.results.analysis_tools.hooks import entering
from nets import NETS, lively

SHOWN = ("msa", "msa_a", "transformer")
ATTENTIVE = [  # with weights that can be shown: of linear attention there are none
    name
    for name, net in NETS.items()
    if net.encoder or any(stage.places and stage.attention in SHOWN for stage in net.stages)
]


def out_of_heads(module: Any, args: tuple[Any, ...]) -> Tensor:
    """The module's output from what its heads give, by its own projection."""
    y = head_outputs(module, args).transpose(1, 2).flatten(2)
    if isinstance(module, WindowAttention):
        batch, _, height, width = args[0].shape
        return from_windows(module.out(y), module.window, (batch, height, width))
    return module.proj(y)


@torch.no_grad()
def check_outputs(net: nn.Module, x: Tensor) -> int:
    found: list[tuple[Tensor, Tensor]] = []
    names = [site.module for site in attention_sites(net)]

    def compare(module: nn.Module, args: Any, y: Tensor) -> None:
        torch.testing.assert_close(weights := attention_weights(module, args).sum(3), torch.ones_like(weights))
        found.append((out_of_heads(module, args), y))

    hooks = [net.get_submodule(name).register_forward_hook(compare) for name in names]
    net(x)
    for hook in hooks:
        hook.remove()
    for ours, theirs in found:
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    return len(found)


@pytest.mark.parametrize("name", ATTENTIVE)
def test_weights_give_the_modules_output(name: str) -> None:
    genotype = NETS[name]
    wanted = sum(len(stage.places) for stage in genotype.stages) + (genotype.encoder.depth if genotype.encoder else 0)
    assert check_outputs(net_of(name), pixels()) == wanted


@pytest.mark.parametrize("qk_norm", [False, True])
def test_weights_give_timms_output(qk_norm: bool) -> None:
    net = VisionTransformer(img_size=16, patch_size=4, in_chans=2, num_classes=3, embed_dim=12, depth=2, num_heads=3,
                            qk_norm=qk_norm).eval()  # fmt: skip
    assert isinstance(net.blocks[0].attn, Attention)
    assert check_outputs(lively(net), pixels()) == 2


def mean_pairwise(grid: tuple[int, int], cell: float) -> float:
    at = list(itertools.product(range(grid[0]), range(grid[1])))
    return cell * sum(math.dist(one, two) for one in at for two in at) / len(at) ** 2


def test_distances_of_known_attention() -> None:
    grid = (3, 4)
    d = pixel_distances(grid, (8, 8))
    assert d[0, 5] == pytest.approx(8 * math.sqrt(2))
    assert pixel_distances(grid, (2, 8))[0, 5] == pytest.approx(math.hypot(2, 8))
    even = mean_distances(torch.zeros(2, 3, 12, 12), d)
    assert even.tolist() == pytest.approx([mean_pairwise(grid, 8)] * 3)
    assert mean_distances(torch.eye(12).expand(2, 3, 12, 12) * 1e4, d).tolist() == [0, 0, 0]


def silenced(net: nn.Module) -> nn.Module:
    """Queries, keys and tables of zeros: even attention."""
    with torch.no_grad():
        for site in attention_sites(net):
            module: Any = net.get_submodule(site.module)
            module.qkv.weight.zero_()
            if module.qkv.bias is not None:
                module.qkv.bias.zero_()
            if isinstance(module, WindowAttention):
                module.table.zero_()
    return net


def test_even_attention_has_the_mean_pairwise_distance() -> None:
    """Windows of 4x4 on a map of 16, maps of 16 x 16 whole, 4x4 tokens of 4 px behind a class token."""
    for name, grid, cell in (("msa", (4, 4), 1), ("msa_bottleneck", (16, 16), 1), ("vit", (4, 4), 4)):
        for reach in attention_distances(silenced(net_of(name)), [pixels(2), pixels(1)]).values():
            assert reach.heads == pytest.approx([mean_pairwise(grid, cell)] * len(reach.heads))
            assert reach.even == pytest.approx(reach.heads[0])
            assert reach.furthest == pytest.approx(cell * math.dist((1, 1), grid))


def test_windows_on_a_smaller_map_are_wider_in_the_image() -> None:
    wide = build(NETS["bit trunk with msa"], 5, 16, 2)  # its map has a side of 4
    (reach,) = attention_distances(silenced(wide), [torch.zeros(1, 2, 16, 16)]).values()
    assert reach.even == pytest.approx(mean_pairwise((4, 4), 4))


def test_the_class_token_is_left_out_and_rows_sum_to_1_again() -> None:
    net = net_of("vit")
    before = attention_distances(net, pixels().split(2))
    seen: list[Tensor] = []

    def see(name: str, module: Any, args: Any) -> None:
        seen.append(attention_weights(module, args)[:, :, 1:, 1:])

    with torch.no_grad(), entering(net, ["encoder.blocks.0.attn"], see):
        net(pixels())
    a = seen[0] / seen[0].sum(3, keepdim=True)
    wanted = (a * pixel_distances((4, 4), (4, 4))).sum(3).mean((0, 2))
    assert before["encoder 1 msa"].heads == pytest.approx(wanted.tolist(), rel=1e-5)
    assert seen[0].sum(3).mean() < 0.99


def test_a_local_vit_looks_as_far_as_its_mask() -> None:
    reach = attention_distances(net_of("vit local"), [pixels()])["encoder 2 msa"]
    assert reach.furthest == pytest.approx(4 * math.sqrt(2))
    assert max(reach.heads) < reach.furthest
    corner, edge, middle = (8 + 4 * math.sqrt(2)) / 4, (12 + 8 * math.sqrt(2)) / 6, (16 + 16 * math.sqrt(2)) / 9
    assert reach.even == pytest.approx((4 * corner + 8 * edge + 4 * middle) / 16)


def test_nets_without_attention_are_refused() -> None:
    with pytest.raises(InputError, match=r"^attention: this net has no attention$"):
        attention_sites(build(NETS["basic"], 5, 16, 2))
    with pytest.raises(InputError, match="no attention"):
        attention_sites(timm.create_model("resnet18"))
