"""Attention recomputed, positions, patch filters, rollout and heads: closed forms, and other ways to each number."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import timm
import torch
from analysed import images, net_of, pixels, subject
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity
from timm.layers.attention import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from alternas.archs import InputError, build
from alternas.archs.blocks.attention import WindowAttention, from_windows
from alternas.results.analysis import head_cka as heads
from alternas.results.analysis import patch_filters as filters
from alternas.results.analysis import position_embeddings as positions
from alternas.results.analysis import rollout
from alternas.results.analysis.attention_distance import attention_distances, mean_distances, pixel_distances
from alternas.results.analysis.cka import hsic
from alternas.results.analysis_tools.attention_weights import attention_sites, attention_weights, head_outputs
from alternas.results.analysis_tools.hooks import captured, entering, residual_points
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


def test_similarity_is_scikit_learns_cosine() -> None:
    one = subject("vit")
    tables, grid = positions.position_tables(one.net)
    assert (list(tables), grid) == (["encoder"], (4, 4))
    table: Any = one.net.get_submodule("encoder.positions.0").table
    wanted = cosine_similarity(table.detach()[0, 1:].double().numpy())
    np.testing.assert_allclose(positions.similarity(tables["encoder"]).numpy(), wanted, atol=1e-12)
    finding = positions.analyse(one)
    row = finding.rows[5]  # place 1, 1
    assert row["neighbours"] == pytest.approx(wanted[5, [1, 4, 6, 9]].mean())
    assert row["same_row"] == pytest.approx(wanted[5, [4, 6, 7]].mean())
    assert row["same_column"] == pytest.approx(wanted[5, [1, 9, 13]].mean())
    assert row["elsewhere"] == pytest.approx(wanted[5, [0, 2, 3, 8, 10, 11, 12, 14, 15]].mean())


def test_positions_of_other_kinds() -> None:
    tables, _ = positions.position_tables(subject("vit 2-D in every layer").net)
    assert {name: table.shape for name, table in tables.items()} == {f"encoder {i}": (16, 16) for i in (1, 2)}
    both = positions.similarity(torch.cat([torch.eye(4).repeat_interleave(4, 0), torch.eye(4).repeat(4, 1)], 1))
    rows = positions.similarity_rows("2-D", both.numpy(), (4, 4))
    assert all(row["same_row"] == row["same_column"] == pytest.approx(0.5) for row in rows)
    assert {row["elsewhere"] for row in rows} == {0}
    near, lines = positions.findings(rows)
    assert (lines.value, lines.verdict) == (pytest.approx(0.5), "more alike")
    assert near.verdict == "more alike", "neighbours are of one row or column"
    flat = positions.findings(positions.similarity_rows("flat", np.ones((16, 16)), (4, 4)))
    assert [finding.verdict for finding in flat] == ["undecided"] * 2
    timms: Any = subject("timm vit").net
    assert torch.equal(positions.position_tables(timms)[0]["encoder"], timms.pos_embed[0, 1:])
    for name, why in (("vit relative", "are relative"), ("vit without positions", "no position"), ("msa", "no tokens")):
        with pytest.raises(InputError, match=f"^positions: .*{why}"):
            positions.analyse(subject(name))


@pytest.mark.parametrize("name", ["vit", "patchify", "timm vit"])
def test_components_are_scikit_learns(name: str) -> None:
    found = filters.patch_filters(subject(name).net)
    parts, shares = filters.components(found)
    wanted = PCA().fit(found.flatten(1).double().numpy())
    np.testing.assert_allclose(shares.numpy(), wanted.explained_variance_ratio_, atol=1e-9)
    np.testing.assert_allclose(np.abs(parts[:3].flatten(1).numpy()), np.abs(wanted.components_[:3]), atol=1e-6)
    finding = filters.analyse(subject(name))
    assert finding.rows[-1]["cumulative"] == pytest.approx(1)


def test_nets_without_patches_are_refused() -> None:
    for name in ("hybrid", "basic", "root"):
        with pytest.raises(InputError, match=r"^filters: this net makes no patches of the image$"):
            filters.analyse(subject(name))


def plain_attention(net: Any, x: Tensor) -> list[np.ndarray]:
    """The weights of each layer of a ViT without masks or relative keys, from its residual stream, written out."""
    sites = residual_points(net)
    heard, found = captured(net, sites, x), []
    for i, block in enumerate(net.encoder.blocks):
        z = heard["encoder embedding" if i == 0 else f"encoder {i} mlp"]
        qkv = block.attn.qkv(block.norm1(z)).detach().numpy().reshape(len(x), z.shape[1], 3, 2, -1)
        logits = np.einsum("bihd,bkhd->bhik", qkv[:, :, 0], qkv[:, :, 1]) / qkv.shape[-1] ** 0.5
        found.append(np.exp(logits) / np.exp(logits).sum(3, keepdims=True))
    return found


@pytest.mark.parametrize("name", ["vit", "vit pooled"])
def test_a_rollout_written_out(name: str) -> None:
    one = subject(name)
    found, logits, grid = rollout.rollout(one.net, one.images.x_NCHW)
    tokens = 17 if name == "vit" else 16
    product = np.eye(tokens)
    for a in plain_attention(one.net, one.images.x_NCHW):
        product = (0.5 * a.mean(1) + 0.5 * np.eye(tokens)) @ product
    wanted = product[:, 0, 1:] / product[:, 0, 1:].sum(1, keepdims=True) if name == "vit" else product.mean(1)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6)
    assert grid == (4, 4)
    with torch.no_grad():
        torch.testing.assert_close(logits, one.net.eval()(one.images.x_NCHW))
    assert len(rollout.analyse(one).rows) == 8


def test_rollouts_of_known_attention() -> None:
    a = torch.eye(4).expand(2, 3, 4, 4)
    assert torch.equal(rollout.one_layer(a), torch.eye(4).double().expand(2, 4, 4))
    even = rollout.one_layer(torch.full((1, 3, 4, 4), 0.25))[0]
    assert even[0].tolist() == [0.625, 0.125, 0.125, 0.125]
    assert rollout.spread_of(np.full(8, 1 / 8)) == pytest.approx(8)
    assert rollout.spread_of(np.array([0, 1.0, 0])) == 1
    timms, _, _ = rollout.rollout(subject("timm vit").net, images(8).x_NCHW)
    torch.testing.assert_close(timms.sum(1), torch.ones(8).double())
    with pytest.raises(InputError, match="windows only"):
        rollout.analyse(subject("msa"))


def test_heads_have_the_cka_of_what_they_give() -> None:
    one, cnn = subject("vit", 12), subject("basic", 12)
    finding = heads.analyse(one, cnn, batch=12)
    x = one.images.x_NCHW
    weights = plain_attention(one.net, x)[1]
    block: Any = one.net.get_submodule("encoder.blocks.1")
    z = captured(one.net, residual_points(one.net), x)["encoder 1 mlp"]
    values = block.attn.qkv(block.norm1(z)).detach().double().unflatten(2, (3, 2, -1))[:, :, 2]
    y = np.einsum("bik,bkd->bid", weights[:, 1], values[:, :, 1].numpy()).reshape(12, -1)
    stem = captured(cnn.net, residual_points(cnn.net), x)["stem"].flatten(1).double()
    k, m = torch.from_numpy(y @ y.T), stem @ stem.T
    (row,) = [row for row in finding.rows if (row["layer"], row["head"], row["place"]) == ("encoder 2 msa", 1, "stem")]
    assert row["cka"] == pytest.approx(hsic(k, m) / (hsic(k, k) * hsic(m, m)) ** 0.5, abs=1e-5)
    assert len(finding.rows) == 4 * 2
    assert heads.analyse(subject("msa"), cnn).rows
    with pytest.raises(InputError, match="no attention"):
        heads.analyse(cnn, cnn)
