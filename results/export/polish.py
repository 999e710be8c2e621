"""A net trained on for int8: a few epochs in which it is run as onnxruntime's int8 net, towards the net in float32.

No labels are needed: the loss is the mean squared difference of its logits from those in float32. Trained are weights
and biases of the layers; the ranges of activations stay those of the calibration, and are taken anew at the end.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .check import compared
from .export_net import BATCH, ExportNet, Polish
from .onnx_torch import read_onnx, write_weights
from .quantize import QUANTIZED, prepare, quantize

RATE = 1e-4  # of Adam, falling as a cosine
MINIBATCH = 32
SEED = 0  # of the order of the images


def polish_int8(net: ExportNet, source: Path, int8: Path) -> dict[str, Any]:
    """Put a net trained for int8 in the place of the int8 net, if it is no less accurate on validation images.

    Args:
        net: with scoring images and what it is polished on.
        source: the net in float32, of one file.
        int8: what `quantize` made of it.

    Returns:
        epochs, images; metric, and its value in int8 before and after; and whether the polished net was kept.

    Raises:
        RuntimeError: if the net has an operator that it cannot be trained through.
    """
    assert net.scoring
    assert net.scoring.polish
    polish = net.scoring.polish
    with tempfile.TemporaryDirectory() as scratch:
        tuned, candidate = (Path(scratch) / name for name in ("tuned.onnx", "int8.onnx"))
        prepare(source, tuned)
        write_weights(tuned, polished_weights(net, polish, tuned, int8))
        quantize(tuned, candidate, net.calibration())
        before, after = (_validated(net, file) for file in (int8, candidate))
        metric = "map" if "map" in before else "accuracy"
        found = {"epochs": polish.epochs, "images": len(polish.train_NCHW), "metric": metric}
        found |= {"before": before[metric], "after": after[metric], "kept": after[metric] >= before[metric]}
        if found["kept"]:
            shutil.copyfile(candidate, int8)
    return found


def polished_weights(net: ExportNet, polish: Polish, prepared: Path, int8: Path) -> dict[str, Tensor]:
    """Weights and biases of the layers after the training, by name.

    Args:
        net: whose answers are learned.
        polish: how.
        prepared: the net in float32, as onnxruntime quantizes it.
        int8: the quantized net.
    """
    student, layers = read_onnx(prepared, int8), [of for of in read_onnx(prepared).nodes if of[0] in QUANTIZED]
    names = dict.fromkeys(name for _, inputs, _, _ in layers for name in inputs[1:] if name in student.weights)
    weights = {name: student.weights[name].requires_grad_() for name in names}
    x_NCHW, wanted_NK = torch.from_numpy(polish.train_NCHW), net.logits_of(polish.train_NCHW)
    optimizer = torch.optim.Adam(weights.values(), RATE)
    generator = torch.Generator().manual_seed(SEED)
    steps = polish.epochs * math.ceil(len(x_NCHW) / MINIBATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(polish.epochs):
        losses = list[float]()
        for places in torch.randperm(len(x_NCHW), generator=generator).split(MINIBATCH):
            loss = F.mse_loss(student(net.normalised(x_NCHW[places])), wanted_NK[places])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        polish.report(
            f"polish: epoch {epoch + 1} of {polish.epochs}, logits off by {math.sqrt(np.mean(losses)):.2e} (RMS)"
        )
    return weights


def _validated(net: ExportNet, file: Path) -> dict[str, Any]:
    """What an int8 net says of the validation images, see `compared`."""
    import onnxruntime

    assert net.scoring
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    parts = torch.from_numpy(net.scoring.val_NCHW).split(BATCH)
    theirs = [np.asarray(session.run(["logits"], {"images": net.normalised(part).numpy()})[0]) for part in parts]
    ours = net.logits_of(net.scoring.val_NCHW).numpy()
    return compared("onnx-int8", np.concatenate(theirs), ours, net.scoring.y_N)
