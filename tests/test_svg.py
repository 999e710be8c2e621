"""The SVG drawing: every net of ours, to scale, nothing but text, written by `show` and `cost`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from alternas.archs import Encoder, Genotype, Head, Stage, Stem, zoo
from alternas.archs.blocks.spec import BLOCKS
from alternas.cli import app as cli
from alternas.results.render.drawing import TALLEST, Glyph, net_svg, outline
from alternas.spaces import SPACES, RandomChooser, get
from nets import NETS

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


@pytest.mark.parametrize("name", zoo.names())
def test_every_member_of_the_zoo(name: str) -> None:
    net = zoo.get(name, 224)
    check(net, net_svg(net, 1000, 224), 224)


@pytest.mark.parametrize("name", NETS)
def test_every_kind_of_part(name: str) -> None:
    check(NETS[name], net_svg(NETS[name], 10, 16, 2), 16)


@pytest.mark.parametrize("name", SPACES)
def test_every_space(name: str) -> None:
    for seed in range(5):
        net = get(name, 8).sample(RandomChooser(seed))
        check(net, net_svg(net, 10, 8, 1), 8)


def test_the_same_net_gives_the_same_bytes_whatever_the_spelling() -> None:
    built_up = Genotype(Stem("cifar", 8), (Stage("basic", 4, 8, msa=1, heads=2, head_dim=4),))
    by_place = Genotype(Stem("cifar", 8), (Stage("basic", 4, 8, msa=(3,), heads=2, head_dim=4),))
    assert net_svg(built_up, 10, 8) == net_svg(by_place, 10, 8)
    assert letters(net_svg(built_up, 10, 8)) == ["S", "CCCA", "H"]


def test_conv_and_attention_differ_in_shape_colour_and_letter() -> None:
    conv, attention = outline(Glyph("basic", 8), 0, 50, 10), outline(Glyph("msa", 8), 0, 50, 10)
    assert len(re.findall("[a-z]", conv)) < len(re.findall("[a-z]", attention))
    looks = [spec.style for spec in BLOCKS.values()]
    assert len({look.letter for look in looks}) == len(looks)
    residual, attending = ("basic", "bottleneck"), ("msa", "transformer")
    assert not {BLOCKS[k].style.colour for k in residual} & {BLOCKS[k].style.colour for k in attending}


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


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["alternas", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_cost_and_show_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = zoo.get("alternet18", 32)
    assert run(monkeypatch, "cost", "alternet18", "--image-size", "32", "--classes", "9", "--svg", "net.svg") == 0
    assert Path("net.svg").read_text(encoding="utf-8") == net_svg(net, 9, 32)
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    facts = {"name": "d", "image_size": [32, 32], "in_chans": 1, "classes": ["a", "b"], "mean": [0.0], "std": [1.0]}
    (folder / "run.json").write_text(json.dumps({"format": 3, "settings": {}, "data": facts}), encoding="utf-8")
    record = {"format": 3, "trial": 3, "kind": "search", "family": net.family}
    record |= {"key": net.key, "genotype": net.to_dict()}
    record |= {"genes": {}, "cost": {"macs": 1, "params": 1}, "status": "pruned"}
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert run(monkeypatch, "show", "one", "3", "--svg", "trial.svg") == 0
    assert Path("trial.svg").read_text(encoding="utf-8") == net_svg(net, 2, 32, 1)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("cost", "timm:resnet18", "--svg", "net.svg"), "have a genotype"),
        (("cost", "alternet18", "--svg", "nowhere/net.svg"), "cannot be written"),
        (("cost", "alternet18", "--svg", "."), "cannot be written"),
        (("cost", "alternet99", "--svg", "net.svg"), "alternet99"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    words: tuple[str, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *words) == 2
    err = capsys.readouterr().err
    assert hint in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
