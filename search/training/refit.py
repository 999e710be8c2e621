"""The last layer of a trained net in closed form: the ridge classifier of probes, on what the layer sees.

F features, K classes. What steps of gradient descent have made of the layer lags behind features that still change and
is fitted to softened labels of augmented pictures; the closed form is of the final features of pictures as they are.
The better one by validation would look better than it is: the closed form is kept unless it is clearly worse.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...archs import Network
from ...archs.timm_network import AnyNetwork, TimmNetwork
from ...results.metrics import LabelScores, Scores
from ...results.ranking.picture_noise import NORMAL, paired_sd
from ..probe.crossval import CALIBRATED_ON, LabelledPictures, calibration
from ..probe.ridge import LinearHead, Sample, fitted
from .evaluation import Evaluation
from .recipe import Recipe

REFIT_IMAGES = 8192  # training images, at most, that it is fitted on


@dataclass(frozen=True)
class Refitted:
    """A net whose last layer was fitted in closed form."""

    kept: bool  # whether the net has that layer now; else it has its own again
    scores: Scores  # of the net as it is now, on validation
    images: int  # that went through the net for it


def refit(evaluation: Evaluation, recipe: Recipe, before: Scores | LabelScores) -> Refitted | None:
    """Fit the last layer of a trained net in closed form, unless that makes it clearly worse on validation.

    Worse by the metric, and with fewer images right by more than the noise of the images. Logits are scaled by the
    factor of the least NLL on validation images. With EMA the averaged net is the one that is evaluated and refitted.

    Returns None where it is not for: several labels a picture, masked patches, a head that is no linear layer.
    """
    task, data, layer = evaluation.task, evaluation.loader.data, last_layer(evaluation.task.unwrap(evaluation.net))
    if not (task.has_classes and layer and isinstance(before, Scores)):
        return None
    own = copy.deepcopy(layer.state_dict())
    with evaluation.autocast():
        f_NF, y_N = features(evaluation.net, layer, evaluation.images("train", REFIT_IMAGES))
    f_NF, y_N = evaluation.group.joined(f_NF), evaluation.group.joined(y_N)
    images = min(REFIT_IMAGES, len(data.train))
    even = recipe.class_weights == "balanced" or recipe.balanced_sampler
    head = fitted_head(f_NF, y_N, len(data.classes), even)
    if head is None:
        return Refitted(False, before, images)
    set_layer(layer, head)
    evaluation.group.take_over(layer.state_dict().values())  # so that all workers have the same to the bit
    logits, y_N = evaluation.answers("val", CALIBRATED_ON)
    set_layer(layer, head.scaled(calibration(logits.cpu().double().numpy(), y_N.cpu().numpy())))
    after = evaluation.scores("val")
    assert isinstance(after, Scores)
    images += min(CALIBRATED_ON, len(data.val)) + len(data.val)
    if not evaluation.score(after) >= evaluation.score(before) and clearly_worse(after, before):
        layer.load_state_dict(own)
        return Refitted(False, before, images)
    return Refitted(True, after, images)


def clearly_worse(one: Scores, other: Scores) -> bool:
    """Whether one net has fewer of the same images right than the other by more than the noise of the images."""
    right_N, others_N = ((each.guess_N == each.label_N).numpy() for each in (one, other))
    return bool(others_N.mean() - right_N.mean() > NORMAL * paired_sd(right_N, others_N))


def last_layer(net: AnyNetwork) -> nn.Linear | None:
    """The linear layer that makes the logits; None of a net of timm that has no single one with a bias."""
    if isinstance(net, Network):
        return net.classifier
    model: Any = net.model if isinstance(net, TimmNetwork) else None
    layer = model.get_classifier() if model else net.head
    return layer if isinstance(layer, nn.Linear) and layer.bias is not None else None


@torch.no_grad()
def features(net: nn.Module, layer: nn.Linear, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(f_NF, y_N): what a layer of the net sees in eval mode, float32 and where the net is.

    Afterwards every module is in the mode that it was in.
    """
    seen, y = list[Tensor](), list[Tensor]()
    modes = [(module, module.training) for module in net.modules()]
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].float()))
    net.eval()
    try:
        for x_BCHW, y_B in batches:
            net(x_BCHW)
            y.append(y_B)
    finally:
        hook.remove()
        for module, mode in modes:
            module.training = mode
    return torch.cat(seen), torch.cat(y)


def fitted_head(f_NF: Tensor, y_N: Tensor, classes: int, balanced: bool) -> LinearHead | None:
    """The ridge classifier of these features, its penalty by leave-one-out; None where some are not finite.

    `balanced`: whether all classes weigh the same, however many images they have.
    """
    if not f_NF.isfinite().all():
        return None
    images = LabelledPictures(y_N.cpu().numpy(), classes, np.zeros(len(y_N), np.int64))
    return fitted(Sample(f_NF.cpu().numpy(), images.targets(), images.weights(balanced), np.arange(len(y_N))))


@torch.no_grad()
def set_layer(layer: nn.Linear, head: LinearHead) -> None:
    """Give the layer a classifier's weights."""
    layer.weight.copy_(torch.from_numpy(head.weight_KF))
    layer.bias.copy_(torch.from_numpy(head.bias_K))
