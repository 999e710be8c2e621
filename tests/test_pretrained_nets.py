"""The ladder of pretrained nets, and the nets that a person lists."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm

from alternas.archs import InputError
from alternas.archs.timm import count_timm
from alternas.archs.timm.weights_files import nets_of_folder
from alternas.spaces.pretrained import PretrainedNet, files_as_names, find_nets, ladder


def test_the_ladder_says_what_timm_says() -> None:
    assert 36 <= len(ladder()) <= 48
    for net in ladder():
        config = timm.get_pretrained_cfg(net.name)
        assert config is not None
        assert (net.licence, net.source) == (config.license, config.hf_hub_id)
        assert (net.side, net.fixed) == (config.input_size[-1], config.fixed_input_size)
        assert "nc" not in net.licence.split("-"), "a default must not need a lawyer"
    assert [net.macs for net in ladder()] == sorted(net.macs for net in ladder())
    assert ladder()[0].macs < 65e6
    assert 4e9 < ladder()[-1].macs < 5e9
    of = {net.name.split(".")[0]: net for net in ladder()}
    for arch, millions, gmacs in (  # as published: their papers, and torchvision's page of resnet18
        ("resnet18", 11.69, 1.81),
        ("levit_128s", 7.8, 0.305),
        ("tiny_vit_21m_224", 21.2, 4.3),
        ("efficientformer_l1", 12.3, 1.3),
        ("repvit_m0_9", 5.1, 0.8),
        ("mobilevit_s", 5.6, 2.0),
    ):
        assert of[arch].params / 1e6 == pytest.approx(millions, rel=0.08)
        assert of[arch].macs / 1e9 == pytest.approx(gmacs, rel=0.03)
    hybrids = {"mobilevit", "efficientformer", "levit", "fastvit", "tiny", "repvit", "coatnet", "vit", "resnetv"}
    assert hybrids <= {net.family for net in ladder()}


def test_sides() -> None:
    of = {net.name.split(".")[0]: net for net in ladder()}
    assert of["levit_128s"].sides == (224,), "its tables are of one map"
    assert of["resnet18"].sides == (48, 64, 80, 96, 128, 160, 192, 224, 256)
    assert of["tinynet_e"].sides == (48, 64, 80, 96, 106, 128)
    counts, _ = count_timm("resnet18", (128, 128), None, None)
    assert of["resnet18"].macs_at(128) == pytest.approx(counts["macs"], rel=0.01)


def test_what_a_person_lists() -> None:
    def names(words: str) -> list[str]:
        return [net.name for net in find_nets(words)[0]]

    assert names("") == [net.name for net in ladder()]
    assert names("timm:resnet18.a1_in1k, resnet18") == ["resnet18.a1_in1k"]
    assert find_nets("timm:resnet18,mine:4")[1] == ["mine:4"]
    ours = names("levit_128*,mobilenetv4_conv_small*")
    assert "levit_128s.fb_dist_in1k" in ours
    assert sum(name.startswith("mobilenetv4_conv_small") for name in ours) == 2, "one set of weights an architecture"
    assert names("lcnet_0*.ra2_in1k") == ["lcnet_050.ra2_in1k", "lcnet_075.ra2_in1k"]
    found = find_nets("lcnet_050")[0][0]
    assert found == PretrainedNet(
        "lcnet_050.ra2_in1k", 224, False, found.macs, found.params, None, "apache-2.0", "timm/lcnet_050.ra2_in1k"
    )
    assert round(found.params / 1e6, 2) == 1.88, "timm's results-imagenet.csv"
    for word, hint in (("resnet1b", "did you mean 'resnet18'"), ("vgg*z", "has weights"), ("timm:", "''")):
        with pytest.raises(InputError, match=hint):
            find_nets(word)


def test_files_are_named_by_their_nets(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("resnet18.a1_in1k.pth", "levit_128s.safetensors", "other/lcnet_050.bin", "notes.txt", "mine.pt"):
        (tmp_path / name).write_bytes(b"\2\0\0\0\0\0\0\0{}")  # safetensors of nothing
    words = [str(tmp_path / "resnet18.a1_in1k.pth"), "levit*", str(tmp_path / "levit_128s.safetensors")]
    assert files_as_names(words) == (("resnet18.a1_in1k", "levit*", "levit_128s"), str(tmp_path))
    assert files_as_names(["levit*"], "here") == (("levit*",), "here")
    assert nets_of_folder(str(tmp_path)) == ["levit_128s", "resnet18.a1_in1k"]
    with pytest.raises(InputError, match="in one folder"):
        files_as_names([*words, str(tmp_path / "other" / "lcnet_050.bin")])
    with pytest.raises(InputError, match="no such file"):
        files_as_names(["gone.pth"])
