"""Shortcuts that stride on a CPU: torch 2.15's own gradient of their conv writes beyond its memory in channels_last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from alternas.archs import build
from alternas.archs.blocks.layers import Projection
from alternas.results.export.export_net import export_net_of
from nets import NETS

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
