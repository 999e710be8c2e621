"""`export_network`: a net as a folder, in the formats asked for, each checked before the folder is kept.

A folder always holds weights.safetensors, genotype.json, config.json and the card, README.md.
"""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...archs import InputError, Network, OperationError, static_cost
from ...archs.errors import check_choice, short_repr
from ...archs.weights import save
from ..runs.record import versions
from ..runs.store import write_json
from . import card
from . import onnx as onnx_format
from . import package as package_format
from . import pt2 as pt2_format
from . import timm as timm_format
from . import verify as check
from .subject import ExportNet

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
# What the exporters of torch raise where they cannot: there is no one base.
FAILURES = (RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError)
RANDOM_IMAGES = 4


@dataclass(frozen=True)
class Format:
    """One way to hand a net out: its file, what writes it (and says what is known of it), what it needs."""

    file: str
    write: Callable[[ExportNet, Path], dict[str, Any]]
    packages: tuple[str, ...] = ()


FORMATS = {
    "package": Format(package_format.FILE, package_format.write),
    "onnx": Format(onnx_format.FILE, onnx_format.write, ONNX_PACKAGES),
    "pt2": Format(pt2_format.FILE, pt2_format.write),
    "timm": Format(timm_format.FILE, timm_format.write),
}


def chosen(text: str) -> tuple[str, ...]:
    """The formats of a comma list, each once, in the order of `FORMATS`; timm brings the package, which it stands on.

    Raises:
        InputError: if one is unknown or needs a package that is not there.
    """
    asked = {check_choice("formats", name.strip(), FORMATS) for name in text.split(",")}
    asked |= {"package"} if "timm" in asked else set()
    for name in asked:
        missing = [package for package in FORMATS[name].packages if find_spec(package) is None]
        if missing:
            hint = 'pip install "alternas[export]"'
            raise InputError(f"formats: {name} needs {', '.join(missing)}, which {_is_not(missing)} installed: {hint}")
    return tuple(name for name in FORMATS if name in asked)


def must_be_free(out: Path) -> None:
    """Raise InputError if there is something at `out` that an export would mix with."""
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:  # no file can have that name
        raise InputError(f"out: {short_repr(str(out))} cannot be written ({error.strerror})") from None
    if taken:
        raise InputError(f"out: {out} exists and is not an empty folder")


def export_network(
    network: Network,
    out: Path,
    formats: Sequence[str] = ("package",),
    about: Mapping[str, Any] | None = None,
    images: np.ndarray | None = None,
) -> dict[str, Any]:
    """Export any net to the new folder `out`; return what config.json says, with how each format was checked.

    Args:
        network: left as it is.
        out: folder to create; it must not exist, or be empty.
        formats: of `FORMATS`; timm brings the package.
        about: what is known of the net (classes, mean, std, accuracy and so on), over what `described` makes up.
        images: to check on, (N, C, H, W) in the data's own values; None makes random ones.

    Raises:
        InputError: if a format is unknown, lacks a package, or `out` cannot be written.
        OperationError: if a format cannot be written, or does not give the net's outputs. Nothing is left then.
    """
    names = chosen(",".join(formats))
    must_be_free(out)
    subject = subject_of(network, about or {}, images)
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "draft_of_export"
        known = write(subject, draft, names)
        facts = finish(subject, draft, known, check.differences(draft, subject, names))
        _place(draft, out)
    return facts


def subject_of(network: Network, about: Mapping[str, Any], images: np.ndarray | None = None) -> ExportNet:
    """A copy of the net for export, with all that is known of it."""
    network = copy.deepcopy(network).cpu().float().eval()
    facts = described(network) | {"checked_on": "random images"} | dict(about)
    if images is None:
        shape = (RANDOM_IMAGES, network.in_chans, *network.image_size)
        images = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    images = np.concatenate([images, images])[: max(2, len(images))]  # one image twice: it is asked for two sizes
    return ExportNet(network, facts, torch.from_numpy(images))


def described(network: Network) -> dict[str, Any]:
    """What a net itself says, and the least that may be said of its data and training."""
    net, size = network.genotype, network.image_size
    cost = static_cost(net, network.num_classes, size, network.in_chans)
    fixed = any(stage.places and not stage.window for stage in net.stages)
    return {
        "name": f"{net.family}_{net.key}",
        "family": net.family,
        "key": net.key,
        "stages": len(net.stages),
        "accuracy": None,
        "macs": cost.macs,
        "params": cost.params,
        "data": None,
        "image_size": list(size),
        "fixed_size": fixed or (net.encoder is not None and net.encoder.position != "none"),
        "in_chans": network.in_chans,
        "classes": [str(i) for i in range(network.num_classes)],
        "mean": [0.0] * network.in_chans,
        "std": [1.0] * network.in_chans,
        "pictures": False,
        "exported_with": versions(),
    }


def write(subject: ExportNet, draft: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Fill the new folder `draft`; return what is known of each format.

    Raises:
        OperationError: naming the format that cannot be written.
    """
    draft.mkdir()
    save(subject.network, draft / "weights.safetensors")
    write_json(draft / "genotype.json", subject.network.genotype.to_dict())
    write_json(draft / "config.json", dict(subject.facts))  # files of the draft read it
    return {name: {"file": FORMATS[name].file} | _written(name, subject, draft) for name in names}


def _written(name: str, subject: ExportNet, draft: Path) -> dict[str, Any]:
    try:
        return FORMATS[name].write(subject, draft)
    except FAILURES as error:
        reason = re.sub(r"\x1b?\[\d+m", "", str(error)).strip().split("\n")[0]
        raise OperationError(f"export: {name}: {type(error).__name__}: {reason[:300]}") from error


def finish(
    subject: ExportNet, draft: Path, known: Mapping[str, Mapping[str, Any]], found: Mapping[str, float]
) -> dict[str, Any]:
    """Write config.json and the card, with the largest difference `found` of each format; return the facts."""
    checked = {
        "images": len(subject.images_BCHW),
        "batch_sizes": list(subject.batch_sizes),
        "tolerance": check.TOLERANCE,
    }
    formats = {name: {**known[name], "max_abs_difference": most} for name, most in found.items()}
    facts = dict(subject.facts) | {"checked": checked, "formats": formats, "max_abs_difference": max(found.values())}
    write_json(draft / "config.json", facts)
    (draft / "README.md").write_text(card.card(facts, package_format.layout(*_net(subject))))
    return facts


def _net(subject: ExportNet) -> tuple[Any, Any]:
    return subject.network.genotype, subject.network.image_size


def _place(draft: Path, out: Path) -> None:
    """Move the finished folder to where it was asked for, whole or not at all."""
    there = out.exists()
    try:
        shutil.copytree(draft, out, dirs_exist_ok=True)
    except OSError as error:
        for path in out.glob("*") if there else ():
            path.unlink()
        if not there:
            shutil.rmtree(out, ignore_errors=True)
        reason = error.strerror or str(error).split("\n")[0][:200]
        raise InputError(f"out: {out} cannot be written ({reason})") from None


def _is_not(things: Sequence[str]) -> str:
    return "is not" if len(things) == 1 else "are not"
