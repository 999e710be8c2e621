"""Blocks and networks: the contract of each, and attention against its definition."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from timm.layers.attention2d import MultiQueryAttention2d
from timm.models._efficientnet_blocks import EdgeResidual, UniversalInvertedResidual
from timm.models.convnext import ConvNeXtBlock
from timm.models.maxxvit import MaxxVitConvCfg, MbConvBlock
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from alternas.archs import Encoder, Genotype, InputError, Stage, Stem, Style, build
from alternas.archs.blocks.attention import WindowAttention
from alternas.archs.blocks.encoder import TransformerEncoder
from alternas.archs.blocks.layers import Projection
from alternas.archs.blocks.mobile_entries import divisible
from alternas.archs.blocks.modern import ATTENTION_EPS, ConvNeXt, LinearAttention, MBConv
from alternas.archs.network import load_class
from alternas.results.export.export_net import export_net_of
from alternas.spaces import SPACES, RandomChooser, get
from nets import CIFAR, MSA, NETS, VIT, lively, plain_attention


@pytest.mark.parametrize("name", NETS)
def test_every_block_shape_and_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = lively(build(NETS[name], 5, 16, 2))
    logits = model(torch.randn(3, 2, 16, 16))
    assert logits.shape == (3, 5)
    logits.square().sum().backward()
    for where, parameter in model.named_parameters():
        assert parameter.grad is not None, where
        assert parameter.grad.abs().sum() > 0, where


@pytest.mark.parametrize("name", NETS)
def test_every_block_meta_device_channels_last_and_autocast(name: str) -> None:
    torch.manual_seed(0)
    model, x = lively(build(NETS[name], 5, 16, 2)).eval(), torch.randn(3, 2, 16, 16)
    with torch.device("meta"):
        twin = build(NETS[name], 5, 16, 2).eval()
    assert twin(x.to("meta")).shape == (3, 5)
    twin.to_empty(device="cpu").load_state_dict(model.state_dict())
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(twin(x), expected, msg="built on the meta device")
        last = model.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
        torch.testing.assert_close(last, expected, atol=1e-5, rtol=1e-4)
        with torch.autocast("cpu", torch.bfloat16):
            low = model(x).float()
    assert (low - expected).abs().max() < 0.1 * expected.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_every_block_exports(name: str) -> None:
    torch.manual_seed(0)
    model, x = lively(build(NETS[name], 5, 16, 2)).eval(), torch.randn(2, 2, 16, 16)
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), model(x))


def test_a_class_token_leaves_the_batch_free() -> None:
    model, batch = build(NETS["vit"], 5, 16, 2).eval(), torch.export.Dim("batch", min=2)
    exported = torch.export.export(model, (torch.randn(4, 2, 16, 16),), dynamic_shapes=({0: batch},))
    assert exported.module()(torch.randn(7, 2, 16, 16)).shape == (7, 5)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("stride", range(1, 9))
def test_every_stride_makes_the_planned_map(order: str, norm: str, stride: int) -> None:
    for block in ("basic", "bottleneck", "mbconv", "convnext"):
        net = Genotype(Stem("cifar", 32), (Stage(block, 1, 64, stride),), style=Style(order, norm))
        features = build(net, 5, (13, 16), 1).eval().forward_features(torch.randn(2, 1, 13, 16))
        assert features.shape[2:] == net.plan((13, 16)).last_map


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in ("bit trunk", "transformer")), "vit local relative"],
)
def test_blocks_compile_without_a_break(name: str) -> None:
    torch.manual_seed(0)
    model, x = lively(build(NETS[name], 5, 16, 2)), torch.randn(2, 2, 16, 16)
    compiled = torch.compile(model.eval(), backend="aot_eager", fullgraph=True)
    with torch.no_grad():  # the forward alone: tracing the backward hung now and then in a long test run
        torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("space", SPACES)
def test_samples_build_and_train_a_step(space: str) -> None:
    chooser = RandomChooser(0)
    for _ in range(10):
        model = build(get(space, 8).sample(chooser), 10, 8, 1)
        model(torch.randn(2, 1, 8, 8)).sum().backward()


@pytest.mark.parametrize("window", [(2, 2), (4, 2), (4, 6)])
@pytest.mark.parametrize("per_head", [False, True])
def test_window_attention_is_its_definition(window: tuple[int, int], per_head: bool) -> None:
    torch.manual_seed(0)
    module = WindowAttention(6, 5, heads=3, head_dim=4, window=window, per_head=per_head)
    with torch.no_grad():
        module.table.normal_()
        x = torch.randn(2, 6, 4, 6)
        torch.testing.assert_close(module(x), plain_attention(module, x), atol=1e-5, rtol=1e-4)


def test_a_global_window_of_a_channels_last_map_is_not_copied() -> None:
    from alternas.archs.blocks.attention import to_windows

    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert to_windows(x, (4, 4)).data_ptr() == x.data_ptr()


def plain_encoder(module: TransformerEncoder, x_BCHW: Tensor) -> Tensor:
    """The paper's equations with loops where positions and masks come in."""
    spec, (height, width) = module.spec, module.grid
    x = module.proj(x_BCHW).flatten(2).transpose(1, 2)
    spots: list[tuple[int, int] | None] = [(row, column) for row in range(height) for column in range(width)]
    if module.cls_token is not None:
        x = torch.cat([module.cls_token.expand(len(x), -1, -1), x], dim=1)
        spots = [None, *spots]
    blocks: Any = module.blocks
    for layer, block in enumerate(blocks):
        if spec.position != "none" and spec.position != "relative" and (layer == 0 or spec.position_at != "stem"):
            position = module.positions[layer if spec.position_at == "layers" else 0]
            if spec.position == "1d":
                x = x + position.table
            else:
                zero = torch.zeros(spec.embed_dim)
                rows = [zero if s is None else torch.cat([position.rows[s[0]], position.columns[s[1]]]) for s in spots]
                x = x + torch.stack(rows)
        x = x + plain_token_attention(module, block.attn, layer, block.norm1(x), spots)
        x = x + block.mlp(block.norm2(x))
    x = module.norm(x)
    return x.mean(1) if module.cls_token is None else x[:, 0]


def plain_token_attention(module: TransformerEncoder, attn: Any, layer: int, x: Tensor, spots: list) -> Tensor:
    spec, tokens = module.spec, len(spots)
    q, k, v = (t.unflatten(2, (spec.heads, -1)) for t in attn.qkv(x).chunk(3, dim=2))
    scores = torch.einsum("bind,bjnd->bnij", q, k)
    if spec.position == "relative":
        keys = module.positions[layer if spec.position_at == "layers" else 0].table
        for i in range(tokens):
            for j in range(tokens):
                scores[:, :, i, j] += torch.einsum("bnd,d->bn", q[:, i], keys[j - i + tokens - 1])
    scores = scores / math.sqrt(spec.embed_dim // spec.heads)
    for i, one in enumerate(spots):
        for j, two in enumerate(spots):
            if spec.local and one and two and max(abs(one[0] - two[0]), abs(one[1] - two[1])) > spec.local // 2:
                scores[:, :, i, j] = float("-inf")
    return attn.proj(torch.einsum("bnij,bjnd->bind", scores.softmax(-1), v).flatten(2))


@pytest.mark.parametrize("name", [name for name in NETS if name.startswith("vit")])
def test_encoder_is_its_definition(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]
    encoder = lively(TransformerEncoder(net.encoder, 2, (3, 5), net.head.pool == "token", 0.0)).eval()
    x = torch.randn(2, 2, 12, 20)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x), plain_encoder(encoder, x), atol=1e-5, rtol=1e-4)


def test_modern_blocks_are_timms() -> None:
    torch.manual_seed(0)
    convnext, mbconv = (Genotype(CIFAR, (Stage(kind, 1, 8),)).plan(16).blocks[0] for kind in ("convnext", "mbconv"))
    x = torch.randn(2, 8, 16, 16)
    pairs = [
        (ConvNeXt(convnext), ConvNeXtBlock(8, conv_mlp=True, ls_init_value=None)),
        (MBConv(mbconv), MbConvBlock(8, 8, cfg=MaxxVitConvCfg())),
    ]
    for ours, theirs in pairs:
        lively(theirs)
        assert [p.shape for p in ours.parameters()] == [p.shape for p in theirs.parameters()]
        values = theirs.state_dict().values()
        ours.load_state_dict(dict(zip(ours.state_dict(), values, strict=True)))
        with torch.no_grad():
            torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), atol=1e-5, rtol=1e-4)


def test_stochastic_depth_grows_linearly_over_all_blocks() -> None:
    net = Genotype(CIFAR, (Stage("basic", 2, 8), replace(MSA, stride=2)), Encoder(16, 2, 2))
    model = build(net, 5, 16, 2, dropout=0.3, drop_path=0.5)
    rates = [module.drop_prob for module in model.modules() if type(module).__name__ == "DropPath"]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    dropouts = {module.p for module in model.modules() if isinstance(module, nn.Dropout)}
    assert dropouts == {0.3}
    plain = build(net, 5, 16, 2)
    plain.load_state_dict(model.state_dict())
    x = torch.randn(2, 2, 16, 16)
    torch.testing.assert_close(model.eval()(x), plain.eval()(x))
    with pytest.raises(InputError, match="drop_path"):
        build(net, 5, 16, 2, drop_path=1.0)


def test_images_of_another_size_pass_where_the_net_allows_it() -> None:
    for name, size in (("basic", 20), ("msa", 24), ("vit without positions", 24), ("bit", 96)):
        assert build(NETS[name], 5, 16, 2)(torch.randn(2, 2, size, size)).shape == (2, 5)
    for name, size, words in (
        ("msa", 18, "window 4x4 does not divide a 18x18"),
        ("msa_bottleneck", 32, "whole map of 16x16, got 32x32"),
        ("vit", 24, "built for 4x4 tokens, got 6x6"),
        ("vit without positions", 18, "patch 4 does not divide a 18x18"),
    ):
        with pytest.raises(InputError, match=words):
            build(NETS[name], 5, 16, 2)(torch.randn(2, 2, size, size))


def test_dropout_is_where_the_paper_has_it() -> None:
    block = TransformerEncoder(VIT, 2, (4, 4), True, 0.5)
    assert [name for name, module in block.named_modules() if isinstance(module, nn.Dropout)] == [
        "drop",
        *(f"blocks.{i}.{part}" for i in (0, 1) for part in ("attn.drop", "mlp.drop1", "mlp.drop2")),
    ]


def test_linear_attention_is_its_definition() -> None:
    """Weights relu(q) relu(k)^T over their sum, of the projections and of what is aggregated of them."""
    torch.manual_seed(0)
    layer = lively(LinearAttention(6, 10, 2, 4)).eval()
    x = torch.randn(3, 6, 5, 7)
    with torch.no_grad():
        qkv, parts = layer.qkv(x), []
        for scale in (qkv, layer.aggregate(qkv)):
            for head in scale.flatten(2).split(12, dim=1):
                q, k, v = head.transpose(1, 2).split(4, dim=2)
                weights = F.relu(q) @ F.relu(k).transpose(1, 2)
                parts.append((weights @ v) / (weights.sum(2, keepdim=True) + ATTENTION_EPS))
        y = torch.cat(parts, dim=2).transpose(1, 2).unflatten(2, (5, 7))
        torch.testing.assert_close(layer(x), layer.norm(layer.out(y)))


def test_attention_sums_in_float32_under_autocast() -> None:
    layer, seen = LinearAttention(8, 8, 2, 4), []
    hook = layer.attend
    layer.attend = lambda *qkv: seen.append((torch.is_autocast_enabled("cpu"), hook(*qkv))) or seen[-1][1]  # type: ignore[method-assign]
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.randn(2, 8, 6, 6))
    assert [(on, y.dtype) for on, y in seen] == [(False, torch.bfloat16)]


def block_of(stage: Stage) -> Any:
    """The last block of a stage behind a map of 8 channels."""
    at = Genotype(CIFAR, (stage,)).plan(16, 3).stages[0][-1]
    return load_class(at.form.module)(at)


def check_equal(ours: Any, theirs: nn.Module) -> None:
    torch.manual_seed(0)
    lively(theirs).eval()
    pairs = zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True)
    ours.load_state_dict({name: value.reshape(own.shape) for (name, own), value in pairs})
    x = torch.randn(2, 8, 15, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), theirs(x))


@pytest.mark.parametrize(("start", "kernel"), [(0, 3), (5, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convs_stand_and_stride_where_timms_do(start: int, kernel: int, stride: int) -> None:
    if stride == 2 and not start + kernel:
        return
    ours = block_of(Stage("uib", 1, 8, stride, start_kernel=start, kernel=kernel, expand=3, layer_scale=0.5))
    check_equal(
        ours, UniversalInvertedResidual(8, 8, start, kernel, 0, stride, exp_ratio=3, layer_scale_init_value=0.5)
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_fused_blocks_are_timms(stride: int) -> None:
    check_equal(block_of(Stage("uib", 1, 8, stride, fused=True, kernel=5)), EdgeResidual(8, 8, 5, stride, exp_ratio=4))


@pytest.mark.parametrize("stride", [1, 2])
def test_keys_and_values_are_of_one_head(stride: int) -> None:
    stage = Stage("uib", 1, 8, msa=(0,), heads=3, head_dim=4, attention="mqa", kv_stride=stride)
    check_equal(block_of(stage).attn, MultiQueryAttention2d(8, 8, 3, 4, 4, kv_stride=stride))


def test_a_block_that_changes_its_map_has_no_shortcut() -> None:
    for stage in (Stage("uib", 1, 8, 2), Stage("uib", 1, 12), Stage("conv", 1, 8)):
        assert not hasattr(block_of(stage), "drop_path")
    assert isinstance(block_of(Stage("uib", 1, 8)).drop_path, nn.Identity)


@pytest.mark.parametrize(("channels", "rounded"), [(4, 8), (12, 16), (18, 24), (44.8, 48), (105.6, 104), (960.0, 960)])
def test_channels_are_multiples_of_8(channels: float, rounded: int) -> None:
    assert divisible(channels) == rounded


@pytest.mark.parametrize(("stage", "rule"), [
    (Stage("uib", 1, 8, 2, kernel=0), "stage 1: a uib block strides in a depthwise conv"),
    (Stage("uib", 1, 8, fused=True, kernel=0), "stage 1: a fused uib block is a conv of its kernel, got kernel 0"),
    (Stage("uib", 1, 8, start_kernel=4), "stage 1: start_kernel must be 0 or an odd number"),
    (Stage("uib", 1, 8, se=65), "stage 1: se must be a number from 0 to 64, got 65"),
    (Stage("convnext", 1, 8, kernel=0), "stage 1: kernel of convnext blocks must be odd, got 0"),
    (
        Stage("uib", 2, 8, msa=1, attention="mqa", kv_stride=0),
        "stage 1: kv_stride must be a whole number from 1 to 255, got 0",
    ),
    (Stage("mbconv", 1, 8, start_kernel=3), "stage 1: start_kernel is of blocks uib, got block 'mbconv'"),
])  # fmt: skip
def test_rules_of_options(stage: Stage, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        Genotype(CIFAR, (stage,))


def test_mobile_attention_takes_maps_of_any_size() -> None:
    stage = Stage("uib", 2, 8, msa=1, heads=2, head_dim=4, attention="mqa", kv_stride=2)
    net = build(Genotype(CIFAR, (stage,)), 5, 16).eval()
    assert net(torch.randn(2, 3, 19, 22)).shape == (2, 5)
    assert "window" not in repr(Genotype(CIFAR, (replace(stage, window=4),)).canonical())


STRIDED = [name for name, net in NETS.items() if any(s.stride > 1 for s in net.stages) and net.style.norm == "batch"]


class Gradients(TorchDispatchMode):
    """Notes the convs whose input gets a gradient, as (kernel, strides)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution_backward.default and args[10][0]:
            self.seen.append((tuple(args[2].shape[2:]), tuple(args[4])))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_no_gradient_of_a_strided_1x1_conv(name: str, layout: torch.memory_format) -> None:
    model: Any = build(NETS[name], 5, 16, 2)
    model.to(memory_format=layout).train()
    with Gradients() as gradients:
        model(torch.randn(4, 2, 16, 16).contiguous(memory_format=layout)).square().sum().backward()
    kernels = [kernel for kernel, stride in gradients.seen if max(stride) > 1]
    assert gradients.seen
    assert (1, 1) not in kernels


@pytest.mark.parametrize(("c_in", "c_out", "side", "stride"), [(8, 16, 9, 2), (3, 5, 8, 4), (8, 8, 7, 1)])
def test_outputs_and_gradients_are_those_of_the_conv(c_in: int, c_out: int, side: int, stride: int) -> None:
    torch.manual_seed(0)
    conv, x = Projection(c_in, c_out, stride), torch.randn(3, c_in, side, side, requires_grad=True)
    plain = F.conv2d(x, conv.weight, stride=stride)
    out = torch.randn_like(plain)
    wanted = torch.autograd.grad(plain, [x, conv.weight], out)
    ours = conv(x)
    torch.testing.assert_close(ours, plain)
    for one, other in zip(torch.autograd.grad(ours, [x, conv.weight], out), wanted, strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        assert torch.equal(conv(x.detach()), F.conv2d(x.detach(), conv.weight, stride=stride))


def test_weights_and_exports_are_those_of_a_conv() -> None:
    """What is saved and exported knows of no slice."""
    assert list(Projection(4, 8, 2).state_dict()) == ["weight"]
    subject = export_net_of(build(NETS["basic"], 5, 16, 2).eval(), {})
    graph = subject.traced(subject.network).graph
    operators = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    assert "aten.conv2d.default" in operators
    assert not any("slice" in name for name in operators)
