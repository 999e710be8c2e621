"""Metrics against scikit-learn and against calibration written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, log_loss, top_k_accuracy_score

from alternas.results.metrics import evaluate, scores


@pytest.mark.parametrize("classes", [3, 12])
def test_scores_are_scikit_learns(classes: int) -> None:
    torch.manual_seed(0)
    logits, y = 2 * torch.randn(500, classes), torch.randint(classes, (500,))
    found, p = scores(logits, y, classes), logits.double().softmax(1).numpy()
    assert found.accuracy == np.mean(p.argmax(1) == y.numpy())
    assert found.nll == pytest.approx(log_loss(y, p, labels=range(classes)), rel=1e-5)
    assert found.confusion_KK.tolist() == confusion_matrix(y, p.argmax(1), labels=range(classes)).tolist()
    if classes > 5:
        assert found.top5 == top_k_accuracy_score(y, p, k=5, labels=range(classes))
    else:
        assert found.top5 == 1


def test_calibration_is_its_definition() -> None:
    """Guo et al., 2017, equation 3."""
    torch.manual_seed(1)
    logits, y = 3 * torch.randn(400, 4), torch.randint(4, (400,))
    confidence, guess = logits.double().softmax(1).max(1)
    wanted = 0.0
    for low in range(15):
        inside = (confidence >= low / 15) & (confidence < (low + 1) / 15)
        if inside.any():
            accuracy = (guess[inside] == y[inside]).double().mean()
            wanted += (inside.sum() / 400 * (accuracy - confidence[inside].mean()).abs()).item()
    assert scores(logits, y, 4).ece == pytest.approx(wanted, abs=1e-6)


def test_perfect_and_nan() -> None:
    y = torch.arange(6)
    perfect = scores(100 * torch.eye(6), y, 6)
    assert (perfect.accuracy, perfect.ece) == (1.0, pytest.approx(0, abs=1e-9))
    assert np.isnan(scores(torch.full((6, 6), torch.nan), y, 6).nll)


def test_batches_do_not_matter() -> None:
    torch.manual_seed(2)
    x, y = torch.randn(50, 7), torch.randint(7, (50,))
    whole = evaluate([(x, y)], 7)
    parts = evaluate(zip(x.split(8), y.split(8), strict=True), 7)
    assert whole.numbers() == parts.numbers()
    assert whole.numbers("train_").keys() == {"train_accuracy", "train_top5", "train_nll", "train_ece"}
