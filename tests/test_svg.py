"""The SVG drawing: every net of ours, to scale, nothing but text, written by `show` and `cost`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from alternas.archs import Encoder, Genotype, Head, Stage, Stem, zoo
from alternas.results.render.drawing import TALLEST, net_svg
from nets import NETS
from runs import NET, finished_run

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "desc", "style", "rect", "path", "text"}


def letters(text: str) -> list[str]:
    """The letters under the blocks, a line each."""
    tree = ElementTree.fromstring(text)
    return [node.text or "" for node in tree.iter(f"{SVG}text") if "n-l" in node.attrib["class"]]


def said(text: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(text).iter(f"{SVG}text")]


def check(net: Genotype, text: str, size: int) -> None:
    """Only shapes and text; a block for each block of the plan, of the right letters; the maps of the plan."""
    tree = ElementTree.fromstring(text)
    assert {node.tag.removeprefix(SVG) for node in tree.iter()} <= ALLOWED
    assert not re.search(r"\bon\w+=|href|url\(|@import", text)
    plan = net.plan(size)
    layers = "T" * (net.encoder.depth if net.encoder else 0)
    wanted = "".join(block.spec.style.letter for block in plan.blocks) + layers
    assert "".join(letters(text)).strip("SH") == wanted
    for stage in plan.stages:
        height, width = stage[-1].map_out
        assert f"{stage[-1].c_out} x {height} x {width}" in said(text)


def test_every_member_of_the_zoo_and_every_kind_of_part() -> None:
    for net, size in [*((zoo.get(name, 224), 224) for name in zoo.names()), *((net, 16) for net in NETS.values())]:
        check(net, net_svg(net, 10, size, 2), size)


def test_the_same_net_gives_the_same_bytes_whatever_the_spelling() -> None:
    built_up = Genotype(Stem("cifar", 8), (Stage("basic", 4, 8, msa=1, heads=2, head_dim=4),))
    by_place = Genotype(Stem("cifar", 8), (Stage("basic", 4, 8, msa=(3,), heads=2, head_dim=4),))
    assert net_svg(built_up, 10, 8) == net_svg(by_place, 10, 8)
    assert letters(net_svg(built_up, 10, 8)) == ["S", "CCCA", "H"]


def test_heights_are_channels_to_scale() -> None:
    """ResNet-50: 256, 512, 1024 and 2048 channels; the last is the tallest. Plain boxes say their height as v..."""
    heights = [float(h) for h in re.findall(r"v([\d.]+)l-21 0z", net_svg(zoo.get("resnet50"), 1000, 224))]
    *heights, _, _ = heights  # the head and the legend
    assert heights == pytest.approx([6.8] * 3 + [13.5] * 3 + [27] * 5 + [54] * 2, abs=0.05)
    assert max(heights) == TALLEST


def test_the_legend_names_what_is_there_and_no_more() -> None:
    texts = " ".join(said(net_svg(zoo.get("alternet18", 32), 10, 32)))
    assert "A  MSA block" in texts
    assert "C  basic conv block" in texts
    assert "ConvNeXt" not in texts


def test_it_says_the_picture_in_words() -> None:
    net = Genotype(Stem("cifar", 8), (Stage("basic", 2, 8, 2),), Encoder(16, 3, 2, patch=2), Head("token"))
    tree = ElementTree.fromstring(net_svg(net, 10, 8, 1))
    title, desc = tree.find(f"{SVG}title"), tree.find(f"{SVG}desc")
    assert title is not None and desc is not None  # noqa: PT018 - for the type checker
    assert tree.attrib["role"] == "img"
    assert tree.attrib["aria-labelledby"].split() == [title.attrib["id"], desc.attrib["id"]]
    assert f"hybrid {net.key}, image 1 x 8 x 8" == title.text
    assert "stage 1: 2 x basic conv block; stride 2; gives 8 x 4 x 4" in (desc.text or "")
    assert "encoder: 3 x transformer layer (MSA, MLP)" in (desc.text or "")


@pytest.mark.usefixtures("elsewhere")
def test_cost_and_show_write_it(alternas: Any) -> None:
    words = "cost alternet18 --image-size 32 --classes 9 --svg net.svg"
    assert alternas(*words.split())[0] == 0
    assert Path("net.svg").read_text(encoding="utf-8") == net_svg(zoo.get("alternet18", 32), 9, 32)
    finished_run()
    assert alternas("show", "mine", "1", "--svg", "trial.svg")[0] == 0
    assert Path("trial.svg").read_text(encoding="utf-8") == net_svg(NET, 10, 8, 1)


@pytest.mark.usefixtures("elsewhere")
def test_what_cannot_be_drawn_is_one_line(alternas: Any) -> None:
    for words, hint in (
        ("cost timm:resnet18 --svg net.svg", "have a genotype"),
        ("cost alternet18 --svg nowhere/net.svg", "cannot be written"),
        ("cost alternet18 --svg .", "cannot be written"),
    ):
        code, _, err = alternas(*words.split())
        assert (code, hint in err, err.count("\n")) == (2, True, 1)
    assert not list(Path().iterdir())
