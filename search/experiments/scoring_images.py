"""Images of a run's data, for exports of lower precision: training images to calibrate on, validation images."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ...archs.errors import InputError
from ...results.export.export_net import ScoringImages
from ...results.export.quantize import MAX_IMAGES
from ...results.runs.record import Record
from ..data.build import images_at
from ..data.views import seen
from ..training.loaders import sample
from .trained_nets import TrainedNet, data_of

MAX_SCORED = 5000  # validation images: beyond, the noise of the choice is below half a point


def scoring_images(home: Path, record: Record, console: Console) -> ScoringImages:
    """Images of the part of its data that a net was trained on, always the same, none of the test split."""
    try:
        data = seen(data_of(home, console), TrainedNet("", home, record).view)
    except InputError as error:
        raise InputError(f"export: int8 and half precision need the images of run {home.name}: {error}") from None
    train, val = sample(len(data.train), MAX_IMAGES).numpy(), sample(len(data.val), MAX_SCORED).numpy()
    return ScoringImages(images_at(data.train, train), images_at(data.val, val), data.val.y_N[val])
