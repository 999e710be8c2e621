"""Whether an exported folder gives the outputs of the net that it was made from, format by format."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...archs import OperationError
from . import isolated as elsewhere
from .subject import ExportNet

TOLERANCE = 1e-4  # largest absolute difference of logits, float32


def differences(folder: Path, subject: ExportNet, formats: Sequence[str]) -> dict[str, float]:
    """Largest absolute difference between the logits of each format of `folder` and those of the net.

    Found in a process in which alternas cannot be imported, on the subject's images, one alone and all at once.

    Raises:
        OperationError: if a format does not load or run, or differs by `TOLERANCE` or more.
    """
    ours, found = subject.logits().numpy(), {}
    with tempfile.TemporaryDirectory() as scratch:
        said = _answers(folder, subject.images_BCHW.numpy(), Path(scratch), formats)
        for name in formats:
            path = Path(scratch) / f"{name}.npy"
            if not path.exists():  # the first of them; those behind it were not tried
                raise OperationError(f"export: {name}: does not load or run: {said}")
            found[name] = difference(name, np.load(path), ours)
    return found


def difference(name: str, theirs: np.ndarray, ours: np.ndarray) -> float:
    """Largest absolute difference of two arrays of logits.

    Raises:
        OperationError: if it is `TOLERANCE` or more, or their shapes differ.
    """
    if theirs.shape != ours.shape:
        raise OperationError(f"export: {name}: outputs of shape {theirs.shape}, the net's have {ours.shape}")
    most = float(np.abs(theirs - ours).max())
    if not most < TOLERANCE:  # nor is NaN
        raise OperationError(f"export: {name}: outputs differ by {most:.1e}, not by less than {TOLERANCE:.0e}")
    return most


def _answers(folder: Path, images: np.ndarray, scratch: Path, formats: Sequence[str]) -> str:
    """Let `elsewhere` write the answers to `scratch`; return the last line of what it complained of."""
    np.save(scratch / "images.npy", images)
    command = [sys.executable, "-P", "-B", elsewhere.__file__, folder, scratch / "images.npy", scratch, *formats]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=scratch)
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:500]
