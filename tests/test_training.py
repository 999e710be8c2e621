"""The training loop: determinism, resuming, what is kept, typed failures, less at a time when memory runs out."""

import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from alternas.archs import Genotype, InputError, build
from alternas.search.data.dataset import DataSet, Split
from alternas.search.engine import worker as worker_module
from alternas.search.training import loop as train
from alternas.search.training import optim as gradients
from alternas.search.training import recipes
from alternas.search.training.checkpoint import read_checkpoint
from alternas.search.training.job import JobResult, Progress, TrainJob, curve_points
from alternas.search.training.loaders import MemoryLoader, fed
from alternas.search.training.recipe import Augment, Recipe
from alternas.search.training.task import loss_of
from alternas.spaces import RandomChooser, get

CPU = torch.device("cpu")
EVERYTHING = Recipe(
    "everything", 1, 64, "lamb", 3e-3, 0.02, schedule="constant", cooldown=0.3, loss="binary", label_smoothing=0.1,
    dropout=0.1, drop_path=0.1, clip_grad=1.0, ema_decay=0.9, sam_rho=0.05, grad_accum_steps=3, augment=Augment(
        rrc_min_scale=0.5, pad=1, flip=True, ra_num_ops=2, ra_magnitude=5, ra_magnitude_std=0.5, reprob=0.25,
        mixup=0.8, cutmix=1.0),
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(digits: DataSet) -> MemoryLoader:
    return MemoryLoader(digits, CPU)


def job(folder: Path, net: Genotype | None = None, **changes: Any) -> TrainJob:
    net = net or get("resnet", 8).baselines()[2]
    given = TrainJob(0, net, recipes.get("smoke"), 0, 20, 20, str(folder / "c.pt"), str(folder / "w.safetensors"))
    return dataclasses.replace(given, **changes)


def loss_with(recipe: Recipe) -> gradients.Loss:
    return lambda forward, x, t: loss_of(recipe, forward(x).float(), t)


def last(events: Any) -> JobResult:
    *ticks, outcome = list(events)
    assert all(isinstance(tick, Progress) for tick in ticks)
    assert isinstance(outcome, JobResult)
    return outcome


def numbers(outcome: JobResult) -> Any:
    """All that must be the same in a repetition: all but the seconds."""
    return outcome.status, outcome.accuracy, outcome.metrics, outcome.curve, outcome.how


def same_weights(a: Path, b: Path) -> bool:
    ours, theirs = load_file(a), load_file(b)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_progress_says_where_nothing_would_be_lost(
    tmp_path: Path, bench: MemoryLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, found in ((0.0, [1, 2, 3, 3]), (99.0, [None] * 4)):
        monkeypatch.setattr(train, "CHECKPOINT_SECONDS", seconds)
        saved = list[int | None]()
        for tick in train.train(job(tmp_path, stop_step=4, total_steps=20), bench):
            if isinstance(tick, Progress):
                there = (tmp_path / "c.pt").exists()
                saved.append((read_checkpoint(tmp_path / "c.pt", CPU) or {}).get("step") if there else None)
        assert saved == found, "the last is left with the result"
        (tmp_path / "c.pt").unlink()


def test_training_learns_and_leaves_its_weights(tmp_path: Path, bench: MemoryLoader, digits: DataSet) -> None:
    outcome = last(train.train(job(tmp_path, stop_step=60, total_steps=60), bench))
    assert outcome.status == "ok"
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.6
    assert [p.step for p in outcome.curve] == list(range(3, 61, 3))
    net = build(job(tmp_path).genotype, 10, digits.image_size, 1).eval()
    net.load_state_dict(load_file(tmp_path / "w.safetensors"))
    (x, y), *_ = bench.images("val", 1000)
    with torch.no_grad():
        logits = net(x)
    assert (logits.argmax(1) == y).sum().item() / len(logits) == outcome.accuracy
    nll = torch.nn.functional.cross_entropy(logits, y).item()
    assert outcome.metrics["nll"] == pytest.approx(nll, abs=1e-6)
    confusion = np.load(tmp_path / "w.npz")
    assert confusion["val"].trace() / confusion["val"].sum() == outcome.accuracy
    assert confusion["val"].sum(1).tolist() == torch.bincount(y).tolist(), "a row is a true class"
    assert confusion["train"].trace() / 360 == outcome.metrics["train_accuracy"]


@pytest.mark.parametrize(("recipe", "seed"), [
    (recipes.smoke(), 0),
    pytest.param(EVERYTHING, 4, marks=pytest.mark.slow),
    pytest.param(dataclasses.replace(EVERYTHING, ema_decay=0.0, sam_rho=0.0), 0, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_resumed_training_is_the_unbroken_one(tmp_path: Path, bench: MemoryLoader, seed: int, recipe: Recipe) -> None:
    net = get("all", 8).sample(RandomChooser(seed))
    whole = last(train.train(job(tmp_path / "whole", net, stop_step=20, recipe=recipe), bench))
    for stop in (6, 14, 20):
        part = job(tmp_path / "broken", net, stop_step=stop, recipe=recipe)
        broken = last(train.train(part, bench))
    assert numbers(broken) == numbers(whole)
    assert same_weights(tmp_path / "whole" / "w.safetensors", tmp_path / "broken" / "w.safetensors")
    again = list(train.train(part, bench))
    assert len(again) == 1, "a job that stands at its end is only reported"
    assert again[0] == broken


def test_a_kill_between_points_of_the_curve_costs_no_step_that_is_saved(
    tmp_path: Path, bench: MemoryLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = last(train.train(job(tmp_path / "whole", stop_step=12, total_steps=60), bench))
    broken = job(tmp_path / "broken", stop_step=12, total_steps=60)
    monkeypatch.setattr(train, "CHECKPOINT_SECONDS", 0.0)
    taken, step = list[int](), train.Trainer.train_step

    def killed(trainer: Any, *batch: torch.Tensor) -> torch.Tensor:
        if trainer.step == 5 and len(taken) == 5:
            raise KeyboardInterrupt
        taken.append(trainer.step)
        return step(trainer, *batch)

    monkeypatch.setattr(train.Trainer, "train_step", killed)
    with pytest.raises(KeyboardInterrupt):
        last(train.train(broken, bench))
    taken.append(-1)
    assert numbers(last(train.train(broken, bench))) == numbers(whole)
    assert taken == [0, 1, 2, 3, 4, -1, *range(5, 12)]
    assert 5 not in [point.step for point in whole.curve]


def test_two_runs_with_one_seed_are_one(tmp_path: Path, bench: MemoryLoader) -> None:
    runs = [
        last(train.train(job(tmp_path / str(i), recipe=EVERYTHING, stop_step=8, total_steps=8), bench)) for i in (0, 1)
    ]
    assert numbers(runs[0]) == numbers(runs[1])
    assert same_weights(tmp_path / "0" / "w.safetensors", tmp_path / "1" / "w.safetensors")


@pytest.mark.parametrize(
    ("trained", "validated", "points"), [(450_000, 5_000, 16), (45_000, 5_000, 2), (10_000, 5_000, 2), (20_000, 0, 16)]
)
def test_validation_takes_a_tenth_of_the_training_in_two_points_or_more(
    trained: int, validated: int, points: int
) -> None:
    assert curve_points(trained, validated) == points


@pytest.mark.parametrize(("waited", "images_a_second"), [(1.0, None), (5.0, (100, 200)), (9.9, (100, 10_000))])
def test_a_net_that_waits_for_its_images_is_told(waited: float, images_a_second: tuple[int, int] | None) -> None:
    assert fed(1000, 10.0, waited) == images_a_second


def test_divergence_is_an_outcome(tmp_path: Path, bench: MemoryLoader) -> None:
    wild = dataclasses.replace(recipes.get("smoke"), lr=1000, clip_grad=0.0, warmup=0.0)
    outcome = last(train.train(job(tmp_path, recipe=wild), bench))
    assert (outcome.status, outcome.accuracy) == ("nan", None)
    assert outcome.error


@pytest.mark.parametrize(("raised", "status"), [
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "oom"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "oom"),
    (MemoryError(), "oom"),
    (ValueError("two\nlines"), "error"),
])  # fmt: skip
def test_errors_come_back_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: DataSet, raised: Exception, status: str
) -> None:
    def fail(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr(train, "build_net", fail)
    worker = worker_module.Worker(threads=1, device="cpu")
    worker.take(digits)
    outcome = last(worker.run(job(tmp_path)))
    assert outcome.status == status
    assert len(outcome.error.splitlines()) == 1
    assert type(raised).__name__ in outcome.error


@pytest.mark.parametrize(
    ("change", "word"), [({"seed": 3}, "seed"), ({"total_steps": 40}, "steps"), ({"net": 1}, "net")]
)
def test_a_checkpoint_of_another_training_is_refused(
    tmp_path: Path, bench: MemoryLoader, change: dict[str, Any], word: str
) -> None:
    last(train.train(job(tmp_path, stop_step=5), bench))
    if word == "net":
        change = {"net": get("resnet", 8).baselines()[4]}
    with pytest.raises(InputError, match=f"another {word}"):
        list(train.train(job(tmp_path, **change), bench))
    with pytest.raises(InputError, match="another recipe"):
        list(train.train(job(tmp_path, recipe=EVERYTHING), bench))


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_odd_batches_on_several_threads(tmp_path: Path, bench: MemoryLoader, threads: int) -> None:
    """In channels_last; torch 2.15 alone crashes here with two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for batch in (9, 47):
            odd = dataclasses.replace(recipes.smoke(), batch_size=batch)
            given = job(tmp_path / str(batch), recipe=odd, stop_step=12)
            trainer = train.Trainer(given, bench)
            assert trainer.layout == torch.channels_last
            assert last(train.train(given, bench)).status == "ok"
    finally:
        torch.set_num_threads(before)


def rgb() -> DataSet:
    """A few pictures of three channels, whose layouts differ."""
    random = np.random.default_rng(0)
    split = Split(random.integers(0, 256, (32, 3, 16, 16), np.uint8), np.arange(32) % 4)
    return DataSet("rgb", (16, 16), tuple("abcd"), split, split, None, (127.0,) * 3, (74.0,) * 3, 255.0, "")


class Greedy(nn.Module):
    """A net that runs out of memory with more than `most` images at a time."""

    def __init__(self, net: nn.Module, most: int) -> None:
        super().__init__()
        self.net, self.most, self.tried = net, most, []

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        self.tried.append(len(x_BCHW))
        if self.training and len(x_BCHW) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return self.net(x_BCHW)


def test_less_at_a_time_when_memory_runs_out(
    tmp_path: Path, bench: MemoryLoader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(train, "build_net", lambda *a: Greedy(build(*a), 40))
    with caplog.at_level(logging.WARNING):
        outcome = last(train.train(job(tmp_path, stop_step=10), bench))
    assert (outcome.status, outcome.how["passes"]) == ("ok", 4)
    assert [r.message for r in caplog.records] == [
        f"out of memory: the batch now goes through in {n} passes" for n in (2, 4)
    ]
    resumed = train.Trainer(job(tmp_path), bench)
    assert resumed.gradients.passes == 1, "there may be room again: what filled the memory was perhaps another's"


def test_out_of_memory_in_the_end(tmp_path: Path, digits: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "build_net", lambda *a: Greedy(build(*a), 1))
    worker = worker_module.Worker(threads=1, device="cpu")
    worker.take(digits)
    assert last(worker.run(job(tmp_path))).status == "oom"


@pytest.mark.parametrize("passes", [2, 3, 64])
def test_passes_share_one_update(bench: MemoryLoader, passes: int) -> None:
    """Without BatchNorm, the gradients of a batch in parts are those of the whole."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    x, y = next(bench.batches(recipes.smoke(), 0, 0, 1))
    found = []
    for accumulate in (1, passes):
        net.zero_grad()
        recipe = dataclasses.replace(recipes.smoke(), grad_accum_steps=accumulate)
        loss = gradients.Gradients(net, recipe, loss_with(recipe), CPU)(x, y)
        found.append((loss, *(p.grad.clone() for p in net.parameters() if p.grad is not None)))
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(whole, parts)


def test_sam_is_its_definition() -> None:
    """Gradient at w + rho g / |g| (Foret et al., equation 2), weights and BatchNorm's statistics left alone."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).double()
    x, y = torch.randn(8, 1, 8, 8, dtype=torch.double), torch.arange(8) % 3
    parameters = list(net.parameters())
    before = [p.detach().clone() for p in parameters]
    recipe = dataclasses.replace(recipes.smoke(), sam_rho=0.1, label_smoothing=0.0)
    plain = torch.autograd.grad(nn.functional.cross_entropy(net(x).float(), y), parameters)
    norm = torch.sqrt(sum((g**2).sum() for g in plain))
    mean = net.get_buffer("1.running_mean").clone()
    gradients.Gradients(net, recipe, loss_with(recipe), CPU)(x, y)
    assert all(torch.equal(p, b) for p, b in zip(parameters, before, strict=True))
    once = 0.9 * mean + 0.1 * net[0](x).mean((0, 2, 3))
    torch.testing.assert_close(net[1].running_mean, once, msg="the statistics have seen the batch once")
    got = [p.grad.clone() for p in parameters if p.grad is not None]
    with torch.no_grad():
        for p, g in zip(parameters, plain, strict=True):
            p.add_(0.1 * g / norm)
    wanted = torch.autograd.grad(nn.functional.cross_entropy(net(x).float(), y), parameters)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_bfloat16_on_a_cpu(tmp_path: Path, bench: MemoryLoader) -> None:
    half = dataclasses.replace(recipes.smoke(), precision="bfloat16")
    outcome = last(train.train(job(tmp_path, recipe=half, stop_step=60, total_steps=60), bench))
    assert outcome.how["precision"] == "bfloat16"
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.6
    assert all(t.dtype != torch.bfloat16 for t in load_file(tmp_path / "w.safetensors").values())


@pytest.mark.slow
def test_a_compiled_net_trains_alike(tmp_path: Path, bench: MemoryLoader) -> None:
    plain = last(train.train(job(tmp_path / "plain"), bench))
    made = dataclasses.replace(recipes.smoke(), compile=True)
    compiled = last(train.train(job(tmp_path / "compiled", recipe=made), bench))
    assert compiled.how["compiled"]
    assert compiled.seconds < 20, "compiling is not training"
    for a, b in zip(plain.curve, compiled.curve, strict=True):
        assert a.loss == pytest.approx(b.loss, abs=1e-2), "rounding, which training steps enlarge"


@pytest.mark.slow
@pytest.mark.parametrize("augment", [Augment(), Augment(pad=1, flip=True), Augment(mixup=0.8, cutmix=1.0)])
def test_what_is_compiled_first_is_what_steps_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, augment: Augment
) -> None:
    monkeypatch.setattr(gradients.torch, "compile", functools.partial(torch.compile, backend="eager"))
    recipe = dataclasses.replace(recipes.smoke(), batch_size=8, compile=True, augment=augment)
    trainer = train.Trainer(job(tmp_path, get("resnet", 16).baselines()[0], recipe=recipe), MemoryLoader(rgb(), CPU))
    trainer.warm_up()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(6):
            trainer.train_step(*next(trainer.batches))


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_captured_steps_are_the_eager_ones(tmp_path: Path, digits: DataSet, optimizer: str) -> None:
    recipe = dataclasses.replace(recipes.smoke(), precision="float32", optimizer=optimizer, lr=0.01)
    losses = []
    for wanted in (True, False):
        trainer = train.Trainer(job(tmp_path / str(wanted), recipe=recipe), MemoryLoader(digits, torch.device("cuda")))
        trainer.graph.wanted = wanted
        trainer.train_to(12)
        assert bool(trainer.graph.graph) is wanted
        losses.append(trainer.curve[-1].loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_training_on_a_gpu(tmp_path: Path, digits: DataSet, precision: str) -> None:
    recipe = dataclasses.replace(recipes.smoke(), precision=precision)
    net = get("alternet", 8).sample(RandomChooser(3))
    given = job(tmp_path, net, recipe=recipe, stop_step=60, total_steps=60)
    outcome = last(train.train(given, MemoryLoader(digits, torch.device("cuda"))))
    assert outcome.status == "ok"
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.5


def test_memory_is_shared_not_copied(digits: DataSet) -> None:
    """On a CPU, the tensor is the very array, as it lies in Ray's object store: read-only."""
    assert isinstance(digits.train.images, np.ndarray)
    frozen = digits.train.images.view()
    frozen.flags.writeable = False
    bench = MemoryLoader(dataclasses.replace(digits, train=dataclasses.replace(digits.train, images=frozen)), CPU)
    assert bench.x["train"].data_ptr() == frozen.ctypes.data
