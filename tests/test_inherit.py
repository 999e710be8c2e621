"""Weight inheritance: functions that must survive it, values that must come across, reports that must add up."""

import copy
import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alternas import spaces
from alternas.archs import Encoder, Genotype, Head, Network, Stage, Stem, Style, build, resized
from alternas.archs.blocks.spec import BLOCKS
from alternas.search.training import inherit as module
from alternas.search.training import net2net as fit
from alternas.search.training.channel_order import channel_groups
from alternas.search.training.inherit import Inherited, aligned, inherit, summary
from nets import CIFAR, FURTHER, MSA, NETS, VIT, lively, twice, vit

TINY = Genotype(CIFAR, (Stage("basic", 2, 8), Stage("basic", 2, 16, 2)))


def trained(net: Genotype, classes: int = 5, size: int = 16, in_chans: int = 2) -> Any:
    """As if trained: every weight and statistic away from where it was born; in eval mode."""
    torch.manual_seed(1)
    model = build(net, classes, size, in_chans)
    lively(model)
    return model.eval()


def fresh(net: Genotype, classes: int = 5, size: int = 16, in_chans: int = 2) -> Any:
    torch.manual_seed(2)
    return build(net, classes, size, in_chans).eval()


def child_of(parent: Network, net: Genotype) -> tuple[Any, list[Inherited]]:
    child = fresh(net, parent.num_classes, parent.image_size[0], parent.in_chans)
    return child, inherit(child, parent)


def images(channels: int = 2, size: int = 16) -> Tensor:
    return torch.randn(3, channels, size, size, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def apart(one: nn.Module, other: nn.Module, x_BCHW: Tensor | None = None) -> float:
    x_BCHW = images() if x_BCHW is None else x_BCHW
    return (one(x_BCHW) - other(x_BCHW)).abs().max().item()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "NOISE", 0.0)


@pytest.mark.parametrize("name", NETS)
def test_the_same_net_is_copied_whole(name: str) -> None:
    parent = trained(NETS[name])
    child, rows = child_of(parent, NETS[name])
    assert {row.how for row in rows} == {"copied"}
    assert all(row.source == row.place for row in rows)
    assert summary(rows)["share"] == 1
    for key, value in parent.state_dict().items():  # buffers too
        assert torch.equal(value, child.state_dict()[key]), key
    assert apart(child, parent) == 0


@pytest.mark.parametrize(("kind", "other"), [("conv", "convnext"), ("convnext", "uib"), ("uib", "conv")])
def test_blocks_without_a_shortcut_take_the_place_of_others(kind: str, other: str) -> None:
    """Where it changes the shape such a block is no near identity: it is all that passes anything on."""
    parent = trained(Genotype(CIFAR, (Stage(kind, 2, 16, 2),)))
    child, rows = child_of(parent, Genotype(CIFAR, (Stage(other, 2, 16, 2),)))
    check_report(child, rows)
    assert child.forward_features(images()).std() > 0.01


def check_report(child: Network, rows: list[Inherited]) -> None:
    assert sum(row.params for row in rows) == sum(p.numel() for p in child.parameters())
    assert len({row.place for row in rows}) == len(rows)
    for row in rows:
        assert 0 <= row.taken <= row.params, row
        assert bool(row.source) == bool(row.taken), row
        assert (row.how == "fresh") <= (row.taken == 0), row
        assert (row.how in ("copied", "resized")) <= (row.taken == row.params), row


@pytest.mark.parametrize("space", ["modern", "all"])
def test_random_pairs_of_a_space(space: str) -> None:
    chooser, home = spaces.RandomChooser(0), spaces.get(space, 16)
    for i in range(6):
        parent = trained(home.sample(chooser), classes=10 - i % 2, in_chans=1 + i % 3)
        child = fresh(home.sample(chooser), classes=10, in_chans=3)
        check_report(child, inherit(child, parent))
        with torch.no_grad():
            assert child(images(3)).isfinite().all()


def test_a_parent_of_another_precision() -> None:
    parent = trained(NETS["hybrid"]).to(torch.bfloat16)
    child, rows = child_of(parent, NETS["hybrid"])
    assert {row.how for row in rows} == {"copied"}
    for name, value in parent.state_dict().items():
        assert torch.equal(child.state_dict()[name], value.to(child.state_dict()[name].dtype)), name


def test_a_conv_block_swapped_for_attention() -> None:
    parent = trained(Genotype(CIFAR, (Stage("basic", 2, 8),)))
    child, rows = child_of(parent, Genotype(CIFAR, (MSA,)))
    row = {row.place: row for row in rows}["stage 1 block 2"]
    assert (row.how, row.source, row.taken) == ("identity", "stage 1 block 2", 16)  # norm1
    msa, old = child.stages[0][1], parent.stages[0][1]
    assert 0 < msa.attn.out.weight.abs().max() < 0.02
    with torch.no_grad():
        msa.attn.out.weight.zero_()
        old.conv2.weight.zero_()
    assert apart(child, parent) == 0


def deeper(net: Genotype) -> Genotype:
    """One block more at the end of the first stage, or an encoder block."""
    if net.stages:
        return replace(net, stages=(replace(net.stages[0], depth=net.stages[0].depth + 1, msa=()), *net.stages[1:]))
    assert net.encoder is not None
    return replace(net, encoder=replace(net.encoder, depth=net.encoder.depth + 1))


GROUP = Genotype(Stem("cifar", 32), (Stage("bottleneck", 2, 32),), style=Style("pre", "group"))
DEEPER = {
    **{name: NETS[name] for name in ("basic", "bottleneck", "post basic", "mbconv", "convnext", "bit trunk")},
    "basic, group": replace(GROUP, stages=(Stage("basic", 2, 32),)),
    "bottleneck, group": GROUP,
    "vit": vit(),
    "vit layers": NETS["vit 2-D in every layer"],
}


@pytest.mark.parametrize("name", DEEPER)
def test_a_deeper_child_is_nearly_the_parent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, off = trained(DEEPER[name]), []
    for near in (0.01, 1e-5):
        monkeypatch.setattr(module, "NEAR", near)
        child, rows = child_of(parent, deeper(DEEPER[name]))
        off.append(apart(child, parent))
    assert [row.how for row in rows].count("identity") == 1
    with torch.no_grad():
        scale = parent(images()).abs().max().item()
    assert 0 < off[0] < 0.05 * scale
    assert off[1] < max(0.01 * off[0], 1e-5 * scale)


@pytest.mark.slow
def test_gradients_reach_all_of_a_new_block() -> None:
    for net in (*NETS.values(), GROUP):
        parent = trained(net)
        child, rows = child_of(parent, deeper(net))
        child.train()(images()).square().sum().backward()
        new = [row.place for row in rows if row.how == "identity"]
        assert new or not child.genotype.plan(child.image_size).stages[0][-1].skips  # and so cannot be an identity
        for place in new:
            words = place.split()
            blocks = child.encoder.blocks if words[0] == "encoder" else child.stages[int(words[1]) - 1]
            for name, parameter in blocks[int(words[-1]) - 1].named_parameters():
                assert parameter.grad is not None, name
                assert parameter.grad.abs().max() > 0, (place, name)


def wider(net: Genotype, times: float = 2) -> Genotype:
    stages = tuple(replace(stage, width=int(stage.width * times)) for stage in net.stages)
    return replace(net, stem=replace(net.stem, width=int(net.stem.width * times)), stages=stages)


def sharpened(parent: Any) -> Any:
    """With attention that is far from even: scale and head order matter."""
    with torch.no_grad():
        for name, parameter in parent.named_parameters():
            if re.search(r"\b(qkv|attn\.q|attn\.query)\b.*weight", name):
                parameter.mul_(6)
    return parent


HEADS = {"heads": 4, "head_dim": 8}
WIDER = {
    **{f"{name}, half as wide again": wider(NETS[name], 1.5) for name in ("basic", "mbconv", "mqa")},
    "linear: more heads": wider(NETS["linear"]),
    "msa": Genotype(Stem("cifar", 16), (replace(MSA, width=16, **HEADS),)),
    "msa: odd heads": Genotype(CIFAR, (replace(MSA, heads=3, head_dim=7),)),
    "per head": Genotype(CIFAR, (replace(MSA, per_head=True, **HEADS),)),
    "per head: odd heads": Genotype(CIFAR, (replace(MSA, per_head=True, heads=5, head_dim=7),)),
    "mqa: odd heads": Genotype(CIFAR, (replace(NETS["mqa"].stages[0], heads=3, head_dim=7),)),
    "gated_conv: values rounded otherwise": wider(NETS["gated_conv"], 3),
    "gated_conv with options: values that no conv mixes": replace(
        NETS["gated_conv with options"],
        stages=(Stage("gated_conv", 1, 8, kernel=5, expand=3.25), *NETS["gated_conv with options"].stages[1:]),
    ),
    "transformer": Genotype(
        Stem("cifar", 16), (replace(MSA, width=16, attention="transformer", mlp_ratio=1.5, **HEADS),)
    ),
    "hybrid": Genotype(Stem("cifar", 16), (Stage("basic", 1, 16),), Encoder(32, 2, 2, patch=2), Head("token")),
    "vit": vit(encoder=replace(VIT, embed_dim=32, heads=2)),
    "vit pooled": vit("avg", encoder=replace(VIT, embed_dim=32, heads=4)),
    "vit 2-D": vit(encoder=replace(VIT, embed_dim=32, position="2d")),
    "vit relative": vit(encoder=replace(NETS["vit relative"].encoder, embed_dim=32)),
    "hidden head": replace(wider(NETS["hidden head"]), head=Head(hidden=30)),
}


STAGED = [name for name, net in NETS.items() if net.stages]


@pytest.mark.parametrize("name", [*WIDER, *(f"{name}: twice of everything" for name in STAGED)])
@pytest.mark.usefixtures("silent")
def test_a_wider_child_is_the_parent(name: str) -> None:
    net = NETS[name.split(",")[0].split(":")[0]]
    parent = sharpened(trained(net))
    child, rows = child_of(parent, WIDER.get(name) or twice(net))
    assert "fitted" in {row.how for row in rows}
    assert summary(rows)["share"] == 1
    assert apart(child, parent) < 1e-5


def test_every_kind_of_block_is_among_them() -> None:
    assert {block.kind for name in STAGED if name not in FURTHER for block in NETS[name].plan(16).blocks} == {*BLOCKS}


def test_copies_differ_a_little_and_statistics_do_not() -> None:
    parent = trained(NETS["basic"])
    child, _ = child_of(parent, wider(NETS["basic"]))
    one, two = parent.stages[0][0].conv1.weight, child.stages[0][0].conv1.weight
    deviation = one.std().item()
    assert torch.equal(two[::2, ::2], one / 2)
    for copied in (two[1::2, ::2], two[::2, 1::2], two[1::2, 1::2]):
        assert 0.5e-3 * deviation < (copied - one / 2).std().item() < 2e-3 * deviation
    norm, had = child.stages[0][0].norm1, parent.stages[0][0].norm1
    for name in ("running_mean", "running_var", "weight", "bias"):
        assert torch.equal(getattr(norm, name), getattr(had, name).repeat_interleave(2))
    assert apart(child, parent) < 0.05


def test_standardised_weights_are_not_divided() -> None:
    parent = trained(GROUP)
    child, _ = child_of(parent, wider(GROUP))
    assert torch.equal(child.stages[0][0].conv1.weight[::2, ::2], parent.stages[0][0].conv1.weight)


@pytest.mark.parametrize("name", NETS)
@torch.no_grad()
def test_sorted_channels_change_no_output(name: str) -> None:
    """Any order of a group's channels is the same net, so the sorted one is too."""
    parent = trained(NETS[name])
    shuffled, generator = copy.deepcopy(parent), torch.Generator().manual_seed(0)
    for uses in channel_groups(shuffled).values():
        order = torch.randperm(uses[0].length, generator=generator)
        for use in uses:
            use.tensor.copy_(use.tensor.index_select(use.dim, order))
    assert apart(parent, shuffled) < 1e-5


CUT = ("basic", "bottleneck", "post basic", "uib", "mbconv with options", "conv")


@pytest.mark.parametrize("name", CUT)
@torch.no_grad()
def test_a_narrower_child_keeps_the_channels_that_are_read(name: str) -> None:
    """Where no layer reads every other channel of the parent, a child of half the channels is the parent."""
    net = NETS[name]
    parent = trained(twice(net))
    for uses in channel_groups(parent).values():
        for use in uses:
            if use.dim == 1:
                use.tensor[:, ::2].zero_()
    child, rows = child_of(parent, net)
    assert summary(rows)["share"] == 1
    assert {row.how for row in rows} == {"fitted"}
    assert apart(child, parent) < 1e-5


def test_smaller_heads_keep_their_first_channels() -> None:
    parent = trained(NETS["per head"])
    child, _ = child_of(parent, Genotype(CIFAR, (replace(MSA, heads=2, head_dim=3, per_head=True),)))
    old, new = parent.stages[0][1].attn, child.stages[0][1].attn
    assert torch.equal(new.qkv.weight.view(3, 2, 3, 8), old.qkv.weight.view(3, 2, 4, 8)[:, :, :3])
    assert torch.equal(new.out.weight.view(8, 2, 3), old.out.weight.view(8, 2, 4)[:, :, :3])
    assert torch.equal(new.table, old.table)


def test_one_table_from_those_of_the_heads_and_back() -> None:
    for one, other in (("msa", "per head"), ("per head", "msa")):
        parent = trained(NETS[one])
        child, rows = child_of(parent, NETS[other])
        old, new = parent.stages[0][1].attn.table, child.stages[0][1].attn.table
        assert torch.equal(new, old.mean(0)) if old.dim() == 3 else torch.equal(new, old.expand(2, -1, -1))
        assert rows[2].how == "fitted"


ELSEWHERE = ("msa_bottleneck", "transformer first", "hybrid", "vit", "vit pooled", "vit 2-D in every layer", "per head")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_another_image_size_is_resized(name: str) -> None:
    net = NETS[name] if name != "per head" else Genotype(CIFAR, (replace(MSA, per_head=True, window=0),))
    parent = trained(net)
    child = fresh(net, size=32)
    rows = inherit(child, parent)
    assert {row.how for row in rows} == {"copied", "resized"}
    assert apart(child, resized(parent, 32), images(size=32)) < 1e-6


def test_relative_offsets_of_another_grid_stay_fresh() -> None:
    parent, child = trained(NETS["vit relative"]), fresh(NETS["vit relative"], size=32)
    tables = [position.table.detach().clone() for position in child.encoder.positions]
    assert inherit(child, parent)[0].how == "fitted"
    assert all(torch.equal(p.table, table) for p, table in zip(child.encoder.positions, tables, strict=True))


def test_a_class_token_comes_and_goes() -> None:
    pooled, token = trained(NETS["vit pooled"]), trained(NETS["vit"])
    child, rows = child_of(token, NETS["vit pooled"])
    assert torch.equal(child.encoder.positions[0].table, token.encoder.positions[0].table[:, 1:])
    child, rows = child_of(pooled, NETS["vit"])
    assert torch.equal(child.encoder.positions[0].table[:, 1:], pooled.encoder.positions[0].table)
    assert rows[0].params - rows[0].taken == 32  # the token and its position


def test_positions_of_all_layers_from_those_of_the_stem() -> None:
    parent = trained(NETS["vit"])
    child, _ = child_of(parent, NETS["vit 1-D in every layer"])
    assert apart(child, parent) == 0


def test_positions_go_with_their_blocks() -> None:
    parent = trained(deeper(NETS["vit 2-D in every layer"]))
    child, _ = child_of(parent, NETS["vit 2-D in every layer"])
    for i, j in ((0, 0), (1, 2)):
        assert torch.equal(child.encoder.positions[i].rows, parent.encoder.positions[j].rows)
        assert torch.equal(child.encoder.blocks[i].mlp.fc1.weight, parent.encoder.blocks[j].mlp.fc1.weight)


def test_other_classes_leave_the_head_fresh() -> None:
    parent, child = trained(TINY), fresh(TINY, classes=7)
    before = child.head.weight.detach().clone()
    rows = inherit(child, parent)
    assert [row.how for row in rows] == ["copied"] * 6 + ["fresh"]
    assert torch.equal(child.head.weight, before)
    with torch.no_grad():
        assert torch.equal(child.forward_features(images()), parent.forward_features(images()))


@pytest.mark.parametrize("net", [TINY, vit()])
def test_grey_from_colours_and_back(net: Genotype) -> None:
    x_B1HW = images(1)
    colours, grey = trained(net, in_chans=3), trained(net, in_chans=1)
    child = fresh(net, in_chans=1)
    inherit(child, colours)
    with torch.no_grad():
        assert (child(x_B1HW) - colours(x_B1HW.expand(-1, 3, -1, -1))).abs().max() < 1e-5
        child = fresh(net, in_chans=3)
        inherit(child, grey)
        assert (child(x_B1HW.expand(-1, 3, -1, -1)) - grey(x_B1HW)).abs().max() < 1e-5


@pytest.mark.whole
@pytest.mark.parametrize(("one", "other"), [
    ("imagenet", NETS["basic"]),
    ("patchify", NETS["basic"]),
    ("patchify", replace(NETS["patchify"], stem=Stem("patchify", 8, 4))),
    ("bit trunk with msa", replace(NETS["bit trunk with msa"], stem=Stem("cifar", 32))),  # a GroupNorm in both
    ("vit", NETS["hybrid"]),
])  # fmt: skip
def test_stems_of_two_kinds_stay_apart(one: str, other: Genotype) -> None:
    child = fresh(other)
    rows = inherit(child, trained(NETS[one]))
    assert rows[0].how == "fresh"
    assert torch.equal(next(child.stem.parameters()), next(fresh(other).stem.parameters()))


def test_another_patch_leaves_the_class_token_and_its_position() -> None:
    _, rows = child_of(trained(vit()), vit(encoder=replace(VIT, patch=8)))
    assert (rows[0].how, rows[0].taken) == ("fitted", 16 + 5 * 16)  # the class token, and 2x2 positions and its own


def test_patches_of_the_image_are_no_patches_of_a_map() -> None:
    child, rows = child_of(trained(vit(encoder=replace(VIT, patch=2))), NETS["hybrid"])
    assert rows[3].place == "encoder tokens"
    assert torch.equal(child.encoder.proj.weight, fresh(NETS["hybrid"]).encoder.proj.weight)


@pytest.mark.parametrize("block", ["basic", "mbconv"])
def test_a_projection_the_parent_has_not_passes_channels_on(block: str) -> None:
    """Stage 1 needs a projection once it is wider than the stem; the parent's was the identity."""
    parent = trained(Genotype(CIFAR, (Stage(block, 1, 8),)))
    child, rows = child_of(parent, Genotype(CIFAR, (Stage(block, 1, 16),)))
    weight = child.stages[0][0].shortcut.weight[:, :, 0, 0]
    assert torch.equal(weight[::2], torch.eye(8))
    assert (weight[1::2] - torch.eye(8)).abs().max() < 0.01
    assert (rows[1].how, rows[1].params - rows[1].taken) == ("fitted", 16 * 8)
    if block == "mbconv":  # its shortcut sees the raw map, as the identity did
        assert apart(child, parent) < 0.05


@pytest.mark.usefixtures("silent")
def test_a_stage_more_is_nearly_an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEAR", 1e-6)
    modern = Stage("convnext", 1, 8)
    parent = trained(replace(NETS["convnext"], stages=(modern,)))
    child, rows = child_of(parent, replace(NETS["convnext"], stages=(modern, Stage("mbconv", 2, 24, 1))))
    assert [row.how for row in rows] == ["copied", "copied", "identity", "identity", "fitted", "fitted"]
    assert apart(child, parent) < 1e-4


def test_what_the_parent_lacks_altogether_stays_fresh() -> None:
    for one, other in (("vit", "basic"), ("basic", "hybrid pooled")):
        child, rows = child_of(trained(NETS[one]), NETS[other])
        same, plain = fresh(NETS[other]).state_dict(), child.state_dict()
        part = "stages" if one == "vit" else "encoder"
        assert all(torch.equal(plain[name], value) for name, value in same.items() if name.startswith(part))
        assert {row.how for row in rows if row.place.startswith(part[:5])} == {"fresh"}
        assert rows[-1].how == "fresh"  # a head on other features


C, M = "conv", "msa"


def test_the_alignment_of_blocks_is_the_best_of_all_and_keeps_the_last() -> None:
    assert aligned([C, C, C], [C, C]) == [0, None, 1]
    assert aligned([C, M], [C, M, C, M]) == [0, 3]
    assert aligned([C, M], []) == [None, None]
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        n, m = torch.randint(1, 6, (2,), generator=generator).tolist()
        child, parent = ([C if bit else M for bit in torch.randint(2, (k,), generator=generator)] for k in (n, m))
        if n == m:
            continue
        pairs = {i: j for i, j in enumerate(aligned(child, parent)) if j is not None}
        assert pairs[0] == 0
        assert sorted(pairs.values()) == list(pairs.values())
        got = (sum(child[i] == parent[j] for i, j in pairs.items()), len(pairs))
        assert got == most(child, parent)


def most(child: list[str], parent: list[str]) -> tuple[int, int]:
    """The best score of all alignments that keep the first pair."""
    scores = []
    for k in range(min(len(child), len(parent))):
        for ours in itertools.combinations(range(1, len(child)), k):
            for theirs in itertools.combinations(range(1, len(parent)), k):
                pairs = [(0, 0), *zip(ours, theirs, strict=True)]
                scores.append((sum(child[i] == parent[j] for i, j in pairs), len(pairs)))
    return max(scores)


def test_windows_of_another_size() -> None:
    parent = trained(NETS["msa"])
    child, rows = child_of(parent, Genotype(CIFAR, (replace(MSA, window=8),)))
    assert rows[2].how == "resized"
    attn = child.stages[0][1].attn
    assert attn.table.shape == (15, 15)
    assert (attn.table[7, 7] - parent.stages[0][1].attn.table[3, 3]).abs() < 0.05
