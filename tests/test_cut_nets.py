"""Nets of timm cut after a block: the value, its key and family, JSON; maps, costs, the module and its export."""

import copy
import inspect
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch.nn import functional
from torchvision.transforms.functional import pil_to_tensor

from alternas.archs import Genotype, InputError
from alternas.archs.cut_network import cut_trunk
from alternas.archs.timm.cut_points import cut_points, trunk_costs
from alternas.archs.timm.cuts import CutPoint, maps_at, pooled
from alternas.archs.timm.models import flop_counter
from alternas.archs.timm_net import POOLINGS, CutNet, TimmNet, net_cost, net_from_dict, picture_moments
from alternas.archs.timm_network import build_net
from alternas.search.data.build import images_at
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.training.loaders import Preprocess
from nets import TIMM_FAMILIES, lively

LITE = CutNet("tf_efficientnet_lite0.in1k", 5, 96, "grid")


def test_a_cut_net_is_a_value() -> None:
    assert net_from_dict(LITE.to_dict()) == LITE
    assert net_from_dict({"timm": "resnet18"}) == TimmNet("resnet18")
    others = [CutNet(LITE.name, 5, 96, pooling) for pooling in POOLINGS]
    others += [CutNet(LITE.name, 6, 96), CutNet(LITE.name, 5, 69), CutNet("tf_efficientnet_lite1.in1k", 5, 96)]
    keys = {net.key for net in others}
    assert len(keys) == len(others)
    assert all(len(key) == 12 and int(key, 16) >= 0 for key in keys)
    assert LITE.key in keys


@pytest.mark.parametrize(("name", "family"), [
    ("tf_efficientnet_lite0.in1k", "efficientnet"),
    ("mobilenetv4_conv_small.e2400_r224_in1k", "mobilenetv4"),
    ("resnet18", "resnet"),
    ("resnetv2_50x1_bit.goog_in21k", "resnetv2"),
    ("levit_128s.fb_dist_in1k", "levit"),
    ("vit_small_r26_s32_224", "vit"),
    ("halo2botnet50ts_256.a1h_in1k", "halo2botnet"),
    ("test_vit.r160_in1k", "vit"),
])  # fmt: skip
def test_family_of_a_name(name: str, family: str) -> None:
    assert CutNet(name, 0, 64).family == family


@pytest.mark.parametrize(("change", "words"), [
    ({"timm": "a/b"}, "name must be"),
    ({"timm": "resnet18.a.b"}, "name must be"),
    ({"timm": 3}, "name must be"),
    ({"block": -1}, "block must be a whole number from 0"),
    ({"block": True}, "block must be"),
    ({"side": 0}, "side must be"),
    ({"side": 32.0}, "side must be"),
    ({"pooling": "means"}, "pooling: unknown value 'means'"),
    ({"more": 1}, "must be a genotype or the name"),
    ({"pooling": None}, "pooling: unknown value"),
])  # fmt: skip
def test_bad_cut_nets_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        net_from_dict(LITE.to_dict() | change)
    with pytest.raises(InputError, match="has none, and this needs one"):
        Genotype.from_dict(LITE.to_dict())


def whole(name: str, side: int) -> Any:
    """timm's net with lively weights, without alternas, for images of `side` where it takes any."""
    torch.manual_seed(0)
    fixed = timm.get_pretrained_cfg(name)
    more = {"img_size": side} if fixed and fixed.fixed_input_size else {}
    return lively(timm.create_model(name, num_classes=0, **more)).eval()


def pruned_by_timm(model: Any, point: CutPoint) -> Any:
    """The net cut by timm's own pruning, and by hand where the cut is inside of a stage."""
    model = copy.deepcopy(model)
    extra = (
        {"extra_blocks": True} if "extra_blocks" in inspect.signature(model.forward_intermediates).parameters else {}
    )
    if type(model).__name__ == "MobileNetV3" and any("Attention" in type(m).__name__ for m in model.modules()):
        model.blocks = model.blocks[: point.index]  # which timm 1.0.31 fails to prune
        model.conv_head = model.norm_head = torch.nn.Identity()
    else:
        model.prune_intermediate_layers([point.index], prune_norm=True, prune_head=True, **extra)
    if point.chain:
        blocks = dict(model.get_submodule(point.chain).named_children())
        for name in list(blocks)[point.keep :]:
            delattr(model.get_submodule(point.chain), name)
    how = {"stop_early": True, "intermediates_only": True, **extra}
    return model, lambda x_BCHW: model.forward_intermediates(x_BCHW, indices=[point.index], **how)[0]


@pytest.mark.parametrize("name", TIMM_FAMILIES)
def test_maps_and_costs_are_those_of_the_net_pruned_by_timm(name: str) -> None:
    side = TIMM_FAMILIES[name]
    model, points, x_BCHW = whole(name, side), cut_points(name), torch.randn(2, 3, side, side)
    assert [point.index for point in points] == sorted(point.index for point in points)
    costs = trunk_costs(name, side)
    with torch.no_grad():
        maps = maps_at(model, points, x_BCHW)
        for point, map_BCHW, cost in zip(points, maps, costs, strict=True):
            pruned, run = pruned_by_timm(model, point)
            expected = run(x_BCHW)
            assert map_BCHW.shape == expected.shape, point.place
            assert map_BCHW.shape[1] == point.channels, point.place
            assert (map_BCHW - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=1), point.place
            with flop_counter() as counter:
                run(x_BCHW[:1])
            params = sum(parameter.numel() for parameter in pruned.parameters())
            assert cost == (params, counter.get_total_flops() // 2), point.place


def test_cuts_of_lite0() -> None:
    """The blocks that its paper counts: 16 in seven stages, behind a stem."""
    points = cut_points("tf_efficientnet_lite0.in1k")
    assert len(points) == 17
    assert [point.place for point in points[:7]] == [
        "bn1", "blocks.0", "blocks.1.0", "blocks.1", "blocks.2.0", "blocks.2", "blocks.3.0",
    ]  # fmt: skip
    assert [point.channels for point in points] == [
        32,
        16,
        *[24] * 2,
        *[40] * 2,
        *[80] * 3,
        *[112] * 3,
        *[192] * 4,
        320,
    ]
    with pytest.raises(InputError, match="can be cut after blocks 0 to 16, got 17"):
        net_cost(CutNet("tf_efficientnet_lite0", 17, 64), 2, 64)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_cut_network_is_trunk_pooling_and_head(pooling: str) -> None:
    net = CutNet("test_resnet", 3, 48, pooling)
    torch.manual_seed(0)
    network: Any = lively(build_net(net, 5, 999)).eval()
    given = whole("test_resnet", 48)
    given.load_state_dict(network.state_dict(), strict=False)
    x_BCHW = torch.rand(2, 3, 48, 48)
    known = given.pretrained_cfg
    mean, std = (torch.tensor(known[of]).view(3, 1, 1) for of in ("mean", "std"))
    with torch.no_grad():
        maps = [pruned_by_timm(given, point)[1]((x_BCHW - mean) / std) for point in cut_points("test_resnet")[:4]]
        last = maps[-1]
        features = {
            "mean": last.mean((2, 3)),
            "mean-max": torch.cat([last.mean((2, 3)), last.flatten(2).max(2).values], 1),
            "grid": functional.adaptive_avg_pool2d(last, 2).flatten(1),
            "all": torch.cat([of.mean((2, 3)) for of in maps], 1),
        }[pooling]
        expected = functional.linear(features, network.state_dict()["head.weight"], network.state_dict()["head.bias"])
        assert (network(x_BCHW) - expected).abs().max() < 1e-5
    assert set(network.state_dict()) - set(given.state_dict()) == {"head.weight", "head.bias"}
    with flop_counter() as counter:
        network(x_BCHW[:1])
    cost = net_cost(net, 5, 999)
    assert cost.params == sum(parameter.numel() for parameter in network.parameters())
    assert cost.macs == counter.get_total_flops() // 2
    again = build_net(net, 5, 999)
    again.load_state_dict(network.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(again.state_dict().values(), network.state_dict().values(), strict=True)
    )


def test_quarters_of_odd_maps_are_torchs() -> None:
    for sides in ((1, 1), (2, 3), (5, 4), (7, 7)):
        x_BCHW = torch.randn(2, 3, *sides)
        assert torch.allclose(pooled([x_BCHW], "grid"), functional.adaptive_avg_pool2d(x_BCHW, 2).flatten(1), atol=1e-6)


def test_pictures_grey_and_of_other_sizes() -> None:
    net = CutNet("test_resnet", 2, 32)
    torch.manual_seed(0)
    grey: Any = build_net(net, 3, 32, 1).eval()
    colour: Any = build_net(net, 3, 32, 3).eval()
    colour.load_state_dict(grey.state_dict())
    x_B1HW = torch.rand(2, 1, 32, 32)
    assert torch.allclose(grey(x_B1HW), colour(x_B1HW.repeat(1, 3, 1, 1)), atol=1e-6)
    large = torch.rand(2, 3, 80, 64)
    pillow = [Image.fromarray((of.permute(1, 2, 0) * 255).round().byte().numpy()) for of in large]
    small = [pil_to_tensor(of.resize((32, 32), Image.Resampling.BILINEAR)) / 255 for of in pillow]
    assert colour.picture.interpolation == "bilinear"
    mean = torch.tensor(colour.picture.mean).view(3, 1, 1)
    std = torch.tensor(colour.picture.std).view(3, 1, 1)
    assert (colour.picture(large) * std + mean - torch.stack(small)).abs().max() < 2 / 255
    with pytest.raises(InputError, match="must have 1 or 3 channels, got 4"):
        build_net(net, 3, 32, 4)


def test_sides_that_weights_do_not_fit() -> None:
    with pytest.raises(
        InputError, match=r"timm: weights of levit_128s\.fb_dist_in1k are for images of 224 px alone, got 96"
    ):
        net_cost(CutNet("levit_128s.fb_dist_in1k", 2, 96), 3, 96)
    assert net_cost(CutNet("test_vit", 2, 96), 3, 96).macs < net_cost(CutNet("test_vit", 2, 128), 3, 96).macs


@pytest.mark.parametrize("name", ["test_vit", "test_resnet"])
def test_weights_of_the_whole_net_at_another_side(name: str) -> None:
    """As timm itself brings them over, tables of positions resampled."""
    torch.manual_seed(0)
    source: Any = lively(timm.create_model(name, num_classes=7)).eval()
    other = cut_trunk(name, 96, source.state_dict())
    fixed = {"img_size": 96} if name == "test_vit" else {}
    overlay = {"state_dict": source.state_dict()}
    expected: Any = timm.create_model(name, pretrained=True, num_classes=0, pretrained_cfg_overlay=overlay, **fixed)
    expected.eval()
    x_BCHW = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        ours = other(x_BCHW)
        theirs = expected.forward_intermediates(other.picture(x_BCHW), intermediates_only=True)
    assert torch.equal(ours[-1], theirs[-1])
    with pytest.raises(InputError, match=r"timm: test_resnet: \d+ of its \d+ tensors are missing, first conv1"):
        cut_trunk("test_resnet", 64, {"nothing": torch.zeros(1)})
    with pytest.raises(InputError, match=r"timm: test_resnet: .*size mismatch"):
        cut_trunk("test_resnet", 64, timm.create_model("test_resnet", stem_width=8).state_dict())


def test_data_as_a_cut_net_sees_them() -> None:
    data = load(DataConfig("digits"))
    seen = data.seen_by(CutNet("test_resnet", 2, 32))
    raw_NCHW = torch.tensor(images_at(data.val, np.arange(20)))
    x_NCHW = Preprocess(seen, torch.device("cpu")).plain(raw_NCHW.float())
    assert (x_NCHW.min(), x_NCHW.max()) == (0, 1)
    assert data.seen_by(TimmNet("test_resnet")) is data
    assert picture_moments((3.0,), (2.0,), 0) == ((-1.0,), (8.0,))
