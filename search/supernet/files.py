"""The file of a bank: safetensors with the axes of its tensors and what it was trained on. Nothing is unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes

from ...archs.blocks.axes import Axis
from ...archs.files import atomic_write
from ...results.runs.bank_progress import BANK_FORMAT, BANK_NAME, read_about
from .bank import Bank, NetInput


def save_bank(bank: Bank, path: Path, facts: dict[str, Any]) -> None:
    """Write a bank, whole or not at all. `facts` say what it was trained on: space, data, steps."""
    tensors = {role: bank.tensor(role).detach().cpu().contiguous() for role in bank.axes}
    axes = {role: [[list(axis.sizes), axis.centred] for axis in axes] for role, axes in bank.axes.items()}
    about = {"format": BANK_FORMAT, "inputs": list(bank.inputs), "seed": bank.seed, "axes": axes, "facts": facts}
    content = to_bytes(tensors, {BANK_NAME: json.dumps(about, sort_keys=True)})
    atomic_write(path, lambda file: file.write(content))


def load_bank(path: Path, device: torch.device) -> Bank:
    """The bank of a file; InputError if the file is no bank of this format."""
    about = read_about(path)
    with safe_open(path, "pt") as file:
        tensors = {role: file.get_tensor(role) for role in about["axes"]}
    classes, image_size, in_chans, dropout, drop_path = about["inputs"]
    bank = Bank(NetInput(classes, tuple(image_size), in_chans, dropout, drop_path), about["seed"])
    for role, axes in about["axes"].items():
        bank.put(role, tuple(Axis(tuple(sizes), centred) for sizes, centred in axes), tensors[role].to(device))
    return bank
