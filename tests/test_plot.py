"""Plots and drawings of nets as SVG: ticks, marks and labels in their places, every net to scale."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from alternas.archs import Encoder, Genotype, Head, InputError, Stage, Stem, zoo
from alternas.results.render.drawing import TALLEST, net_svg
from alternas.results.report.axes import linear_axis, log_axis, placed_labels
from alternas.results.report.elements import OUTLINES, PALETTE, Plot, Series, marks_path
from alternas.results.report.front_plot import WEIGHT_LOOKS, front_plot, write_front
from alternas.results.report.run import open_run
from alternas.results.report.svg import plot_svg
from nets import NETS
from runs import NET, drawn_records, finished_run, made_run

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "g", "style", "rect", "path", "text", "title"}


@pytest.mark.parametrize(("values", "labels"), [
    ((40_000, 6e6), ["50 k", "100 k", "200 k", "500 k", "1 M", "2 M", "5 M"]),
    ((1e6, 9e6), ["1 M", "1.5 M", "2 M", "3 M", "5 M", "7 M", "10 M"]),
    ((2.1e6, 2.4e6), ["2.1 M", "2.2 M", "2.3 M", "2.4 M", "2.5 M"]),
    ((3e6,), ["2 M", "3 M", "5 M"]),
    ((1e3, 1e12), ["1 k", "100 k", "10 M", "1 G", "100 G"]),
])  # fmt: skip
def test_ticks_of_costs_can_be_read(values: tuple[float, ...], labels: list[str]) -> None:
    axis = log_axis(values, 50, 550)
    assert [axis.label(tick) for tick in axis.ticks] == labels
    assert axis.at(min(values)) >= 50
    assert axis.at(max(values)) <= 550


def test_ticks_of_accuracies_are_round_and_in_the_range() -> None:
    axis = linear_axis([0.52, 0.97], 300, 20, within=(0, 1))
    assert [axis.label(tick) for tick in axis.ticks] == ["0.5", "0.6", "0.7", "0.8", "0.9"]
    top = linear_axis([0.9, 1.0], 300, 20, within=(0, 1))
    assert (top.high, top.at(1.0)) == (1, 20)
    assert linear_axis([0.0, 0.0], 300, 20).at(0.0) < 300.1
    assert [linear_axis([0, 4], 300, 20).label(tick) for tick in (0.0, 1.0)] == ["0", "1"]


@pytest.mark.parametrize("symbol", OUTLINES)
def test_a_mark_begins_at_its_middle_and_lies_around_it(symbol: str) -> None:
    path = marks_path([(10, 20)], symbol, 4)
    assert path.startswith("M10.0 20.0m")
    if symbol == "circle":
        return
    steps = [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", path)][2:]
    corners = [(10.0, 20.0)]
    for dx, dy in zip(steps[::2], steps[1::2], strict=True):
        corners.append((corners[-1][0] + dx, corners[-1][1] + dy))
    xs, ys = zip(*corners[1:], strict=True)
    assert (min(xs) + max(xs)) / 2 == pytest.approx(10, abs=0.1)
    assert 2 < max(ys) - 20 <= 5.3
    assert 2 < 20 - min(ys) <= 5.3


def test_a_plot_is_plain_text_and_puts_points_where_they_are() -> None:
    points = Series("a < b", [1e3, 1e4, 1e5], [0.1, 0.2, 0.3], nets=[7, 8, 9], bars=[(0.05, 0.15)] * 3)
    plot = Plot("front", "A & B", "cost", "value", "", [points, Series("off", [1e4], [0.2], hidden=True)], log_x=True)
    text = plot_svg(plot)
    tree = ElementTree.fromstring(text)
    assert {node.tag.removeprefix(SVG) for node in tree.iter()} <= ALLOWED
    assert not re.search(r"\bon\w+=|href|url\(|@import", text)
    assert text == plot_svg(plot)
    (path,) = (node for node in tree.iter(f"{SVG}path") if "data-nets" in node.attrib)
    middles = [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)m", path.attrib["d"])]
    assert path.attrib["data-nets"] == "7 8 9"
    assert middles[1] == pytest.approx([(a + b) / 2 for a, b in zip(middles[0], middles[2], strict=True)], abs=0.11)
    assert ">off<" not in text
    inside = plot_svg(plot, alone=False)
    assert "<style" not in inside
    assert inside.count("p-off") == 2, "the hidden series and its name"


def test_labels_lie_neither_on_each_other_nor_on_labelled_points() -> None:
    x, y = log_axis([1, 1e3], 0, 400), linear_axis([0, 1], 300, 0)
    near = [10 * 1.05**i for i in range(40)]
    series = Series("front", near, [0.5 + i / 100 for i in range(40)], labels=["knee: 0", *map(str, range(100, 139))])
    placed = placed_labels([series], x, y)
    boxes = []
    for text in placed:
        left, bottom = (float(number) for number in re.findall(r'[xy]="([\d.]+)"', text))
        label = re.sub(r"<[^>]+>", "", text)
        boxes.append((left, bottom - 10, left + 6 * len(label), bottom))
    assert "knee: 0" in placed[0]
    assert 5 < len(placed) < 40
    for i, one in enumerate(boxes):
        assert not [b for b in boxes[:i] if one[0] < b[2] and b[0] < one[2] and one[1] < b[3] and b[1] < one[3]]
        for a, b in zip(series.x, series.y, strict=True):
            assert not (one[0] < x.at(a) < one[2] and one[1] < y.at(b) < one[3])


def contrast(one: str, other: str) -> float:
    """WCAG 2.1's contrast ratio of two colours."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1])
def test_text_and_marks_stand_out_from_the_ground(side: int) -> None:
    ground = PALETTE["ground"][side]
    for name in ("text", "dim"):
        assert contrast(PALETTE[name][side], ground) >= 4.5, name
    for name in ("blue", "vermillion", "green", "grey"):
        assert contrast(PALETTE[name][side], ground) >= 3, name


def test_the_front_has_its_noise_its_ties_its_knee_and_marks_of_weights(tmp_path: Path) -> None:
    rows = drawn_records(40, stops=False)
    for row in rows[:4]:
        row["accuracies"] = {"0": row["accuracy"] + 0.01, "1": row["accuracy"] - 0.01}
    for row, weights in zip(rows[10:], ("shared", "finetuned", "inherited"), strict=False):
        row["weights"] = weights
    run = open_run(made_run(tmp_path / "r", rows))
    series = {one.name: one for one in front_plot(run).series}
    front, noise = series["on the front, 95 %"], run.board.noise
    assert noise
    for record, (low, high), accuracy in zip(run.front, front.bars, front.y, strict=True):
        seeds = run.row_of[record.trial].seeds
        assert high - low == pytest.approx(2 * noise.half_width(accuracy, seeds), abs=1e-4)
        assert (low + high) / 2 == pytest.approx(accuracy, abs=1e-4)
    (knee,) = (row.trial for row in run.rows if row.knee)
    assert f"knee: {knee}" in front.labels
    tied = [row for row in run.rows if row.rank > 1 and row.tied_with]
    assert sorted(series["tied with it"].x) == sorted(row.costs["macs"] for row in tied)
    looks = {one.look for one in series.values() if one.kind == "points"}
    assert looks == {*WEIGHT_LOOKS.values()}
    marked = {name.partition(" (")[2] for name in series if "(" in name}
    assert marked == {"sliced)", "finetuned)", "inherited)"}


def test_weights_that_have_no_look_of_their_own_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn_records(10, stops=False)
    rows[3]["weights"] = "inherited"
    run = open_run(made_run(tmp_path / "r", rows))
    monkeypatch.delitem(WEIGHT_LOOKS, "inherited")
    assert [one.look for one in front_plot(run).series if "(inherited)" in one.name] == ["open"]


def test_the_front_command_draws_it(alternas: Any, tmp_path: Path) -> None:
    folder, path = made_run(tmp_path / "r", drawn_records(300, stops=False)), tmp_path / "front.svg"
    assert alternas("front", str(folder), "--objective", "params", "--max-macs", "2M", "--svg", str(path))[0] == 0
    text = path.read_text(encoding="utf-8")
    assert len(text) < 80_000
    assert "prefers-color-scheme:dark" in text
    assert ">parameters<" in text
    ElementTree.fromstring(text)
    for sizes in ("accuracy,memory", "accuracy,macs,params", "macs,params", "train_seconds"):
        assert alternas("front", str(folder), "--objectives", sizes, "--svg", str(path))[0] == 0
    with pytest.raises(InputError, match="cannot be written"):
        write_front(folder, tmp_path)
    with pytest.raises(InputError, match="nothing to draw, no net has been trained"):
        write_front(made_run(tmp_path / "empty", []), path)


def test_a_home_that_cannot_be_written_is_no_message_of_matplotlib(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    lines = (
        "import sys; sys.argv = ['alternas', '--version']; from alternas.cli.app import _run; _run(); import matplotlib"
    )
    home = {name: str(tmp_path / "file" / "no") for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    kept = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"}
    done = subprocess.run([sys.executable, "-c", lines], env=kept | home, capture_output=True, text=True, check=True)
    assert done.stderr == ""


DRAWN = {"svg", "title", "desc", "style", "rect", "path", "text"}


def letters(text: str) -> list[str]:
    """The letters under the blocks, a line each."""
    tree = ElementTree.fromstring(text)
    return [node.text or "" for node in tree.iter(f"{SVG}text") if "n-l" in node.attrib["class"]]


def said(text: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(text).iter(f"{SVG}text")]


def check(net: Genotype, text: str, size: int) -> None:
    """Only shapes and text; a block for each block of the plan, of the right letters; the maps of the plan."""
    tree = ElementTree.fromstring(text)
    assert {node.tag.removeprefix(SVG) for node in tree.iter()} <= DRAWN
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
