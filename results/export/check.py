"""Each format of an exported folder beside the searched net, loaded in a process in which alternas cannot be imported.

An exact format must give the net's logits. One of lower precision is compared by what it says: how often its answer is
the net's, and how accurate both are on validation images.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...archs import OperationError
from ..metrics import label_scores, scores
from . import isolated
from .export_net import ExportNet
from .formats import FORMATS

TOLERANCE = 1e-4  # largest absolute difference of an exact format's logits, float32
MAX_LOSS = 0.01  # of accuracy: a format that loses more is warned of


def check_folder(folder: Path, net: ExportNet, formats: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Check results of each format, see `difference` and `compared`; OperationError if one does not run."""
    exact = [name for name in formats if FORMATS[name].exact]
    lower = [name for name in formats if name not in exact]
    found = {}
    if exact:
        ours = net.logits(net.images_NCHW)
        for name, theirs in _answers(folder, net.images_NCHW, exact).items():
            found[name] = {"max_abs_difference": difference(name, theirs, ours)}
    if lower:
        images, y_N = (net.scoring.val_NCHW, net.scoring.y_N) if net.scoring else (net.images_NCHW, None)
        ours = net.logits(images)
        for name, theirs in _answers(folder, images, lower).items():
            found[name] = compared(name, theirs[1:], ours[1:], y_N)
    return {name: found[name] for name in formats}


def _answers(folder: Path, images: np.ndarray, formats: Sequence[str]) -> dict[str, np.ndarray]:
    """Logits of each format, of the first image alone, then of all."""
    files = {name: FORMATS[name].file for name in formats}
    with tempfile.TemporaryDirectory() as scratch:
        np.save(f"{scratch}/images.npy", images)
        command = [sys.executable, "-P", "-B", isolated.__file__, str(folder), f"{scratch}/images.npy", scratch]
        done = subprocess.run([*command, *files.values()], capture_output=True, text=True, cwd=scratch)
        by_format = {}
        for name, file in files.items():
            path = Path(scratch) / f"{file}.npy"
            if not path.exists():  # the first of them; those after it were not tried
                reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:500]
                raise OperationError(f"export: {name}: does not load or run: {reason}")
            by_format[name] = np.load(path)
        return by_format


def difference(name: str, theirs: np.ndarray, ours: np.ndarray) -> float:
    """Largest absolute difference of two arrays of logits; OperationError if it is `TOLERANCE` or more."""
    most = _apart(name, theirs, ours)
    if not most < TOLERANCE:  # nor is NaN
        raise OperationError(f"export: {name}: outputs differ by {most:.1e}, not by less than {TOLERANCE:.0e}")
    return most


def _apart(name: str, theirs: np.ndarray, ours: np.ndarray) -> float:
    if theirs.shape != ours.shape:
        raise OperationError(f"export: {name}: outputs of shape {theirs.shape}, the net's have {ours.shape}")
    return float(np.abs(theirs - ours).max())


def compared(name: str, theirs_NK: np.ndarray, ours_NK: np.ndarray, y_N: np.ndarray | None) -> dict[str, Any]:
    """Agreement and accuracy of a format of lower precision, beside the net in float32.

    Images; agreement, the share of images of the same class, or of labels with the same answer; and where y, (N, K) of
    several labels, is known accuracy (map, of several labels), the net's own as float_accuracy, and what is lost as
    accuracy_loss. OperationError if a logit is not finite, or shapes differ.
    """
    most = _apart(name, theirs_NK, ours_NK)
    if not np.isfinite(most):
        raise OperationError(f"export: {name}: outputs are not finite")
    several = y_N is not None and y_N.ndim == 2
    same = (theirs_NK > 0) == (ours_NK > 0) if several else theirs_NK.argmax(1) == ours_NK.argmax(1)
    found = {"max_abs_difference": most, "images": len(ours_NK), "agreement": float(same.mean())}
    if y_N is None:
        return found
    theirs, ours = (_score(logits, y_N) for logits in (theirs_NK, ours_NK))
    metric = "map" if several else "accuracy"
    return found | {metric: theirs, f"float_{metric}": ours, "accuracy_loss": ours - theirs}


def _score(logits_NK: np.ndarray, y_N: np.ndarray) -> float:
    logits, y = torch.from_numpy(logits_NK), torch.from_numpy(y_N)
    return label_scores(logits, y).map if y.dim() == 2 else scores(logits, y, logits.shape[1], False).accuracy


def warnings(formats: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each format that loses more than `MAX_LOSS`."""
    rule = f"more than {100 * MAX_LOSS:g} points less than in float32"
    lost = {name: of["accuracy_loss"] for name, of in formats.items() if of.get("accuracy_loss", 0.0) > MAX_LOSS}
    return [f"{name} is {rule} on validation: {100 * loss:.2f}" for name, loss in lost.items()]
