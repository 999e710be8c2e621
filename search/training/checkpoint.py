"""The checkpoint of a training: what it is of, and its state, so that a later job goes on where it stands."""

import logging
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ...archs import InputError
from ...archs.files import atomic_write, check_folder
from ..data.dataset import DataSet
from .job import TrainJob

log = logging.getLogger("alternas")


def load_state(job: TrainJob, data: DataSet, device: torch.device) -> dict[str, Any] | None:
    """The state in a job's checkpoint; None if the file is broken: see `read_checkpoint`.

    Raises InputError if it is of another training.
    """
    state = read_checkpoint(Path(job.checkpoint), device)
    if state is None:
        return None
    ours, theirs = identity(job, data), state["of"]
    other = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    if other:
        raise InputError(f"checkpoint {job.checkpoint}: is of a training with another {', '.join(other)}")
    return state


def save_state(job: TrainJob, data: DataSet, state: dict[str, Any]) -> None:
    """Leave a checkpoint, whole or not at all."""
    check_folder(job.checkpoint)
    whole = state | {"of": identity(job, data)}
    atomic_write(Path(job.checkpoint), lambda file: torch.save(whole, file))


def identity(job: TrainJob, data: DataSet) -> dict[str, Any]:
    """What a checkpoint must agree in to be continued from."""
    facts: dict[str, Any] = {"net": job.genotype.key, "seed": job.seed, "steps": job.total_steps}
    facts |= {"data": data.split_hash, "recipe": job.recipe.to_dict()}
    facts |= {"start": asdict(job.start) | {"weights": ""}} if job.start else {}
    facts |= {"task": job.task} if job.task != "classes" else {}
    return facts | ({"trainer": job.trainer.identity} if job.trainer else {})


def device_name(device: torch.device) -> str:
    """The name of a card, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The state in a checkpoint; None if it is cut short, changed or packed, or holds a pickle of more than tensors.

    It is put aside then, and training begins anew. torch does not look at the checksums that its files hold.
    """
    try:
        with zipfile.ZipFile(path) as whole:
            packed = any(info.compress_type != zipfile.ZIP_STORED for info in whole.infolist())
            bad = "packed, as torch writes none" if packed else whole.testzip()
        if bad is None:
            return torch.load(path, map_location=device, weights_only=True)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error, UnpicklingError) as error:
        bad = str(error)
    log.warning("checkpoint %s is broken (%s): kept as %s.broken, and training begins anew", path, bad, path.name)
    path.replace(path.with_name(f"{path.name}.broken"))
    return None
