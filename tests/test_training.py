"""Data, recipes and training: splits, determinism, resuming, typed failures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from alternas.archs import Genotype, InputError, build
from alternas.search.engine import worker as worker_module
from alternas.search.training import data, recipes, train
from alternas.search.training.job import Job, Outcome, Tick
from alternas.spaces import RandomChooser, get


@pytest.fixture(scope="module")
def digits() -> data.DataSet:
    return data.load("digits")


@pytest.fixture(scope="module")
def bench(digits: data.DataSet) -> train.Bench:
    return train.Bench(digits, torch.device("cpu"))


def job(folder: Path, net: Genotype | None = None, **changes: Any) -> Job:
    net = net or get("resnet", 8).baselines()[0]
    given = Job(0, net, recipes.get("smoke"), 0, 20, 20, str(folder / "c.pt"), str(folder / "w.safetensors"))
    return dataclasses.replace(given, **changes)


def last(events: Any) -> Outcome:
    *ticks, outcome = list(events)
    assert all(isinstance(tick, Tick) for tick in ticks)
    assert isinstance(outcome, Outcome)
    return outcome


def test_digits_are_scikit_learns(digits: data.DataSet) -> None:
    x, y = load_digits(return_X_y=True)
    parts = [digits.train, digits.val, digits.test]
    rows = np.concatenate([np.c_[p.x_NCHW.reshape(len(p), -1), p.y_N] for p in parts if p])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, np.c_[x, y].astype(int)))
    assert [len(p) for p in parts if p] == [1078, 360, 359]
    for label in range(10):
        shares = [(p.y_N == label).sum() / (y == label).sum() for p in parts if p]
        assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.005)


def test_normalisation_uses_the_training_images_alone(digits: data.DataSet, bench: train.Bench) -> None:
    assert bench.train_x.mean().abs() < 1e-5
    assert abs(bench.train_x.std().item() - 1) < 1e-3
    assert abs(bench.val_x.mean().item()) > 1e-5
    assert digits.without_test().test is None
    assert data.load("digits").split_hash == digits.split_hash


def npz(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_npz_files(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (60, 9, 7, 3), dtype=np.uint8)
    found = data.load(npz(tmp_path / "a.npz", x=x, y=np.repeat([3, 9], 30)))
    assert (found.image_size, found.in_chans, found.classes) == ((9, 7), 3, ("3", "9"))
    assert found.train.x_NCHW.dtype == np.uint8
    gray = data.load(npz(tmp_path / "b.npz", x=x[..., 0].astype(np.float64), y=np.repeat([0, 1], 30)))
    assert gray.in_chans == 1
    assert gray.train.x_NCHW.dtype == np.float32


X, Y = np.zeros((20, 4, 4), np.uint8), np.repeat([0, 1], 10)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X}, "no array 'y'"),
        ({"x": X[0], "y": Y}, "x must be numbers"),
        ({"x": X, "y": Y[:3]}, "y must be 20 whole numbers"),
        ({"x": X, "y": Y.astype(float)}, "y must be"),
        ({"x": X.astype(str), "y": Y}, "x must be numbers"),
        ({"x": X, "y": Y * 0}, "2 classes"),
        ({"x": X, "y": np.arange(20)}, "at least 5"),
        ({"x": X + np.nan, "y": Y}, "not finite"),
        ({"x": X.astype(object), "y": Y}, "not a readable"),
    ],
)
def test_npz_files_that_are_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        data.load(npz(tmp_path / "a.npz", **arrays))


@pytest.mark.parametrize("content", [None, b"", b"PK", b"text", b"\x93NUMPY"])
def test_files_that_are_no_npz(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npz"):
        data.load(str(path))
    with pytest.raises(InputError, match="digits"):
        data.load("digit")


def test_training_learns_and_leaves_its_weights(tmp_path: Path, bench: train.Bench, digits: data.DataSet) -> None:
    outcome = last(train.train(job(tmp_path, until=60, steps=60), bench))
    assert outcome.status == "ok"
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.6
    assert [p.step for p in outcome.curve] == list(range(6, 61, 6))
    net = build(job(tmp_path).genotype, 10, digits.image_size, 1).eval()
    net.load_state_dict(load_file(tmp_path / "w.safetensors"))
    with torch.no_grad():
        logits = net(bench.val_x)
    assert (logits.argmax(1) == bench.val_y).sum().item() / len(logits) == outcome.accuracy
    nll = torch.nn.functional.cross_entropy(logits, bench.val_y).item()
    assert outcome.metrics["nll"] == pytest.approx(nll, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 4])
def test_a_resumed_training_is_the_unbroken_one(tmp_path: Path, bench: train.Bench, seed: int) -> None:
    net = get("all", 8).sample(RandomChooser(seed))
    whole = last(train.train(job(tmp_path / "whole", net, until=20), bench))
    for stop in (6, 14, 20):
        broken = last(train.train(job(tmp_path / "broken", net, until=stop), bench))
    assert broken.curve == tuple(broken.curve)
    assert broken.accuracy == whole.accuracy
    assert broken.metrics == whole.metrics
    ours, theirs = (load_file(tmp_path / run / "w.safetensors") for run in ("whole", "broken"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    again = list(train.train(job(tmp_path / "broken", net, until=20), bench))
    assert len(again) == 1, "a job that stands at its end is only reported"
    assert again[0] == broken


def test_seeds_matter(tmp_path: Path, bench: train.Bench) -> None:
    curves = [last(train.train(job(tmp_path / str(s), seed=s), bench)).curve for s in (0, 1)]
    assert curves[0] != curves[1]


def test_divergence_is_an_outcome(tmp_path: Path, bench: train.Bench) -> None:
    wild = dataclasses.replace(recipes.get("smoke"), lr=1e30, clip=1e30, warmup=0.0)
    outcome = last(train.train(job(tmp_path, recipe=wild), bench))
    assert (outcome.status, outcome.accuracy) == ("nan", None)
    assert outcome.error


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "oom"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "oom"),
        (MemoryError(), "oom"),
        (ValueError("two\nlines"), "error"),
    ],
)
def test_errors_come_back_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: data.DataSet, raised: Exception, status: str
) -> None:
    def fail(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr(train, "build", fail)
    worker = worker_module.Worker(threads=1, device="cpu")
    worker.take(digits)
    outcome = last(worker.run(job(tmp_path)))
    assert outcome.status == status
    assert len(outcome.error.splitlines()) == 1
    assert type(raised).__name__ in outcome.error


def test_recipes() -> None:
    smoke = recipes.get("smoke")
    assert smoke.steps_per_epoch(1078) == 8
    assert smoke.with_epochs(2).steps(1078) == 16
    assert smoke.with_epochs(0.01).steps(1078) == 1
    assert smoke.steps_per_epoch(5) == 1
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="epochs"):
            smoke.with_epochs(bad)
    with pytest.raises(InputError, match="did you mean 'smoke'"):
        recipes.get("smok")


def test_tiny_data_trains(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 8, 8)).astype(np.float32)
    small = data.load(npz(tmp_path / "a.npz", x=x, y=np.repeat([0, 1], 6)))
    assert last(train.train(job(tmp_path), train.Bench(small, torch.device("cpu")))).status == "ok"
