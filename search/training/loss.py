"""The loss of a recipe, and what it is weighted by where classes are uneven."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .recipe import Recipe


def class_weights(recipe: Recipe, y_N: np.ndarray, classes: int) -> Tensor | None:
    """(K,) what the loss of an image of each class is multiplied by; 0 of classes without images; None where all is 1.

    As scikit-learn's `compute_class_weight("balanced")` (King & Zeng, Political Analysis 9, 2001).
    """
    if recipe.class_weights == "none":
        return None
    count_K = np.bincount(y_N, minlength=classes)
    shares_K = np.count_nonzero(count_K) * count_K / len(y_N)
    return torch.tensor([1 / share if share else 0.0 for share in shares_K.tolist()])


def loss_of(recipe: Recipe, logits_BK: Tensor, target: Tensor, weight_K: Tensor | None = None) -> Tensor:
    """Mean loss; `target` as labels (B) or shares of the classes (B, K).

    With weights the loss of each image is multiplied by that of its class, of a mixed one by their mean. The mean is
    over the images, not over the weights: a batch in several passes has the gradient of the whole.
    """
    if weight_K is None:
        return _losses(recipe, logits_BK, target, "mean")
    weight_B = (target if target.ndim == 2 else F.one_hot(target, logits_BK.shape[1])).to(weight_K) @ weight_K
    return (weight_B * _losses(recipe, logits_BK, target, "none").view(len(target), -1).mean(1)).mean()


def _losses(recipe: Recipe, logits_BK: Tensor, target: Tensor, reduction: str) -> Tensor:
    """Mean loss, or without reduction loss_B of images, loss_BK of yes-or-no answers."""
    if recipe.loss == "cross_entropy":
        return F.cross_entropy(logits_BK, target, label_smoothing=recipe.label_smoothing, reduction=reduction)
    exact = torch.promote_types(logits_BK.dtype, torch.float32)  # float64 in analyses, which a float32 would spoil
    t_BK = target if target.ndim == 2 else F.one_hot(target, logits_BK.shape[1]).to(exact)
    t_BK = t_BK * (1 - recipe.label_smoothing) + recipe.label_smoothing / logits_BK.shape[1]
    return F.binary_cross_entropy_with_logits(logits_BK, t_BK, reduction=reduction)
