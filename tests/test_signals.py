"""Zero-cost signals against closed forms, numpy, and nets made linear by other means; what must not change them."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from alternas.archs import Genotype, Network, Stage, build
from alternas.archs.attention import WindowAttention
from alternas.archs.encoder import EncoderBlock, TokenAttention
from alternas.search.data.dataset import Request
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training import signals as module
from alternas.search.training.bench import Batch
from alternas.search.training.job import Job
from alternas.search.training.memory import MemoryBench
from alternas.search.training.recipe import Augment
from alternas.search.training.signals import (
    SIGNALS,
    Codes,
    dss,
    grad_norm,
    jacob_cov,
    layers_of,
    naswot,
    signals,
    synflow,
)
from alternas.search.training.train import Trainer
from alternas.spaces import RandomChooser, get
from nets import CIFAR, NETS


@pytest.fixture(scope="module")
def bench() -> MemoryBench:
    return MemoryBench(load(Request("digits")), torch.device("cpu"))


def net_of(name: str) -> Network:
    torch.manual_seed(0)
    return build(NETS[name], 5, 16, 2)


def batch_of(*shape: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator), torch.randint(0, 5, shape[:1], generator=generator)


def pictures(images: int = 6) -> Batch:
    return batch_of(images, 2, 16, 16)


def linear(outputs: int, inputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def numbers(layer: nn.Module) -> np.ndarray:
    return next(layer.parameters()).detach().double().numpy()


# synflow


def test_synflow_of_two_linear_layers() -> None:
    net = nn.Sequential(linear(7, 4), linear(3, 7))
    flow = (abs(numbers(net[1])) @ abs(numbers(net[0]))).sum()  # through each layer flows R: twice that
    assert synflow(net, batch_of(6, 4)) == pytest.approx(math.log(2 * flow), rel=1e-12)


def test_synflow_leaves_biases_out() -> None:
    net = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3))
    (w, b), v = (abs(p.detach().double().numpy()) for p in net[0].parameters()), abs(numbers(net[2]))
    paths, of_bias = v.sum(0) @ w.sum(1), v.sum(0) @ b
    assert synflow(net, batch_of(6, 4)) == pytest.approx(math.log(2 * paths + of_bias), rel=1e-12)


def test_synflow_of_nothing() -> None:
    dead = linear(7, 4)
    nn.init.zeros_(dead.weight)
    assert synflow(nn.Sequential(dead, linear(3, 7)), batch_of(6, 4)) == -math.inf


def without_norms(net: Network) -> Network:
    """Positive and linear by other means: modules swapped, and q and k at zero, where softmax is a mean."""
    net = copy.deepcopy(net).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.abs_()
        for part in list(net.modules()):
            for name, child in part.named_children():
                if isinstance(child, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm | nn.Tanh):
                    setattr(part, name, nn.Identity())
            if isinstance(part, WindowAttention | TokenAttention):
                for parameter in part.qkv.parameters():
                    parameter[: 2 * len(parameter) // 3] = 0
            if isinstance(part, WindowAttention):
                cast(Tensor, part.table).zero_()
    return net


LINEAR = [name for name in NETS if not name.startswith("bit") and name != "root"]  # no weight standardisation


@pytest.mark.parametrize("name", LINEAR)
def test_synflow_is_the_growth_of_the_sum_of_logits(name: str) -> None:
    """The sum of w dR/dw is how fast R grows when all weights are stretched at once."""
    net, ones = without_norms(net_of(name)), torch.ones(1, 2, 16, 16, dtype=torch.float64)
    weights = [m.weight for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]

    @torch.no_grad()
    def flow(stretched: float) -> float:
        for weight in weights:
            weight.mul_(stretched)
        total = net(ones).sum().item()
        for weight in weights:
            weight.div_(stretched)
        return total

    growth = (flow(1 + 1e-5) - flow(1 - 1e-5)) / 2e-5
    assert synflow(net_of(name), pictures()) == pytest.approx(math.log(growth), abs=1e-6)


@pytest.mark.parametrize("name", ["bit", "bit cifar", "bit trunk", "bit trunk with msa", "root"])
def test_norms_and_standardisation_do_not_stop_the_flow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first conv of double strength: standardised, or behind a norm, it would pass the same."""
    monkeypatch.setattr(nn.functional, "gelu", lambda x, approximate="none": x.relu())  # which doubles what is doubled
    net = net_of(name)
    with torch.no_grad():
        for key, parameter in net.named_parameters():
            if not key.endswith("weight"):
                parameter.zero_()  # biases and positions flow without the first conv
    before = synflow(net, pictures())
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.GroupNorm | nn.LayerNorm):
                nn.init.uniform_(layer.weight)
        next(layer for layer in net.modules() if isinstance(layer, nn.Conv2d)).weight.mul_(2)
    assert synflow(net, pictures()) == pytest.approx(before + math.log(2), rel=1e-12)


def mean_by_softmax(values_BNTD: Tensor, mask: Tensor | None) -> Tensor:
    logits = torch.zeros(*values_BNTD.shape[:2], values_BNTD.shape[2], values_BNTD.shape[2])
    if mask is not None:
        seen = mask if mask.dtype == torch.bool else mask.exp() > 0
        logits = torch.where(seen, logits, -math.inf)
    return logits.softmax(-1) @ values_BNTD


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_attention_at_equal_logits(kind: str) -> None:
    q, k, v = torch.randn(3, 2, 3, 4, 5).unbind(0)
    seen = torch.rand(4, 4) > 0.5
    seen.fill_diagonal_(True)
    mask = {"none": None, "bool": seen, "float": torch.randn(4, 4).masked_fill(~seen, -math.inf)}[kind]
    with module.Instead(module.LINEAR):
        got = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert torch.allclose(got, mean_by_softmax(v, mask), atol=1e-6)


# The gradient


def test_grad_norm_of_a_softmax_classifier() -> None:
    net, (x, y) = nn.Linear(4, 5), batch_of(8, 4)
    logits = x.double().numpy() @ numbers(net).T + net.bias.detach().double().numpy()
    odds = np.exp(logits)
    error = odds / odds.sum(1, keepdims=True) - np.eye(5)[y.numpy()]
    slope, of_bias = error.T @ x.double().numpy() / 8, error.mean(0)
    assert grad_norm(net, (x, y)) == pytest.approx(math.sqrt((slope**2).sum() + (of_bias**2).sum()), rel=1e-5)


def test_norms_see_the_batch() -> None:
    net, batch = net_of("basic").eval(), pictures()
    before = {name: signal(net, batch) for name, signal in SIGNALS.items()}
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean, norm.running_var = torch.rand(norm.num_features), 0.1 + torch.rand(norm.num_features)
    assert {name: signal(net, batch) for name, signal in SIGNALS.items()} == before


# Codes


def test_naswot_against_codes_by_hand() -> None:
    net, (x, y) = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 6), nn.GELU(), nn.Linear(6, 5)), batch_of(7, 4)
    (w, b), (v, c) = ([p.detach().double().numpy() for p in net[i].parameters()] for i in (0, 2))
    first = x.double().numpy() @ w.T + b
    second = np.maximum(first, 0) @ v.T + c
    codes = np.concatenate([first, second], 1) > 0
    kernel = np.eye(7)
    for i, j in itertools.product(range(7), repeat=2):
        kernel[i, j] += 15 - sum(a != b for a, b in zip(codes[i], codes[j], strict=True))
    assert naswot(net, (x, y)) == pytest.approx(np.log(np.linalg.det(kernel)), rel=1e-6)


def test_images_of_one_code() -> None:
    net = nn.Sequential(nn.Linear(4, 9), nn.ReLU())
    x, y = batch_of(1, 4)
    assert naswot(net, (x.expand(3, -1), y.expand(3))) == pytest.approx(math.log(27 + 1))
    assert naswot(linear(2, 4), (x.expand(3, -1), y.expand(3))) == 0


# Units of ReLU and GELU for images of 16 px: counted from the drawings of the blocks.
UNITS = {
    "basic": 2 * 2 * 8 * 256 + 8 * 256 + 3 * 16 * 64 + 16 * 64,
    "post basic": 8 * 256 + 4 * 8 * 256 + 4 * 16 * 64,
    "msa": 2 * 8 * 256 + 8 * 256 + 8 * 256,
    "msa_a": 8 * 256 + 2 * 8 * 256 + 8 * 256 + 8 * 256,
    "vit": 2 * 17 * 64,
    "vit pooled": 2 * 16 * 64,
    "mbconv": 4 * 32 * 256 + 64 * 256 + 3 * 64 * 64 + 16 * 64,
    "convnext": 2 * 32 * 256 + 2 * 64 * 64 + 16 * 64,
    "patchify": 3 * 8 * 64,
}


@pytest.mark.parametrize("name", NETS)
def test_all_units_are_seen(name: str) -> None:
    with Codes() as codes:
        net_of(name)(pictures()[0])
    units = codes.kernel_BB.diagonal()
    assert (units == units[0]).all()
    assert units[0] > 0
    if name in UNITS:
        assert units[0] == UNITS[name]


def test_jacobians_that_are_all_the_same() -> None:
    eps, images = 1e-5, 6
    same = -(math.log(images + eps) + 1 / (images + eps)) - (images - 1) * (math.log(eps) + 1 / eps)
    assert jacob_cov(nn.Linear(20, 5), batch_of(images, 20)) == pytest.approx(same, rel=1e-6)


class Square(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x**2


def test_jacobians_by_numpy() -> None:
    net, (x, y) = nn.Sequential(Square(), linear(5, 20)), batch_of(6, 20)
    slopes = 2 * numbers(net[1]).sum(0) * x.double().numpy()
    values = np.linalg.eigvals(np.corrcoef(slopes)).real + 1e-5
    assert jacob_cov(net, (x, y)) == pytest.approx(-(np.log(values) + 1 / values).sum(), rel=1e-4)


# DSS


def nuclear(matrix: np.ndarray) -> float:
    return float(np.sqrt(np.linalg.eigvalsh(matrix @ matrix.T).clip(0)).sum())


def test_dss_of_linear_layers() -> None:
    layers = linear(3, 4), linear(7, 3), linear(5, 7), linear(2, 5)
    a, w, v, u = (abs(numbers(layer)) for layer in layers)
    parts = {"attn": layers[0], "mlp": nn.Sequential(*layers[1:3]), "head": layers[3]}
    net = nn.Sequential(OrderedDict(parts))
    ones = np.ones(4)
    behind = np.ones(2) @ u @ v @ w  # dR/dy of the attention's output; dR/dA is behind x ones
    diversity = np.linalg.norm(behind) * np.linalg.norm(ones) * nuclear(a)
    saliency = 2 * (behind @ a @ ones)
    assert dss(net, batch_of(6, 4)) == pytest.approx(math.log1p(diversity + saliency), rel=1e-6)


def scale_only(norm: nn.Module, args: tuple[Tensor, ...]) -> None:
    """Statistics by which BatchNorm divides by the root mean square of what comes."""
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    norm.running_mean.zero_()
    norm.running_var = args[0].detach().pow(2).mean((0, 2, 3))


def by_definition(net: Network) -> float:
    """DSS with the layers named one by one, BatchNorm in eval mode, numpy's SVD."""
    net = copy.deepcopy(net).double().eval()
    attention, mlps = [], []
    parts: list[Any] = list(net.modules())
    for part in parts:
        if isinstance(part, nn.BatchNorm2d):
            part.register_forward_pre_hook(scale_only)
        attention += [part.qkv, part.out] if isinstance(part, WindowAttention) else []
        attention += [part.qkv, part.proj] if isinstance(part, TokenAttention) else []
        mlp: Any = part.mlp if isinstance(part, EncoderBlock) else part if type(part).__name__ == "ConvMlp" else None
        mlps += [mlp.fc1, mlp.fc2] if mlp else []
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(parameter.sign() * parameter)
    net(torch.ones(1, 2, 16, 16, dtype=torch.float64)).sum().backward()
    total = sum(abs(m.weight * m.weight.grad).sum().item() for m in mlps)
    for m in attention:
        total += np.linalg.norm(numbers(m), "nuc") * np.linalg.norm(m.weight.grad.numpy(), "nuc")
    return math.log1p(total)


@pytest.mark.parametrize("name", [name for name in LINEAR if not name.startswith("hidden")])
def test_dss_by_definition(name: str) -> None:
    assert dss(net_of(name), pictures()) == pytest.approx(by_definition(net_of(name)), rel=1e-9)


@pytest.mark.parametrize("name", ["msa in post", "bit trunk with msa"])
def test_dss_does_not_depend_on_the_scale_before_a_norm(name: str) -> None:
    net = net_of(name)
    before = dss(net, pictures())
    with torch.no_grad():
        next(m for m in net.stem.modules() if isinstance(m, nn.Conv2d)).weight.mul_(2**6)
    assert dss(net, pictures()) == pytest.approx(before, rel=1e-3)


def test_dss_is_0_without_attention_and_mlp() -> None:
    for name, genotype in NETS.items():
        blocks = {kind for stage in genotype.stages for kind in (stage.block, stage.attention if stage.msa else "")}
        none = genotype.encoder is None and not blocks & {"msa", "msa_a", "transformer", "convnext"}
        assert (dss(net_of(name), pictures()) == 0) == none, name


def test_layers_by_part() -> None:
    assert [len(layers_of(net_of("vit"), part)) for part in ("attn", "mlp")] == [4, 4]
    assert [len(layers_of(net_of("transformer"), part)) for part in ("attn", "mlp")] == [2, 2]
    assert [len(layers_of(net_of("mbconv"), part)) for part in ("attn", "mlp")] == [0, 0]


# All of them


@pytest.mark.parametrize("name", NETS)
def test_every_net_has_finite_signals_and_stays_as_it_was(name: str) -> None:
    net, batch = net_of(name), pictures()
    for parameter in list(net.parameters())[::2]:
        parameter.requires_grad_(False)
    trained = [p.requires_grad for p in net.parameters()]
    state, data, random = copy.deepcopy(net.state_dict()), [t.clone() for t in batch], torch.get_rng_state()
    for signal, compute in SIGNALS.items():
        assert math.isfinite(compute(net, batch)), signal
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert [p.requires_grad for p in net.parameters()] == trained
    assert all(part.training for part in net.modules())
    assert all(torch.equal(*pair) for pair in zip(batch, data, strict=True))
    assert torch.equal(torch.get_rng_state(), random)


def test_gradients_that_are_there_do_not_count() -> None:
    net, batch = net_of("msa"), pictures()
    before = {name: signal(net, batch) for name, signal in SIGNALS.items()}
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert {name: signal(net, batch) for name, signal in SIGNALS.items()} == before
    assert all(p.grad is not None and (p.grad == 1).all() for p in net.parameters())


@pytest.mark.parametrize("name", NETS)
def test_signs_do_not_matter_and_a_stronger_head_counts_for_its_strength(name: str) -> None:
    net, batch = net_of(name), pictures()
    flow, both = synflow(net, batch), dss(net, batch)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(torch.randint(0, 2, parameter.shape) * 2 - 1)
        [m for m in net.head.modules() if isinstance(m, nn.Linear)][-1].weight.mul_(2)
    assert synflow(net, batch) == pytest.approx(flow + math.log(2), rel=1e-12)
    assert math.expm1(dss(net, batch)) == pytest.approx(2 * math.expm1(both), rel=1e-6)


@pytest.mark.parametrize("space", ["bench", "resnet", "alternet", "hybrid", "modern", "all"])
def test_every_space_has_finite_signals(space: str, bench: MemoryBench) -> None:
    home, chooser = get(space, 8), RandomChooser(0)
    for seed in range(3):
        found = signals(home.sample(chooser), bench, seed, batch=8)
        assert list(found) == list(SIGNALS)
        assert all(type(value) is float and math.isfinite(value) for value in found.values()), found


def test_a_seed_is_its_weights_and_its_batch(bench: MemoryBench) -> None:
    genotype = Genotype(CIFAR, (Stage("basic", 1, 8),))
    random = torch.get_rng_state()
    first, again, other = (signals(genotype, bench, seed, batch=16) for seed in (3, 3, 4))
    assert first == again
    assert all(first[name] != other[name] for name in ("synflow", "grad_norm", "naswot", "jacob_cov"))
    assert torch.equal(torch.get_rng_state(), random)


def test_the_net_and_the_batch_are_those_of_training(
    bench: MemoryBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[nn.Module, Batch]] = []
    monkeypatch.setattr(module, "SIGNALS", {"spy": lambda net, batch: seen.append((net, batch)) or 0.0})
    genotype = get("alternet", 8).baselines()[2]
    recipe = dataclasses.replace(recipes.get("smoke"), batch=32, augment=Augment())
    trainer = Trainer(Job(0, genotype, recipe, 5, 20, 20, str(tmp_path / "c.pt"), str(tmp_path / "w")), bench)
    signals(genotype, bench, 5, batch=32)
    (net, (x_BCHW, y_B)), (x, y) = seen[0], next(trainer.feed)
    assert torch.equal(x_BCHW, x)
    assert torch.equal(y_B, y)
    state = trainer.net.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
