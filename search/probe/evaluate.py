"""`probe_job`: a worker judges all cuts of a pretrained net at one image side, and keeps the weights of the best."""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...archs.cut_network import CutNetwork, cut_trunk
from ...archs.errors import InputError, OperationError
from ...archs.files import atomic_write, disk_error
from ...archs.own_net import OwnNet, Trunk
from ...archs.timm.cut_points import cut_points
from ...archs.timm.cuts import prune
from ...archs.timm.models import create, origin_of
from ...archs.timm.weights_files import find_weights, load_into
from ...archs.timm_net import CountedCost, CutNet, net_cost
from ...archs.weights import read, save
from ...results.metrics import scores
from ...results.ranking.metric import Metric
from ...results.ranking.pareto import front_of
from ...results.ranking.quantities import cost_value
from ...results.runs.status import Status
from ..data.views import joined
from ..training.checkpoint import device_name
from ..training.job import JobResult
from ..training.loaders import DeviceLoader
from ..training.refit import set_layer
from .crossval import LabelledPictures, labelled, with_repeats
from .job import WITHOUT_WEIGHTS, CutResult, ProbeJob
from .probe import ProbeResult, fold_scores, metrics_of, probe

BATCH = 32
STATES = 4  # nets whose weights a worker keeps in memory


class Cut(NamedTuple):
    """A cut that was judged, and what it costs with its classifier."""

    net: CutNet
    cost: CountedCost
    result: ProbeResult


def probe_job(job: ProbeJob, loader: DeviceLoader) -> JobResult:
    """Judge the cuts of a pretrained net that are within the limits; where none is, the result has no cuts.

    Where its weights cannot be had, are broken or of another net, it is an error that says so.

    Raises InputError if the net's blocks do not take such images. Raises OperationError if features, or weights that
    are downloaded, cannot be written.
    """
    began, data = time.monotonic(), loader.data
    blocks = _blocks_within(job, len(data.classes))
    if not blocks:
        return JobResult(job.id, Status.OK, seconds=time.monotonic() - began)
    try:
        state, source = _pretrained_state(job.net, job.frozen or job.weights_dir)
    except (InputError, OperationError) as error:
        if disk_error(error):
            raise
        how = {WITHOUT_WEIGHTS: True}
        return JobResult(job.id, Status.ERROR, error=str(error), seconds=time.monotonic() - began, how=how)
    trunk = cut_trunk(job.net, job.side, state)
    prune(trunk.model, trunk.points[blocks - 1])
    trunk.points = trunk.points[:blocks]
    trunk.to(loader.device)
    both = joined(data.train, data.val)
    pictures = with_repeats(labelled(both.y_N, len(data.classes), both.group_N), both.group_N)
    with torch.inference_mode():
        judged = list(probe(trunk, _batches(loader), pictures, job.metric, data.classes))
    cuts = _best_poolings(job, judged, len(data.classes))
    kept = {cut.net.key: _keep(job, cut, state, pictures, loader) for cut in _on_front(job, cuts)}
    found = tuple(_result(cut, pictures, job, data.classes, kept.get(cut.net.key, "")) for cut in cuts)
    how = {"loader": data.loader, "source": source} | origin_of(job.net)
    return JobResult(
        job.id, Status.OK, seconds=time.monotonic() - began, device=device_name(loader.device), how=how, cuts=found
    )


@lru_cache(maxsize=STATES)
def _pretrained_state(name: Trunk, where: str) -> tuple[dict[str, Tensor], str]:
    """Weights of a whole net by its own names, and the name of their file; kept, for its next image side is near.

    `where`: folder of weights of timm's nets, or the file of a net of our own.
    """
    if isinstance(name, OwnNet):
        return read(Path(where), name.genotype, name.side).state_dict(), name.name
    source, model = find_weights(name, where), create(name)
    load_into(model, source)
    return model.state_dict(), Path(source.path).name


def _blocks_within(job: ProbeJob, classes: int) -> int:
    """How many blocks of the net, from its first, give a cut within the limits."""
    for block in range(len(cut_points(job.net))):
        cost = net_cost(CutNet(job.net, block, job.side), classes, job.side)
        if job.limits.broken(cost.totals()):
            return block
    return len(cut_points(job.net))


def _batches(loader: DeviceLoader) -> Iterator[Tensor]:
    """The training and validation pictures, in the order of their labels."""
    for split in ("train", "val"):
        for x_BCHW, _ in loader.images(split, BATCH):
            yield x_BCHW


def _best_poolings(job: ProbeJob, results: Iterable[ProbeResult], classes: int) -> list[Cut]:
    """Of each block the pooling with the highest likelihood, within the limits.

    It is less a matter of luck than the score: chosen by that, nets were 3 points worse on pictures held back than by
    cross-validation, by the likelihood 1 to 2 (docs/log.md).
    """
    best: dict[int, Cut] = {}
    for result in results:
        net = CutNet(job.net, result.block, job.side, result.pooling)
        cost = net_cost(net, classes, job.side)
        assert isinstance(cost, CountedCost)
        before = best.get(result.block)
        if not job.limits.broken(cost.totals()) and (before is None or result.loss < before.result.loss):
            best[result.block] = Cut(net, cost, result)
    return list(best.values())


def _on_front(job: ProbeJob, cuts: Sequence[Cut]) -> list[Cut]:
    """The cuts that neither another one nor the run's front dominates."""
    own = [(cut.result.score, cost_value(job.objective, cut.cost.totals()) or 0.0) for cut in cuts]
    known = [(score, cost) for cost, score in job.front]
    return [cut for cut in front_of([*cuts, *(None for _ in known)], [*own, *known]) if cut is not None]


def _keep(job: ProbeJob, cut: Cut, state: dict[str, Tensor], pictures: LabelledPictures, loader: DeviceLoader) -> str:
    """Write the weights of a cut net with its classifier, and its confusion of classes. Returns their digest."""
    network = CutNetwork(cut.net, pictures.classes, loader.data.in_chans, state).eval()
    set_layer(network.head, cut.result.head)
    path = Path(job.weights) / f"{cut.net.key}.safetensors"
    digest = save(network, path)
    write_confusion(path, cut.result.logits_NK, pictures)
    return digest


def write_confusion(weights: Path, logits_NK: np.ndarray, pictures: LabelledPictures) -> None:
    """Write beside a cut's weights how it confuses classes, and its guesses of each picture, by cross-validation."""
    found = scores(torch.from_numpy(logits_NK), torch.from_numpy(pictures.answered_y), pictures.classes, False)
    first_NK = torch.from_numpy(logits_NK[: len(pictures.y)])
    once = scores(first_NK, torch.from_numpy(pictures.y), pictures.classes, False)
    arrays: Any = found.arrays() | {"val": once.confusion_KK.numpy()}
    atomic_write(weights.with_suffix(".npz"), partial(np.savez_compressed, **arrays))


def _result(cut: Cut, pictures: LabelledPictures, job: ProbeJob, classes: Sequence[str], sha256: str) -> CutResult:
    numbers = numbers_of(cut.result.logits_NK, pictures, job.metric, classes)
    net = cut.net
    folds = fold_scores(cut.result.logits_NK, pictures, job.metric, classes)
    return CutResult(net.block, net.pooling, cut.cost, cut.result.score, numbers, sha256, folds)


def numbers_of(
    logits_NK: np.ndarray, pictures: LabelledPictures, metric: Metric, classes: Sequence[str]
) -> dict[str, float]:
    """The metrics of a record, beside the score that it has as accuracy."""
    numbers = metrics_of(logits_NK, pictures.answered_y, metric, classes)
    if metric.is_accuracy:
        del numbers["accuracy"]
    return numbers
