"""Evaluate nets out of a bank: copied, their BatchNorm statistics estimated from training images, measured."""

import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...archs import InputError, Network
from ...archs.files import atomic_write, check_folder
from ...archs.weights import save
from ...results.metrics import Scores, evaluate
from ...results.ranking.metric import all_numbers
from ...results.runs.status import Status
from ..training.bank_jobs import EvaluateJob
from ..training.evaluation import estimate_norms
from ..training.job import STATISTICS_IMAGES, JobResult
from ..training.loaders import Batch, DeviceLoader
from ..training.optim import autocast, memory_format, precision_of
from ..training.recipe import Recipe
from .bank import Bank, load_bank
from .draws import EVALUATION_IMAGES


def evaluate_job(job: EvaluateJob, loader: DeviceLoader) -> JobResult:
    """Evaluate one net on slices of the bank in `job.bank`, and leave its weights and confusion in their files."""
    start, path = time.perf_counter(), Path(job.bank)
    try:
        bank = _loaded(path, path.stat().st_mtime_ns, loader.device)
    except (InputError, FileNotFoundError) as error:
        return JobResult(job.id, Status.FULL, error=str(error))  # a fault of the disk, not of the net
    bank.reserve([job.genotype])  # one with a part that no net of the training had
    net = bank.network(job.genotype)
    scores = evaluate_net(net, job.recipe, loader)
    check_folder(job.weights)
    weights_sha256 = save(net, Path(job.weights))
    arrays: Any = scores.arrays()
    atomic_write(Path(job.confusion), partial(np.savez_compressed, **arrays))
    evaluated = int(scores.confusion_KK.sum()) + min(STATISTICS_IMAGES, len(loader.data.train))
    how = {"loader": loader.data.loader, "precision": precision_of(job.recipe, loader.device), "evaluated": evaluated}
    how["weights_sha256"] = weights_sha256
    metrics = all_numbers(scores, job.metric, loader.data.classes)
    score = job.metric.score(metrics[job.metric.name])
    if job.metric.is_accuracy:
        del metrics["accuracy"]
    return JobResult(
        job.id,
        Status.OK,
        accuracy=score,
        metrics=metrics,
        seconds=time.perf_counter() - start,
        device=loader.device.type,
        how=how,
    )


@lru_cache(maxsize=1)
def _loaded(path: Path, _changed: int, device: torch.device) -> Bank:
    """The bank of a file as it was when it was last changed; a worker evaluates many nets of one bank."""
    return load_bank(path, device)


def evaluate_net(net: Network, recipe: Recipe, loader: DeviceLoader) -> Scores:
    """Scores of a copied net on `EVALUATION_IMAGES` validation images. Its BatchNorm statistics are estimated first."""
    device = loader.device
    precision, layout = precision_of(recipe, device), memory_format(net.genotype, device)
    batch_size = max(2, recipe.batch_size)

    def predict(batch: Batch) -> Batch:
        with torch.no_grad(), autocast(precision, device):
            return net(batch[0].contiguous(memory_format=layout)), batch[1]

    estimate_norms(net, recipe, loader)
    net.eval()
    return evaluate(map(predict, loader.images("val", 2 * batch_size, EVALUATION_IMAGES)), net.num_classes)
