"""`finetune_job`: a worker trains a cut of a pretrained net on from its classifier, judged by the probe's own folds.

In each fold the training begins with the cut's weights and the classifier fitted on that fold's training pictures;
norms keep the statistics that they came with. What is kept at last is trained on all pictures. Weights on the way from
the frozen to the trained ones (Wortsman et al., CVPR 2022) are no better on pictures held back (docs/log.md).
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...archs.cost import BACKWARD_FACTOR, FORWARD_FACTOR
from ...archs.cut_network import CutNetwork
from ...archs.files import atomic_write, check_folder
from ...archs.timm.cuts import pooled
from ...archs.weights import fill, save
from ...results.ranking.quantities import BALANCED
from ...results.runs.status import Status
from ..data.dataset import DataSet
from ..data.views import View, joined, seen
from ..training.checkpoint import device_name, read_checkpoint
from ..training.job import InitWeights, JobResult, TrainJob
from ..training.loaders import DeviceLoader, open_loader
from ..training.loop import Trainer
from ..training.refit import set_layer
from .crossval import FOLDS, calibration, fold_heads, folds_of, labelled
from .evaluate import BATCH, numbers_of, write_confusion
from .job import FinetuneCutJob, finetuning_recipe
from .probe import fold_scores, score_of
from .ridge import LinearHead

TRIED_FOLDS = 2  # after which a cut that has not become better is given up


def finetune_job(job: FinetuneCutJob, loader: DeviceLoader) -> JobResult:
    """Train a cut on: "ok", or "pruned" where it got no better in the first folds.

    Raises InputError if its frozen weights cannot be read.
    """
    finetuning = Finetuning(job, loader)
    for fold in range(len(finetuning.folds)):
        finetuning.judge(fold)
        if fold + 1 == TRIED_FOLDS < len(finetuning.folds) and not finetuning.is_promising():
            return finetuning.result(Status.PRUNED, {}, error=f"no better than frozen after {TRIED_FOLDS} folds")
    return finetuning.finish()


class Finetuning:
    """The trainings of a cut: one for each fold, and the last one on all pictures.

    Attributes:
        pictures: labels of training and validation pictures, and the fold in which each is judged.
        folds: the pictures of each.
        answers: of each fold that has ended, logits of its pictures by the net trained without them.
        trained: pictures that trainings of folds have seen, repeated ones counted.
    """

    def __init__(self, job: FinetuneCutJob, loader: DeviceLoader) -> None:
        self.job, self.loader, self.data, self._began = job, loader, loader.data, time.monotonic()
        both = joined(self.data.train, self.data.val)
        self.everything = replace(self.data, train=both)
        self.pictures = labelled(both.y_N, len(self.data.classes), both.group_N)
        self.folds = folds_of(self.pictures)
        self.recipe = finetuning_recipe(job.epochs, job.metric.name in BALANCED)
        self.answers: list[np.ndarray] = []
        self.trained, self._before = 0, 0.0
        self.heads, self.frozen_NK = self._frozen()
        self._recall()

    def judge(self, fold: int) -> None:
        """Train without the pictures of a fold, unless an earlier job has, and have them judged."""
        if fold < len(self.answers):
            return
        number = int(self.pictures.fold_N[self.folds[fold][0]])
        data = seen(self.data, View(folds=FOLDS, fold=number))
        loader = open_loader(data, self.loader.device, torch.get_num_threads())
        self.answers.append(answers(self._trained(loader, self.heads[fold]), loader))
        self.trained += self._steps(data) * self.recipe.images_a_step(len(data.train))
        self._keep()

    def is_promising(self) -> bool:
        """Whether it is better than the frozen cut over the folds so far."""
        rows = np.concatenate(self.folds[: len(self.answers)])
        y = self.pictures.y[rows]
        return self.score(np.concatenate(self.answers), y) > self.score(self.frozen_NK[rows], y)

    def finish(self) -> JobResult:
        """Train on all pictures, and keep the weights."""
        logits_NK = np.zeros_like(self.frozen_NK)
        logits_NK[np.concatenate(self.folds)] = np.concatenate(self.answers)
        loader = open_loader(self.everything, self.loader.device, torch.get_num_threads())
        weights = Path(self.job.weights)
        check_folder(weights)
        digest = save(self._trained(loader, self.heads[-1]), weights)
        write_confusion(weights, logits_NK, self.pictures)
        score = self.score(logits_NK, self.pictures.y)
        numbers = numbers_of(logits_NK, self.pictures, self.job.metric, self.data.classes)
        folds = fold_scores(logits_NK, self.pictures, self.job.metric, self.data.classes)
        found = {"weights_sha256": digest, "folds": list(folds)}
        return self.result(Status.OK, found, self._steps(self.everything), accuracy=score, metrics=numbers)

    def result(self, status: Status, found: dict[str, Any], steps: int = 0, **fields: Any) -> JobResult:
        """The job's result; `found` goes to what is said of the training."""
        again = BACKWARD_FACTOR // FORWARD_FACTOR * self.trained  # forward passes that the folds' trainings come to
        judged = sum(len(rows) for rows in self.folds[: len(self.answers)])
        evaluated = len(self.pictures.y) + again + judged
        how = {"loader": self.data.loader, "judged": len(self.pictures.y), "evaluated": evaluated} | found
        device = device_name(self.loader.device)
        return JobResult(self.job.id, status, steps, seconds=self._seconds, device=device, how=how, **fields)

    @property
    def _seconds(self) -> float:
        """Of this and earlier jobs of the cut."""
        return self._before + time.monotonic() - self._began

    def _frozen(self) -> tuple[list[LinearHead], np.ndarray]:
        """The classifier of each fold and that on all pictures; logits of each picture by that of its fold."""
        network = self._network().to(self.loader.device).eval()
        with torch.inference_mode():
            batches = (x_BCHW for split in ("train", "val") for x_BCHW, _ in self.loader.images(split, BATCH))
            parts = [pooled(network.trunk(x_BCHW), network.pooling).float().cpu().numpy() for x_BCHW in batches]
        f_NF = np.concatenate(parts)
        heads = fold_heads(f_NF, self.pictures, self.job.metric.name in BALANCED)
        logits_NK = np.zeros((len(f_NF), len(self.data.classes)), np.float32)
        for rows, head in zip(self.folds, heads, strict=False):
            logits_NK[rows] = head.logits(f_NF, rows)
        factor = calibration(logits_NK, self.pictures.y)
        return [head.scaled(factor) for head in heads], logits_NK

    def _network(self) -> CutNetwork:
        network = CutNetwork(self.job.net, len(self.data.classes), self.data.in_chans)
        fill(network, Path(self.job.frozen))
        return network

    def with_head(self, head: LinearHead) -> CutNetwork:
        """The frozen cut with a classifier."""
        network = self._network()
        set_layer(network.head, head)
        return network

    def _trained(self, loader: DeviceLoader, head: LinearHead) -> CutNetwork:
        """The net with a classifier, trained on the training pictures."""
        steps, network = self._steps(loader.data), self.with_head(head)
        with tempfile.TemporaryDirectory(prefix="finetune-") as room:
            start = Path(room) / "start.safetensors"
            save(network, start)
            job = TrainJob(
                self.job.trial, self.job.net, self.recipe, self.job.seed, steps, steps, f"{room}/none", f"{room}/none",
                start=InitWeights(str(start), "its frozen weights"),
            )  # fmt: skip
            trainer = Trainer(job, loader)
        trainer.train_to(steps)
        trained: Any = trainer.shipped
        return trained.eval()

    def _steps(self, data: DataSet) -> int:
        return self.recipe.steps(len(data.train))

    def score(self, logits_NK: np.ndarray, y: np.ndarray) -> float:
        """Score by the job's metric of answers to pictures with these labels."""
        return score_of(logits_NK, y, self.job.metric, self.data.classes)[0]

    def _recall(self) -> None:
        """Take up what an earlier job of the same cut, length and pictures has left."""
        path = Path(self.job.checkpoint)
        state = read_checkpoint(path, torch.device("cpu")) if path.exists() else None
        if state and state["of"] == self._identity:
            self.answers = [tensor.numpy() for tensor in state["answers"]]
            self.trained, self._before = state["trained"], state["seconds"]

    def _keep(self) -> None:
        """Leave what the folds have answered, whole or not at all."""
        told = [torch.from_numpy(each) for each in self.answers]
        state = {"of": self._identity, "answers": told, "trained": self.trained, "seconds": self._seconds}
        check_folder(self.job.checkpoint)
        Path(self.job.checkpoint).parent.mkdir(exist_ok=True)
        atomic_write(Path(self.job.checkpoint), lambda file: torch.save(state, file))

    @property
    def _identity(self) -> list[Any]:
        return [self.job.net.key, self.data.split_hash, self.job.epochs, self.job.seed]


def answers(net: CutNetwork, loader: DeviceLoader) -> np.ndarray:
    """Logits_NK of the validation pictures."""
    with torch.inference_mode():
        return torch.cat([net(x_BCHW) for x_BCHW, _ in loader.images("val", BATCH)]).float().cpu().numpy()
