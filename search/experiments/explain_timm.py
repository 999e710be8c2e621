"""`explain` of a net of timm that no run has trained, on the images of some data: pretrained weights, or fresh ones.

What its layers do to a picture can be told of any weights; what costs accuracy only where the head knows the classes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from timm import get_pretrained_cfg
from torch import nn

from ...archs import InputError, OperationError
from ...archs.timm import create
from ...archs.timm.weights_files import timm_pretrained
from ...archs.timm_net import TIMM, TimmNet
from ...results.analysis.registry import chosen
from ...results.analysis_tools.index import open_folder, write_index
from ...results.analysis_tools.inputs import AnalysisInput, Images
from ...results.runs.store import plain_name
from ..data.dataset import DataConfig, DataSet
from ..data.load import load_at
from .explain import Explain, net_parts
from .trained_nets import analysis_context


def explain_timm(config: Explain, data: DataConfig, console: Console) -> dict[str, Any]:
    """Explain timm:NAME, which is of no run; pictures are read at the net's own size unless one is asked for."""
    if config.against:
        raise InputError(f"explain: {config.net} is of no run, which --against is for")
    name = config.net.removeprefix(TIMM)
    create(name, num_classes=1)  # refused before the data are read
    known: Any = get_pretrained_cfg(name)
    images = load_at(data, lambda _: known.input_size[-1] if known else None, console)
    net, weights = _with_weights(name, images)
    console.print(f"{config.net}: {weights}", highlight=False, markup=False, soft_wrap=True)
    context = analysis_context(images, config.samples, torch.device(config.device))
    shown = _normalised(context.images, known, images) if weights.startswith("pretrained") else context.images
    subject = AnalysisInput(config.net, net.to(config.device).eval(), shown)
    folder = open_folder(config.out or Path(plain_name("explain", name)))
    facts = {
        "run": "",
        "nets": [{"name": config.net, "trial": None, "key": TimmNet(name.split(".")[0]).key, "accuracy": None}],
        "weights": weights,
        "data": images.name,
        "images": len(shown),
        "folder": str(folder),
    }
    return write_index(folder, facts, net_parts(chosen(config.analyses), [subject], folder, console))


def _with_weights(name: str, data: DataSet) -> tuple[nn.Module, str]:
    """The net for such images and classes, and where its weights are from."""
    sizes: dict[str, Any] = {
        "num_classes": len(data.classes), "in_chans": data.in_chans, "image_size": data.image_size,
    }  # fmt: skip
    known: Any = get_pretrained_cfg(name)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        if not (known and known.has_weights):
            return create(name, **sizes), "fresh weights: timm has none for it"
        try:
            net = timm_pretrained(name, **sizes)
        except OperationError as error:
            return create(name, **sizes), f"fresh weights: {error}"
    head = "" if known.num_classes == len(data.classes) else f", but a fresh head for {len(data.classes)} classes"
    return net, f"pretrained weights {known.architecture}.{known.tag}{head}"


def _normalised(images: Images, known: Any, data: DataSet) -> Images:
    """The images as the pretraining normalised its own."""
    if len(known.mean) != data.in_chans or not data.white_level:
        return images
    mean_C, std_C = (torch.tensor(of, dtype=torch.float32).to(images.x_NCHW) for of in (known.mean, known.std))
    return replace(images, mean_C=mean_C, std_C=std_C)
