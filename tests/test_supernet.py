"""Shared weights: nets on slices of a bank are the nets themselves, gradients add up, training resumes unbroken."""

import functools
import json
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from alternas.archs import Genotype, InputError, Stage, Stem, build, static_cost
from alternas.archs.blocks.spec import BLOCKS
from alternas.results.runs.bank_progress import BANK_NAME
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.strategies.strategy_context import features
from alternas.search.supernet.bank import Bank, NetInput, load_bank, save_bank, skeleton
from alternas.search.supernet.draws import (
    MAX_WATCHES,
    NETS_A_STEP,
    TRAININGS_A_KIND,
    LossPredictor,
    NetSampler,
    divide,
    evaluation_flops,
    trainings_needed,
)
from alternas.search.supernet.evaluate import evaluate_job, evaluate_net
from alternas.search.supernet.trainer import train_bank
from alternas.search.training import recipes
from alternas.search.training.bank_jobs import EvaluateJob, SupernetJob
from alternas.search.training.job import JobResult, Progress
from alternas.search.training.loaders import DeviceLoader, open_loader
from alternas.search.training.optim import memory_format
from alternas.spaces import RandomChooser, Space, get
from nets import NETS, index_in, twice

SPACES = ("resnet", "alternet", "hybrid", "modern", "free", "all", "bench", "placements")
SMALL = Genotype(Stem("cifar", 4), (Stage("basic", 1, 4), Stage("basic", 1, 4, 2)))
LARGE = Genotype(Stem("cifar", 6), (Stage("basic", 2, 6, msa=(1,), heads=2, head_dim=4), Stage("basic", 1, 8, 2)))
DIGITS = NetInput(10, (8, 8), 1)


def drawn(space: Space, count: int) -> list[Genotype]:
    return [space.sample(RandomChooser(seed)) for seed in range(count)]


def copied(bank: Bank, net: Genotype, x_BCHW: Tensor) -> Tensor:
    """What a copy of the net gives, by the batch's statistics as the bank does."""
    return bank.network(net).train()(x_BCHW.contiguous(memory_format=memory_format(net, x_BCHW.device)))


def enlarged(net: Genotype) -> Genotype:
    """Larger in all that nests: channels, heads, head channels, kernels, ratios."""

    def of(stage: Stage) -> Stage:
        options = {name: value for kind in stage.kinds for name, value in BLOCKS[kind].options.items()} | stage.given
        more = {name: options[name] + 2 for name in ("kernel", "start_kernel") if options.get(name)}
        more |= {name: 1.5 * options[name] for name in ("se", "part") if options.get(name)}
        more |= {"expand": 1.5 * options["expand"]} if options.get("expand", 1) != 1 else {}
        return replace(stage, mlp_ratio=1.5 * stage.mlp_ratio, **more)

    return replace(twice(net), stages=tuple(map(of, twice(net).stages)))


@pytest.mark.parametrize("name", NETS)
def test_a_net_on_slices_of_a_larger_bank_is_its_copy(name: str) -> None:
    """Weights are the places of the bank that their axes name, outputs and gradients those of the net copied out."""
    net, x_BCHW = NETS[name], torch.randn(4, 2, 16, 16)
    bank = Bank(NetInput(3, (16, 16), 2))
    bank.reserve([enlarged(net)] if net.stages else [])
    bank.reserve([net])
    alone, cut = bank.network(net).train(), 0
    logits = bank(net, x_BCHW), alone(x_BCHW.contiguous(memory_format=memory_format(net, x_BCHW.device)))
    assert torch.equal(*logits)
    for of_net in logits:
        of_net.square().sum().backward()
    for name, role in skeleton(net, bank.inputs).roles.items():
        whole, parameter = bank.tensor(role.name), alone.get_parameter(name)
        places = np.ix_(*(index_in(part, of) for part, of in zip(role.axes, bank.axes[role.name], strict=True)))
        assert torch.equal(whole[places], parameter)
        assert whole.grad is not None
        assert torch.equal(whole.grad[places], parameter.grad)
        assert whole.grad.count_nonzero() == parameter.grad.count_nonzero()
        cut += whole.shape != parameter.shape
    assert cut or not net.stages


@pytest.mark.parametrize("count", [10, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SPACES)
def test_every_net_of_every_space_is_a_slice_of_one_bank(name: str, count: int) -> None:
    nets, x_BCHW = drawn(get(name, 16), count), torch.randn(2, 3, 16, 16)
    bank = Bank(NetInput(10, (16, 16), 3))
    bank.reserve(nets)
    with torch.no_grad():
        for net in nets:
            assert torch.equal(bank(net, x_BCHW), copied(bank, net, x_BCHW))
    assert bank.reserve(nets) == []


def test_gradients_are_the_sum_over_the_nets() -> None:
    nets, x_BCHW, y_B = [SMALL, LARGE, *drawn(get("all", 8), 4)], torch.randn(6, 1, 8, 8), torch.arange(6)
    bank = Bank(DIGITS)
    bank.reserve(nets)
    for net in nets:
        nn.functional.cross_entropy(bank(net, x_BCHW), y_B).backward()
    sums = {role: torch.zeros_like(bank.tensor(role)) for role in bank.axes}
    for net in nets:  # each alone, its gradients put in their places one index at a time
        alone = bank.network(net).train()
        x = x_BCHW.contiguous(memory_format=memory_format(net, x_BCHW.device))
        nn.functional.cross_entropy(alone(x), y_B).backward()
        for name, parameter in alone.named_parameters():
            role = skeleton(net, bank.inputs).roles[name]
            places = [index_in(part, whole) for part, whole in zip(role.axes, bank.axes[role.name], strict=True)]
            sums[role.name][np.ix_(*places)] += parameter.grad
    for role, total in sums.items():
        grad = bank.tensor(role).grad
        assert torch.allclose(total, torch.zeros_like(total) if grad is None else grad, atol=1e-6), role


def test_new_tensors_have_the_initialisation_of_their_layer() -> None:
    bank = Bank(DIGITS)
    bank.reserve([LARGE])
    norm, conv = "stage 1 block 1 basic pre batch/norm2.weight", "stage 1 block 1 basic pre batch/conv1.weight"
    assert torch.equal(bank.tensor(norm), torch.ones(6))
    alone = build(LARGE, 10, 8, 1).stages[0].get_submodule("0").get_parameter("conv1.weight")
    assert bank.tensor(conv).std().item() == pytest.approx(alone.std().item(), rel=0.2)


# Which nets, and how much of the compute for what.


@functools.cache
def macs_of(net: Genotype) -> float:
    return float(static_cost(net, 10, 16, 1).macs)


@functools.cache
def pool(space: str, most: float) -> list[Genotype]:
    return NetSampler(get(space, 16), macs_of, lambda net: max(0.0, macs_of(net) / most - 1), 0).pool


def sampler(space: str = "bench", most: float = float("inf")) -> NetSampler:
    made = NetSampler(get(space, 16), macs_of, lambda net: max(0.0, macs_of(net) / most - 1), 0)
    made.pool = pool(space, most)
    return made


def test_families_are_drawn_evenly_and_every_draw_is_a_function_of_seed_and_step() -> None:
    draws = sampler()
    nets = [net for step in range(600) for net in draws.nets(step, 2)]
    counts = Counter(net.family for net in nets)
    assert set(counts) == {"resnet", "alternet", "hybrid"}
    assert min(counts.values()) > 0.8 * len(nets) / 3
    assert sampler().nets(17, 2) == draws.nets(17, 2) != draws.nets(18, 2)


def test_the_nets_of_a_step_cost_about_the_same() -> None:
    draws = sampler()
    steps = [draws.nets(step, 2) for step in range(320)]
    shares = [sum(map(draws.macs, nets)) / (2 * max(map(draws.macs, nets))) for nets in steps]
    assert sum(shares) / len(shares) > 0.93  # 0.77 for pairs as they are drawn
    means = [sum(map(draws.macs, nets)) for nets in steps]
    assert sorted(means[:16]) != means[:16], "in no order within a window"


def test_a_loss_predictor_is_ridge_regression_beside_a_trend_over_the_cost() -> None:
    from sklearn.linear_model import Ridge

    nets, draw = sampler("all").pool[::20], np.random.default_rng(0)
    macs = np.array([sampler().macs(net) for net in nets])
    losses = np.exp(draw.normal(size=len(nets)))
    predicted = LossPredictor.fit(nets, [*losses], [*macs])
    described = [{f"{' '.join(map(str, place))} = {value}" for place, value in features(net)} for net in nets]
    names = [name for name in predicted.weights if "=" in name] + ["resnet", "alternet", "hybrid", "vit", "modern"]
    x = np.array(
        [[name in of_net or name == net.family for name in names] for of_net, net in zip(described, nets, strict=True)]
    )
    logs = (np.log(macs) - np.log(macs).mean()) / np.log(macs).std()
    trend = np.stack([logs**2, logs, np.ones_like(logs)], 1)
    free = np.eye(len(nets)) - trend @ np.linalg.pinv(trend)  # what the trend does not explain
    y = (np.log(losses) - np.log(losses).mean()) / np.log(losses).std()
    expected = Ridge(2.0, fit_intercept=False).fit(free @ x, free @ y).coef_
    assert [predicted.weights.get(name, 0.0) for name in names] == pytest.approx(expected, abs=1e-4)
    assert predicted(nets[0]) == pytest.approx(float(x[0] @ expected), abs=1e-3)


def test_nets_that_learn_well_are_drawn_more_often_at_the_same_cost() -> None:
    draws, plain = sampler(), sampler()
    draws.prefer(LossPredictor({"alternet": -1.0}))
    drawn, before = ([net for step in range(320) for net in s.nets(step, 2)] for s in (draws, plain))
    share = [sum(net.family == "alternet" for net in nets) / len(nets) for nets in (drawn, before)]
    assert share[1] == pytest.approx(1 / 3, abs=0.05)
    assert share[0] > 0.75
    mean = [sum(map(draws.macs, nets)) / len(nets) for nets in (drawn, before)]
    assert mean[0] == pytest.approx(mean[1], rel=0.02)
    cheapest, most_expensive = (sorted(map(draws.macs, drawn))[i] for i in (32, -32))
    assert (cheapest, most_expensive) == pytest.approx([sorted(map(draws.macs, before))[i] for i in (32, -32)], rel=0.1)


def test_draws_keep_the_limits() -> None:
    draws = sampler(most=500_000)
    assert all(draws.macs(net) <= 500_000 for step in range(50) for net in draws.nets(step, 2))
    cheapest, _, most_expensive = draws.fixed()
    assert draws.macs(cheapest) < draws.macs(most_expensive) <= 500_000


def test_the_budget_is_that_of_full_trainings_of_the_mean_net() -> None:
    draws, recipe = sampler(), recipes.get("cue")
    budget = divide(8, 0.25, draws, recipe, 625)
    assert budget.training == 6 * draws.mean_macs * 625 * 64
    watching = MAX_WATCHES * sum(evaluation_flops(draws.macs(net), 40_000, 1000) for net in draws.fixed())
    parts = (budget.bank, budget.evaluation, budget.finetuning, watching)
    assert sum(parts) == pytest.approx(8 * budget.training)
    macs = sum(draws.macs(net) for step in range(budget.steps) for net in draws.nets(step, NETS_A_STEP))
    assert 6 * macs * 64 / NETS_A_STEP == pytest.approx(budget.bank, rel=0.05)
    assert evaluation_flops(100, 10_000, 10_000) == 2 * 100 * 1512


def test_the_trainings_that_a_space_of_many_kinds_needs_give_each_kind_its_share() -> None:
    draws = digits_draws()
    blocks = {stage.block for net in draws.pool for stage in net.stages}
    assert draws.kinds == len(blocks) + 1  # and the encoder
    budget = divide(8, 0.4, draws, recipes.get("cue"), 625)
    needed = trainings_needed(8, budget, draws.kinds)
    again = divide(needed, 0.4, draws, recipes.get("cue"), 625)
    assert again.bank / again.training / draws.kinds == pytest.approx(TRAININGS_A_KIND, rel=0.1)  # watching differs


# Training and evaluation.


@pytest.fixture(scope="module")
def loader() -> DeviceLoader:
    return open_loader(load(DataConfig("digits")).without_test(), torch.device("cpu"), 0)


@functools.cache
def digits_draws() -> NetSampler:
    return NetSampler(get("all", 8), lambda net: float(static_cost(net, 10, 8, 1).macs), lambda net: 0.0, 0)


def job_of(folder: Path, start: int, stop: int, **changes: Any) -> SupernetJob:
    space, draws = get("all", 8), digits_draws()
    nets = tuple(draws.nets(step, 2) for step in range(start, stop))
    files = str(folder / "bank"), str(folder / "bank.safetensors")
    largest = (*drawn(space, 50), *(net for step in range(12) for net in draws.nets(step, 2)))
    job = SupernetJob(nets, start, 12, largest, largest[:2], recipes.get("smoke"), 0, *files, {"space": "all"})
    return replace(job, **changes)


def run(job: SupernetJob, loader: DeviceLoader) -> JobResult:
    *progress, result = train_bank(job, loader)
    assert isinstance(result, JobResult)
    assert result.status != "ok" or isinstance(progress[-1], Progress)
    return result


@pytest.mark.slow
def test_a_training_in_parts_gives_the_bank_of_the_unbroken_one(tmp_path: Path, loader: DeviceLoader) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(job_of(whole, 0, 12), loader).status == "ok"
    for start, stop in ((0, 5), (5, 9), (9, 12)):
        assert run(job_of(parts, start, stop), loader).step == stop
    run(job_of(parts, 9, 12), loader)  # a driver that died before it noted the end asks once more
    one, other = (load_bank(folder / "bank.safetensors", torch.device("cpu")) for folder in (whole, parts))
    assert one.axes.keys() == other.axes.keys()
    assert all(torch.equal(one.tensor(role), other.tensor(role)) for role in one.axes)


@pytest.mark.slow
def test_training_makes_nets_better_than_chance(tmp_path: Path, loader: DeviceLoader) -> None:
    result = run(job_of(tmp_path, 0, 120, total_steps=120), loader)
    assert result.accuracy is not None
    assert result.accuracy > 0.4
    net = get("all", 8).sample(RandomChooser(0))
    job = EvaluateJob(3, net, str(tmp_path / "bank.safetensors"), recipes.get("smoke"), str(tmp_path / "net.st"))
    assert (evaluated := evaluate_job(job, loader)).status == "ok"
    bank = load_bank(tmp_path / "bank.safetensors", torch.device("cpu"))
    assert evaluated.accuracy == evaluate_net(bank.network(net), recipes.get("smoke"), loader).accuracy


@pytest.mark.slow
def test_a_net_with_a_part_that_no_other_had_is_evaluated_too(tmp_path: Path, loader: DeviceLoader) -> None:
    assert run(job_of(tmp_path, 0, 8, total_steps=8), loader).status == "ok"
    net = Genotype(Stem("cifar", 8), (Stage("mbconv", 5, 72),))
    files = str(tmp_path / "bank.safetensors"), str(tmp_path / "net.safetensors")
    job = EvaluateJob(3, net, files[0], recipes.get("smoke"), files[1])
    assert evaluate_job(job, loader).status == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["fast", "paper_cifar", "resnet_a2", "vit_finetune"])
def test_every_recipe_trains_a_bank(recipe: str, tmp_path: Path, loader: DeviceLoader) -> None:
    small = replace(recipes.get(recipe), batch_size=32, grad_accum_steps=2, sam_rho=0.05, ema_decay=0.9)
    assert run(job_of(tmp_path, 0, 3, validated=(), recipe=small), loader).status == "ok"


@pytest.mark.slow
def test_a_loss_that_is_not_finite_leaves_the_last_good_state(tmp_path: Path, loader: DeviceLoader) -> None:
    assert run(job_of(tmp_path, 0, 4), loader).status == "ok"
    before = (tmp_path / "bank-4.pt").read_bytes()
    wild = replace(recipes.get("smoke"), lr=1000.0, clip_grad=0.0)
    result = run(replace(job_of(tmp_path, 4, 8), recipe=wild), loader)
    assert result.status == "nan"
    assert "training loss" in result.error
    assert (tmp_path / "bank-4.pt").read_bytes() == before
    assert run(job_of(tmp_path, 4, 8), loader).status == "ok"


@pytest.mark.parametrize("harm", ["empty", "cut", "a bit flipped", "gone"])
def test_a_broken_state_is_put_aside_and_asks_for_an_earlier_one(
    harm: str, tmp_path: Path, loader: DeviceLoader
) -> None:
    small = replace(job_of(tmp_path, 0, 2), nets=((SMALL, SMALL),) * 2, largest=(SMALL,), validated=())
    for start in (0, 2):
        assert run(replace(small, start_step=start), loader).status == "ok"
    file = tmp_path / "bank-4.pt"
    whole = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as parts:
        largest = max(map(parts.read, parts.namelist()), key=len)
    whole[whole.index(largest) + len(largest) // 2] ^= 1
    file.unlink()
    if harm != "gone":
        file.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "a bit flipped": whole}[harm])
    result = run(replace(small, start_step=4), loader)
    assert (result.status, result.error) == ("rewind", f"{file} is broken or gone")
    assert (tmp_path / "bank-4.pt.broken").exists() == (harm != "gone")
    assert run(replace(small, start_step=2), loader).step == 4


def test_a_checkpoint_of_another_bank_is_refused(tmp_path: Path, loader: DeviceLoader) -> None:
    small = replace(job_of(tmp_path, 0, 2), nets=((SMALL, SMALL),) * 2, largest=(SMALL,), validated=())
    run(small, loader)
    with pytest.raises(InputError, match="is of another bank"):
        run(replace(small, start_step=2, facts={"space": "free"}), loader)


def test_running_statistics_are_estimated_from_training_images(loader: DeviceLoader) -> None:
    bank = Bank(DIGITS)
    bank.reserve([LARGE])
    net = bank.network(LARGE)
    evaluate_net(net, recipes.get("smoke"), loader)
    images = torch.cat([x for x, _ in loader.images("train", 128, 512)])
    stem_BCHW = net.stem(images)
    norm = next(module for module in net.modules() if isinstance(module, _BatchNorm))
    assert norm.running_mean is not None
    assert torch.allclose(norm.running_mean, stem_BCHW.mean((0, 2, 3)), atol=1e-4)


# Its file.


def test_a_bank_comes_back_from_its_file(tmp_path: Path) -> None:
    bank = Bank(DIGITS, seed=3)
    bank.reserve([LARGE])
    save_bank(bank, tmp_path / "bank.safetensors", {"space": "all"})
    back = load_bank(tmp_path / "bank.safetensors", torch.device("cpu"))
    assert (back.inputs, back.seed, back.axes) == (bank.inputs, bank.seed, bank.axes)
    assert all(torch.equal(back.tensor(role), bank.tensor(role)) for role in bank.axes)
    with safe_open(tmp_path / "bank.safetensors", "pt") as file:
        assert json.loads(file.metadata()[BANK_NAME])["facts"] == {"space": "all"}


@pytest.mark.parametrize("content", [b"", b"no bank", b"\x02\0\0\0\0\0\0\0{}"])
def test_what_is_no_bank_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bank.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="supernet: ") as error:
        load_bank(tmp_path / "bank.safetensors", torch.device("cpu"))
    assert "\n" not in str(error.value)
