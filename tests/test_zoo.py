"""timm as the reference: costs to the digit, outputs, weights there and back; nets read, refused, counted, resized."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.layers.mlp import SwiGLU

from alternas.archs import Genotype, InputError, Stage, Stem, Style, build, resized, static_cost, zoo
from alternas.archs.timm import convert, count, count_timm, create, load, read, to_timm
from nets import NETS, lively

QUICK = ("mobilenetv4_conv_small", "efficientvit_b0", "mambaout_femto")
RENAMED = ("resnet18", "preresnet18", "vit_tiny_patch16", "vit_tiny_r_s16_p8")  # whose tensors are taken over by name
ENTRIES = {entry.timm: name for name, entry in zoo.ZOO.items() if entry.timm}
BY_SIZE = ("convnext_", "mambaout_")  # of these the outputs of a few
FEW = ("convnext_atto", "convnext_tiny", "mambaout_femto")
FEW += ("bit_r50x1", "vit_small_patch32", "vit_small_r26_s32", "resnet50", "preresnet50", "vit_base_patch32")
BY_ORDER = [theirs for theirs, ours in ENTRIES.items() if zoo.ZOO[ours].by_order]
WEIGHTS = [
    theirs
    for theirs, ours in ENTRIES.items()
    if ours in (*RENAMED, *FEW, "vit_base_r50_s16") or (theirs in BY_ORDER and not ours.startswith(BY_SIZE))
]


def marked(names: Any, quick: tuple[str, ...]) -> list[Any]:
    return [name if ENTRIES[name] in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("theirs", marked(BY_ORDER, QUICK))  # those of the others: test_cost.py
def test_costs_are_timms(theirs: str) -> None:
    config: Any = timm.get_pretrained_cfg(theirs)
    _, *size = config.test_input_size or config.input_size
    cost, (counted, _) = static_cost(zoo.get(ENTRIES[theirs], size), 1000, size), count_timm(theirs, size, 1000, 3)
    assert (cost.params, cost.macs) == (counted["params"], counted["macs"])


@pytest.mark.parametrize("theirs", marked(WEIGHTS, (*QUICK, *RENAMED)))
@torch.no_grad()
def test_timms_weights_give_timms_outputs_and_go_back(theirs: str) -> None:
    torch.manual_seed(0)
    reference: Any = lively(timm.create_model(theirs, num_classes=7)).eval()
    x, ours = torch.randn(1, *reference.pretrained_cfg["input_size"]), convert(reference)
    assert ours.genotype.key == zoo.get(ENTRIES[theirs]).key
    assert zoo.timm_name(ours.genotype) == theirs
    wanted = reference(x)
    close = {"atol": 1e-4 * max(1.0, wanted.abs().max().item()), "rtol": 0.0}
    assert wanted.std() > 0.01, "a reference that says something"
    torch.testing.assert_close(ours(x), wanted, **close)
    again: Any = timm.create_model(theirs, num_classes=7).eval()
    again.load_state_dict(to_timm(ours), strict=True)
    assert torch.equal(again(x), wanted)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_100", "efficientvit_b0"])
def test_a_genotype_is_read_without_weights(name: str) -> None:
    assert read(create(name)).key == zoo.get(name).key


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [
    ("resnet26d", "deep stem"),
    ("resnet50_gn", "bn1.running_mean"),
    ("resnetaa50", "outputs that differ"),
    ("vit_base_patch16_gap_224", "class token"),
    ("vit_xsmall_patch16_clip_224", "patch_embed.proj.bias"),
    ("vit_small_patch14_dinov2", "ls1.gamma"),
    ("vit_base_resnet26d_224", "trunk of class"),
    ("convnext_atto_ols", "class ConvNeXt"),
])  # fmt: skip
def test_what_no_genotype_says_is_refused(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(name, pretrained=False, num_classes=10)
    with pytest.raises(InputError, match="did you mean 'resnet50'"):
        load("resnet5o", pretrained=False)
    with pytest.raises(InputError, match=r"no model 'resnet18\.xx'"):
        load("resnet18.xx", pretrained=False)


def test_nets_that_timm_does_not_have() -> None:
    for name in ("msa", "mbconv", "vit 2-D", "vit local", "hybrid", "basic", "hidden token head", "post mbconv"):
        with pytest.raises(InputError, match="timm has no net"):
            to_timm(build(NETS[name], 5, 16, 2))
    assert zoo.timm_name(zoo.get("alternet50")) is None
    for stages in ((Stage("basic", 1, 64),), tuple(Stage("basic", 1, 64, 1 + i) for i in range(4))):
        with pytest.raises(InputError, match="timm has no net"):
            to_timm(build(Genotype(Stem("imagenet", 64), stages, style=Style("post")), 5, 64))


@pytest.mark.parametrize(("options", "words"), [
    ({"depth": 0}, "no blocks"), ({"act_layer": "gelu_tanh"}, "activation"),
    ({"mlp_layer": SwiGLU}, "MLP of class SwiGLU"), ({"device": "meta"}, "meta device"),
])  # fmt: skip
def test_changed_vits_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        convert(timm.create_model("vit_tiny_patch16_224", **options))
    with pytest.raises(InputError, match="does not run"):
        convert(timm.create_model("resnet18", global_pool=""))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [("vit_tiny_patch16_224", (288, 256)), ("vit_tiny_r_s16_p8_224", (320, 320))]
)
def test_resized_as_timm_resizes(name: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    reference: Any = lively(timm.create_model(name)).eval()
    moved = resized(convert(reference), size)
    reference.set_input_size(img_size=size)
    x = torch.randn(1, 3, *size)
    with torch.no_grad():
        wanted = reference(x)
        assert (moved(x) - wanted).abs().max() < 1e-4 * wanted.abs().max().clamp(min=1.0)
    assert not moved.training


@pytest.mark.slow
def test_resized_carries_every_weight() -> None:
    torch.manual_seed(0)
    for name in NETS:
        net = build(NETS[name], 5, 16, 2).eval()
        if "relative" in name:
            with pytest.raises(InputError, match="1-D"):
                resized(net, 32)
            continue
        moved = resized(net, 32).double()
        assert moved(torch.randn(2, 2, 32, 32).double()).shape == (2, 5)
        back = resized(moved, 16)
        assert next(back.parameters()).dtype == torch.float64
        same = resized(net, 16)
        for (where, one), two in zip(net.state_dict().items(), same.state_dict().values(), strict=True):
            assert torch.equal(one, two), where
        moving = {where for where in net.state_dict() if "positions" in where or where.endswith("attn.table")}
        for where, tensor in net.state_dict().items():
            if where not in moving:
                assert torch.equal(tensor.double(), back.state_dict()[where].double()), where


def test_a_resized_table_keeps_its_shape_in_space() -> None:
    """A linear ramp stays a ramp: rows and columns are not mixed up."""
    net: Any = build(NETS["vit 2-D"], 5, 16, 2)
    with torch.no_grad():
        net.encoder.positions[0].rows.copy_(torch.linspace(0, 1, 4)[:, None].expand(4, 8))
    moved: Any = resized(net, (32, 16))
    rows = moved.encoder.positions[0].rows
    assert rows.shape == (8, 8)
    assert (rows.diff(dim=0) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "vit_small_r26_s32_224", "coatnet_0_rw_224", "caformer_s18", "levit_256"])
def test_count_of_timm_is_what_it_says(name: str) -> None:
    published = {"resnet50": 4.11, "vit_small_r26_s32_224": 3.56, "coatnet_0_rw_224": 4.43, "caformer_s18": 4.13}
    counted, shape = count_timm(name, None, None, None)
    assert shape == (3, 224, 224)
    assert counted["params"] == sum(p.numel() for p in timm.create_model(name).parameters())
    assert counted["macs"] / 1e9 == pytest.approx(published.get(name, 1.13), rel=0.03)  # timm's own use fvcore
    assert sum(part["macs"] for part in counted["by_kind"].values()) == counted["macs"]


def test_count_agrees_with_the_closed_form_by_kind() -> None:
    for name in ("alternet18", "vit_tiny_patch2", "resnet18"):
        net = zoo.get(name, 32)
        counted = count(build(net, 10, 32), (3, 32, 32))
        ours = {kind: part.macs for kind, part in static_cost(net, 10, 32).by("kind").items() if part.macs}
        assert {kind: part["macs"] for kind, part in counted["by_kind"].items()} == ours


def test_count_options_and_refusals() -> None:
    counted, shape = count_timm("resnet18", (64, 96), 10, 1)
    assert shape == (1, 64, 96)
    assert counted["by_place"]["fc"]["params"] == 5130
    with pytest.raises(InputError, match=r"timm: maxvit_tiny_tf_224 takes no such image .*divisible"):
        count_timm("maxvit_tiny_tf_224", (100, 100), None, None)
    with pytest.raises(InputError, match="no model"):
        count_timm("nonsense", None, None, None)


def test_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    count_timm("resnet18", None, None, None)
    assert not list(tmp_path.iterdir())
