"""Nets of timm cut after a block: the value, its key and family, JSON; maps, costs, the module and its export."""

from __future__ import annotations

from typing import Any

import pytest

from alternas.archs import Genotype, InputError
from alternas.archs.timm_net import POOLINGS, CutNet, TimmNet, net_from_dict

LITE = CutNet("tf_efficientnet_lite0.in1k", 5, 96, "grid")


def test_a_cut_net_is_a_value() -> None:
    assert net_from_dict(LITE.to_dict()) == LITE
    assert net_from_dict({"timm": "resnet18"}) == TimmNet("resnet18")
    others = [CutNet(LITE.name, 5, 96, pooling) for pooling in POOLINGS]
    others += [CutNet(LITE.name, 6, 96), CutNet(LITE.name, 5, 69), CutNet("tf_efficientnet_lite1.in1k", 5, 96)]
    keys = {net.key for net in others}
    assert len(keys) == len(others) and all(len(key) == 12 and int(key, 16) >= 0 for key in keys)
    assert LITE.key in keys


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("tf_efficientnet_lite0.in1k", "efficientnet"),
        ("mobilenetv4_conv_small.e2400_r224_in1k", "mobilenetv4"),
        ("resnet18", "resnet"),
        ("resnetv2_50x1_bit.goog_in21k", "resnetv2"),
        ("levit_128s.fb_dist_in1k", "levit"),
        ("vit_small_r26_s32_224", "vit"),
        ("halo2botnet50ts_256.a1h_in1k", "halo2botnet"),
        ("test_vit.r160_in1k", "vit"),
    ],
)
def test_family_of_a_name(name: str, family: str) -> None:
    assert CutNet(name, 0, 64).family == family


@pytest.mark.parametrize(
    ("change", "words"),
    [
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
    ],
)
def test_bad_cut_nets_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        net_from_dict(LITE.to_dict() | change)
    with pytest.raises(InputError, match="has none, and this needs one"):
        Genotype.from_dict(LITE.to_dict())
