"""A worker trains a cut of a pretrained net on, judged by the folds of the probe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from alternas.archs.cut_network import CutNetwork
from alternas.archs.timm.models import create
from alternas.archs.timm_net import CutNet, picture_moments
from alternas.archs.weights import fill
from alternas.results.runs.status import Status
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.probe import finetune
from alternas.search.probe.evaluate import probe_job
from alternas.search.probe.finetune import Finetuning, finetune_job
from alternas.search.probe.job import CutResult, FinetuneCutJob, ProbeJob, finetuning_recipe
from alternas.search.training.loaders import DeviceLoader, open_loader

NET = "test_resnet.r160_in1k"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits() -> DataSet:
    data = load(DataConfig("digits"))
    mean, std = picture_moments(data.mean, data.std, data.white_level)
    few: Any = range(0, len(data.train), 8)
    some: Any = range(40)
    return replace(data, mean=mean, std=std, train=data.train.at([*few]), val=data.val.at([*some]))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def probed(digits: DataSet, tmp_path_factory: pytest.TempPathFactory) -> tuple[FinetuneCutJob, CutResult, DeviceLoader]:
    """The finetuning of the best cut of a small net, and how its probe has judged it."""
    run = tmp_path_factory.mktemp("run")
    for name in ("weights", "checkpoints", "pretrained"):
        (run / name).mkdir()
    torch.manual_seed(0)
    save_file(create(NET).state_dict(), run / "pretrained" / f"{NET}.safetensors")
    loader = open_loader(digits, CPU, 1)
    cuts = probe_job(ProbeJob(0, NET, 32, str(run / "pretrained"), str(run / "weights")), loader).cuts
    best = max(cuts, key=lambda cut: cut.accuracy)
    net = CutNet(NET, best.block, 32, best.pooling)
    files = [str(run / "weights" / f"{net.key}{end}.safetensors") for end in ("", "-finetuned")]
    return FinetuneCutJob(9, net, files[0], 1.0, files[1], str(run / "checkpoints" / f"{net.key}.pt")), best, loader


def test_frozen_it_is_what_the_probe_has_judged(probed: tuple[FinetuneCutJob, CutResult, DeviceLoader]) -> None:
    """The same first folds, classifiers and answers, so that the two are compared on the same pictures."""
    job, best, loader = probed
    found = Finetuning(job, loader)
    kept = np.load(Path(job.frozen).with_suffix(".npz"))
    assert (kept["label"] == kept["guess"]).mean() == pytest.approx(best.accuracy)
    np.testing.assert_array_equal(kept["guess"][: len(found.pictures.y)], found.frozen_NK.argmax(1))


def test_the_kept_net_answers_as_the_record_says(
    probed: tuple[FinetuneCutJob, CutResult, DeviceLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its norms are the frozen ones; resumed after a kill in the third fold it gives the same result."""
    monkeypatch.setattr(finetune, "TRIED_FOLDS", 9)
    job, _, loader = probed
    result = finetune_job(job, loader)
    assert result.status == Status.OK
    network = CutNetwork(job.net, 10, 1)
    fill(network, Path(job.weights))
    frozen, tuned = load_file(job.frozen), load_file(job.weights)
    statistics = [name for name in frozen if "running" in name]
    assert statistics
    assert all(torch.equal(frozen[name], tuned[name]) for name in statistics)
    assert not all(torch.equal(frozen[name], tuned[name]) for name in frozen)
    confusion_KK = np.load(Path(job.weights).with_suffix(".npz"))["val"]
    assert np.trace(confusion_KK) / confusion_KK.sum() == pytest.approx(result.accuracy)
    images = len(loader.data.train) + len(loader.data.val)
    assert result.how["evaluated"] > 3 * 3 * images  # an epoch in five folds of four fifths, without the last batches

    state = torch.load(job.checkpoint, weights_only=True)
    torch.save(state | {"answers": state["answers"][:2], "trained": 0}, job.checkpoint)
    trained = list[int]()
    monkeypatch.setattr(Finetuning, "_keep", lambda self: trained.append(len(self.answers)))
    again = finetune_job(job, loader)
    assert trained == [3, 4, 5]
    assert (again.accuracy, again.how["weights_sha256"]) == (result.accuracy, result.how["weights_sha256"])


def test_a_cut_that_gets_no_better_is_given_up(
    probed: tuple[FinetuneCutJob, CutResult, DeviceLoader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights stay frozen: trained at no rate at all, it is just as good."""
    monkeypatch.setattr(finetune, "finetuning_recipe", lambda *asked: replace(finetuning_recipe(*asked), lr=1e-12))
    job, _, loader = probed
    (tmp_path / "checkpoints").mkdir()
    job = replace(job, weights=str(tmp_path / "weights.safetensors"), checkpoint=str(tmp_path / "checkpoints" / "x.pt"))
    result = finetune_job(job, loader)
    assert (result.status, result.accuracy, result.step) == (Status.PRUNED, None, 0)
    assert not Path(job.weights).exists()
    assert len(torch.load(job.checkpoint, weights_only=True)["answers"]) == finetune.TRIED_FOLDS
