"""The null device itself: torch takes it for the card that it says it is, and what is asked of it is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from null_cuda.client import OnNullDevice
from null_cuda.kernels import counted


def card() -> list[Any]:
    """Name and capability of the first card, how many there are, and whether bfloat16 is fast."""
    cuda = torch.cuda
    fast = cuda.is_bf16_supported(including_emulation=False)
    return [cuda.get_device_name(), list(cuda.get_device_capability()), cuda.device_count(), fast]


def operations() -> dict[str, dict[str, int]]:
    """What operations ask of the device."""
    x = torch.ones(64, 64, device="cuda")
    torch.mm(x, x)  # the first product makes room for cuBLAS
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (x @ x).sum()
    return {
        "add": counted(lambda: x + x),
        "product": counted(lambda: x @ x),
        "item": counted(lambda: x[0, 0].item()),
        "copy": counted(lambda: torch.ones(8).to("cuda")),
        "graph": counted(graph.replay),
        "large": counted(lambda: torch.empty(2**28, device="cuda")),
    }


def waiting_inside_a_graph() -> str:
    """The error of a captured step that waits for the device."""
    x = torch.ones(8, device="cuda")
    with pytest.raises(RuntimeError) as error, torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
    return str(error.value)


def after_an_assert() -> list[str]:
    """Errors of what is asked of a device on which an assertion has failed."""
    x, errors = torch.ones(8, device="cuda"), []
    for what in (lambda: x + x, torch.cuda.synchronize, lambda: torch.ones(8).to("cuda")):
        with pytest.raises(torch.AcceleratorError) as error:
            what()
        errors.append(str(error.value).splitlines()[0])
    return errors


def filled() -> list[int]:
    """GiB held and free when memory has run out, and whether a smaller tensor still fits."""
    held = [torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(3)]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**30, dtype=torch.uint8, device="cuda")
    free, total = torch.cuda.mem_get_info()
    small = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    return [len(held), free // 2**20, total // 2**20, len(small) // 2**20]


@pytest.mark.parametrize(
    ("capability", "name", "fast"),
    [("7.5", "Tesla T4", False), ("8.0", "NVIDIA A100-SXM4-80GB", True), ("9.0", "NVIDIA H100 80GB HBM3", True)],
)
def test_cards(on_null_device: OnNullDevice, capability: str, name: str, fast: bool) -> None:
    found = on_null_device(card, NULL_CUDA_CAPABILITY=capability, NULL_CUDA_DEVICES="4", CUDA_VISIBLE_DEVICES="3,1")
    assert found == [name, [*map(int, capability.split("."))], 2, fast]


def test_counts(on_null_device: OnNullDevice) -> None:
    found = on_null_device(operations)
    rows = {name: {what: number for what, number in row.items() if number} for name, row in found.items()}
    assert rows == {
        "add": {"launches": 1},
        "product": {"launches": 1},
        "item": {"waits": 1, "to_host": 1},
        "copy": {"to_device": 1, "waits": 1},
        "graph": {"launches": 1, "graph_kernels": 2},
        "large": {"allocations": 1},
    }


def test_a_graph_must_not_wait(on_null_device: OnNullDevice) -> None:
    assert "not permitted when stream is capturing" in on_null_device(waiting_inside_a_graph)


def test_an_error_stays(on_null_device: OnNullDevice) -> None:
    found = on_null_device(after_an_assert, NULL_CUDA_FAULT="2")
    assert found == ["CUDA error: device-side assert triggered"] * 3


def test_memory_ends_where_it_is_said(on_null_device: OnNullDevice) -> None:
    assert on_null_device(filled, NULL_CUDA_MEMORY=str(7 * 2**29)) == [3, 512, 3584, 256]
