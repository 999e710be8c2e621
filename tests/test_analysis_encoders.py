"""Position embeddings, patch filters, rollout and heads: each against another way to the same number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from analysed import images, subject
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from alternas.archs import InputError
from alternas.results.analysis import head_cka as heads
from alternas.results.analysis import patch_filters as filters
from alternas.results.analysis import position_embeddings as positions
from alternas.results.analysis import rollout
from alternas.results.analysis.cka import hsic
from alternas.results.analysis_tools.hooks import captured, residual_points


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
