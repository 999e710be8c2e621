"""The file of a bank: safetensors with the axes of its tensors and what it was trained on. Nothing is unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from ...archs.blocks.axes import Axis
from ...archs.errors import InputError
from ...archs.files import atomic_write
from .bank import Bank, NetInput

NAME = "alternas-bank"  # of the one entry among a file's metadata
FORMAT = 1


def save_bank(bank: Bank, path: Path, facts: dict[str, Any]) -> None:
    """Write a bank, whole or not at all. `facts` say what it was trained on: space, data, steps."""
    tensors = {role: bank.tensor(role).detach().cpu().contiguous() for role in bank.axes}
    axes = {role: [[list(axis.sizes), axis.centred] for axis in axes] for role, axes in bank.axes.items()}
    about = {"format": FORMAT, "inputs": list(bank.inputs), "seed": bank.seed, "axes": axes, "facts": facts}
    content = to_bytes(tensors, {NAME: json.dumps(about, sort_keys=True)})
    atomic_write(path, lambda file: file.write(content))


def load_bank(path: Path, device: torch.device) -> Bank:
    """The bank of a file.

    Raises:
        InputError: if the file is no bank of this format.
    """
    about, tensors = _read(path)
    classes, image_size, in_chans, dropout, drop_path = about["inputs"]
    bank = Bank(NetInput(classes, tuple(image_size), in_chans, dropout, drop_path), about["seed"])
    for role, axes in about["axes"].items():
        bank.put(role, tuple(Axis(tuple(sizes), centred) for sizes, centred in axes), tensors[role].to(device))
    return bank


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get(NAME, "{}"))
            tensors = {role: file.get_tensor(role) for role in file.keys()}  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"supernet: {path} cannot be read ({str(error).splitlines()[0]})") from None
    if about.get("format") != FORMAT:
        raise InputError(f"supernet: {path} is no bank of format {FORMAT}, got {about.get('format')!r}")
    if about["axes"].keys() != tensors.keys():
        raise InputError(f"supernet: {path} holds other tensors than it describes")
    return about, tensors
