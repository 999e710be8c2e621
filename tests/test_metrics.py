"""Metrics against scikit-learn and against calibration written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    recall_score,
    roc_auc_score,
    top_k_accuracy_score,
)

from alternas.results.metrics import evaluate, macro_auroc, scores
from alternas.results.ranking.quantities import class_metrics


@pytest.mark.parametrize("classes", [3, 12])
def test_scores_are_scikit_learns(classes: int) -> None:
    torch.manual_seed(0)
    logits, y = 2 * torch.randn(500, classes), torch.randint(classes, (500,))
    found, p = scores(logits, y, classes), logits.double().softmax(1).numpy()
    assert found.accuracy == np.mean(p.argmax(1) == y.numpy())
    assert found.nll == pytest.approx(log_loss(y, p, labels=range(classes)), rel=1e-5)
    assert found.confusion_KK.tolist() == confusion_matrix(y, p.argmax(1), labels=range(classes)).tolist()
    guess = p.argmax(1)
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, guess), rel=1e-12)
    assert found.macro_f1 == pytest.approx(f1_score(y, guess, average="macro"), rel=1e-12)
    assert found.auroc == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), rel=1e-6)
    recalls = np.asarray(recall_score(y, guess, average=None))
    assert [found.recall(label) for label in range(classes)] == pytest.approx(recalls.tolist(), rel=1e-12)
    if classes > 5:
        assert found.top5 == top_k_accuracy_score(y, p, k=5, labels=range(classes))
    else:
        assert found.top5 == 1


def test_classes_without_images_count_as_scikit_learn_counts_them() -> None:
    """Seven classes, images of four of them, one of the others guessed."""
    torch.manual_seed(3)
    y, logits = torch.randint(4, (60,)), torch.randn(60, 7)
    logits[:, 5:] -= 100
    found, guess = scores(logits, y, 7), logits.argmax(1)
    with pytest.warns(UserWarning, match="y_pred contains classes"):
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, guess), rel=1e-12)
    assert found.macro_f1 == pytest.approx(f1_score(y, guess, average="macro"), rel=1e-12)
    p = logits.softmax(1)
    assert found.auroc == pytest.approx(np.mean([roc_auc_score(y == k, p[:, k]) for k in range(4)]), rel=1e-6)
    assert np.isnan(found.recall(4))


def test_auroc_with_ties_and_of_one_class() -> None:
    torch.manual_seed(4)
    p, y = torch.randint(4, (80, 3)).float(), torch.randint(2, (80, 3))
    assert macro_auroc(p, y) == pytest.approx(roc_auc_score(y, p, average="macro"), rel=1e-12)
    assert np.isnan(macro_auroc(p, torch.ones(80, 3))), "where all images are of a class there is nothing to tell"


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
    assert whole.numbers("train_").keys() == {f"train_{name}" for name in class_metrics()}
