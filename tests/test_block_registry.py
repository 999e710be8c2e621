"""The registry of blocks: every entry keeps what it promises, and a block is its module and its entry alone."""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

from alternas.archs import Genotype, Stage, Stem, Style, build, static_cost
from alternas.archs.blocks.axes import Axis, tensor_axes
from alternas.archs.blocks.spec import BLOCKS, BlockForm, BlockSpec, BlockStyle, attention_kinds, conv_kinds
from alternas.archs.network import load_class
from alternas.archs.timm import flop_counter
from alternas.results.analysis import lesion, skip_connections, variance
from alternas.results.analysis_tools.inputs import AnalysisInput, Images
from alternas.results.export import package
from alternas.results.export.export_net import ExportNet
from alternas.results.render.drawing import net_drawing, net_svg
from alternas.search.training.inherit import inherit
from nets import NETS, index_in, lively

STYLES = [Style(order, norm) for order in ("pre", "post") for norm in ("batch", "group")]
LOOKS = [(kind, style) for kind, spec in BLOCKS.items() for style in (STYLES[:1] if spec.modern else STYLES)]
CASES = [(kind, stride, style) for kind, style in LOOKS for stride in (1, 2)]


def net_of(kind: str, stride: int = 1, style: Style = STYLES[0]) -> Genotype:
    """Two blocks of a kind; attention, which cannot stride, behind a conv block that does."""
    if BLOCKS[kind].attends:
        conv = "convnext" if BLOCKS[kind].modern else "basic"
        stage = Stage(conv, 2, 32, stride, (1,), heads=2, head_dim=8, window=4, attention=kind)
    else:
        stage = Stage(kind, 2, 32, stride)
    return Genotype(Stem("cifar", 32), (stage,), style=style)


def block_of(kind: str, stride: int, style: Style) -> tuple[nn.Module, Any]:
    """The net's first block of the kind, and where it stands."""
    blocks = net_of(kind, stride, style).plan(16, 3).stages[0]
    at = next(block for block in blocks if block.kind == kind)
    return load_class(at.form.module)(at), at


@pytest.mark.parametrize(("kind", "stride", "style"), CASES)
def test_a_block_gives_the_map_of_its_plan(kind: str, stride: int, style: Style) -> None:
    block, at = block_of(kind, stride, style)
    assert block(torch.randn(2, at.c_in, *at.map_in)).shape == (2, at.c_out, *at.map_out)
    assert not at.skips or isinstance(block.drop_path, nn.Identity)


def test_a_colour_of_drawings_is_of_one_kind_and_its_variants() -> None:
    kinds: dict[str, list[str]] = {}
    for kind, spec in BLOCKS.items():
        kinds.setdefault(spec.style.colour.upper(), []).append(kind)
    assert [same for same in kinds.values() if len(same) > 1] == [["basic", "bottleneck"], ["msa", "msa_a"]]


def counted(net: Genotype) -> tuple[int, int]:
    """Parameters, and MACs by torch's own counter."""
    model = build(net, 5, 16).eval().requires_grad_(False)
    with flop_counter() as counter:
        model(torch.randn(1, 3, 16, 16))
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops() // 2


def formula(net: Genotype) -> tuple[int, int]:
    cost = static_cost(net, 5, 16)
    return cost.params, cost.macs


@pytest.mark.parametrize(("kind", "style"), [look for look in LOOKS if BLOCKS[look[0]].branches])
def test_layers_that_scale_a_block_make_it_an_identity(kind: str, style: Style) -> None:
    at = net_of(kind, 1, style).plan(16, 3).stages[0][-1]
    block = load_class(at.form.module)(at)
    layers = (style.norm == "group" and at.form.scaled_by_group) or at.form.scaled_by
    assert layers
    for name in layers:
        for parameter in block.get_submodule(name).parameters():
            nn.init.zeros_(parameter)
    x = torch.rand(2, at.c_in, *at.map_in)  # not below 0: the last ReLU of a post-activation block keeps it
    torch.testing.assert_close(block.eval()(x), x)


@pytest.mark.parametrize("kind", BLOCKS)
def test_analyses_find_each_addition(kind: str) -> None:
    model = build(net_of(kind), 5, 16)
    ops = [place.op for place in skip_connections.additions(model)]
    assert ops == [branch.op for block in net_of(kind).plan(16).blocks if block.skips for branch in block.spec.branches]
    for branch in BLOCKS[kind].branches:
        assert isinstance(model.stages[0].get_submodule("1").get_submodule(branch.layer), nn.Module)


def laid_out(kind: str, scale: int, style: Style, per_head: bool) -> Any:
    """The last block of a net whose widths, heads, head channels and window are so many times the smallest ones."""
    conv = "convnext" if BLOCKS[kind].modern else "basic"
    msa, block = ((1,), conv) if BLOCKS[kind].attends else ((), kind)
    attention = kind if msa else "msa"
    stage = Stage(block, 2, 32 * scale, 1, msa, scale, 4 * scale, 4 * scale, attention, per_head=per_head)
    return Genotype(Stem("cifar", 32 * scale), (stage,), style=style).plan(16, 3).stages[0][-1]


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize(("kind", "style"), LOOKS)
def test_axes_are_those_of_every_tensor_and_slice_to_a_narrower_block(kind: str, style: Style, per_head: bool) -> None:
    wide, narrow = (laid_out(kind, scale, style, per_head) for scale in (4, 2))
    states = [load_class(b.form.module)(b).state_dict() for b in (wide, narrow)]
    for name, tensor in states[0].items():
        axes, kept = (tensor_axes(b, name, tensor.dim()) for b in (wide, narrow))
        assert tuple(axis.length for axis in axes) == tensor.shape
        cut = tensor
        for dim, (axis, inner) in enumerate(zip(axes, kept, strict=True)):
            cut = cut.index_select(dim, torch.tensor(index_in(inner, axis)))
        assert cut.shape == states[1][name].shape


@pytest.mark.parametrize(("kind", "stride", "style"), CASES)
def test_shortcuts_have_axes_where_a_block_projects(kind: str, stride: int, style: Style) -> None:
    at = net_of(kind, stride, style).plan(16, 3).stages[0][0]
    for name, tensor in load_class(at.form.module)(at).state_dict().items():
        assert tuple(axis.length for axis in tensor_axes(at, name, tensor.dim())) == tensor.shape


@pytest.mark.parametrize(
    "kind", [k for k in attention_kinds() if BLOCKS[k].pre.axes.get("attn.qkv", "").startswith("3*heads*head_dim ")]
)
def test_queries_keys_values_and_heads_are_sliced_apart(kind: str) -> None:
    wide, narrow = (laid_out(kind, scale, STYLES[0], True) for scale in (4, 2))
    tensors = [("attn.qkv.weight", 2), ("attn.out.weight", 2)]
    tensors += [("attn.table", 3)] * ("attn.table" in BLOCKS[kind].pre.axes)
    pairs = [zip(*(tensor_axes(b, name, dims) for b in (wide, narrow)), strict=True) for name, dims in tensors]
    rows, columns, *tables = ([index_in(inner, axis) for axis, inner in pair] for pair in pairs)
    heads, dim = 4, 16
    assert rows[0] == [(part * heads + head) * dim + d for part in range(3) for head in (0, 1) for d in range(8)]
    assert columns[1] == [head * dim + d for head in (0, 1) for d in range(8)]
    for table in tables:
        assert table == [[0, 1], list(range(8, 23)), list(range(8, 23))]  # offsets -7 to 7 among -15 to 15


def test_smaller_kernels_are_the_middle_of_larger_ones() -> None:
    assert index_in(Axis((3,), centred=True), Axis((7,), centred=True)) == [2, 3, 4]


def test_letters_differ_and_kinds_have_one_entry() -> None:
    letters = [spec.style.letter for spec in BLOCKS.values()]
    assert len({*letters}) == len(letters)
    assert all(name == spec.name for name, spec in BLOCKS.items())
    assert {*conv_kinds(), *attention_kinds()} == {*BLOCKS}
    assert not {*conv_kinds()} & {*attention_kinds()}


def test_contract_tests_have_every_kind_with_every_option() -> None:
    """Inheritance, shared weights, costs and exports are tested by these nets."""
    blocks = [block for net in NETS.values() for block in net.plan(16).blocks]
    said = {(b.kind, name) for b in blocks for name, own in b.spec.options.items() if b.option(name) != own}
    assert said == {(kind, name) for kind, spec in BLOCKS.items() for name in spec.options}
    assert {block.kind for block in blocks} == {*BLOCKS}


MODULE = '''
"""A depthwise 5x5 conv and a 1x1 conv behind a norm."""

import torch.nn.functional as F
from torch import nn

from alternas.archs.blocks.layers import Projection
from alternas.archs.layout import Block


class Depthwise(nn.Module):
    def __init__(self, b: Block) -> None:
        super().__init__()
        self.shortcut = Projection(b.c_in, b.c_out, b.stride) if b.projects else nn.Identity()
        self.norm1 = nn.BatchNorm2d(b.c_in)
        self.depthwise = nn.Conv2d(b.c_in, b.c_in, 5, stride=b.stride, padding=2, groups=b.c_in, bias=False)
        self.conv = nn.Conv2d(b.c_in, b.c_out, 1)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW):
        return self.shortcut(x_BCHW) + self.drop_path(self.conv(F.relu(self.depthwise(self.norm1(x_BCHW)))))
'''


def depthwise_cost(accumulator: Any, b: Any) -> None:
    if b.projects:
        accumulator.conv(b.c_in, b.c_out, 1, b.map_out)
    accumulator.norm(b.c_in)
    accumulator.depthwise(b.c_in, 5, b.map_out)
    accumulator.conv(b.c_in, b.c_out, 1, b.map_out, bias=True)
    x, y = math.prod((b.c_in, *b.map_in)), math.prod((b.c_in, *b.map_out))
    accumulator.keep_input(x)
    accumulator.keep(x, y)
    accumulator.alive(2 * x, 2 * y)


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Genotype]:
    """A net with two blocks that only a file of this test and an entry know."""
    (tmp_path / "block_of_a_test.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    axes = {"shortcut": "c_out c_in 1 1", "norm1": "c_in", "depthwise": "c_in 1 5 5", "conv": "c_out c_in 1 1"}
    form = BlockForm("block_of_a_test:Depthwise", depthwise_cost, axes, scaled_by=("conv",), norms_input=True)
    style = BlockStyle("D", "#E69F00", "depthwise block")
    monkeypatch.setitem(BLOCKS, "depthwise", BlockSpec("depthwise", form, style=style))
    yield Genotype(Stem("cifar", 8), (Stage("depthwise", 1, 8), Stage("depthwise", 2, 12, 2)))
    sys.modules.pop("block_of_a_test", None)


@pytest.mark.slow
def test_a_new_block_is_its_module_and_its_entry(net: Genotype, tmp_path: Path) -> None:
    assert Genotype.from_json(net.to_json()) == net
    assert net.family == "modern"
    assert counted(net) == formula(net)
    torch.manual_seed(0)
    parent = build(net, 5, 16)
    inherited(net, parent)
    sliced(net)
    drawn(net)
    exported(net, tmp_path / "exported")
    analysed(parent)


def inherited(net: Genotype, parent: Any) -> None:
    """A deeper, wider child takes the parent's blocks, adds a near identity, and gives nearly the same logits."""
    child = Genotype(net.stem, (Stage("depthwise", 1, 8), Stage("depthwise", 3, 12, 2)))
    net_of_child = build(child, 5, 16)
    rows = {row.place: row.how for row in inherit(net_of_child, parent)}
    assert rows["stage 1 block 1"] == "copied"
    assert [*rows.values()].count("identity") == 1
    x = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(net_of_child.eval()(x), parent.eval()(x), atol=0.05, rtol=0.05)
    wide = build(Genotype(net.stem, (Stage("depthwise", 1, 16), Stage("depthwise", 2, 24, 2))), 5, 16)
    taken = {row.place: row.taken for row in inherit(wide, parent)}
    assert all(taken[f"stage 2 block {number}"] for number in (1, 2))


def sliced(net: Genotype) -> None:
    for at in net.plan(16).blocks:
        for name, tensor in load_class(at.form.module)(at).state_dict().items():
            assert tuple(axis.length for axis in tensor_axes(at, name, tensor.dim())) == tensor.shape


def drawn(net: Genotype) -> None:
    svg = net_svg(net, 5, 16)
    assert all(part in svg for part in ("#E69F00", "D  depthwise block", ">DD<"))
    console = Console(width=120)
    with console.capture() as table:
        console.print(net_drawing(net, 5, 16, 3))
    assert "[depthwise/2] [depthwise]" in table.get()


def exported(net: Genotype, folder: Path) -> None:
    """model.py alone, in a process that has neither alternas nor timm nor the block's module."""
    folder.mkdir()
    model = lively(build(net, 5, 16)).eval()
    x = torch.randn(2, 3, 16, 16)
    package.write(ExportNet(model, {"name": "net"}, x), folder / "model.py")
    torch.save((model.state_dict(), x, model(x)), folder / "wanted.pt")
    code = (
        "import sys\n"
        "sys.modules.update(alternas=None, timm=None, block_of_a_test=None)\n"
        "import model, torch\n"
        "state, x, wanted = torch.load('wanted.pt')\n"
        "net = model.build()\n"
        "net.load_state_dict(state)\n"
        "torch.testing.assert_close(net.eval()(x), wanted)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def analysed(model: nn.Module) -> None:
    x, y = torch.rand(8, 3, 16, 16), torch.arange(8) % 5
    subject = AnalysisInput("net", model.eval(), Images(x, y, torch.zeros(3), torch.ones(3)))
    places = [f"stage {stage} block {number}" for stage, number in ((1, 1), (2, 1), (2, 2))]
    for analysis in (variance, skip_connections):
        rows = analysis.analyse(subject).rows
        assert [row.get("site", row.get("place")) for row in rows][-3:] == places
        assert {row["op"] for row in rows[-3:]} == {"conv"}
    assert [unit.name for unit in lesion.units(model)] == [f"{place} depthwise" for place in places]
